//! The definitions of topics and subscriptions, as those of queues (`definition`).

use kew_client::{EntityStatus, SubscriptionSettings, TopicSettings};

use super::definition::{
    DELIVERIES_WHILE_FILLED, KILOBYTE, LOCK_WHILE_FILLED, MEGABYTE, bytes, others, read_rules,
    rules_of, size, span, status, target, with_targets, word_of,
};
use super::mark::{Owner, mark, metadata_of_line, without_mark};
use crate::operate::settings::{ms, unless_empty, unless_forever};
use crate::portable::{SubscriptionDefinition, TopicDefinition};

/// The definition of a topic. Keys are left out unless they are wanted.
pub(super) fn definition_of_topic(it: &TopicSettings, with_keys: bool) -> TopicDefinition {
    TopicDefinition {
        status: word_of(&it.status),
        size_bytes_max: bytes(it.max_size_megabytes, MEGABYTE),
        message_size_bytes_max: bytes(it.max_message_size_kilobytes, KILOBYTE),
        detects_duplicates: it.requires_duplicate_detection,
        duplicate_window_ms: it.duplicate_window.map(ms),
        default_time_to_live_ms: unless_forever(it.default_time_to_live),
        filters_before_publishing: it.filters_before_publishing,
        auto_delete_on_idle_ms: unless_forever(it.auto_delete_on_idle),
        user_metadata: without_mark(&it.user_metadata),
        enable_batched_operations: it.enable_batched_operations,
        support_ordering: it.support_ordering,
        enable_partitioning: it.enable_partitioning,
        enable_subscription_partitioning: it.enable_subscription_partitioning,
        enable_express: it.enable_express,
        authorization_rules: rules_of(&it.authorization_rules, with_keys),
    }
}

/// The settings of a definition; or what is wrong with it.
pub(super) fn settings_of_topic(it: &TopicDefinition) -> Result<TopicSettings, String> {
    let known = [
        EntityStatus::Active,
        EntityStatus::Disabled,
        EntityStatus::SendDisabled,
    ];
    Ok(TopicSettings {
        default_time_to_live: span(it.default_time_to_live_ms),
        max_size_megabytes: size("size_bytes_max", it.size_bytes_max, MEGABYTE)?,
        requires_duplicate_detection: it.detects_duplicates,
        duplicate_window: span(it.duplicate_window_ms),
        enable_batched_operations: it.enable_batched_operations,
        filters_before_publishing: it.filters_before_publishing,
        authorization_rules: read_rules(&it.authorization_rules)?,
        status: status(&it.status, known)?,
        user_metadata: metadata_of_line(&it.user_metadata)?,
        support_ordering: it.support_ordering,
        auto_delete_on_idle: span(it.auto_delete_on_idle_ms),
        enable_partitioning: it.enable_partitioning,
        enable_subscription_partitioning: it.enable_subscription_partitioning,
        enable_express: it.enable_express,
        max_message_size_kilobytes: size(
            "message_size_bytes_max",
            it.message_size_bytes_max,
            KILOBYTE,
        )?,
        ..TopicSettings::default()
    })
}

/// The size of a topic of Kew while its subscriptions are filled, in megabytes: the largest that there is.
const MEGABYTES_WHILE_FILLED: u64 = 1 << 30;

/// What a topic gets when it is created: its subscriptions can be given states only while it is active.
///
/// In Kew, messages are put into each subscription with a body of its own, where the copies of a publish have one
/// together. So they can count more than the topic may have, and its size comes last.
pub(super) fn topic_while_filled(settings: &TopicSettings, is_kew: bool) -> TopicSettings {
    let size = settings.max_size_megabytes;
    TopicSettings {
        max_size_megabytes: size.map(|size| if is_kew { MEGABYTES_WHILE_FILLED } else { size }),
        status: Some(EntityStatus::Active),
        // It would refuse messages whose time has passed if no rule selects them.
        filters_before_publishing: settings.filters_before_publishing.map(|_| false),
        user_metadata: mark(),
        ..settings.clone()
    }
}

