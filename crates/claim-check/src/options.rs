//! Limits and times.

use std::time::Duration;

use crate::error::Error;

/// How much later than it has to be an object is swept: stores give times in seconds or more coarsely, and a message
/// that is about to expire is still being handled.
const MARGIN: Duration = Duration::from_hours(1);

/// The highest level: higher ones need more memory to read than readers allow.
const LEVEL_MAX: i32 = 19;

/// How claims are made, and for how long they are good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimCheckOptions {
    /// The folder of the objects within the store, such as `claims/orders`. Empty for the root. Default `claims`. Use a
    /// folder that has nothing else, and one sweeper for it.
    pub prefix: String,
    /// The largest body of a message, in bytes: data that fits in it is not stored. Default 24 KiB, which fits in the
    /// 64 KiB of Queue Storage in every form: in Base64, and quoted in an envelope of `kew-worker`.
    pub message_size_max_bytes: usize,
    /// The largest data of a message or of a group, in bytes, before compression. Default 64 MiB. A call holds twice as
    /// much in memory.
    pub size_max_bytes: u64,
    /// How many messages a group has at most. Default 100,000.
    pub items_max: u32,
    /// The level of compression, 1 (fast) to 19 (small). Default 3.
    pub level: i32,
    /// How long a message lives at most, counted from its send: its time to live, and where services bury messages by
    /// themselves, the time that a dead letter lies before it is deleted or sent again. Messages that were kept with
    /// [`ClaimCheck::keep`](crate::ClaimCheck::keep) are not meant: see `buried_life`.
    ///
    /// `None`, the default: it is not known, and sweeps are refused. Only you know the queues: an object whose message
    /// lives longer than you say here is lost.
    pub message_life: Option<Duration>,
    /// How long it takes at most from `check_in` to the end of the last try to send the message. Default 1 day.
    pub send_time_max: Duration,
    /// How long a message lies in the dead-letter or poison queue at most, counted from
    /// [`ClaimCheck::keep`](crate::ClaimCheck::keep). Its object is kept for that time, and then as long as that of any
    /// other message: you may have sent it again at the end. `None`, the default: always, as such messages never expire.
    pub buried_life: Option<Duration>,
    /// How long the store may take for one operation. Default 60 s.
    pub store_time_max: Duration,
}

impl Default for ClaimCheckOptions {
    fn default() -> Self {
        Self {
            prefix: "claims".to_owned(),
            message_size_max_bytes: 24 << 10,
            size_max_bytes: 64 << 20,
            items_max: 100_000,
            level: 3,
            message_life: None,
            send_time_max: Duration::from_hours(24),
            buried_life: None,
            store_time_max: Duration::from_secs(60),
        }
    }
}

impl ClaimCheckOptions {
    pub(crate) fn check(&self) -> Result<(), Error> {
        if !(1..=LEVEL_MAX).contains(&self.level) {
            return Err(Error::invalid(format!(
                "the level of compression is {}; it can be 1 to {LEVEL_MAX}",
                self.level
            )));
        }
        if u32::try_from(self.size_max_bytes).is_err() {
            return Err(Error::invalid(format!(
                "the largest data has {} bytes; it can have {} at most",
                self.size_max_bytes,
                u32::MAX
            )));
        }
        Ok(())
    }

    /// How old an object is that no message can refer to. `None`: that is not known.
    pub(crate) fn orphan_age(&self) -> Option<Duration> {
        let life = self.message_life?;
        Some(
            life.saturating_add(self.send_time_max)
                .saturating_add(MARGIN),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        ClaimCheckOptions::default().check().unwrap();
    }

    #[test]
    fn what_a_message_can_refer_to_is_not_an_orphan() {
        let day = Duration::from_hours(24);
        let options = |message_life| ClaimCheckOptions {
            message_life,
            ..ClaimCheckOptions::default()
        };
        assert_eq!(options(None).orphan_age(), None);
        assert_eq!(options(Some(day)).orphan_age(), Some(2 * day + MARGIN));
        assert_eq!(
            options(Some(Duration::MAX)).orphan_age(),
            Some(Duration::MAX)
        );
    }

    #[test]
    fn other_options_have_ranges() {
        for level in [0, 20] {
            let options = ClaimCheckOptions {
                level,
                ..ClaimCheckOptions::default()
            };
            assert!(options.check().is_err(), "{level}");
        }
        let options = ClaimCheckOptions {
            size_max_bytes: 1 << 32,
            ..ClaimCheckOptions::default()
        };
        assert!(options.check().is_err());
    }
}
