//! Where logs go, and in which form.

use std::env::VarError;
use std::io::IsTerminal as _;

use anyhow::Result;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::settings::SettingsError;
use crate::settings::observing::LogFormat;

/// The variable with the log filter.
const VARIABLE: &str = "KEW_LOG";
/// The default filter.
const FILTER_DEFAULT: &str = "info";

/// Logs go to standard error; `KEW_LOG` filters them (for example `warn`, `kew_broker=debug` or
/// `info,kew::access=debug`). Acts of administration are always logged, unless the filter has
/// `audit=off`.
///
/// In either form one line is one event: text from clients is a string value, with its control
/// characters escaped.
pub(crate) fn init(format: LogFormat) -> Result<()> {
    let wanted = match std::env::var(VARIABLE) {
        Ok(wanted) => wanted,
        Err(VarError::NotPresent) => FILTER_DEFAULT.into(),
        Err(VarError::NotUnicode(value)) => {
            let value = value.to_string_lossy();
            return Err(SettingsError::of_variable(VARIABLE, &value, &"it is not UTF-8").into());
        }
    };
    let filter = filter(&wanted)?;
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

/// The requested filter, with the records of the administration added.
///
/// A single word must be a level. The filter library would take any other word for a target, and
/// log everything of it: `warnn` would silently turn off the rest of the log.
fn filter(wanted: &str) -> Result<EnvFilter, SettingsError> {
    let wrong = |why: &dyn std::fmt::Display| SettingsError::of_variable(VARIABLE, wanted, why);
    let mut parts = wanted.split(',').filter(|part| !part.is_empty());
    if let Some(part) = parts.find(|part| !is_part(part)) {
        return Err(wrong(&format!("{part:?} is not a level, {HINT}")));
    }
    EnvFilter::try_new(format!("audit=info,{wanted}"))
        .map_err(|error| wrong(&format!("{error}, {HINT}")))
}

/// The syntax of a filter.
const HINT: &str = "use off, error, warn, info, debug or trace, and TARGET=LEVEL for parts, as in \
                    info,kew::access=debug";

/// Whether a part of a filter can be one.
fn is_part(part: &str) -> bool {
    // Brackets select spans. The filter library checks those.
    if part.contains(['[', ']', '{', '}']) {
        return true;
    }
    let (target, level) = part.split_once('=').unwrap_or(("", part));
    !target.contains(char::is_whitespace) && level.parse::<LevelFilter>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_made_of_levels_and_targets_with_levels() {
        for right in [
            "warn",
            "INFO",
            "off",
            "info,kew::access=debug",
            "info,kew_broker=trace",
            "audit=off",
            "info,[request]=trace",
            "",
        ] {
            assert!(filter(right).is_ok(), "{right}");
        }
        for (wrong, named) in [
            ("warnn", "\"warnn\" is not a level"),
            ("info,kew_broker", "\"kew_broker\" is not a level"),
            ("kew_broker=debugg", "KEW_LOG is \"kew_broker=debugg\""),
            ("info kew=debug", "\"info kew=debug\" is not a level"),
            ("info, warn", "\" warn\" is not a level"),
        ] {
            let error = filter(wrong).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
