//! The settings of a queue, with their documented ranges.

use std::fmt;
use std::ops::RangeInclusive;

use thiserror::Error;

use super::room::NAME_SIZE_BYTES_MAX;

/// No limit: the longest time that the service writes.
const UNLIMITED_MS: u64 = u64::MAX;

/// Whether a queue accepts and delivers messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntityStatus {
    /// It accepts and delivers messages.
    #[default]
    Active,
    /// It does neither.
    Disabled,
    /// It delivers messages only.
    SendDisabled,
    /// It accepts messages only.
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
    /// The number of failed deliveries after which a message is dead-lettered: 1 to 2,147,483,647.
    pub max_delivery_count: u32,
    /// The longest time to live of a message, at least 1 s. [`u64::MAX`] for no limit.
    pub default_time_to_live_ms: u64,
    /// Whether messages belong to sessions. Fixed at creation.
    pub requires_session: bool,
    /// How long ids are remembered to drop duplicates: 5 s, as in the emulator, to 7 days. `None` if duplicates are accepted.
    /// Whether there is a window is fixed at creation.
    pub duplicate_window_ms: Option<u64>,
    /// Whether messages that expire become dead letters.
    pub dead_letters_expired: bool,
    /// How long the queue may be idle before it deletes itself: at least 5 min. [`u64::MAX`] for no limit.
    pub auto_delete_on_idle_ms: u64,
    /// The queue it forwards its messages to, in lower case.
    pub forward_to: Option<Box<str>>,
    /// The queue it forwards its dead letters to, in lower case.
    pub forward_dead_letters_to: Option<Box<str>>,
    /// Whether it accepts and delivers messages.
    pub status: EntityStatus,
    /// The most bytes that its messages, session states and remembered ids may take. Changes to properties
    /// in a settlement may take a tenth more.
    pub size_bytes_max: u64,
    /// The largest message, in bytes.
    pub message_size_bytes_max: u64,
    /// Bytes that the front end keeps with the queue and the engine does not read, such as the spelling of
    /// its name and its authorization rules. At most 64 KiB.
    pub description: Box<[u8]>,
    /// Of a topic: whether a message that no rule matches is refused.
    pub filters_before_publishing: bool,
    /// Of a subscription: whether a message becomes a dead letter if a rule fails on it.
    pub dead_letters_filter_failures: bool,
}

/// The largest description.
const DESCRIPTION_SIZE_BYTES_MAX: usize = 64 * 1024;

/// A setting with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangedOption {
    /// [`BusQueueOptions::lock_duration_ms`].
    LockDuration,
    /// [`BusQueueOptions::max_delivery_count`].
    MaxDeliveryCount,
    /// [`BusQueueOptions::default_time_to_live_ms`].
    DefaultTimeToLive,
    /// [`BusQueueOptions::duplicate_window_ms`].
    DuplicateWindow,
    /// [`BusQueueOptions::auto_delete_on_idle_ms`].
    AutoDeleteOnIdle,
    /// [`BusQueueOptions::size_bytes_max`].
    Size,
    /// [`BusQueueOptions::message_size_bytes_max`].
    MessageSize,
    /// [`BusQueueOptions::description`].
    Description,
    /// The name of the queue.
    NameLength,
    /// The name of a rule.
    RuleNameLength,
}

/// What a refusal says of a setting.
struct Described {
    name: &'static str,
    unit: &'static str,
    range: RangeInclusive<u64>,
    /// The range, as users read it.
    allowed: &'static str,
}

