//! The limits of Queue Storage that the engine keeps.

use crate::vocabulary::Timestamp;

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
