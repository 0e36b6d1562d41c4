//! The settings of a server, from flags, environment and file.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::cli::ServeArgs;

/// Where Queue Storage is served by default: what `UseDevelopmentStorage=true` means to SDKs.
const QUEUE_LISTEN_DEFAULT: &str = "127.0.0.1:10001";

/// What the command line, the environment or the file say that cannot be meant.
#[derive(Debug)]
pub(crate) struct SettingsError(String);

impl std::fmt::Display for SettingsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SettingsError {}

/// The settings of a server, complete and checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) place: Place,
    pub(crate) queue_listen: Vec<SocketAddr>,
}

/// Where messages are kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Memory,
    Directory(PathBuf),
}

/// The file named by `--config`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    data_dir: Option<PathBuf>,
    ephemeral: Option<bool>,
    queue_listen: Option<Vec<String>>,
    allow_public_key: Option<bool>,
}

impl Settings {
    /// Completes what flags and environment say from the file and the defaults.
    pub(crate) fn from_args(args: ServeArgs) -> Result<Self, SettingsError> {
        let file = match &args.config {
            Some(path) => read_file(path)?,
            None => File::default(),
        };
        let given_here = args.data_dir.is_some();
        if args.ephemeral && given_here {
            return Err(SettingsError(
                "--ephemeral keeps nothing, so it does not go with --data-dir".into(),
            ));
        }
        let ephemeral = args.ephemeral || (file.ephemeral.unwrap_or(false) && !given_here);
        let place = if ephemeral {
            Place::Memory
        } else {
            let chosen = args.data_dir.or(file.data_dir);
            Place::Directory(data_dir_or_default(chosen)?)
        };
        let listen = if args.queue_listen.is_empty() {
            file.queue_listen
                .unwrap_or_else(|| vec![QUEUE_LISTEN_DEFAULT.into()])
        } else {
            args.queue_listen
        };
        if listen.is_empty() {
            return Err(SettingsError(
                "queue_listen is an empty list: at least one address is needed".into(),
            ));
        }
        let allow_public_key = args.allow_public_key || file.allow_public_key.unwrap_or(false);
        let queue_listen = listen
            .iter()
            .map(|address| resolve(address, allow_public_key))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            place,
            queue_listen,
        })
    }
}

fn read_file(path: &Path) -> Result<File, SettingsError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| SettingsError(format!("cannot read {}: {error}", path.display())))?;
    toml::from_str(&text)
        .map_err(|error| SettingsError(format!("{} is not valid: {error}", path.display())))
}

/// The data directory to use: the chosen one, or the user's own.
pub(crate) fn data_dir_or_default(chosen: Option<PathBuf>) -> Result<PathBuf, SettingsError> {
    let in_home = || {
        let absolute = |name: &str| {
            let path = PathBuf::from(std::env::var_os(name)?);
            path.is_absolute().then_some(path)
        };
        absolute("XDG_DATA_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
            .map(|share| share.join("kew"))
    };
    chosen.or_else(in_home).ok_or_else(|| {
        SettingsError(
            "there is no home directory to keep messages in: name one with --data-dir".into(),
        )
    })
}

/// The address of a listener: an IP address or `localhost`, and a port.
fn resolve(address: &str, allow_public_key: bool) -> Result<SocketAddr, SettingsError> {
    let wrong = || {
        SettingsError(format!(
            "listen address {address:?} is not of the form ADDR:PORT, such as {QUEUE_LISTEN_DEFAULT} or [::1]:10001"
        ))
    };
    let resolved = match address.strip_prefix("localhost:") {
        Some(port) => {
            let port: u16 = port.parse().map_err(|_| wrong())?;
            ("127.0.0.1", port)
                .to_socket_addrs()
                .map_err(|_| wrong())?
                .next()
                .ok_or_else(wrong)?
        }
        None => address.parse().map_err(|_| wrong())?,
    };
    if !is_loopback(resolved.ip()) && !allow_public_key {
        return Err(SettingsError(format!(
            "listen address {address} can be reached from other machines, and the key of the account \
             devstoreaccount1 is public: use a loopback address, or allow it with --allow-public-key"
        )));
    }
    Ok(resolved)
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(addresses: &[&str]) -> ServeArgs {
        ServeArgs {
            data_dir: Some("d".into()),
            queue_listen: addresses.iter().map(ToString::to_string).collect(),
            ..ServeArgs::default()
        }
    }

    fn error(args: ServeArgs) -> String {
        Settings::from_args(args).unwrap_err().to_string()
    }

    #[test]
    fn the_default_is_what_development_storage_means() {
        let settings = Settings::from_args(listen(&[])).unwrap();
        assert_eq!(settings.queue_listen, ["127.0.0.1:10001".parse().unwrap()]);
        assert_eq!(settings.place, Place::Directory("d".into()));
    }

    #[test]
    fn other_machines_are_kept_out_unless_let_in() {
        for address in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[::ffff:192.0.2.1]:1"] {
            assert!(
                error(listen(&[address])).contains("--allow-public-key"),
                "{address}"
            );
            let mut args = listen(&[address]);
            args.allow_public_key = true;
            assert!(Settings::from_args(args).is_ok());
        }
        let loopback = [
            "127.0.0.2:1",
            "[::1]:1",
            "localhost:1",
            "[::ffff:127.0.0.1]:1",
        ];
        assert!(Settings::from_args(listen(&loopback)).is_ok());
    }

    #[test]
    fn a_wrong_address_is_named() {
        for address in ["10001", "localhost", "localhost:x", "127.0.0.1:70000", ""] {
            assert!(error(listen(&[address])).contains(&format!("{address:?}")));
        }
    }

    #[test]
    fn a_flag_comes_before_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kew.toml");
        std::fs::write(
            &path,
            "data_dir = \"f\"\nqueue_listen = [\"127.0.0.1:5\"]\n",
        )
        .unwrap();
        let with_file = |mut args: ServeArgs| {
            args.config = Some(path.clone());
            Settings::from_args(args).unwrap()
        };
        let settings = with_file(ServeArgs::default());
        assert_eq!(settings.place, Place::Directory("f".into()));
        assert_eq!(settings.queue_listen, ["127.0.0.1:5".parse().unwrap()]);
        let settings = with_file(listen(&["127.0.0.1:6"]));
        assert_eq!(settings.place, Place::Directory("d".into()));
        assert_eq!(settings.queue_listen, ["127.0.0.1:6".parse().unwrap()]);
        let settings = with_file(ServeArgs {
            ephemeral: true,
            ..ServeArgs::default()
        });
        assert_eq!(settings.place, Place::Memory);
    }

    #[test]
    fn an_unknown_setting_in_the_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kew.toml");
        std::fs::write(&path, "data_dri = \"f\"\n").unwrap();
        let args = ServeArgs {
            config: Some(path),
            ..ServeArgs::default()
        };
        assert!(error(args).contains("data_dri"));
    }

    #[test]
    fn keeping_nothing_does_not_go_with_a_directory() {
        let mut args = listen(&[]);
        args.ephemeral = true;
        assert!(error(args).contains("--data-dir"));
    }
}