impl RangedOption {
    /// The name as the service has it, the unit, and the range.
    fn described(self) -> Described {
        let (name, unit, range, allowed) = match self {
            Self::LockDuration => ("LockDuration", " ms", 5_000..=300_000, "5 s to 5 min"),
            Self::MaxDeliveryCount => {
                let counts = 1..=u64::from(i32::MAX.unsigned_abs());
                ("MaxDeliveryCount", "", counts, "1 to 2147483647")
            }
            Self::DefaultTimeToLive => {
                let name = "DefaultMessageTimeToLive";
                (name, " ms", 1000..=u64::MAX, "at least 1 s")
            }
            Self::DuplicateWindow => {
                let name = "DuplicateDetectionHistoryTimeWindow";
                (name, " ms", 5_000..=7 * 24 * 3_600_000, "5 s to 7 days")
            }
            Self::AutoDeleteOnIdle => {
                let range = 300_000..=u64::MAX;
                ("AutoDeleteOnIdle", " ms", range, "at least 5 min")
            }
            Self::Size => {
                let name = "MaxSizeInMegabytes";
                (name, " bytes", 1..=1 << 50, "1 byte to 1 PiB")
            }
            Self::MessageSize => {
                let name = "MaxMessageSizeInKilobytes";
                (name, " bytes", 1..=1024 * 1024, "1 byte to 1 MiB")
            }
            Self::Description => {
                let range = 0..=DESCRIPTION_SIZE_BYTES_MAX as u64;
                ("description", " bytes", range, "at most 64 KiB")
            }
            Self::NameLength => {
                let range = 0..=NAME_SIZE_BYTES_MAX as u64;
                let allowed = "at most 260 bytes in UTF-8; that of a subscription is TOPIC/Subscriptions/NAME";
                ("the name's length", " bytes", range, allowed)
            }
            Self::RuleNameLength => {
                let name = "the length of the rule's name";
                (name, " characters", 1..=50, "1 to 50 characters")
            }
        };
        Described {
            name,
            unit,
            range,
            allowed,
        }
    }

    /// Refuses a value outside the range.
    pub(super) fn check(self, value: u64) -> Result<(), InvalidOption> {
        match self.described().range.contains(&value) {
            true => Ok(()),
            false => Err(InvalidOption {
                option: self,
                value,
            }),
        }
    }
}

/// A setting outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub struct InvalidOption {
    /// The setting.
    pub option: RangedOption,
    /// The value given.
    pub value: u64,
}

impl fmt::Display for InvalidOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Described {
            name,
            unit,
            allowed,
            ..
        } = self.option.described();
        write!(f, "{name} is {}{unit}, and must be {allowed}", self.value)
    }
}

/// A setting that is fixed at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixedOption {
    /// [`BusQueueOptions::requires_session`].
    RequiresSession,
    /// Whether there is a [`BusQueueOptions::duplicate_window_ms`].
    RequiresDuplicateDetection,
}

impl fmt::Display for FixedOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RequiresSession => "RequiresSession",
            Self::RequiresDuplicateDetection => "RequiresDuplicateDetection",
        })
    }
}

impl Default for BusQueueOptions {
    /// The defaults of the service.
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
            filters_before_publishing: false,
            dead_letters_filter_failures: false,
        }
    }
}

impl BusQueueOptions {
    /// Whether its messages go on to another entity, or its dead letters do.
    pub(crate) fn forwards(&self) -> bool {
        self.forward_to.is_some() || self.forward_dead_letters_to.is_some()
    }

    /// Checks every range.
    pub fn check(&self) -> Result<(), InvalidOption> {
        RangedOption::LockDuration.check(self.lock_duration_ms)?;
        RangedOption::MaxDeliveryCount.check(self.max_delivery_count.into())?;
        RangedOption::DefaultTimeToLive.check(self.default_time_to_live_ms)?;
        if let Some(window_ms) = self.duplicate_window_ms {
            RangedOption::DuplicateWindow.check(window_ms)?;
        }
        RangedOption::AutoDeleteOnIdle.check(self.auto_delete_on_idle_ms)?;
        RangedOption::Size.check(self.size_bytes_max)?;
        RangedOption::MessageSize.check(self.message_size_bytes_max)?;
        RangedOption::Description.check(self.description.len() as u64)
    }

    /// The size up to which changes to properties are accepted, so that no client can fill a disk that way. Why a message
    /// is a dead letter can always be said: once for each, in [`REASON_SIZE_BYTES_MAX`].
    pub(crate) fn changed_size_bytes_max(&self) -> u64 {
        self.size_bytes_max.saturating_add(self.size_bytes_max / 10)
    }

    /// The first setting that differs and is fixed at creation.
    pub(crate) fn unchangeable(&self, other: &Self) -> Option<FixedOption> {
        if self.requires_session != other.requires_session {
            return Some(FixedOption::RequiresSession);
        }
        (self.duplicate_window_ms.is_some() != other.duplicate_window_ms.is_some())
            .then_some(FixedOption::RequiresDuplicateDetection)
    }
}
