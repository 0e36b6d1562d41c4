//! The settings of a server, from flags, environment and file.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use kew_broker::ResidentLimit;
use kew_listen::{InvalidServerName, ServerName};

use crate::serve_args::ServeArgs;
use bus_listen::BusListen;
use issuer::IssuerSettings;
use issuers::IssuersLayer;
use observing::Observing;

// An explicit path, because a fuzz test compiles this file from elsewhere.
#[path = "settings/bus_listen.rs"]
pub(crate) mod bus_listen;
#[path = "issuer.rs"]
pub(crate) mod issuer;
#[path = "settings/issuers.rs"]
mod issuers;
#[path = "settings/layer.rs"]
mod layer;
#[path = "observing.rs"]
pub(crate) mod observing;
#[path = "settings/tls.rs"]
pub(crate) mod tls;

use layer::{Layer, Variable};
use tls::TlsSettings;

/// The default address of Queue Storage: the meaning of `UseDevelopmentStorage=true` in SDKs.
const QUEUE_LISTEN_DEFAULT: &str = "127.0.0.1:10001";

/// The longest time that the names of deleted queues can stay reserved.
const QUEUE_DELETION_DELAY_SECONDS_MAX: u64 = 3600;

/// How fast a scrub reads, in MiB a second.
const SCRUB_RATE_MIB_DEFAULT: u64 = 8;
const SCRUB_RATE_MIB_MAX: u64 = 10_000;

/// How much memory messages may take, in MiB.
const RESIDENT_MEMORY_MIB_MAX: u64 = 1 << 20;

/// The name of the administration socket in a data directory.
pub(crate) const ADMIN_SOCKET: &str = "admin.sock";

/// An invalid setting on the command line, in the environment or in the file.
#[derive(Debug)]
pub(crate) struct SettingsError(String);

impl SettingsError {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// An error for a variable, with its value and the reason.
    pub(crate) fn of_variable(name: &str, value: &str, why: &dyn std::fmt::Display) -> Self {
        Self(format!("{name} is {value:?}: {why}"))
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
    /// A configuration file of the emulator, whose queues are created at the start.
    pub(crate) import: Option<PathBuf>,
    pub(crate) tls: TlsSettings,
    pub(crate) observing: Observing,
    /// The issuers of accepted bearer tokens.
    pub(crate) issuers: Vec<IssuerSettings>,
    /// How long the name of a deleted queue stays reserved.
    pub(crate) queue_deletion_delay: Duration,
    /// How much a scrub reads; 0 for none.
    pub(crate) scrub_bytes_per_second: u64,
    /// How much memory records of messages may take.
    pub(crate) resident_limit: ResidentLimit,
    pub(crate) public_key: PublicKey,
    /// The names that clients use for the server, besides those that it knows by itself.
    pub(crate) server_names: Vec<ServerName>,
    /// The path of the administration socket, if there should be one.
    pub(crate) admin_socket: Option<PathBuf>,
}

/// Which clients may use the well-known account, whose key is public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PublicKey {
    /// No client.
    Nowhere,
    /// Every client of a listener that only this machine can reach.
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

impl Settings {
    /// Completes the command line's settings from the environment, the file and the defaults.
    pub(crate) fn from_args(args: ServeArgs) -> Result<Self, SettingsError> {
        Self::from_layers(args, &|name| std::env::var_os(name))
    }

    fn from_layers(args: ServeArgs, variable: Variable<'_>) -> Result<Self, SettingsError> {
        let config = args.config.clone();
        let flags = Layer::of_flags(args);
        let environment = Layer::of_environment(variable)?;
        let file = match config.or_else(|| variable("KEW_CONFIG").map(PathBuf::from)) {
            Some(path) => Layer::of_file(&path)?,
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
        let issuers = layers
            .iter_mut()
            .map(|layer| std::mem::take(&mut layer.issuer));
        let issuers = issuers
            .reduce(IssuersLayer::or)
            .unwrap_or_default()
            .complete()?;
        let queue_deletion_delay = deletion_delay(&layers)?;
        let scrub_bytes_per_second = scrub_rate(&layers)?;
        let resident_limit = resident_memory(&layers, &place)?;
        let public_key = public_key(&layers)?;
        let server_names = server_names(&layers)?;
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
                "queue_listen is an empty list: give at least one address".into(),
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
            issuers,
            queue_deletion_delay,
            scrub_bytes_per_second,
            resident_limit,
            public_key,
            server_names,
            admin_socket,
        })
    }
}

