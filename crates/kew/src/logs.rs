//! Where logs go, and in which form.

use std::io::IsTerminal as _;

use anyhow::Result;
use tracing_subscriber::EnvFilter;

use crate::settings::SettingsError;
use crate::settings::observing::LogFormat;

/// Logs go to standard error; `KEW_LOG` filters them (for example `warn`, `kew_broker=debug` or
/// `info,kew::access=debug`). What the administration does is logged unless that says `audit=off`.
///
/// In either form a line is one event: whatever a client wrote is a string value, with its control
/// characters escaped.
pub(crate) fn init(format: LogFormat) -> Result<()> {
    let wanted = std::env::var("KEW_LOG").unwrap_or_else(|_| "info".into());
    let filter = EnvFilter::try_new(format!("audit=info,{wanted}"))
        .map_err(|error| SettingsError::of_variable("KEW_LOG", &wanted, &error))?;
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => logs
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal())
            .init(),
        LogFormat::Json => logs.json().flatten_event(true).with_ansi(false).init(),
    }
    Ok(())
}
