//! Why a message is given up, as it is stored beside the message.

use serde::{Deserialize, Serialize};

use super::message::{Attempt, Meta, cut};

/// The largest text of a burial, in bytes. Service Bus accepts 4,096 characters for reason and description.
const TEXT_SIZE_MAX: usize = 4 << 10;

/// Why a message goes to the dead-letter or poison queue.
///
/// Every text is cut at 4 KiB. If the message with all of them is too large for the service, first the backtrace and
/// the chain are left out, then the history, then everything: the message itself is never cut.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Burial {
    /// A short word to group by: the type of the error, `MalformedPayload`, `AuthenticationFailed`, `Panic`,
    /// `MaxDeliveryCountExceeded` or what the handler said.
    pub reason: String,
    /// The text of the error.
    pub description: String,
    /// The error and its sources, outermost first.
    pub chain: Vec<String>,
    /// Where it came from, if the application captures backtraces.
    pub backtrace: Option<String>,
    /// Failures of all attempts, this one included.
    pub history: Vec<Attempt>,
}

impl Burial {
    pub(crate) fn new(reason: &str, description: &str, history: Vec<Attempt>) -> Self {
        Self {
            reason: cut(reason, TEXT_SIZE_MAX).to_owned(),
            description: cut(description, TEXT_SIZE_MAX).to_owned(),
            chain: Vec::new(),
            backtrace: None,
            history,
        }
    }

    pub(crate) fn with_trace(mut self, chain: &[String], backtrace: Option<&str>) -> Self {
        let mut size_left = TEXT_SIZE_MAX;
        for text in chain {
            let text = cut(text, size_left);
            size_left -= text.len();
            if !text.is_empty() {
                self.chain.push(text.to_owned());
            }
        }
        self.backtrace = backtrace.map(|text| cut(text, TEXT_SIZE_MAX).to_owned());
        self
    }

    /// The chain as one text.
    pub(crate) fn chain_text(&self) -> String {
        self.chain.join("\ncaused by: ")
    }
}

/// A burial as the envelope of a poison message has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Buried {
    pub(crate) reason: String,
    pub(crate) description: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) chain: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) backtrace: Option<String>,
    /// Where it came from, and as what.
    pub(crate) queue: String,
    pub(crate) id: String,
    pub(crate) attempt: u32,
}

impl Buried {
    pub(crate) fn new(burial: &Burial, meta: &Meta) -> Self {
        Self {
            reason: burial.reason.clone(),
            description: burial.description.clone(),
            chain: burial.chain.clone(),
            backtrace: burial.backtrace.clone(),
            queue: meta.queue.to_string(),
            id: meta.id.clone(),
            attempt: meta.attempt,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_bounded() {
        let long = "x".repeat(10_000);
        let chain = [long.clone(), long.clone()];
        let burial = Burial::new(&long, &long, Vec::new()).with_trace(&chain, Some(&long));
        let sizes = [&burial.reason, &burial.description].map(String::len);
        assert_eq!(sizes, [4_096, 4_096]);
        assert_eq!((burial.chain.len(), burial.chain_text().len()), (1, 4_096));
        assert_eq!(burial.backtrace.map(|it| it.len()), Some(4_096));
    }
}
