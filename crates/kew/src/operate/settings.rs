//! The settings of queues, topics and subscriptions: from the command line, and as they are shown.

use std::time::Duration;

use kew_client::{
    EntityDescription, EntityState, EntityStatus, QueueDescription, QueueSettings,
    SubscriptionDescription, SubscriptionSettings, TopicDescription, TopicSettings,
};
use serde::Serialize;

use super::view::rfc3339_ms;
use crate::bus_entity_args::{EntityArgs, ReceivingArgs, SendingArgs, SettingsArgs, Status};
use crate::bus_topic_args::{SubscriptionSettingsArgs, TopicSettingsArgs};
use crate::queue_command::Failure;
use crate::queue_values::{Life, Target};

const MEGABYTE: u64 = 1 << 20;
const KILOBYTE: u64 = 1 << 10;

/// Sets what the command line asks for. Everything else stays.
pub(super) fn apply(settings: &mut QueueSettings, asked: &SettingsArgs) -> Result<(), Failure> {
    let it = settings;
    sending(
        &asked.sending,
        &mut it.max_size_megabytes,
        &mut it.max_message_size_kilobytes,
        &mut it.duplicate_window,
    )?;
    receiving(
        &asked.receiving,
        &mut it.lock_duration,
        &mut it.max_delivery_count,
        &mut it.dead_letters_expired,
        [&mut it.forward_to, &mut it.forward_dead_letters_to],
    );
    of_all(
        &asked.entity,
        [&mut it.default_time_to_live, &mut it.auto_delete_on_idle],
        &mut it.status,
        &mut it.user_metadata,
    );
    Ok(())
}

/// The same for a topic.
pub(super) fn apply_to_topic(
    it: &mut TopicSettings,
    asked: &TopicSettingsArgs,
) -> Result<(), Failure> {
    sending(
        &asked.sending,
        &mut it.max_size_megabytes,
        &mut it.max_message_size_kilobytes,
        &mut it.duplicate_window,
    )?;
    set(
        &mut it.filters_before_publishing,
        asked.filter_before_publishing,
    );
    of_all(
        &asked.entity,
        [&mut it.default_time_to_live, &mut it.auto_delete_on_idle],
        &mut it.status,
        &mut it.user_metadata,
    );
    Ok(())
}

/// The same for a subscription.
pub(super) fn apply_to_subscription(
    it: &mut SubscriptionSettings,
    asked: &SubscriptionSettingsArgs,
) {
    receiving(
        &asked.receiving,
        &mut it.lock_duration,
        &mut it.max_delivery_count,
        &mut it.dead_letters_expired,
        [&mut it.forward_to, &mut it.forward_dead_letters_to],
    );
    set(
        &mut it.dead_letters_filter_failures,
        asked.dead_letter_filter_failures,
    );
    of_all(
        &asked.entity,
        [&mut it.default_time_to_live, &mut it.auto_delete_on_idle],
        &mut it.status,
        &mut it.user_metadata,
    );
}

/// What queues and topics share.
fn sending(
    asked: &SendingArgs,
    max_size: &mut Option<u64>,
    max_message_size: &mut Option<u64>,
    duplicate_window: &mut Option<Duration>,
) -> Result<(), Failure> {
    let whole = |flag: &str, size: Option<u64>, unit: u64, name: &str| match size {
        Some(size) if !size.is_multiple_of(unit) => Err(Failure::Usage(format!(
            "{flag} is {size} bytes, and must be a whole number of {name}"
        ))),
        size => Ok(size.map(|size| size / unit)),
    };
    set(
        max_size,
        whole("--max-size", asked.max_size, MEGABYTE, "MiB")?,
    );
    let kilobytes = whole(
        "--max-message-size",
        asked.max_message_size,
        KILOBYTE,
        "KiB",
    )?;
    set(max_message_size, kilobytes);
    set(duplicate_window, asked.duplicate_window);
    Ok(())
}

