//! The settings for operators: metrics and logs.

use std::net::SocketAddr;
use std::time::Duration;

use super::{Layer, SettingsError, parse_address};

/// How many queues have metrics of their own by default, and at most.
const METRICS_QUEUES_DEFAULT: u64 = 100;
const METRICS_QUEUES_MAX: u64 = 10_000;

/// The longest threshold for slow requests: an hour.
const SLOW_REQUEST_MS_MAX: u64 = 3_600_000;

/// Settings for metrics and logs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Observing {
    pub(crate) metrics_listen: Vec<SocketAddr>,
    pub(crate) metrics_queues: usize,
    pub(crate) log_format: LogFormat,
    pub(crate) slow_request: Option<Duration>,
}

/// The form of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl Observing {
    /// The settings of the first layer that has each of them.
    pub(super) fn of_layers(layers: &[Layer]) -> Result<Self, SettingsError> {
        let addresses = layers
            .iter()
            .find_map(|layer| layer.metrics_listen.as_ref());
        let addresses = addresses.into_iter().flatten();
        let metrics_listen = addresses
            .map(|address| parse_address(address))
            .collect::<Result<_, _>>()?;
        let queues = layers.iter().find_map(|layer| layer.metrics_queues);
        let queues = queues.unwrap_or(METRICS_QUEUES_DEFAULT);
        let metrics_queues = usize::try_from(queues)
            .ok()
            .filter(|_| queues <= METRICS_QUEUES_MAX)
            .ok_or_else(|| above("metrics_queues", queues, 0, METRICS_QUEUES_MAX))?;
        let format = layers.iter().find_map(|layer| layer.log_format.as_deref());
        let log_format = match format {
            None | Some("text") => LogFormat::Text,
            Some("json") => LogFormat::Json,
            Some(other) => {
                return Err(SettingsError(format!(
                    "log_format is {other:?}, and must be text or json"
                )));
            }
        };
        let slow_request = match layers.iter().find_map(|layer| layer.slow_request) {
            Some(ms @ 1..=SLOW_REQUEST_MS_MAX) => Some(Duration::from_millis(ms)),
            Some(ms) => return Err(above("slow_request", ms, 1, SLOW_REQUEST_MS_MAX)),
            None => None,
        };
        Ok(Self {
            metrics_listen,
            metrics_queues,
            log_format,
            slow_request,
        })
    }
}

fn above(name: &str, value: u64, least: u64, most: u64) -> SettingsError {
    SettingsError(format!(
        "{name} is {value}, and must be from {least} to {most}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer() -> Layer {
        Layer::default()
    }

    fn error(layer: Layer) -> String {
        Observing::of_layers(&[layer]).unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_are_text_and_no_listener() {
        let expected = Observing {
            metrics_listen: Vec::new(),
            metrics_queues: 100,
            log_format: LogFormat::Text,
            slow_request: None,
        };
        assert_eq!(Observing::of_layers(&[layer(), layer()]).unwrap(), expected);
    }

    #[test]
    fn the_first_layer_with_a_value_counts() {
        let first = Layer {
            metrics_listen: Some(vec!["0.0.0.0:9464".into(), "localhost:1".into()]),
            slow_request: Some(250),
            ..layer()
        };
        let second = Layer {
            metrics_listen: Some(vec!["[::1]:1".into()]),
            log_format: Some("json".into()),
            metrics_queues: Some(0),
            ..layer()
        };
        let expected = Observing {
            metrics_listen: vec![
                "0.0.0.0:9464".parse().unwrap(),
                "127.0.0.1:1".parse().unwrap(),
            ],
            metrics_queues: 0,
            log_format: LogFormat::Json,
            slow_request: Some(Duration::from_millis(250)),
        };
        assert_eq!(Observing::of_layers(&[first, second]).unwrap(), expected);
    }

    #[test]
    fn invalid_values_are_named() {
        let queues = Some(10_001);
        let wrong = [
            (
                Layer {
                    metrics_queues: queues,
                    ..layer()
                },
                "metrics_queues is 10001",
            ),
            (
                Layer {
                    slow_request: Some(0),
                    ..layer()
                },
                "slow_request is 0",
            ),
            (
                Layer {
                    slow_request: Some(3_600_001),
                    ..layer()
                },
                "from 1 to 3600000",
            ),
            (
                Layer {
                    log_format: Some("xml".into()),
                    ..layer()
                },
                "log_format is \"xml\"",
            ),
            (
                Layer {
                    metrics_listen: Some(vec!["x".into()]),
                    ..layer()
                },
                "\"x\"",
            ),
        ];
        for (layer, expected) in wrong {
            let error = error(layer);
            assert!(error.contains(expected), "{error}");
        }
    }
}
