//! What a rule sees of a message.

use crate::value::Value;

/// The properties of a message. An implementation may decode them as they are asked for.
pub trait Message {
    /// The value of the application property with this name, or `None` if there is none.
    ///
    /// Names are compared by [`same_name`]. If several properties match, it is the one that is spelled the same, or else
    /// the first one.
    ///
    /// Source: Service Bus, *SQL filter syntax*: property names are case-insensitive.
    fn user(&self, name: &str) -> Option<Value<'_>>;

    /// The value of a system property, `Null` if it is not set. Ids are texts, whatever their type in AMQP.
    fn system(&self, property: SystemProperty) -> Value<'_>;

    /// Shows each application property once, in any order.
    fn visit_user(&self, visit: &mut dyn FnMut(&str, Value<'_>));
}

/// Whether two names are the same but for upper and lower case.
#[inline]
pub fn same_name(one: &str, other: &str) -> bool {
    if one.is_ascii() && other.is_ascii() {
        return one.eq_ignore_ascii_case(other);
    }
    let folded = |name: &str| {
        name.chars()
            .flat_map(char::to_lowercase)
            .collect::<Vec<_>>()
    };
    folded(one) == folded(other)
}

/// Whether two names are those of one parameter: an `@` before them does not count either.
pub fn same_parameter(one: &str, other: &str) -> bool {
    let plain = |name| str::strip_prefix(name, '@').unwrap_or(name);
    same_name(plain(one), plain(other))
}

/// The parameters that count. Rules of earlier versions may give one twice: then the later value does.
pub fn parameters_that_count<N: AsRef<str>, V>(all: &[(N, V)]) -> impl Iterator<Item = &(N, V)> {
    let counts = |(place, (name, _)): &(usize, &(N, V))| {
        let mut later = all.iter().skip(place + 1);
        !later.any(|(it, _)| same_parameter(it.as_ref(), name.as_ref()))
    };
    all.iter().enumerate().filter(counts).map(|(_, it)| it)
}

/// A name as the index looks it up: names that are the same have one.
pub(crate) fn folded(name: &str) -> String {
    name.chars().flat_map(char::to_lowercase).collect()
}

macro_rules! system_properties {
    ($($(#[$doc:meta])+ $name:ident $(| $alias:literal)*,)+) => {
        /// A property that the service defines, named `sys.…` in rules.
        ///
        /// Source: Service Bus, *Messages, payloads, and serialization*, and the properties of .NET's `ServiceBusMessage`,
        /// `ServiceBusReceivedMessage` and `BrokeredMessage`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum SystemProperty {
            $($(#[$doc])+ $name,)+
        }

        impl SystemProperty {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Its name, without `sys.`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// The property with this name, in upper or lower case.
            pub fn named(name: &str) -> Option<Self> {
                $(if [stringify!($name) $(, $alias)*].iter().any(|it| it.eq_ignore_ascii_case(name)) {
                    return Some(Self::$name);
                })+
                None
            }
        }
    };
}

system_properties! {
    /// `message-id`.
    MessageId,
    /// `correlation-id`.
    CorrelationId,
    /// `to`.
    To,
    /// `reply-to`.
    ReplyTo,
    /// `subject`.
    Label | "Subject",
    /// `group-id`.
    SessionId,
    /// `reply-to-group-id`.
    ReplyToSessionId,
    /// `content-type`.
    ContentType,
    /// How long it lives: a duration.
    TimeToLive,
    /// When it becomes active: a timestamp.
    ScheduledEnqueueTimeUtc | "ScheduledEnqueueTime",
    /// `x-opt-partition-key`.
    PartitionKey,
    /// `x-opt-via-partition-key`.
    ViaPartitionKey | "TransactionPartitionKey",
    /// When it arrived: a timestamp.
    EnqueuedTimeUtc | "EnqueuedTime",
    /// When its life ends: a timestamp.
    ExpiresAtUtc | "ExpiresAt",
    /// Its sequence number: a long.
    SequenceNumber,
    /// Its sequence number where it was first sent to: a long.
    EnqueuedSequenceNumber,
    /// How often it was delivered: an int.
    DeliveryCount,
    /// The entity in which it was dead-lettered.
    DeadLetterSource,
    /// Its size in bytes: a long.
    Size,
    /// Its state: an int; 0 active, 1 deferred, 2 scheduled.
    State,
    /// Its lock token: a uuid.
    LockToken,
    /// When its lock ends: a timestamp.
    LockedUntilUtc | "LockedUntil",
}

impl SystemProperty {
    /// Which values an action may give it. `None` if only the service sets it.
    pub(crate) fn settable(self) -> Option<Settable> {
        match self {
            Self::MessageId
            | Self::CorrelationId
            | Self::To
            | Self::ReplyTo
            | Self::Label
            | Self::SessionId
            | Self::ReplyToSessionId
            | Self::ContentType
            | Self::PartitionKey
            | Self::ViaPartitionKey => Some(Settable::Text),
            Self::TimeToLive => Some(Settable::Duration),
            Self::ScheduledEnqueueTimeUtc => Some(Settable::Timestamp),
            Self::EnqueuedTimeUtc
            | Self::ExpiresAtUtc
            | Self::SequenceNumber
            | Self::EnqueuedSequenceNumber
            | Self::DeliveryCount
            | Self::DeadLetterSource
            | Self::Size
            | Self::State
            | Self::LockToken
            | Self::LockedUntilUtc => None,
        }
    }
}

/// The type of a system property that an action may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settable {
    Text,
    Duration,
    Timestamp,
}

/// What newid() returns.
///
/// The caller decides, so that an evaluation depends on nothing but its arguments. The `nth` id of one evaluation, from
/// zero, in the order of the text's calls.
pub trait NewIds {
    /// The bytes of a uuid.
    fn id(&self, nth: u32) -> [u8; 16];
}

impl<F: Fn(u32) -> [u8; 16]> NewIds for F {
    fn id(&self, nth: u32) -> [u8; 16] {
        self(nth)
    }
}