/// What queues and subscriptions share. `targets` are those of messages and of dead letters.
fn receiving(
    asked: &ReceivingArgs,
    lock_duration: &mut Option<Duration>,
    max_delivery_count: &mut Option<u32>,
    dead_letters_expired: &mut Option<bool>,
    targets: [&mut Option<String>; 2],
) {
    set(lock_duration, asked.lock_duration);
    set(max_delivery_count, asked.max_delivery_count);
    set(dead_letters_expired, asked.dead_letter_expired);
    let target = |target: &Target| match target {
        Target::Entity(name) => name.clone(),
        Target::None => String::new(),
    };
    for (place, asked) in targets
        .into_iter()
        .zip([&asked.forward_to, &asked.forward_dead_letters_to])
    {
        set(place, asked.as_ref().map(target));
    }
}

/// What all three share. `lives` are those of messages and of the entity itself.
fn of_all(
    asked: &EntityArgs,
    lives: [&mut Option<Duration>; 2],
    status: &mut Option<EntityStatus>,
    user_metadata: &mut Option<String>,
) {
    for (place, asked) in lives
        .into_iter()
        .zip([asked.ttl, asked.auto_delete_on_idle])
    {
        set(place, asked.map(life));
    }
    set(status, asked.status.map(status_of));
    set(user_metadata, asked.user_metadata.clone());
}

fn set<T>(place: &mut Option<T>, asked: Option<T>) {
    if asked.is_some() {
        *place = asked;
    }
}

fn status_of(status: Status) -> EntityStatus {
    match status {
        Status::Active => EntityStatus::Active,
        Status::Disabled => EntityStatus::Disabled,
        Status::SendDisabled => EntityStatus::SendDisabled,
        Status::ReceiveDisabled => EntityStatus::ReceiveDisabled,
    }
}

fn life(life: Life) -> Duration {
    match life {
        Life::Ends(after) => after,
        Life::Never => QueueSettings::FOREVER,
    }
}

/// A queue, topic or subscription with its counts and settings. What the service does not say is left out.
#[derive(Debug, Default, Serialize)]
pub(super) struct EntityView {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) active_messages: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scheduled_messages: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dead_letters: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed_transfers: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_transfers: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subscriptions: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_size_bytes_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requires_session: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detects_duplicates: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate_window_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock_duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_delivery_count: Option<u32>,
    /// `None` if messages without a time to live never expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    default_time_to_live_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letters_expired: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letters_filter_failures: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filters_before_publishing: Option<bool>,
    /// `None` if idling never deletes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    auto_delete_on_idle_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forward_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forward_dead_letters_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_metadata: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used_at: Option<String>,
}

impl EntityView {
    /// An entity of any kind; `name` is what it was asked for by.
    pub(super) fn of(entity: EntityDescription, name: &str) -> Option<Self> {
        match entity {
            EntityDescription::Queue(queue) => Some(Self::of_queue(queue)),
            EntityDescription::Topic(topic) => Some(Self::of_topic(topic)),
            EntityDescription::Subscription(it) => Some(Self::of_subscription(name.to_owned(), it)),
            _ => None,
        }
    }

    pub(super) fn of_queue(queue: QueueDescription) -> Self {
        let it = queue.settings;
        Self {
            requires_session: it.requires_session,
            lock_duration_ms: it.lock_duration.map(ms),
            max_delivery_count: it.max_delivery_count,
            default_time_to_live_ms: unless_forever(it.default_time_to_live),
            dead_letters_expired: it.dead_letters_expired,
            auto_delete_on_idle_ms: unless_forever(it.auto_delete_on_idle),
            forward_to: unless_empty(it.forward_to),
            forward_dead_letters_to: unless_empty(it.forward_dead_letters_to),
            user_metadata: unless_empty(it.user_metadata),
            ..Self::of_state(queue.name, queue.state, it.status)
        }
        .with_sizes(it.max_size_megabytes, it.max_message_size_kilobytes)
        .with_duplicates(it.requires_duplicate_detection, it.duplicate_window)
    }

    pub(super) fn of_topic(topic: TopicDescription) -> Self {
        let it = topic.settings;
        Self {
            filters_before_publishing: it.filters_before_publishing,
            default_time_to_live_ms: unless_forever(it.default_time_to_live),
            auto_delete_on_idle_ms: unless_forever(it.auto_delete_on_idle),
            user_metadata: unless_empty(it.user_metadata),
            ..Self::of_state(topic.name, topic.state, it.status)
        }
        .with_sizes(it.max_size_megabytes, it.max_message_size_kilobytes)
        .with_duplicates(it.requires_duplicate_detection, it.duplicate_window)
    }