/// What a topic gets at the end: the settings that it could not have before.
pub(super) fn completed_topic(now: &TopicSettings, wanted: &TopicSettings) -> TopicSettings {
    TopicSettings {
        status: Some(wanted.status.clone().unwrap_or(EntityStatus::Active)),
        filters_before_publishing: wanted
            .filters_before_publishing
            .or(now.filters_before_publishing),
        max_size_megabytes: wanted.max_size_megabytes.or(now.max_size_megabytes),
        user_metadata: Some(target(&wanted.user_metadata)),
        // Without this element the rules stay.
        authorization_rules: None,
        ..now.clone()
    }
}

/// The names of settings that a definition has and the topic has otherwise: see `differences`.
pub(super) fn topic_differences(
    now: &TopicSettings,
    wanted: &TopicDefinition,
    owner: Owner,
) -> Vec<String> {
    let mut wanted = TopicDefinition {
        authorization_rules: Vec::new(),
        ..wanted.clone()
    };
    if owner == Owner::Import {
        wanted.status = None;
        wanted.filters_before_publishing = None;
        wanted.size_bytes_max = None;
        wanted.user_metadata = None;
    }
    others(&definition_of_topic(now, false), &wanted)
}

/// The definition of a subscription, without its rules.
pub(super) fn definition_of_subscription(it: &SubscriptionSettings) -> SubscriptionDefinition {
    SubscriptionDefinition {
        status: word_of(&it.status),
        requires_session: it.requires_session,
        lock_duration_ms: it.lock_duration.map(ms),
        max_delivery_count: it.max_delivery_count,
        default_time_to_live_ms: unless_forever(it.default_time_to_live),
        dead_letters_expired: it.dead_letters_expired,
        dead_letters_filter_failures: it.dead_letters_filter_failures,
        auto_delete_on_idle_ms: unless_forever(it.auto_delete_on_idle),
        forward_to: unless_empty(it.forward_to.clone()),
        forward_dead_letters_to: unless_empty(it.forward_dead_letters_to.clone()),
        user_metadata: without_mark(&it.user_metadata),
        enable_batched_operations: it.enable_batched_operations,
    }
}

/// The settings of a definition; or what is wrong with it.
pub(super) fn settings_of_subscription(
    it: &SubscriptionDefinition,
) -> Result<SubscriptionSettings, String> {
    let known = [
        EntityStatus::Active,
        EntityStatus::Disabled,
        EntityStatus::ReceiveDisabled,
    ];
    Ok(SubscriptionSettings {
        lock_duration: span(it.lock_duration_ms),
        requires_session: it.requires_session,
        default_time_to_live: span(it.default_time_to_live_ms),
        dead_letters_expired: it.dead_letters_expired,
        dead_letters_filter_failures: it.dead_letters_filter_failures,
        max_delivery_count: it.max_delivery_count,
        enable_batched_operations: it.enable_batched_operations,
        status: status(&it.status, known)?,
        forward_to: it.forward_to.clone(),
        user_metadata: metadata_of_line(&it.user_metadata)?,
        forward_dead_letters_to: it.forward_dead_letters_to.clone(),
        auto_delete_on_idle: span(it.auto_delete_on_idle_ms),
        ..SubscriptionSettings::default()
    })
}

/// What a subscription gets when it is created: what it forwards to may come later, and states need an active one.
pub(super) fn subscription_while_filled(settings: &SubscriptionSettings) -> SubscriptionSettings {
    SubscriptionSettings {
        status: Some(EntityStatus::Active),
        forward_to: None,
        forward_dead_letters_to: None,
        user_metadata: mark(),
        lock_duration: settings.lock_duration.map(|it| it.min(LOCK_WHILE_FILLED)),
        max_delivery_count: settings
            .max_delivery_count
            .map(|it| it.max(DELIVERIES_WHILE_FILLED)),
        ..settings.clone()
    }
}

