//! What went wrong, in three kinds.
//!
//! A caller decides by the kind alone: give up, send it again, or find out what happened.

mod kind;

use std::fmt;
use std::time::Duration;

use kew_amqp::By;
use kew_amqp::error as amqp;
use kew_amqp::error::condition;

use self::kind::{kind_of_condition, kind_of_status};

pub use self::kind::ErrorKind;
pub(crate) use self::kind::{Effect, bus_condition};

/// The most that is kept of a service's text, in bytes.
const TEXT_SIZE_MAX: usize = 4 << 10;

/// How Queue Storage says that it is busy.
const STORAGE_BUSY: &str = "ServerBusy";

/// The sub code of management: another operation changes the same entity just now.
const CONFLICTING_OPERATION: &str = "40901";

/// The sub code of management: there is no such entity.
const ENTITY_NOT_FOUND: &str = "40400";

/// Why an operation has no result.
///
/// It is a single pointer: results are moved often, and rarely hold an error.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Parts>);

#[derive(Clone, PartialEq, Eq)]
struct Parts {
    kind: ErrorKind,
    code: Option<Box<str>>,
    status: Option<u16>,
    request_id: Option<Box<str>>,
    retry_after: Option<Duration>,
    text: Box<str>,
}

/// An answer of Queue Storage that is no success, without its text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StorageRefusal<'a> {
    pub(crate) status: u16,
    pub(crate) code: Option<&'a str>,
    pub(crate) request_id: Option<&'a str>,
    pub(crate) retry_after: Option<Duration>,
}

impl Error {
    /// What can be done about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The service's code, if it gave one: an AMQP condition such as `com.microsoft:message-lock-lost`, a
    /// storage code such as `QueueNotFound`, or a sub code of management such as `40900`.
    pub fn code(&self) -> Option<&str> {
        self.0.code.as_deref()
    }

    /// The status of the service's answer, such as 404, if the answer had one.
    pub fn status(&self) -> Option<u16> {
        self.0.status
    }

    /// The service's name for the request, if its answer had one: the operators of the service find the request by it.
    pub fn request_id(&self) -> Option<&str> {
        self.0.request_id.as_deref()
    }

    /// What the service said, or what the client saw.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Whether the lock of the message or of its session is gone: another receiver may have it.
    pub fn is_lock_lost(&self) -> bool {
        let lost = [
            bus_condition::MESSAGE_LOCK_LOST,
            bus_condition::SESSION_LOCK_LOST,
        ];
        self.code().is_some_and(|code| lost.contains(&code))
    }

    /// Whether the service asked for a pause.
    pub fn is_busy(&self) -> bool {
        let busy = [bus_condition::SERVER_BUSY, STORAGE_BUSY];
        self.code().is_some_and(|code| busy.contains(&code))
            || matches!(self.0.status, Some(429 | 503))
    }

