//! Why a command failed, and how that is reported: one line or one JSON object on standard error,
//! and an exit code.

use std::io::{self, Write as _};

use kew_client::ConnectionStringError;
use serde::Serialize;

use super::client::ServiceError;
use super::output::printable;
use crate::operate::Error;
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
    /// Of a request to the operator's interface or to Service Bus.
    Client(Error),
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
            Self::Client(error) => error.to_string(),
            Self::Refused { message, .. } | Self::Usage(message) => message.clone(),
            Self::Output(error) => format!("cannot write the output: {error}"),
            Self::Partly { done, cause } => format!("{} ({done})", cause.message()),
        }
    }

    fn code(&self) -> Option<&str> {
        match self {
            Self::Service(error) => error.code(),
            Self::Client(error) => error.code(),
            Self::Refused { code, .. } => *code,
            Self::Usage(_) | Self::Output(_) => None,
            Self::Partly { cause, .. } => cause.code(),
        }
    }

    fn status(&self) -> Option<u16> {
        match self {
            Self::Service(error) => error.status(),
            Self::Client(error) => error.refusal().map(|refusal| refusal.status),
            Self::Partly { cause, .. } => cause.status(),
            Self::Refused { .. } | Self::Usage(_) | Self::Output(_) => None,
        }
    }

    fn request_id(&self) -> Option<&str> {
        match self {
            Self::Service(error) => error.request_id(),
            Self::Client(error) => error.refusal()?.request_id.as_deref(),
            Self::Partly { cause, .. } => cause.request_id(),
            Self::Refused { .. } | Self::Usage(_) | Self::Output(_) => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Client(Error::Setup(_)) | Self::Usage(_) => EXIT_USAGE,
            Self::Client(error) if error.is_temporary() => EXIT_UNREACHABLE,
            Self::Service(error) if !error.is_refusal() => EXIT_UNREACHABLE,
            Self::Service(_) | Self::Client(_) | Self::Refused { .. } | Self::Output(_) => {
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

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
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
