//! Kew's own interface, at `/$kew/v1`: what the public protocols cannot do (`docs/operator-api.md`).
//!
//! Other namespaces do not have it. A command that needs it says so there; others ask it first, because it knows more,
//! and go on with the public protocols.

use bytes::{Bytes, BytesMut};
use kew_amqp::message::write_batch;
use kew_client::{BusAdmin, RawAnswer};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use super::doors::Doors;
use super::failing::ServiceError;
use crate::queue_command::{Failure, note};

/// Characters that are not encoded in the paths of entities.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/')
    .remove(b'$');

/// The code of the refusal that a namespace is not Kew.
const NOT_KEW: &str = "NotKew";

/// The interface of a server that may be Kew.
pub(super) struct Own<'a> {
    doors: &'a Doors,
    admin: &'a BusAdmin,
    /// Tries nothing again.
    admin_once: &'a BusAdmin,
}

/// An error in the form of this interface.
#[derive(Deserialize)]
struct Report {
    error: ErrorReport,
}

#[derive(Deserialize)]
struct ErrorReport {
    code: String,
    message: String,
}

/// An answer that is not a result.
enum Other {
    Refused(ServiceError),
    NotKew,
}

/// Who may use the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// This client.
    Open,
    /// Other clients: its rule has no Manage of the namespace.
    Closed,
    /// Nobody: the namespace is not Kew.
    NotKew,
}

impl<'a> Own<'a> {
    pub(super) fn new(doors: &'a Doors, admin: &'a BusAdmin, admin_once: &'a BusAdmin) -> Self {
        Self {
            doors,
            admin,
            admin_once,
        }
    }

    /// Reads something. Tries again if the server is busy or cannot be reached.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.call("GET", path, None)
    }

    /// Sends one request.
    pub(super) fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Failure> {
        let answer = self.doors.over_http(ask(self.admin, method, path, body))?;
        read(&answer).map_err(|other| match other {
            Other::Refused(error) => Failure::Bus(Box::new(error)),
            Other::NotKew => self.not_kew(),
        })
    }

    /// Puts encoded messages into a queue, topic or subscription, all or none.
    pub(super) fn deposit(&self, entity: &str, messages: &[Bytes]) -> Result<(), Failure> {
        let mut batch = BytesMut::new();
        write_batch(&mut batch, messages);
        let path = format!("$kew/v1/deposit/{}", in_path(entity));
        let body = Some(("application/octet-stream", batch.freeze()));
        let asked = self.admin.ask_with("POST", &path, body);
        let answer = self.doors.over_http(asked)?;
        match read::<IgnoredAny>(&answer) {
            Ok(_) => Ok(()),
            Err(Other::Refused(error)) => Err(Failure::Bus(Box::new(error))),
            Err(Other::NotKew) => Err(self.not_kew()),
        }
    }

    /// Whether this is Kew, and whether its rule may use this interface. To find no answer is an error: a command that
    /// changes something does not go on in another way because a server is busy.
    pub(super) fn access(&self) -> Result<Access, Failure> {
        let answer = self.doors.over_http(ask(self.admin, "GET", "jobs", None))?;
        match read::<Vec<IgnoredAny>>(&answer) {
            Ok(_) => Ok(Access::Open),
            Err(Other::NotKew) if is_temporary(answer.status) => {
                Err(Failure::Bus(Box::new(ServiceError {
                    message: format!("{} did not say whether it is Kew", self.doors.url()),
                    status: Some(answer.status),
                    is_temporary: true,
                    ..ServiceError::default()
                })))
            }
            Err(Other::NotKew) => Ok(Access::NotKew),
            Err(Other::Refused(error)) => match error.status {
                Some(401 | 403) => Ok(Access::Closed),
                Some(_) | None => Err(Failure::Bus(Box::new(error))),
            },
        }
    }

    /// Reads something that the public protocols offer too. `None`: the namespace is not Kew, or its rule may not
    /// use this interface, or nothing answers there, of which a note tells.
    pub(super) fn look<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Failure> {
        let answer = match self.doors.wait(ask(self.admin_once, "GET", path, None)) {
            Ok(answer) => answer,
            // It is busy, and there is something to be patient for.
            Err(error) if error.status().is_some() => return self.get(path).map(Some),
            // Nothing may serve HTTP there.
            Err(error) => {
                let (url, why) = (self.doors.url(), error.text());
                note(&format!("cannot ask {url} ({why}): using AMQP"));
                return Ok(None);
            }
        };
        match read(&answer) {
            Ok(found) => Ok(Some(found)),
            Err(Other::NotKew) => Ok(None),
            Err(Other::Refused(error)) => match error.status {
                Some(401 | 403) => Ok(None),
                Some(_) | None => Err(Failure::Bus(Box::new(error))),
            },
        }
    }

    fn not_kew(&self) -> Failure {
        Failure::Refused {
            message: format!(
                "{} is not Kew, or an older version: this command needs the interface that only Kew has, \
                 at /$kew/v1; kew bus peek and kew bus receive work with any namespace",
                self.doors.url()
            ),
            code: Some(NOT_KEW),
        }
    }
}

async fn ask(
    admin: &BusAdmin,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<RawAnswer, kew_client::Error> {
    let body = body.map(|body| Bytes::from(body.to_string()));
    admin.ask(method, &format!("$kew/v1/{path}"), body).await
}

fn read<T: DeserializeOwned>(answer: &RawAnswer) -> Result<T, Other> {
    if (200..300).contains(&answer.status) {
        return serde_json::from_slice(&answer.body).map_err(|_| Other::NotKew);
    }
    match serde_json::from_slice(&answer.body) {
        Ok(Report { error }) => Err(Other::Refused(ServiceError {
            message: error.message,
            code: Some(error.code),
            status: Some(answer.status),
            is_temporary: is_temporary(answer.status),
            ..ServiceError::default()
        })),
        Err(_) => Err(Other::NotKew),
    }
}

/// Whether the same request may be answered later.
fn is_temporary(status: u16) -> bool {
    matches!(status, 408 | 429 | 502 | 503 | 504)
}

/// An entity in a path.
pub(super) fn in_path(entity: &str) -> String {
    utf8_percent_encode(entity, IN_PATH).to_string()
}

/// A text in a parameter.
pub(super) fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_value(status: u16, body: &'static str) -> Result<Value, Other> {
        read(&RawAnswer {
            status,
            body: Bytes::from_static(body.as_bytes()),
        })
    }

    #[test]
    fn only_answers_of_kew_are_understood() {
        assert!(read_value(200, "[]").is_ok());
        let refused = read_value(404, r#"{"error": {"code": "NotFound", "message": "no"}}"#);
        assert!(matches!(refused, Err(Other::Refused(error)) if error.message == "no"));
        for (status, body) in [(200, "<feed/>"), (404, "<Error/>"), (401, "")] {
            assert!(
                matches!(read_value(status, body), Err(Other::NotKew)),
                "{body}"
            );
        }
    }
}
