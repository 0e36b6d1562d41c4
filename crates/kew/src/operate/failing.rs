//! What a namespace refused, as the command line reports it.

use kew_client::{Error, ErrorKind};

use crate::queue_command::Failure;

/// An error of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceError {
    pub(crate) message: String,
    /// A condition of AMQP, such as `amqp:not-found`, or a code of the interface that answered.
    pub(crate) code: Option<String>,
    /// The status of HTTP that says the same.
    pub(crate) status: Option<u16>,
    /// The service's name for the request.
    pub(crate) request_id: Option<String>,
    /// Whether the same can succeed later.
    pub(crate) is_temporary: bool,
}

impl std::fmt::Display for ServiceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        match (&self.code, self.status) {
            (Some(code), Some(status)) => write!(f, " ({code}, status {status})"),
            (Some(code), None) => write!(f, " ({code})"),
            (None, Some(status)) => write!(f, " (status {status})"),
            (None, None) => Ok(()),
        }
    }
}

/// How a TLS library reports an answer in plain text.
const NO_TLS: &str = "InvalidContentType";

/// An error of the client; `url` is the place that it spoke to.
pub(super) fn failure_of(error: &Error, url: &str, is_tls: bool) -> Failure {
    let code = error.code();
    let status = error.status().or_else(|| code.and_then(status_of));
    let (mut message, request_id) = without_tail(error.text(), error.status());
    match (error.kind(), code, status) {
        (ErrorKind::TryAgainLater, None, None) => {
            message = format!("cannot reach {url}: {message}");
            if is_tls && message.contains(NO_TLS) {
                message.push_str(
                    "; it seems to serve no TLS: if so, add UseDevelopmentEmulator=true to the \
                     connection string",
                );
            }
        }
        (ErrorKind::OutcomeUnknown, _, _) => {
            message = format!("{message}; {url} may have done it");
        }
        (ErrorKind::TryAgainLater | ErrorKind::Refused, _, _) => {}
    }
    Failure::Bus(Box::new(ServiceError {
        message,
        code: code.map(str::to_owned),
        status,
        request_id,
        is_temporary: error.kind() != ErrorKind::Refused,
    }))
}

/// A client that cannot be made: a certificate cannot be read, for example.
pub(super) fn not_set_up(error: &Error) -> Failure {
    Failure::Usage(error.text().to_owned())
}

/// The text without what is told apart from it, and the name of the request.
fn without_tail(text: &str, status: Option<u16>) -> (String, Option<String>) {
    let status = status.map(|status| format!(" (status {status})"));
    let text = status
        .and_then(|status| text.strip_suffix(&status))
        .unwrap_or(text);
    let (text, tail) = text.split_once("TrackingId:").unwrap_or((text, ""));
    let request_id = tail.split(',').next().map(str::trim);
    let text = text.trim_end().trim_end_matches('.');
    (
        text.to_owned(),
        request_id.filter(|id| !id.is_empty()).map(str::to_owned),
    )
}

/// The status with which the service answers over HTTP in the same case.
fn status_of(code: &str) -> Option<u16> {
    Some(match code {
        "amqp:unauthorized-access" => 401,
        "com.microsoft:entity-disabled" | "amqp:resource-limit-exceeded" => 403,
        "amqp:not-found" | "com.microsoft:message-not-found" => 404,
        "com.microsoft:message-lock-lost" | "com.microsoft:session-lock-lost" => 410,
        "com.microsoft:session-cannot-be-locked" => 409,
        "amqp:link:message-size-exceeded" => 413,
        "com.microsoft:server-busy" => 503,
        _ => return None,
    })
}

/// The refusal that there is no such queue, or no such message in it.
pub(super) fn not_found(what: String) -> Failure {
    Failure::Bus(Box::new(ServiceError {
        message: what,
        code: Some("NotFound".into()),
        status: Some(404),
        ..ServiceError::default()
    }))
}

/// The status of a refusal.
pub(super) fn status_of_failure(failure: &Failure) -> Option<u16> {
    match failure {
        Failure::Bus(error) => error.status,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_apart_is_not_in_the_text() {
        for (text, status, expected) in [
            (
                "It is there. TrackingId:ab-1, SystemTracker:ns:q, Timestamp:t (status 409)",
                Some(409),
                ("It is there", Some("ab-1")),
            ),
            ("none (status 401)", Some(401), ("none", None)),
            ("none (status 401)", None, ("none (status 401)", None)),
        ] {
            let (text, id) = without_tail(text, status);
            assert_eq!((&*text, id.as_deref()), expected);
        }
    }
}
