//! Why a handler failed, and what is to become of the message.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::codec::CodecError;
use crate::source::{Attempt, Burial};

/// The reason of a payload that no codec can read.
pub const MALFORMED_PAYLOAD: &str = "MalformedPayload";

/// The reason of a message that the verifier refused.
pub const AUTHENTICATION_FAILED: &str = "AuthenticationFailed";

/// The reason of a message that was delivered too often and failed without an error, for example because its
/// process ended each time. Service Bus uses the same word.
pub const MAX_DELIVERY_COUNT_EXCEEDED: &str = "MaxDeliveryCountExceeded";

/// The type of a panic.
const PANIC: &str = "Panic";

/// Sources of an error that are looked at.
const CHAIN_MAX: usize = 16;

/// What is to become of a message whose handler failed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Next {
    Retry,
    RetryAfter(Duration),
    Bury(Option<String>),
}

/// Why a handler failed. Every error converts into one with `?`, and is tried again after the back-off.
///
/// It keeps the type of the error, the texts of the error and of its sources, and a backtrace if
/// [`capture_backtraces`] or the environment (`RUST_BACKTRACE`, `RUST_LIB_BACKTRACE`) turns backtraces on.
pub struct Failure {
    error_type: String,
    chain: Vec<String>,
    trace: Trace,
    next: Next,
}

/// Where a failure came from. To turn a backtrace into text is slow, so that is left to the burial.
enum Trace {
    Captured(Backtrace),
    None,
}

impl Failure {
    /// With a text of the application and no error.
    pub fn new(text: impl Into<String>) -> Self {
        Self::of("Failure", vec![text.into()], Trace::captured())
    }

    /// Another try is of no use: the message is buried at once. `reason` is a short word to group by.
    #[must_use]
    pub fn permanent(mut self, reason: impl Into<String>) -> Self {
        self.next = Next::Bury(Some(reason.into()));
        self
    }

    /// Tries again after this delay instead of the back-off. The attempt counts.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.next = Next::RetryAfter(delay);
        self
    }

    /// The type of the error, such as `std::io::Error`.
    pub fn error_type(&self) -> &str {
        &self.error_type
    }

    /// The texts of the error and of its sources, outermost first.
    pub fn chain(&self) -> &[String] {
        &self.chain
    }

    fn of(error_type: &str, chain: Vec<String>, trace: Trace) -> Self {
        Self {
            error_type: error_type.to_owned(),
            chain,
            trace,
            next: Next::Retry,
        }
    }

    pub(crate) fn malformed(text: impl Into<String>) -> Self {
        Self::of(MALFORMED_PAYLOAD, vec![text.into()], Trace::None).permanent(MALFORMED_PAYLOAD)
    }

    /// Of a codec that could not decode the message.
    pub(crate) fn of_codec(error: CodecError) -> Self {
        match error {
            CodecError::Malformed(text) => Self::malformed(text),
            CodecError::Unavailable(text) => Self::of_type("PayloadUnavailable", text),
            CodecError::Unusable { reason, chain } => {
                Self::of(&reason, chain, Trace::None).permanent(reason)
            }
        }
    }

    pub(crate) fn not_authentic(text: impl Into<String>) -> Self {
        Self::of(AUTHENTICATION_FAILED, vec![text.into()], Trace::None)
            .permanent(AUTHENTICATION_FAILED)
    }

    pub(crate) fn of_type(error_type: &str, text: impl Into<String>) -> Self {
        Self::of(error_type, vec![text.into()], Trace::None)
    }

    /// Of a handler that panicked on this thread.
    pub(crate) fn of_panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("the payload of the panic is not text");
        let noted = LAST_PANIC.with(|it| it.borrow_mut().take());
        match noted {
            Some((location, backtrace)) => {
                let text = format!("panicked at {location}: {text}");
                Self::of(PANIC, vec![text], Trace::Captured(backtrace))
            }
            None => Self::of(PANIC, vec![format!("panicked: {text}")], Trace::None),
        }
    }

    pub(crate) fn text(&self) -> &str {
        self.chain.first().map_or("", String::as_str)
    }

    pub(crate) fn is_permanent(&self) -> bool {
        matches!(self.next, Next::Bury(_))
    }

    pub(crate) fn delay(&self) -> Option<Duration> {
        match self.next {
            Next::RetryAfter(delay) => Some(delay),
            Next::Retry | Next::Bury(_) => None,
        }
    }

    pub(crate) fn attempt(&self, number: u32) -> Attempt {
        Attempt::new(number, &self.error_type, self.text())
    }

    pub(crate) fn burial(&self, history: Vec<Attempt>) -> Burial {
        let reason = match &self.next {
            Next::Bury(Some(reason)) => reason,
            Next::Bury(None) | Next::Retry | Next::RetryAfter(_) => &self.error_type,
        };
        let burial = Burial::new(reason, self.text(), history);
        burial.with_trace(&self.chain, self.trace.text().as_deref())
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let chain = chain_of(&error);
        Self::of(std::any::type_name::<E>(), chain, Trace::captured())
    }
}

