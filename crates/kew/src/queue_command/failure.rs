//! Why a command failed, and how that is reported: one line or one JSON object on standard error,
//! and an exit code.

use std::io::{self, Write as _};

use kew_client::ConnectionStringError;
use serde::Serialize;

use super::client::ServiceError;
use super::output::printable;
use crate::operate::ServiceError as BusError;
use crate::safe_json;

/// The service refused, or the queue or message does not exist.
const EXIT_REFUSED: u8 = 1;
/// The command line cannot be meant.
const EXIT_USAGE: u8 = 2;
/// The service did not answer in time, or was too busy: the same may succeed later. Or the outcome is unknown.
const EXIT_UNREACHABLE: u8 = 3;

#[derive(Debug)]
pub(crate) enum Failure {
    /// Of a request to Queue Storage.
    Service(ServiceError),
    /// Of a namespace of Service Bus.
    Bus(Box<BusError>),
    /// Refused by the command itself, with the service's code if it has one.
    Refused {
        message: String,
        code: Option<&'static str>,
    },
    Usage(String),
    Output(io::Error),
    /// Something went wrong after part of the work was done.
    Partly {
        done: String,
        cause: Box<Self>,
    },
}

#[derive(Serialize)]
struct Report<'a> {
    error: ErrorReport<'a>,
}

#[derive(Serialize)]
struct ErrorReport<'a> {
    message: String,
    code: Option<&'a str>,
    status: Option<u16>,
    request_id: Option<&'a str>,
    exit_code: u8,
}

impl Failure {
    /// Prints the failure and returns the exit code. A closed output is not an error.
    pub(crate) fn tell(&self, json: bool) -> u8 {
        if self.is_broken_pipe() {
            return 0;
        }
        let mut err = io::stderr().lock();
        let line = if json {
            let report = Report {
                error: ErrorReport {
                    message: self.message(),
                    code: self.code(),
                    status: self.status(),
                    request_id: self.request_id(),
                    exit_code: self.exit_code(),
                },
            };
            safe_json::to_string(&report).unwrap_or_else(|error| error.to_string())
        } else {
            format!("kew: {}", printable(&self.message()))
        };
        // If standard error is closed too, there is no way to report it.
        let _ = writeln!(err, "{line}");
        self.exit_code()
    }

    fn is_broken_pipe(&self) -> bool {
        match self {
            Self::Output(error) => error.kind() == io::ErrorKind::BrokenPipe,
            Self::Partly { cause, .. } => cause.is_broken_pipe(),
            _ => false,
        }
    }

    pub(crate) fn message(&self) -> String {
        match self {
            Self::Service(error) => error.to_string(),
            Self::Bus(error) => error.to_string(),
            Self::Refused { message, .. } | Self::Usage(message) => message.clone(),
            Self::Output(error) => format!("cannot write the output: {error}"),
            Self::Partly { done, cause } => format!("{} ({done})", cause.message()),
        }
    }

    fn code(&self) -> Option<&str> {
        match self {
            Self::Service(error) => error.code(),
            Self::Bus(error) => error.code.as_deref(),
            Self::Refused { code, .. } => *code,
            Self::Usage(_) | Self::Output(_) => None,
            Self::Partly { cause, .. } => cause.code(),
        }
    }

    fn status(&self) -> Option<u16> {
        match self {
            Self::Service(error) => error.status(),
            Self::Bus(error) => error.status,
            Self::Partly { cause, .. } => cause.status(),
            Self::Refused { .. } | Self::Usage(_) | Self::Output(_) => None,
        }
    }

    fn request_id(&self) -> Option<&str> {
        match self {
            Self::Service(error) => error.request_id(),
            Self::Bus(error) => error.request_id.as_deref(),
            Self::Partly { cause, .. } => cause.request_id(),
            Self::Refused { .. } | Self::Usage(_) | Self::Output(_) => None,
        }
    }

    /// Whether the same may succeed later.
    pub(crate) fn is_temporary(&self) -> bool {
        self.exit_code() == EXIT_UNREACHABLE
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => EXIT_USAGE,
            Self::Service(error) if !error.is_refusal() => EXIT_UNREACHABLE,
            Self::Bus(error) if error.is_temporary => EXIT_UNREACHABLE,
            Self::Service(_) | Self::Bus(_) | Self::Refused { .. } | Self::Output(_) => {
                EXIT_REFUSED
            }
            Self::Partly { cause, .. } => cause.exit_code(),
        }
    }

    pub(crate) fn after(self, done: String) -> Self {
        Self::Partly {
            done,
            cause: Box::new(self),
        }
    }
}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        Self::Service(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<ConnectionStringError> for Failure {
    fn from(error: ConnectionStringError) -> Self {
        Self::Usage(error.to_string())
    }
}
