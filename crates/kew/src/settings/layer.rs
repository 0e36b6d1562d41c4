//! The places that settings come from: flags, the environment, a file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::SettingsError;
use super::issuers::IssuersLayer;
use crate::serve_args::ServeArgs;

/// Reads an environment variable.
pub(crate) type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The settings of one place: the command line, the environment or the file of `--config`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Layer {
    pub(super) data_dir: Option<PathBuf>,
    pub(super) ephemeral: Option<bool>,
    pub(super) queue_listen: Option<Vec<String>>,
    pub(super) bus_listen: Option<Vec<String>>,
    pub(super) import: Option<PathBuf>,
    pub(super) allow_public_key: Option<bool>,
    pub(super) tls_cert: Option<PathBuf>,
    pub(super) tls_key: Option<PathBuf>,
    pub(super) tls_only: Option<bool>,
    pub(super) allow_plain_http: Option<bool>,
    pub(super) metrics_listen: Option<Vec<String>>,
    pub(super) metrics_queues: Option<u64>,
    pub(super) log_format: Option<String>,
    pub(super) slow_request: Option<u64>,
    #[serde(default)]
    pub(super) issuer: IssuersLayer,
    /// In seconds.
    pub(super) queue_deletion_delay: Option<u64>,
    /// In MiB a second.
    pub(super) scrub_rate: Option<u64>,
    /// In MiB.
    pub(super) resident_memory: Option<u64>,
    pub(super) no_public_key: Option<bool>,
    pub(super) server_name: Option<Vec<String>>,
    pub(super) admin_socket: Option<PathBuf>,
}

impl Layer {
    pub(super) fn of_flags(args: ServeArgs) -> Self {
        Self {
            issuer: IssuersLayer::of_flags(&args),
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
            scrub_rate: args.scrub_rate,
            resident_memory: args.resident_memory,
            no_public_key: args.no_public_key.then_some(true),
            server_name: (!args.server_name.is_empty()).then_some(args.server_name),
            admin_socket: args.admin_socket,
        }
    }

    pub(super) fn of_environment(variable: Variable<'_>) -> Result<Self, SettingsError> {
        let switch = |name: &str| {
            let Some(value) = variable(name) else {
                return Ok(None);
            };
            match value.to_str() {
                Some("1" | "true" | "yes" | "on") => Ok(Some(true)),
                Some("" | "0" | "false" | "no" | "off") => Ok(Some(false)),
                _ => Err(SettingsError::new(format!(
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
                SettingsError::new(format!("{name} is {value:?}, and must be a whole number"))
            })
        };
        let listen = list("KEW_QUEUE_LISTEN", variable)?;
        let metrics_listen = list("KEW_METRICS_LISTEN", variable)?;
        Ok(Self {
            data_dir: variable("KEW_DATA_DIR").map(PathBuf::from),
            ephemeral: switch("KEW_EPHEMERAL")?,
            queue_listen: listen,
            bus_listen: list("KEW_BUS_LISTEN", variable)?,
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
            issuer: IssuersLayer::of_environment(variable, &switch)?,
            queue_deletion_delay: number("KEW_QUEUE_DELETION_DELAY")?,
            scrub_rate: number("KEW_SCRUB_RATE")?,
            resident_memory: number("KEW_RESIDENT_MEMORY")?,
            no_public_key: switch("KEW_NO_PUBLIC_KEY")?,
            server_name: list("KEW_SERVER_NAME", variable)?,
            admin_socket: variable("KEW_ADMIN_SOCKET").map(PathBuf::from),
        })
    }

    /// The settings of a file.
    pub(super) fn of_file(path: &Path) -> Result<Self, SettingsError> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            SettingsError::new(format!("cannot read {}: {error}", path.display()))
        })?;
        toml::from_str(&text).map_err(|error| {
            SettingsError::new(format!("{} is not valid: {error}", path.display()))
        })
    }
}

/// The text of a variable.
fn text(name: &str, variable: Variable<'_>) -> Result<Option<String>, SettingsError> {
    let text = variable(name).map(OsString::into_string).transpose();
    text.map_err(|value| SettingsError::new(format!("{name} is {value:?}, which is not text")))
}

/// The comma-separated list of a variable.
fn list(name: &str, variable: Variable<'_>) -> Result<Option<Vec<String>>, SettingsError> {
    let list = text(name, variable)?;
    Ok(list.map(|list| {
        let items = list.split(',');
        items.map(|item| item.trim().to_owned()).collect()
    }))
}
