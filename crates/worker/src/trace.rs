//! The trace context of W3C, which connects the spans of senders and listeners.
//!
//! A message carries it in the properties `traceparent` and `tracestate`. Azure's SDKs write the same text as
//! `Diagnostic-Id`, so listeners read that too. On Queue Storage the properties are in the envelope.
//!
//! This crate needs no OpenTelemetry. To connect spans there, add `tracing-opentelemetry` to the application and
//! set the parent in [`ListenerBuilder::on_span`](crate::ListenerBuilder::on_span), with any propagator that reads
//! `traceparent`.

use std::fmt;

/// The property with the trace and the parent's span.
pub(crate) const TRACEPARENT: &str = "traceparent";

/// The property with what vendors add.
pub(crate) const TRACESTATE: &str = "tracestate";

/// The same as `traceparent`, as Azure's SDKs write it.
pub(crate) const DIAGNOSTIC_ID: &str = "Diagnostic-Id";

/// The longest `tracestate` that is kept, in bytes.
const STATE_SIZE_MAX: usize = 512;

/// Where a message belongs in a distributed trace: version 00 of *Trace Context*, W3C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The whole trace. Not all zeros.
    pub trace_id: [u8; 16],
    /// The span that sent the message. Not all zeros.
    pub parent_id: [u8; 8],
    /// Bit 0: the trace is sampled.
    pub flags: u8,
    /// What vendors add, at most 512 bytes; empty for nothing.
    pub state: String,
}

impl TraceContext {
    /// A new trace that is sampled, or `None` if the system has no random numbers.
    pub fn begin() -> Option<Self> {
        let mut context = Self {
            trace_id: [0; 16],
            parent_id: [0; 8],
            flags: 1,
            state: String::new(),
        };
        getrandom::fill(&mut context.trace_id).ok()?;
        getrandom::fill(&mut context.parent_id).ok()?;
        Some(context)
    }

    /// The same trace, from another span. Keeps the parent if the system has no random numbers.
    #[must_use]
    pub fn child(&self) -> Self {
        let mut child = self.clone();
        let mut parent_id = [0; 8];
        if getrandom::fill(&mut parent_id).is_ok() && parent_id != [0; 8] {
            child.parent_id = parent_id;
        }
        child
    }

    /// Reads a `traceparent`. `None` if it is malformed. Later versions are read as version 00.
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let mut parts = traceparent.trim().split('-');
        let [version] = bytes(parts.next()?)?;
        let trace_id: [u8; 16] = bytes(parts.next()?)?;
        let parent_id: [u8; 8] = bytes(parts.next()?)?;
        let [flags] = bytes(parts.next()?)?;
        let has_more = parts.next().is_some();
        let is_bad = version == 0xff || (version == 0 && has_more);
        if is_bad || trace_id == [0; 16] || parent_id == [0; 8] {
            return None;
        }
        let state = tracestate.filter(|it| it.len() <= STATE_SIZE_MAX);
        Some(Self {
            trace_id,
            parent_id,
            flags,
            state: state.unwrap_or_default().to_owned(),
        })
    }

    /// As the property has it, such as `00-0af7…-b7ad…-01`.
    pub fn traceparent(&self) -> String {
        let mut text = String::with_capacity(55);
        text.push_str("00-");
        push_hex(&mut text, &self.trace_id);
        text.push('-');
        push_hex(&mut text, &self.parent_id);
        text.push('-');
        push_hex(&mut text, &[self.flags]);
        text
    }

    /// From the properties of a message.
    pub(crate) fn of_properties(properties: &[(String, String)]) -> Option<Self> {
        let named = |name: &str| {
            let mut found = properties.iter().filter(|(it, _)| it == name);
            found.next().map(|(_, value)| value.as_str())
        };
        let parent = named(TRACEPARENT).or_else(|| named(DIAGNOSTIC_ID))?;
        Self::parse(parent, named(TRACESTATE))
    }

    /// The properties that carry it.
    pub(crate) fn to_properties(&self) -> Vec<(String, String)> {
        let mut properties = vec![
            (TRACEPARENT.to_owned(), self.traceparent()),
            (DIAGNOSTIC_ID.to_owned(), self.traceparent()),
        ];
        if !self.state.is_empty() {
            properties.push((TRACESTATE.to_owned(), self.state.clone()));
        }
        properties
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.traceparent())
    }
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
}

/// Lower-case hexadecimal digits of exactly so many bytes.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    let is_lower = |it: &u8| matches!(it, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != 2 * N || !digits.iter().all(is_lower) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_context_is_written_as_it_was_read() {
        let context = TraceContext::parse(PARENT, Some("a=b")).unwrap();
        assert_eq!(context.traceparent(), PARENT);
        assert_eq!(
            TraceContext::of_properties(&context.to_properties()),
            Some(context.clone())
        );
        let child = context.child();
        assert_eq!(child.trace_id, context.trace_id);
        assert_ne!(child.parent_id, context.parent_id);
        let azure = vec![(DIAGNOSTIC_ID.to_owned(), PARENT.to_owned())];
        let read = TraceContext::of_properties(&azure).unwrap();
        assert_eq!(
            (read.parent_id, read.state),
            (context.parent_id, String::new())
        );
        assert_ne!(TraceContext::begin(), TraceContext::begin());
    }

    #[test]
    fn malformed_contexts_are_ignored() {
        for text in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0é",
        ] {
            assert_eq!(TraceContext::parse(text, None), None, "{text}");
        }
        let later = format!("01{}-more", &PARENT[2..]);
        assert!(TraceContext::parse(&later, None).is_some());
    }
}