/// What a subscription gets at the end: the settings that it could not have before.
pub(super) fn completed_subscription(
    now: &SubscriptionSettings,
    wanted: &SubscriptionSettings,
) -> SubscriptionSettings {
    SubscriptionSettings {
        status: Some(wanted.status.clone().unwrap_or(EntityStatus::Active)),
        forward_to: Some(target(&wanted.forward_to)),
        forward_dead_letters_to: Some(target(&wanted.forward_dead_letters_to)),
        user_metadata: Some(target(&wanted.user_metadata)),
        lock_duration: wanted.lock_duration.or(now.lock_duration),
        max_delivery_count: wanted.max_delivery_count.or(now.max_delivery_count),
        ..now.clone()
    }
}

/// The names of settings that a definition has and the subscription has otherwise: see `differences`.
pub(super) fn subscription_differences(
    now: &SubscriptionSettings,
    wanted: &SubscriptionDefinition,
    owner: Owner,
) -> Vec<String> {
    let now = definition_of_subscription(now);
    match owner {
        Owner::Other => with_targets(
            others(&now, wanted),
            [
                ("forward_to", &now.forward_to, &wanted.forward_to),
                (
                    "forward_dead_letters_to",
                    &now.forward_dead_letters_to,
                    &wanted.forward_dead_letters_to,
                ),
            ],
        ),
        Owner::Import => others(
            &now,
            &SubscriptionDefinition {
                status: None,
                forward_to: None,
                forward_dead_letters_to: None,
                user_metadata: None,
                lock_duration_ms: None,
                max_delivery_count: None,
                ..wanted.clone()
            },
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::portable::Rule;

    fn topic() -> TopicSettings {
        TopicSettings {
            status: Some(EntityStatus::SendDisabled),
            max_size_megabytes: Some(2048),
            default_time_to_live: Some(TopicSettings::FOREVER),
            duplicate_window: Some(Duration::from_mins(1)),
            filters_before_publishing: Some(true),
            user_metadata: Some("m".into()),
            ..TopicSettings::default()
        }
    }

    fn subscription() -> SubscriptionSettings {
        SubscriptionSettings {
            status: Some(EntityStatus::ReceiveDisabled),
            lock_duration: Some(Duration::from_secs(5)),
            dead_letters_filter_failures: Some(false),
            forward_to: Some("other".into()),
            forward_dead_letters_to: Some(String::new()),
            auto_delete_on_idle: Some(Duration::from_hours(1)),
            ..SubscriptionSettings::default()
        }
    }

    /// Every member, so that none is forgotten on the way.
    #[test]
    fn definitions_come_back() {
        let flag = Some(true);
        let topic = TopicDefinition {
            status: Some("Disabled".into()),
            size_bytes_max: Some(MEGABYTE),
            message_size_bytes_max: Some(KILOBYTE),
            detects_duplicates: flag,
            duplicate_window_ms: Some(1),
            default_time_to_live_ms: Some(2),
            filters_before_publishing: flag,
            auto_delete_on_idle_ms: Some(3),
            user_metadata: Some("m".into()),
            enable_batched_operations: flag,
            support_ordering: flag,
            enable_partitioning: flag,
            enable_subscription_partitioning: flag,
            enable_express: flag,
            authorization_rules: vec![Rule {
                name: "r".into(),
                rights: vec!["Send".into()],
                primary_key: Some("k".into()),
                secondary_key: None,
            }],
        };
        let settings = settings_of_topic(&topic).unwrap();
        assert_eq!(definition_of_topic(&settings, true), topic);
        let without = definition_of_topic(&settings, false);
        assert_eq!(without.authorization_rules[0].primary_key, None);
        let subscription = SubscriptionDefinition {
            status: Some("Disabled".into()),
            requires_session: flag,
            lock_duration_ms: Some(1),
            max_delivery_count: Some(2),
            default_time_to_live_ms: Some(3),
            dead_letters_expired: flag,
            dead_letters_filter_failures: flag,
            auto_delete_on_idle_ms: Some(4),
            forward_to: Some("a".into()),
            forward_dead_letters_to: Some("b".into()),
            user_metadata: Some("m".into()),
            enable_batched_operations: flag,
        };
        let settings = settings_of_subscription(&subscription).unwrap();
        assert_eq!(definition_of_subscription(&settings), subscription);
        // What never ends, and an empty text, are left out.
        let definition = definition_of_topic(&self::topic(), true);
        assert_eq!(definition.default_time_to_live_ms, None);
        let definition = definition_of_subscription(&self::subscription());
        assert_eq!(definition.forward_dead_letters_to, None);
    }

    #[test]
    fn a_status_is_one_of_its_kind() {
        let topic = TopicDefinition {
            status: Some("ReceiveDisabled".into()),
            ..TopicDefinition::default()
        };
        let error = settings_of_topic(&topic).unwrap_err();
        assert!(
            error.ends_with("one of Active, Disabled, SendDisabled"),
            "{error}"
        );
        let subscription = SubscriptionDefinition {
            status: Some("SendDisabled".into()),
            ..SubscriptionDefinition::default()
        };
        let error = settings_of_subscription(&subscription).unwrap_err();
        assert!(
            error.ends_with("one of Active, Disabled, ReceiveDisabled"),
            "{error}"
        );
        let topic = TopicDefinition {
            size_bytes_max: Some(7),
            ..TopicDefinition::default()
        };
        let error = settings_of_topic(&topic).unwrap_err();
        assert!(error.contains("size_bytes_max is 7"), "{error}");
    }

    #[test]
    fn what_would_be_in_the_way_comes_last() {
        assert_eq!(
            topic_while_filled(&topic(), false).max_size_megabytes,
            Some(2048)
        );
        let now = topic_while_filled(&topic(), true);
        assert_eq!(now.status, Some(EntityStatus::Active));
        let last = completed_topic(&now, &topic());
        assert_eq!(last.status, Some(EntityStatus::SendDisabled));
        assert_eq!(now.max_size_megabytes, Some(MEGABYTES_WHILE_FILLED));
        assert_eq!(last.max_size_megabytes, Some(2048));
        let filters = [
            now.filters_before_publishing,
            last.filters_before_publishing,
        ];
        assert_eq!(filters, [Some(false), Some(true)]);
        assert_eq!(
            (now.user_metadata.clone(), last.user_metadata.as_deref()),
            (mark(), Some("m"))
        );
        let wanted = definition_of_topic(&topic(), true);
        assert!(topic_differences(&now, &wanted, Owner::Import).is_empty());
        assert_eq!(
            topic_differences(&now, &wanted, Owner::Other),
            [
                "filters_before_publishing",
                "size_bytes_max",
                "status",
                "user_metadata"
            ]
        );

        let now = subscription_while_filled(&subscription());
        assert_eq!(
            (&now.status, &now.forward_to),
            (&Some(EntityStatus::Active), &None)
        );
        let last = completed_subscription(&now, &subscription());
        assert_eq!(last.forward_to.as_deref(), Some("other"));
        assert_eq!(last.status, Some(EntityStatus::ReceiveDisabled));
        let other = definition_of_subscription(&now);
        assert_eq!(
            subscription_differences(&subscription(), &other, Owner::Other),
            ["status", "forward_to"]
        );
        let wanted = SubscriptionDefinition {
            max_delivery_count: Some(7),
            dead_letters_expired: Some(true),
            ..definition_of_subscription(&subscription())
        };
        assert_eq!(
            subscription_differences(&now, &wanted, Owner::Import),
            ["dead_letters_expired"]
        );
    }
}
