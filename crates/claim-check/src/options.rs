//! Limits and times.

use std::time::Duration;

use crate::error::Error;

/// Stores give the time of an object in seconds or more coarsely.
const PRECISION: Duration = Duration::from_secs(60);

/// The highest level: higher ones need more memory to read than readers allow.
const LEVEL_MAX: i32 = 19;

/// How claims are made, and for how long they are good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimCheckOptions {
    /// The folder of the objects within the store, such as `claims/orders`. Empty for the root. Default `claims`. Use a
    /// folder that has nothing else, and one sweeper for it.
    pub prefix: String,
    /// The largest body of a message, in bytes: data that fits in it is not stored. Default 48 KiB, which is 64 KiB in
    /// Base64, the limit of Queue Storage.
    pub message_size_max_bytes: usize,
    /// The largest data of a message or of a group, in bytes, before compression. Default 64 MiB. A call holds twice as
    /// much in memory.
    pub size_max_bytes: u64,
    /// How many messages a group has at most. Default 100,000.
    pub items_max: u32,
    /// The level of compression, 1 (fast) to 19 (small). Default 3.
    pub level: i32,
    /// How long a message lives at most, counted from its send: also as a dead letter, and until it is sent again.
    /// Default 14 days.
    pub message_life: Duration,
    /// How long it takes at most from `check_in` to the end of the last try to send the message. Default 1 day.
    pub send_time_max: Duration,
    /// How old an object is before a sweep removes it. At least a minute more than `message_life` and `send_time_max`
    /// together. Default 30 days.
    pub orphan_age: Duration,
    /// How long the store may take for one operation. Default 60 s.
    pub store_time_max: Duration,
}

impl Default for ClaimCheckOptions {
    fn default() -> Self {
        Self {
            prefix: "claims".to_owned(),
            message_size_max_bytes: 48 << 10,
            size_max_bytes: 64 << 20,
            items_max: 100_000,
            level: 3,
            message_life: Duration::from_hours(14 * 24),
            send_time_max: Duration::from_hours(24),
            orphan_age: Duration::from_hours(30 * 24),
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
        let used = self.message_life.saturating_add(self.send_time_max);
        if self.orphan_age < used.saturating_add(PRECISION) {
            return Err(Error::invalid(format!(
                "objects are swept after {:?}, and a message can refer to one for {used:?}: sweep them a minute later than that, or more",
                self.orphan_age
            )));
        }
        Ok(())
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
    fn what_a_message_can_refer_to_is_not_swept() {
        let day = Duration::from_hours(24);
        let options = |orphan_age| ClaimCheckOptions {
            message_life: day,
            send_time_max: day,
            orphan_age,
            ..ClaimCheckOptions::default()
        };
        assert!(options(2 * day).check().is_err());
        assert!(options(2 * day + Duration::from_secs(59)).check().is_err());
        assert!(options(2 * day + Duration::from_secs(60)).check().is_ok());
        assert!(options(Duration::MAX).check().is_ok());
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
