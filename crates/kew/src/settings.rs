//! The settings of a server, from flags, environment and file.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::cli::ServeArgs;
use bus_listen::BusListen;
use issuer::{IssuerLayer, IssuerSettings};
use observing::Observing;

#[path = "settings/bus_listen.rs"]
pub(crate) mod bus_listen;
#[path = "issuer.rs"]
pub(crate) mod issuer;
#[path = "observing.rs"]
pub(crate) mod observing;

// Named, because a fuzz test compiles this file from elsewhere.
#[path = "settings/tls.rs"]
pub(crate) mod tls;

use tls::TlsSettings;

/// Where Queue Storage is served by default: what `UseDevelopmentStorage=true` means to SDKs.
const QUEUE_LISTEN_DEFAULT: &str = "127.0.0.1:10001";

/// The longest that the names of deleted queues can be held.
const QUEUE_DELETION_DELAY_SECONDS_MAX: u64 = 3600;
/// The name of the socket for administration in a data directory.
pub(crate) const ADMIN_SOCKET: &str = "admin.sock";

/// What the command line, the environment or the file say that cannot be meant.
#[derive(Debug)]
pub(crate) struct SettingsError(String);

impl SettingsError {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// A variable whose value cannot be meant.
    pub(crate) fn of_variable(name: &str, value: &str, why: &dyn std::fmt::Display) -> Self {
        Self(format!("{name} is {value:?}, which cannot be meant: {why}"))
    }
}

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
    pub(crate) bus_listen: BusListen,
    /// A configuration file of the emulator, whose queues are to be there.
    pub(crate) import: Option<PathBuf>,
    pub(crate) tls: TlsSettings,
    pub(crate) observing: Observing,
    pub(crate) issuer: Option<IssuerSettings>,
    /// How long the name of a deleted queue cannot be taken.
    pub(crate) queue_deletion_delay: Duration,
    pub(crate) public_key: PublicKey,
    /// Where to open the socket for administration, if it is to be anywhere.
    pub(crate) admin_socket: Option<PathBuf>,
}

/// Who may use the well-known account, whose key is public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PublicKey {
    /// Nobody.
    Nowhere,
    /// Whoever comes to a listener that only this machine can reach.
    OnLoopback,
    /// Everybody.
    Everywhere,
}

impl PublicKey {
    /// Whether a listener at this address serves the account.
    pub(crate) fn is_served_at(self, address: SocketAddr) -> bool {
        match self {
            Self::Nowhere => false,
            Self::OnLoopback => is_loopback(address.ip()),
            Self::Everywhere => true,
        }
    }
}

/// Where messages are kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Memory,
    Directory(PathBuf),
}

/// What one place says: the command line, the environment or the file named by `--config`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Layer {
    data_dir: Option<PathBuf>,
    ephemeral: Option<bool>,
    queue_listen: Option<Vec<String>>,
    bus_listen: Option<Vec<String>>,
    import: Option<PathBuf>,
    allow_public_key: Option<bool>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    tls_only: Option<bool>,
    allow_plain_http: Option<bool>,
    metrics_listen: Option<Vec<String>>,
    metrics_queues: Option<u64>,
    log_format: Option<String>,
    slow_request: Option<u64>,
    #[serde(default)]
    issuer: IssuerLayer,
    /// In seconds.
    queue_deletion_delay: Option<u64>,
    no_public_key: Option<bool>,
    admin_socket: Option<PathBuf>,
}

/// Reads an environment variable.
pub(crate) type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

impl Settings {
    /// Completes what the command line says from the environment, the file and the defaults.
    pub(crate) fn from_args(args: ServeArgs) -> Result<Self, SettingsError> {
        Self::from_layers(args, &|name| std::env::var_os(name))
    }