/// How long the names of deleted queues stay reserved, from the first place that sets it.
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

/// How many bytes a second a scrub reads, from the first place that sets it.
fn scrub_rate(layers: &[Layer]) -> Result<u64, SettingsError> {
    let mib = layers.iter().find_map(|layer| layer.scrub_rate);
    match mib.unwrap_or(SCRUB_RATE_MIB_DEFAULT) {
        mib @ ..=SCRUB_RATE_MIB_MAX => Ok(mib << 20),
        mib => Err(SettingsError(format!(
            "scrub rate {mib} MiB/s is above the maximum of {SCRUB_RATE_MIB_MAX} MiB/s"
        ))),
    }
}

/// How much memory records may take, from the first place that sets it.
fn resident_memory(layers: &[Layer], place: &Place) -> Result<ResidentLimit, SettingsError> {
    match layers.iter().find_map(|layer| layer.resident_memory) {
        // Pages would be in memory, too.
        None if *place == Place::Memory => Ok(ResidentLimit::None),
        None => Ok(ResidentLimit::ByBacklog),
        Some(0) => Ok(ResidentLimit::None),
        Some(_) if *place == Place::Memory => Err(SettingsError(
            "--resident-memory (KEW_RESIDENT_MEMORY, resident_memory) needs a data directory, and with --ephemeral \
             everything is in memory: set only one of them"
                .into(),
        )),
        Some(mib @ 1..=RESIDENT_MEMORY_MIB_MAX) => Ok(ResidentLimit::Bytes(mib << 20)),
        Some(mib) => Err(SettingsError(format!(
            "resident memory {mib} MiB is above the maximum of {RESIDENT_MEMORY_MIB_MAX} MiB"
        ))),
    }
}

/// The setting for the public key, from the first place that has one.
fn public_key(layers: &[Layer]) -> Result<PublicKey, SettingsError> {
    for layer in layers {
        match (layer.allow_public_key, layer.no_public_key) {
            (Some(true), Some(true)) => {
                return Err(SettingsError(
                    "--allow-public-key and --no-public-key contradict each other: set only one of them"
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

/// The names from the first place that has any.
fn server_names(layers: &[Layer]) -> Result<Vec<ServerName>, SettingsError> {
    let named = layers.iter().find_map(|layer| layer.server_name.as_ref());
    let names = named.into_iter().flatten().map(|name| name.parse());
    let names: Result<_, InvalidServerName> = names.collect();
    names.map_err(|error| SettingsError(format!("--server-name: {error}")))
}

/// Where to keep messages, from the first place that sets it.
fn place(layers: &[(&Layer, &str)]) -> Result<Place, SettingsError> {
    for (layer, name) in layers {
        match (&layer.data_dir, layer.ephemeral) {
            (Some(_), Some(true)) => {
                return Err(SettingsError(format!(
                    "{name} sets both a data directory (--data-dir) and --ephemeral: set only one of them"
                )));
            }
            (_, Some(true)) => return Ok(Place::Memory),
            (Some(path), _) => return Ok(Place::Directory(path.clone())),
            (None, _) => {}
        }
    }
    Ok(Place::Directory(data_dir_or_default(None)?))
}

/// The data directory: the chosen one, or the user's own.
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
        SettingsError("there is no home directory for the data directory: set --data-dir".into())
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

pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
#[path = "settings/tests.rs"]
mod tests;

#[cfg(test)]
#[path = "settings/page_tests.rs"]
mod page_tests;