/// The texts of an error and of its sources, outermost first.
pub(crate) fn chain_of(error: &(dyn Error + 'static)) -> Vec<String> {
    let mut chain = vec![error.to_string()];
    let mut source = error.source();
    while let Some(inner) = source
        && chain.len() < CHAIN_MAX
    {
        chain.push(inner.to_string());
        source = inner.source();
    }
    chain
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.chain.join(": "), self.error_type)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Trace {
    /// Of here, if the application or the environment turns backtraces on.
    fn captured() -> Self {
        let backtrace = match CAPTURES.load(Ordering::Relaxed) {
            true => Backtrace::force_capture(),
            false => Backtrace::capture(),
        };
        match backtrace.status() {
            BacktraceStatus::Captured => Self::Captured(backtrace),
            _ => Self::None,
        }
    }

    fn text(&self) -> Option<String> {
        match self {
            Self::Captured(backtrace) => Some(backtrace.to_string()),
            Self::None => None,
        }
    }
}

thread_local! {
    /// Where the last panic of this thread was, and its backtrace.
    static LAST_PANIC: RefCell<Option<(String, Backtrace)>> = const { RefCell::new(None) };
}

/// Whether failures have backtraces whatever the environment says.
static CAPTURES: AtomicBool = AtomicBool::new(false);

/// Has every [`Failure`] of this process capture a backtrace, as `RUST_BACKTRACE=1` does, so that messages are buried
/// with one. Call it once at the start of `main`.
///
/// A capture walks the stack: some microseconds for each failure. Names are looked up only for messages that are buried.
pub fn capture_backtraces() {
    CAPTURES.store(true, Ordering::Relaxed);
}

/// Has panics of handlers buried with their place and backtrace. Without it they are buried with their text alone.
///
/// It adds to the panic hook of the process, which belongs to the application: call it once at the start of `main`,
/// after you set a hook of your own. The former hook still runs.
pub fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let location = info.location().map(ToString::to_string);
            let noted = (location.unwrap_or_default(), Backtrace::force_capture());
            LAST_PANIC.with(|it| *it.borrow_mut() = Some(noted));
            usual(info);
        }));
    });
}

/// Forgets a panic of other code on this thread.
pub(crate) fn forget_panic() {
    LAST_PANIC.with(|it| it.borrow_mut().take());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot book")]
    struct Outer(#[source] fmt::Error);

    #[test]
    fn a_failure_has_the_type_and_the_chain_of_its_error() {
        let failure = Failure::from(Outer(fmt::Error));
        assert!(failure.error_type().ends_with("Outer"));
        assert_eq!(failure.chain()[0], "cannot book");
        assert_eq!(failure.chain().len(), 2);
        let burial = failure.burial(vec![failure.attempt(3)]);
        assert!(burial.reason.ends_with("Outer"), "{}", burial.reason);
        assert_eq!(burial.description, "cannot book");
        assert_eq!(burial.history[0].attempt, 3);
        let burial = failure.permanent("NoSuchAccount").burial(Vec::new());
        assert_eq!(burial.reason, "NoSuchAccount");
    }

    #[test]
    fn a_failure_has_a_backtrace_if_the_application_wants_that() {
        capture_backtraces();
        let burial = Failure::from(Outer(fmt::Error)).burial(Vec::new());
        let backtrace = burial.backtrace.unwrap();
        assert!(backtrace.contains("failure"), "{backtrace}");
    }

    #[test]
    fn an_error_of_a_codec_is_buried_or_tried_again() {
        let unusable = CodecError::unusable("ClaimMissing", &Outer(fmt::Error));
        assert!(unusable.to_string().contains("cannot book: "), "{unusable}");
        let failure = Failure::of_codec(unusable);
        assert!(failure.is_permanent());
        let burial = failure.burial(Vec::new());
        assert_eq!(
            (burial.reason.as_str(), burial.chain.len()),
            ("ClaimMissing", 2)
        );
        let later = Failure::of_codec(CodecError::Unavailable("no answer".to_owned()));
        assert!(!later.is_permanent());
        let malformed = Failure::of_codec(CodecError::Malformed("line 1".to_owned()));
        assert_eq!(malformed.burial(Vec::new()).reason, MALFORMED_PAYLOAD);
    }

    #[test]
    fn a_panic_has_its_text_and_with_the_hook_its_place() {
        let payload = || panic::catch_unwind(|| panic!("no {}", "money")).unwrap_err();
        forget_panic();
        let without = Failure::of_panic(&*payload());
        assert!(without.text().contains("no money"), "{without}");
        install_panic_hook();
        let with = Failure::of_panic(&*payload());
        assert!(with.text().contains("failure.rs"), "{with}");
        let backtrace = with.burial(Vec::new()).backtrace.unwrap();
        assert!(!backtrace.is_empty());
        assert_eq!(with.burial(Vec::new()).reason, "Panic");
    }
}