    /// How long the service asked to wait before another try.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, None, text.into())
    }

    pub(crate) fn later(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::TryAgainLater, None, text.into())
    }

    pub(crate) fn unknown(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::OutcomeUnknown, None, text.into())
    }

    pub(crate) fn session_lock_lost(text: impl Into<String>) -> Self {
        let code = bus_condition::SESSION_LOCK_LOST;
        Self::new(ErrorKind::Refused, Some(code), text.into())
    }

    pub(crate) fn rolled_back(text: impl Into<String>) -> Self {
        let code = condition::TRANSACTION_ROLLBACK;
        Self::new(ErrorKind::Refused, Some(code), text.into())
    }

    /// The same with more to read at its end.
    pub(crate) fn followed_by(self, more: &str) -> Self {
        Self::of(Parts {
            text: format!("{}; {more}", self.0.text).into(),
            ..*self.0
        })
    }

    /// That of something that went out before a link or a connection was lost.
    pub(crate) fn lost_under_way(&self, effect: Effect) -> Self {
        let text = format!("no answer came before the link was lost: {}", self.0.text);
        Self::new(effect.unknown(), self.code(), text)
    }

    /// Of a request that went out over a connection that broke, or that brought no answer that can be read.
    pub(crate) fn no_answer(effect: Effect, why: &dyn fmt::Display) -> Self {
        Self::new(effect.unknown(), None, why.to_string())
    }

    /// Of a request that went out, and of which nothing was heard in time.
    pub(crate) fn no_answer_in_time(effect: Effect) -> Self {
        let text = "the service did not answer in time";
        Self::new(effect.unknown(), None, text.to_owned())
    }

    /// Of a request that went out so long ago, and was not answered.
    pub(crate) fn no_answer_within(effect: Effect, waited: Duration) -> Self {
        let seconds = waited.as_secs_f64();
        let text = format!("the service did not answer within {seconds:.1} s");
        Self::new(effect.unknown(), None, text)
    }

    /// Of a link, a session or a connection that was refused or ended.
    ///
    /// If it was ended on our side, the peer was silent or broke a rule: another connection may do better, unless
    /// authentication failed.
    pub(crate) fn of_end(error: Option<&amqp::Error>, by: By, what: &str) -> Self {
        match error {
            Some(error) if by == By::Us && error.condition != condition::UNAUTHORIZED_ACCESS => {
                let code = error.condition.as_str();
                let text = format!("the {what} was given up: {error}");
                Self::new(ErrorKind::TryAgainLater, Some(code), text)
            }
            Some(error) => Self::of_condition(error, Effect::Read),
            None => Self::later(format!("the service ended the {what}")),
        }
    }

    /// Of an answer with a condition.
    pub(crate) fn of_condition(error: &amqp::Error, effect: Effect) -> Self {
        let code = error.condition.as_str();
        let text = error.description.as_ref().map(|text| text.as_str());
        let kind = kind_of_condition(code, effect).unwrap_or(ErrorKind::Refused);
        let text = text.unwrap_or("the service gave no explanation");
        Self::new(kind, Some(code), text.to_owned())
    }

    /// Of an answer of a node with a status, which counts where its condition is not known.
    pub(crate) fn of_status(
        status: i64,
        condition: Option<&str>,
        text: &str,
        effect: Effect,
    ) -> Self {
        let by_condition = condition.and_then(|code| kind_of_condition(code, effect));
        let kind = by_condition.unwrap_or_else(|| kind_of_status(status, effect));
        let code = match (condition, status) {
            (None, 503) => Some(bus_condition::SERVER_BUSY),
            (condition, _) => condition,
        };
        let status_told = u16::try_from(status).ok();
        let status_told = status_told.filter(|it| (100..600).contains(it));
        let text = match status_told {
            Some(_) => text.to_owned(),
            None => format!("{text} (status {status})"),
        };
        Self::of(Parts {
            status: status_told,
            ..*Self::new(kind, code, text).0
        })
    }

    /// Of an answer of Queue Storage with a status that is no success.
    pub(crate) fn of_storage(answer: StorageRefusal<'_>, text: &str, effect: Effect) -> Self {
        // A redirection is no answer of this service.
        let counted = answer.status.max(400);
        let kind = kind_of_status(counted.into(), effect);
        Self::of(Parts {
            status: Some(answer.status),
            request_id: answer.request_id.map(Into::into),
            retry_after: answer.retry_after,
            ..*Self::new(kind, answer.code, text.to_owned()).0
        })
    }

    /// Of an answer of management with a status that is no success, and the sub code in its detail.
    pub(crate) fn of_management(
        status: u16,
        sub_code: Option<&str>,
        text: &str,
        effect: Effect,
    ) -> Self {
        // Its text begins with a sub code there, which says less.
        let code = match status {
            429 | 503 => Some(bus_condition::SERVER_BUSY),
            _ => sub_code,
        };
        // A redirection is no answer of this service.
        let counted = if status < 400 { 400 } else { status };
        let mut error = Self::of_status(counted.into(), code, text, effect);
        if sub_code == Some(CONFLICTING_OPERATION) {
            error.0.kind = ErrorKind::TryAgainLater;
        }
        Self::of(Parts {
            status: Some(status),
            ..*error.0
        })
    }

    /// That management knows no such entity.
    pub(crate) fn no_such_entity(text: impl Into<String>) -> Self {
        let refused = Self::new(ErrorKind::Refused, Some(ENTITY_NOT_FOUND), text.into());
        Self::of(Parts {
            status: Some(404),
            ..*refused.0
        })
    }

    fn new(kind: ErrorKind, code: Option<&str>, mut text: String) -> Self {
        if text.len() > TEXT_SIZE_MAX {
            text.truncate(text.floor_char_boundary(TEXT_SIZE_MAX));
        }
        Self::of(Parts {
            kind,
            code: code.map(Into::into),
            status: None,
            request_id: None,
            retry_after: None,
            text: text.into(),
        })
    }

    fn of(parts: Parts) -> Self {
        Self(Box::new(parts))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0.kind {
            ErrorKind::Refused => "refused: ",
            ErrorKind::TryAgainLater => "try again later: ",
            ErrorKind::OutcomeUnknown => "outcome unknown: ",
        })?;
        f.write_str(&self.0.text)?;
        match (&self.0.code, self.0.status) {
            (Some(code), Some(status)) => write!(f, " ({code}, status {status})"),
            (Some(code), None) => write!(f, " ({code})"),
            (None, Some(status)) => write!(f, " (status {status})"),
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use ErrorKind::{OutcomeUnknown, Refused, TryAgainLater};

    #[test]
    fn conditions_have_their_kinds() {
        for (code, change, read) in [
            ("com.microsoft:server-busy", TryAgainLater, TryAgainLater),
            (
                "com.microsoft:operation-cancelled",
                TryAgainLater,
                TryAgainLater,
            ),
            ("amqp:link:detach-forced", TryAgainLater, TryAgainLater),
            ("amqp:connection:forced", TryAgainLater, TryAgainLater),
            ("amqp:link:stolen", TryAgainLater, TryAgainLater),
            ("com.microsoft:timeout", OutcomeUnknown, TryAgainLater),
            ("amqp:internal-error", OutcomeUnknown, TryAgainLater),
            ("com.microsoft:message-lock-lost", Refused, Refused),
            ("com.microsoft:session-lock-lost", Refused, Refused),
            ("com.microsoft:message-not-found", Refused, Refused),
            ("amqp:not-found", Refused, Refused),
            ("amqp:unauthorized-access", Refused, Refused),
            ("amqp:not-allowed", Refused, Refused),
            ("amqp:not-implemented", Refused, Refused),
            ("amqp:resource-limit-exceeded", Refused, Refused),
            ("amqp:resource-deleted", Refused, Refused),
            ("amqp:link:message-size-exceeded", Refused, Refused),
            ("com.microsoft:entity-disabled", Refused, Refused),
            ("com.microsoft:argument-error", Refused, Refused),
        ] {
            let told = amqp::Error {
                condition: kew_amqp::codec::Symbol::new(code).unwrap(),
                description: None,
                info: None,
            };
            let kinds = [Effect::Change, Effect::Read]
                .map(|effect| Error::of_condition(&told, effect).kind());
            assert_eq!(kinds, [change, read], "{code}");
        }
    }

    #[test]
    fn statuses_count_where_no_condition_is_known() {
        for (status, condition, expected) in [
            (404, None, Refused),
            (410, Some("com.microsoft:message-lock-lost"), Refused),
            (401, Some("something new"), Refused),
            (503, None, TryAgainLater),
            (429, None, TryAgainLater),
            (500, None, OutcomeUnknown),
            (408, None, OutcomeUnknown),
            (-1, None, OutcomeUnknown),
            (500, Some("com.microsoft:server-busy"), TryAgainLater),
        ] {
            let error = Error::of_status(status, condition, "text", Effect::Change);
            assert_eq!(error.kind(), expected, "{status} {condition:?}");
        }
        assert!(Error::of_status(503, None, "", Effect::Read).is_busy());
    }

    #[test]
    fn answers_of_management_have_their_kinds() {
        for (status, sub_code, change, read) in [
            (400, Some("40000"), Refused, Refused),
            (401, Some("40100"), Refused, Refused),
            (403, Some("40301"), Refused, Refused),
            (404, Some("40400"), Refused, Refused),
            (409, Some("40900"), Refused, Refused),
            (409, Some("40901"), TryAgainLater, TryAgainLater),
            (410, None, Refused, Refused),
            (302, None, Refused, Refused),
            (429, Some("50009"), TryAgainLater, TryAgainLater),
            (503, Some("50004"), TryAgainLater, TryAgainLater),
            (500, Some("50000"), OutcomeUnknown, TryAgainLater),
            (504, None, OutcomeUnknown, TryAgainLater),
        ] {
            let errors = [Effect::Change, Effect::Read]
                .map(|effect| Error::of_management(status, sub_code, "text", effect));
            assert_eq!(errors.each_ref().map(Error::kind), [change, read]);
            let [error, _] = errors;
            assert_eq!(error.status(), Some(status));
            let is_busy = matches!(status, 429 | 503);
            assert_eq!(error.is_busy(), is_busy, "{status}");
            assert!(is_busy || error.code() == sub_code, "{status}");
        }
    }

    #[test]
    fn what_was_given_up_on_our_side_is_tried_again() {
        for (condition, by, kind) in [
            (condition::RESOURCE_LIMIT_EXCEEDED, By::Us, TryAgainLater),
            (condition::RESOURCE_LIMIT_EXCEEDED, By::Peer, Refused),
            (condition::UNAUTHORIZED_ACCESS, By::Us, Refused),
            (condition::CONNECTION_FORCED, By::Peer, TryAgainLater),
        ] {
            let error = amqp::Error::new(condition, "text");
            let error = Error::of_end(Some(&error), by, "connection");
            assert_eq!(error.kind(), kind, "{condition} {by:?}");
        }
        let unsaid = Error::of_end(None, By::Peer, "link");
        assert_eq!(unsaid.kind(), TryAgainLater);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let error = Error::refused("é".repeat(TEXT_SIZE_MAX));
        assert!(error.text().len() <= TEXT_SIZE_MAX && error.text().ends_with('é'));
        let shown = Error::session_lock_lost("gone").to_string();
        assert_eq!(shown, "refused: gone (com.microsoft:session-lock-lost)");
    }
}