    /// `name` has the topic before it.
    pub(super) fn of_subscription(name: String, subscription: SubscriptionDescription) -> Self {
        let it = subscription.settings;
        Self {
            requires_session: it.requires_session,
            lock_duration_ms: it.lock_duration.map(ms),
            max_delivery_count: it.max_delivery_count,
            default_time_to_live_ms: unless_forever(it.default_time_to_live),
            dead_letters_expired: it.dead_letters_expired,
            dead_letters_filter_failures: it.dead_letters_filter_failures,
            auto_delete_on_idle_ms: unless_forever(it.auto_delete_on_idle),
            forward_to: unless_empty(it.forward_to),
            forward_dead_letters_to: unless_empty(it.forward_dead_letters_to),
            user_metadata: unless_empty(it.user_metadata),
            ..Self::of_state(name, subscription.state, it.status)
        }
    }

    fn of_state(name: String, state: EntityState, status: Option<EntityStatus>) -> Self {
        Self {
            name,
            status: status.map(|status| status.as_str().to_owned()),
            active_messages: state.active_count,
            scheduled_messages: state.scheduled_count,
            dead_letters: state.dead_letter_count,
            failed_transfers: state.transfer_dead_letter_count,
            waiting_transfers: state.transfer_count.filter(|&count| count > 0),
            subscriptions: state.subscription_count,
            size_bytes: state.size_bytes,
            created_at: state.created_at.map(rfc3339_ms),
            updated_at: state.updated_at.map(rfc3339_ms),
            used_at: state.accessed_at.map(rfc3339_ms),
            ..Self::default()
        }
    }

    fn with_sizes(self, megabytes: Option<u64>, kilobytes: Option<u64>) -> Self {
        Self {
            size_bytes_max: megabytes.map(|size| size.saturating_mul(MEGABYTE)),
            message_size_bytes_max: kilobytes.map(|size| size.saturating_mul(KILOBYTE)),
            ..self
        }
    }

    fn with_duplicates(self, detects_duplicates: Option<bool>, window: Option<Duration>) -> Self {
        Self {
            detects_duplicates,
            duplicate_window_ms: window.map(ms).filter(|_| detects_duplicates != Some(false)),
            ..self
        }
    }
}

pub(super) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// In milliseconds. `None`: never.
pub(super) fn unless_forever(duration: Option<Duration>) -> Option<u64> {
    duration.filter(|&it| it < QueueSettings::FOREVER).map(ms)
}

/// Services say nothing with an empty text.
pub(super) fn unless_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_without_a_flag_stay() {
        let mut settings = QueueSettings {
            user_metadata: Some("a".into()),
            forward_to: Some("x".into()),
            ..QueueSettings::default()
        };
        let asked = SettingsArgs {
            entity: EntityArgs {
                ttl: Some(Life::Never),
                status: Some(Status::SendDisabled),
                ..EntityArgs::default()
            },
            sending: SendingArgs {
                max_size: Some(2 << 30),
                ..SendingArgs::default()
            },
            receiving: ReceivingArgs {
                forward_to: Some(Target::None),
                ..ReceivingArgs::default()
            },
        };
        apply(&mut settings, &asked).unwrap();
        assert_eq!(settings.user_metadata.as_deref(), Some("a"));
        assert_eq!(settings.forward_to.as_deref(), Some(""));
        assert_eq!(settings.max_size_megabytes, Some(2048));
        assert_eq!(settings.default_time_to_live, Some(QueueSettings::FOREVER));
        assert_eq!(settings.status, Some(EntityStatus::SendDisabled));
        assert_eq!(settings.lock_duration, None);
    }

    #[test]
    fn sizes_are_whole() {
        for sending in [
            SendingArgs {
                max_size: Some((1 << 20) + 1),
                ..SendingArgs::default()
            },
            SendingArgs {
                max_message_size: Some(1000),
                ..SendingArgs::default()
            },
        ] {
            let asked = SettingsArgs {
                sending,
                ..SettingsArgs::default()
            };
            let mut settings = QueueSettings::default();
            assert!(apply(&mut settings, &asked).is_err(), "{asked:?}");
        }
    }
}
