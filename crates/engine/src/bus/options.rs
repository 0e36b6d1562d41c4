//! What a queue's owner sets, in the documented ranges.

use thiserror::Error;

/// No limit: the longest time that the service writes.
const UNLIMITED_MS: u64 = u64::MAX;

/// Whether a queue takes and hands out messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntityStatus {
    /// It does both.
    #[default]
    Active,
    /// It does neither.
    Disabled,
    /// It hands out only.
    SendDisabled,
    /// It takes only.
    ReceiveDisabled,
}

impl EntityStatus {
    /// Whether messages can be sent.
    pub fn allows_send(self) -> bool {
        match self {
            Self::Active | Self::ReceiveDisabled => true,
            Self::Disabled | Self::SendDisabled => false,
        }
    }

    /// Whether messages can be received and settled.
    pub fn allows_receive(self) -> bool {
        match self {
            Self::Active | Self::SendDisabled => true,
            Self::Disabled | Self::ReceiveDisabled => false,
        }
    }
}

/// The settings of a bus queue. Times are in milliseconds.
///
/// Source: Service Bus, *Queue description*.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusQueueOptions {
    /// How long a lock holds: 5 s to 5 min.
    pub lock_duration_ms: u64,
    /// After so many failed deliveries a message is dead-lettered: 1 to 2,147,483,647.
    pub max_delivery_count: u32,
    /// The longest that a message lives; at least 1 s. [`u64::MAX`] for ever.
    pub default_time_to_live_ms: u64,
    /// Whether messages belong to sessions. Never changes.
    pub requires_session: bool,
    /// For how long ids are remembered and repeated ones dropped, 20 s to 7 days; none if repeats are
    /// taken. Whether there is one never changes.
    pub duplicate_window_ms: Option<u64>,
    /// Whether messages that expire become dead letters.
    pub dead_letters_expired: bool,
    /// The queue deletes itself after so long without use: at least 5 min. [`u64::MAX`] for never.
    pub auto_delete_on_idle_ms: u64,
    /// Where its messages go on to, in lower case.
    pub forward_to: Option<Box<str>>,
    /// Where its dead letters go on to, in lower case.
    pub forward_dead_letters_to: Option<Box<str>>,
    /// Whether it takes and hands out messages.
    pub status: EntityStatus,
    /// The most that its messages take, with the states of sessions and what is remembered of ids, in
    /// bytes. Changes to properties that come with a settlement may take a tenth more.
    pub size_bytes_max: u64,
    /// The largest message, in bytes.
    pub message_size_bytes_max: u64,
    /// What the front end keeps with the queue and the engine does not read, such as the spelling of
    /// its name and its authorization rules. At most 64 KiB.
    pub description: Box<[u8]>,
}

/// The most that a description takes.
const DESCRIPTION_SIZE_BYTES_MAX: usize = 64 * 1024;

/// A setting outside its range.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{option} is {value}, and must be {allowed}")]
pub struct InvalidOption {
    /// The setting.
    pub option: &'static str,
    /// What it was to be, with its unit.
    pub value: Box<str>,
    /// What would do.
    pub allowed: &'static str,
}

impl Default for BusQueueOptions {
    /// What the service gives a queue about which nothing is said.
    fn default() -> Self {
        Self {
            lock_duration_ms: 60_000,
            max_delivery_count: 10,
            default_time_to_live_ms: UNLIMITED_MS,
            requires_session: false,
            duplicate_window_ms: None,
            dead_letters_expired: false,
            auto_delete_on_idle_ms: UNLIMITED_MS,
            forward_to: None,
            forward_dead_letters_to: None,
            status: EntityStatus::Active,
            size_bytes_max: 1024 * 1024 * 1024,
            message_size_bytes_max: 1024 * 1024,
            description: Box::default(),
        }
    }
}

impl BusQueueOptions {
    /// Checks every range.
    pub fn check(&self) -> Result<(), InvalidOption> {
        let within = |option, value: u64, unit, range: std::ops::RangeInclusive<u64>, allowed| {
            if range.contains(&value) {
                Ok(())
            } else {
                Err(InvalidOption {
                    option,
                    value: format!("{value}{unit}").into(),
                    allowed,
                })
            }
        };
        within(
            "LockDuration",
            self.lock_duration_ms,
            " ms",
            5_000..=300_000,
            "5 s to 5 min",
        )?;
        let counts = 1..=u64::from(i32::MAX.unsigned_abs());
        within(
            "MaxDeliveryCount",
            self.max_delivery_count.into(),
            "",
            counts,
            "1 to 2147483647",
        )?;
        within(
            "DefaultMessageTimeToLive",
            self.default_time_to_live_ms,
            " ms",
            1000..=u64::MAX,
            "at least 1 s",
        )?;
        if let Some(window_ms) = self.duplicate_window_ms {
            let range = 20_000..=7 * 24 * 3_600_000;
            within(
                "DuplicateDetectionHistoryTimeWindow",
                window_ms,
                " ms",
                range,
                "20 s to 7 days",
            )?;
        }
        within(
            "AutoDeleteOnIdle",
            self.auto_delete_on_idle_ms,
            " ms",
            300_000..=u64::MAX,
            "at least 5 min",
        )?;
        within(
            "MaxSizeInMegabytes",
            self.size_bytes_max,
            " bytes",
            1..=1 << 50,
            "1 byte to 1 PiB",
        )?;
        within(
            "MaxMessageSizeInKilobytes",
            self.message_size_bytes_max,
            " bytes",
            1..=1024 * 1024,
            "1 byte to 1 MiB",
        )?;
        within(
            "description",
            self.description.len() as u64,
            " bytes",
            0..=DESCRIPTION_SIZE_BYTES_MAX as u64,
            "at most 64 KiB",
        )
    }

    /// What a change to properties may take the queue to. Who is done with a message of a full queue can
    /// still say why, and nobody can fill a disk with that.
    pub(crate) fn changed_size_bytes_max(&self) -> u64 {
        self.size_bytes_max.saturating_add(self.size_bytes_max / 10)
    }

    /// The first setting that differs and never may.
    pub(crate) fn unchangeable(&self, other: &Self) -> Option<&'static str> {
        if self.requires_session != other.requires_session {
            return Some("RequiresSession");
        }
        (self.duplicate_window_ms.is_some() != other.duplicate_window_ms.is_some())
            .then_some("RequiresDuplicateDetection")
    }
}