    fn from_layers(args: ServeArgs, variable: Variable<'_>) -> Result<Self, SettingsError> {
        let config = args.config.clone();
        let flags = Layer::of_flags(args);
        let environment = Layer::of_environment(variable)?;
        let file = match config.or_else(|| variable("KEW_CONFIG").map(PathBuf::from)) {
            Some(path) => read_file(&path)?,
            None => Layer::default(),
        };
        let layers = [
            (&flags, "the command line"),
            (&environment, "the environment"),
            (&file, "the configuration file"),
        ];
        let place = place(&layers)?;
        let tls = tls::complete(&layers, &place)?;
        let mut layers = [flags, environment, file];
        let observing = Observing::of_layers(&layers)?;
        let issuer = layers
            .iter_mut()
            .map(|layer| std::mem::take(&mut layer.issuer))
            .reduce(IssuerLayer::or)
            .unwrap_or_default()
            .complete()?;
        let queue_deletion_delay = deletion_delay(&layers)?;
        let public_key = public_key(&layers)?;
        let admin_socket = layers.iter().find_map(|layer| layer.admin_socket.clone());
        let admin_socket = admin_socket.or_else(|| match &place {
            Place::Memory => None,
            Place::Directory(path) => Some(path.join(ADMIN_SOCKET)),
        });
        let bus_listen = BusListen::of_layers(&layers, tls.files.is_some())?;
        tls.refuse_plain_beyond_loopback(&bus_listen.addresses)?;
        let import = layers.iter().find_map(|layer| layer.import.clone());
        let listen = layers
            .into_iter()
            .find_map(|layer| layer.queue_listen)
            .unwrap_or_else(|| vec![QUEUE_LISTEN_DEFAULT.into()]);
        if listen.is_empty() {
            return Err(SettingsError(
                "queue_listen is an empty list: at least one address is needed".into(),
            ));
        }
        let queue_listen = listen
            .iter()
            .map(String::as_str)
            .map(parse_address)
            .collect::<Result<Vec<_>, _>>()?;
        tls.refuse_plain_beyond_loopback(&queue_listen)?;
        Ok(Self {
            place,
            queue_listen,
            bus_listen,
            import,
            tls,
            observing,
            issuer,
            queue_deletion_delay,
            public_key,
            admin_socket,
        })
    }
}

impl Layer {
    fn of_flags(args: ServeArgs) -> Self {
        Self {
            issuer: IssuerLayer::of_flags(&args),
            data_dir: args.data_dir,
            ephemeral: args.ephemeral.then_some(true),
            queue_listen: (!args.queue_listen.is_empty()).then_some(args.queue_listen),
            bus_listen: (!args.bus_listen.is_empty()).then_some(args.bus_listen),
            import: args.import,
            allow_public_key: args.allow_public_key.then_some(true),
            tls_cert: args.tls_cert,
            tls_key: args.tls_key,
            tls_only: args.tls_only.then_some(true),
            allow_plain_http: args.allow_plain_http.then_some(true),
            metrics_listen: (!args.metrics_listen.is_empty()).then_some(args.metrics_listen),
            metrics_queues: args.metrics_queues,
            log_format: args.log_format,
            slow_request: args.slow_request,
            queue_deletion_delay: args.queue_deletion_delay,
            no_public_key: args.no_public_key.then_some(true),
            admin_socket: args.admin_socket,
        }
    }

    fn of_environment(variable: Variable<'_>) -> Result<Self, SettingsError> {
        let switch = |name: &str| {
            let Some(value) = variable(name) else {
                return Ok(None);
            };
            match value.to_str() {
                Some("1" | "true" | "yes" | "on") => Ok(Some(true)),
                Some("" | "0" | "false" | "no" | "off") => Ok(Some(false)),
                _ => Err(SettingsError(format!(
                    "{name} is {value:?}, and must be true or false"
                ))),
            }
        };
        let number = |name: &str| {
            let Some(value) = variable(name) else {
                return Ok(None);
            };
            let number = value.to_str().and_then(|value| value.parse().ok());
            number.map(Some).ok_or_else(|| {
                SettingsError(format!("{name} is {value:?}, and must be a whole number"))
            })
        };
        let listen = addresses("KEW_QUEUE_LISTEN", variable)?;
        let metrics_listen = addresses("KEW_METRICS_LISTEN", variable)?;
        Ok(Self {
            data_dir: variable("KEW_DATA_DIR").map(PathBuf::from),
            ephemeral: switch("KEW_EPHEMERAL")?,
            queue_listen: listen,
            bus_listen: addresses("KEW_BUS_LISTEN", variable)?,
            import: variable("KEW_IMPORT").map(PathBuf::from),
            allow_public_key: switch("KEW_ALLOW_PUBLIC_KEY")?,
            tls_cert: variable("KEW_TLS_CERT").map(PathBuf::from),
            tls_key: variable("KEW_TLS_KEY").map(PathBuf::from),
            tls_only: switch("KEW_TLS_ONLY")?,
            allow_plain_http: switch("KEW_ALLOW_PLAIN_HTTP")?,
            metrics_listen,
            metrics_queues: number("KEW_METRICS_QUEUES")?,
            log_format: text("KEW_LOG_FORMAT", variable)?,
            slow_request: number("KEW_SLOW_REQUEST")?,
            issuer: IssuerLayer::of_environment(variable, &switch)?,
            queue_deletion_delay: number("KEW_QUEUE_DELETION_DELAY")?,
            no_public_key: switch("KEW_NO_PUBLIC_KEY")?,
            admin_socket: variable("KEW_ADMIN_SOCKET").map(PathBuf::from),
        })
    }
}

