//! Azure Queue Storage: visibility timeouts and pop receipts.
//!
//! When a visibility timeout ends, nothing happens: the message is visible again, and the last receipt still
//! works until another receiver gets the message. So a holder may delete it late. There is no dead-letter
//! queue: consumers separate poison messages themselves, by the delivery count.

use crate::Timestamp;

/// The largest body, as UTF-8 text after XML unescaping.
///
/// Source: Queue Storage REST, *Put Message* (versions from 2011-08-18).
pub(crate) const BODY_SIZE_BYTES_MAX: usize = 65_536;

/// The expiry of a message that is put at `now`.
pub(crate) fn expiry(now: Timestamp, time_to_live_seconds: Option<u32>) -> Timestamp {
    match time_to_live_seconds {
        Some(seconds) => now.plus_seconds(u64::from(seconds)),
        None => Timestamp::NEVER,
    }
}