/// The text of a variable.
fn text(name: &str, variable: Variable<'_>) -> Result<Option<String>, SettingsError> {
    let text = variable(name).map(OsString::into_string).transpose();
    text.map_err(|value| SettingsError(format!("{name} is {value:?}, which is not text")))
}

/// The addresses in a variable, separated by commas.
fn addresses(name: &str, variable: Variable<'_>) -> Result<Option<Vec<String>>, SettingsError> {
    let list = text(name, variable)?;
    Ok(list.map(|list| {
        let addresses = list.split(',');
        addresses.map(|address| address.trim().to_owned()).collect()
    }))
}

/// How long the names of deleted queues are held, as the first place says that says anything.
fn deletion_delay(layers: &[Layer]) -> Result<Duration, SettingsError> {
    let seconds = layers.iter().find_map(|layer| layer.queue_deletion_delay);
    match seconds.unwrap_or(0) {
        seconds @ ..=QUEUE_DELETION_DELAY_SECONDS_MAX => Ok(Duration::from_secs(seconds)),
        seconds => Err(SettingsError(format!(
            "queue deletion delay {seconds} s is above the maximum of \
             {QUEUE_DELETION_DELAY_SECONDS_MAX} s"
        ))),
    }
}

/// What the first place that says anything about it wants of the public key.
fn public_key(layers: &[Layer]) -> Result<PublicKey, SettingsError> {
    for layer in layers {
        match (layer.allow_public_key, layer.no_public_key) {
            (Some(true), Some(true)) => {
                return Err(SettingsError(
                    "the public key is to be allowed everywhere (--allow-public-key) and nowhere \
                     (--no-public-key): only one of them can be meant"
                        .into(),
                ));
            }
            (Some(true), _) => return Ok(PublicKey::Everywhere),
            (_, Some(true)) => return Ok(PublicKey::Nowhere),
            (Some(false), _) | (_, Some(false)) => return Ok(PublicKey::OnLoopback),
            (None, None) => {}
        }
    }
    Ok(PublicKey::OnLoopback)
}

/// Where the first place that says anything about it wants the messages.
fn place(layers: &[(&Layer, &str)]) -> Result<Place, SettingsError> {
    for (layer, name) in layers {
        match (&layer.data_dir, layer.ephemeral) {
            (Some(_), Some(true)) => {
                return Err(SettingsError(format!(
                    "{name} asks for a data directory (--data-dir) and to keep nothing \
                     (--ephemeral): only one of them can be meant"
                )));
            }
            (_, Some(true)) => return Ok(Place::Memory),
            (Some(path), _) => return Ok(Place::Directory(path.clone())),
            (None, _) => {}
        }
    }
    Ok(Place::Directory(data_dir_or_default(None)?))
}

fn read_file(path: &Path) -> Result<Layer, SettingsError> {
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
pub(super) fn parse_address(address: &str) -> Result<SocketAddr, SettingsError> {
    let wrong = || {
        SettingsError(format!(
            "listen address {address:?} is not of the form ADDR:PORT, such as {QUEUE_LISTEN_DEFAULT} or [::1]:10001"
        ))
    };
    match address.strip_prefix("localhost:") {
        Some(port) => {
            let port: u16 = port.parse().map_err(|_| wrong())?;
            Ok(SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, port)))
        }
        None => address.parse().map_err(|_| wrong()),
    }
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

    fn with(args: ServeArgs, variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        Settings::from_layers(args, &|name| {
            let mut variables = variables.iter();
            let (_, value) = variables.find(|(other, _)| *other == name)?;
            Some(OsString::from(value))
        })
    }

    fn error(args: ServeArgs, variables: &[(&str, &str)]) -> String {
        with(args, variables).unwrap_err().to_string()
    }

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kew.toml");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    #[test]
    fn the_default_is_what_development_storage_means() {
        let settings = with(listen(&[]), &[]).unwrap();
        assert_eq!(settings.queue_listen, ["127.0.0.1:10001".parse().unwrap()]);
        assert_eq!(settings.place, Place::Directory("d".into()));
    }

    #[test]
    fn the_public_key_is_kept_from_other_machines_unless_it_is_let_out() {
        let served = |args: ServeArgs, variables: &[(&str, &str)]| {
            let settings = with(args, variables).unwrap();
            let mut addresses = settings.queue_listen.iter();
            addresses.all(|address| settings.public_key.is_served_at(*address))
        };
        let nowhere = [("KEW_NO_PUBLIC_KEY", "true")];
        for address in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[::ffff:192.0.2.1]:1"] {
            let plain = [("KEW_ALLOW_PLAIN_HTTP", "true")];
            assert!(!served(listen(&[address]), &plain), "{address}");
            let mut args = listen(&[address]);
            args.allow_public_key = true;
            args.allow_plain_http = true;
            assert!(served(args, &nowhere));
            let allowed = [
                ("KEW_ALLOW_PUBLIC_KEY", "true"),
                ("KEW_ALLOW_PLAIN_HTTP", "true"),
            ];
            assert!(served(listen(&[address]), &allowed));
        }
        let loopback = [
            "127.0.0.2:1",
            "[::1]:1",
            "localhost:1",
            "[::ffff:127.0.0.1]:1",
        ];
        assert!(served(listen(&loopback), &[]));
        assert!(!served(listen(&loopback), &nowhere));
        let both = [
            ("KEW_NO_PUBLIC_KEY", "true"),
            ("KEW_ALLOW_PUBLIC_KEY", "true"),
        ];
        assert!(error(listen(&[]), &both).contains("--no-public-key"));
    }

    #[test]
    fn service_bus_is_served_where_it_is_asked_for() {
        let bus = |address: &str| ServeArgs {
            bus_listen: vec![address.into()],
            ..listen(&[])
        };
        let settings = with(bus("localhost:5672"), &[]).unwrap();
        let named = ["127.0.0.1:5672".parse().unwrap()];
        assert_eq!(settings.bus_listen.addresses, named);
        let variables = [
            ("KEW_BUS_LISTEN", "127.0.0.1:1, [::1]:2"),
            ("KEW_IMPORT", "c.json"),
        ];
        let settings = with(listen(&[]), &variables).unwrap();
        assert_eq!(settings.bus_listen.addresses.len(), 2);
        assert_eq!(settings.import, Some("c.json".into()));
        assert!(error(bus("0.0.0.0:1"), &[]).contains("--allow-plain-http"));
        let nowhere = [("KEW_NO_PUBLIC_KEY", "true")];
        assert!(with(bus("127.0.0.1:1"), &nowhere).is_ok());
        let plain = [("KEW_ALLOW_PLAIN_HTTP", "true")];
        let settings = with(bus("0.0.0.0:1"), &plain).unwrap();
        let address = settings.bus_listen.addresses[0];
        assert!(!settings.public_key.is_served_at(address));
        assert!(error(bus("x"), &[]).contains("\"x\""));
    }

    #[test]
    fn the_socket_is_in_the_data_directory_unless_it_is_put_elsewhere() {
        let settings = with(listen(&[]), &[]).unwrap();
        assert_eq!(settings.admin_socket, Some("d/admin.sock".into()));
        let ephemeral = || ServeArgs {
            ephemeral: true,
            ..ServeArgs::default()
        };
        assert_eq!(with(ephemeral(), &[]).unwrap().admin_socket, None);
        let elsewhere = [("KEW_ADMIN_SOCKET", "s")];
        let settings = with(ephemeral(), &elsewhere).unwrap();
        assert_eq!(settings.admin_socket, Some("s".into()));
    }

    #[test]
    fn the_names_of_deleted_queues_are_held_if_asked() {
        let (_dir, path) = file("queue_deletion_delay = 30\n");
        let with_flag = |seconds| ServeArgs {
            config: Some(path.clone()),
            queue_deletion_delay: seconds,
            ..listen(&[])
        };
        let held = |args, variables: &[(&str, &str)]| {
            with(args, variables)
                .unwrap()
                .queue_deletion_delay
                .as_secs()
        };
        let variables = [("KEW_QUEUE_DELETION_DELAY", "40")];
        assert_eq!(held(listen(&[]), &[]), 0);
        assert_eq!(held(with_flag(None), &[]), 30);
        assert_eq!(held(with_flag(None), &variables), 40);
        assert_eq!(held(with_flag(Some(3600)), &variables), 3600);
        assert!(error(with_flag(Some(3601)), &[]).contains("maximum of 3600 s"));
        let wrong = [("KEW_QUEUE_DELETION_DELAY", "soon")];
        assert!(error(listen(&[]), &wrong).contains("\"soon\""));
    }

    #[test]
    fn a_wrong_address_is_named() {
        for address in ["10001", "localhost", "localhost:x", "127.0.0.1:70000", ""] {
            assert!(error(listen(&[address]), &[]).contains(&format!("{address:?}")));
        }
    }

    #[test]
    fn a_flag_comes_before_the_environment_and_that_before_the_file() {
        let (_dir, path) = file("data_dir = \"f\"\nqueue_listen = [\"127.0.0.1:5\"]\n");
        let check = |mut args: ServeArgs, variables: &[(&str, &str)], place, port: u16| {
            args.config = Some(path.clone());
            let settings = with(args, variables).unwrap();
            assert_eq!(settings.place, place);
            let address: SocketAddr = ([127, 0, 0, 1], port).into();
            assert_eq!(settings.queue_listen, [address]);
        };
        let directory = |name: &str| Place::Directory(name.into());
        let variables = [("KEW_DATA_DIR", "e"), ("KEW_QUEUE_LISTEN", "127.0.0.1:6")];
        check(ServeArgs::default(), &[], directory("f"), 5);
        check(ServeArgs::default(), &variables, directory("e"), 6);
        check(listen(&["127.0.0.1:7"]), &variables, directory("d"), 7);
        let ephemeral = || ServeArgs {
            ephemeral: true,
            ..ServeArgs::default()
        };
        check(ephemeral(), &variables, Place::Memory, 6);
        check(
            ServeArgs::default(),
            &[("KEW_EPHEMERAL", "1")],
            Place::Memory,
            5,
        );
        check(listen(&[]), &[("KEW_EPHEMERAL", "1")], directory("d"), 5);
    }

    #[test]
    fn the_environment_names_several_addresses_and_the_file() {
        let (_dir, path) = file("ephemeral = true\n");
        let variables = [
            ("KEW_QUEUE_LISTEN", "127.0.0.1:6, [::1]:7"),
            ("KEW_CONFIG", path.to_str().unwrap()),
        ];
        let settings = with(ServeArgs::default(), &variables).unwrap();
        assert_eq!(settings.queue_listen.len(), 2);
        assert_eq!(settings.place, Place::Memory);
    }

    #[test]
    fn an_unknown_setting_in_the_file_is_named() {
        let (_dir, path) = file("data_dri = \"f\"\n");
        let args = ServeArgs {
            config: Some(path),
            ..ServeArgs::default()
        };
        assert!(error(args, &[]).contains("data_dri"));
    }

    #[test]
    fn keeping_nothing_does_not_go_with_a_directory_in_one_place() {
        let mut args = listen(&[]);
        args.ephemeral = true;
        assert!(error(args, &[]).contains("the command line"));
        let variables = [("KEW_EPHEMERAL", "true"), ("KEW_DATA_DIR", "e")];
        assert!(error(ServeArgs::default(), &variables).contains("the environment"));
        let (_dir, path) = file("ephemeral = true\ndata_dir = \"f\"\n");
        let args = ServeArgs {
            config: Some(path),
            ..ServeArgs::default()
        };
        assert!(error(args, &[]).contains("the configuration file"));
    }

    #[test]
    fn a_switch_is_on_or_off() {
        let on = [("KEW_EPHEMERAL", "maybe")];
        assert!(error(ServeArgs::default(), &on).contains("\"maybe\""));
    }
}
