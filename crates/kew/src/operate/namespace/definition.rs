//! The definition of a queue as the service has it, and as a line of an export; and what those of other entities share
//! with it.

use std::time::Duration;

use kew_client::{EntityStatus, QueueRule, QueueSettings, Right, Secret, UnknownElements};
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::mark::{Owner, mark, metadata_of_line, without_mark};
use crate::operate::settings::{ms, unless_empty, unless_forever};
use crate::portable::{BusDefinition, Rule};

pub(super) const MEGABYTE: u64 = 1 << 20;
pub(super) const KILOBYTE: u64 = 1 << 10;

/// The definition of a queue. Keys are left out unless they are wanted.
pub(super) fn definition_of(settings: &QueueSettings, with_keys: bool) -> BusDefinition {
    BusDefinition {
        status: word_of(&settings.status),
        size_bytes_max: bytes(settings.max_size_megabytes, MEGABYTE),
        message_size_bytes_max: bytes(settings.max_message_size_kilobytes, KILOBYTE),
        requires_session: settings.requires_session,
        detects_duplicates: settings.requires_duplicate_detection,
        duplicate_window_ms: settings.duplicate_window.map(ms),
        lock_duration_ms: settings.lock_duration.map(ms),
        max_delivery_count: settings.max_delivery_count,
        default_time_to_live_ms: unless_forever(settings.default_time_to_live),
        dead_letters_expired: settings.dead_letters_expired,
        auto_delete_on_idle_ms: unless_forever(settings.auto_delete_on_idle),
        forward_to: unless_empty(settings.forward_to.clone()),
        forward_dead_letters_to: unless_empty(settings.forward_dead_letters_to.clone()),
        user_metadata: without_mark(&settings.user_metadata),
        enable_batched_operations: settings.enable_batched_operations,
        support_ordering: settings.support_ordering,
        enable_partitioning: settings.enable_partitioning,
        enable_express: settings.enable_express,
        authorization_rules: rules_of(&settings.authorization_rules, with_keys),
    }
}

/// The service's word for a status.
pub(super) fn word_of(status: &Option<EntityStatus>) -> Option<String> {
    status.as_ref().map(|it| it.as_str().to_owned())
}

pub(super) fn bytes(size: Option<u64>, unit: u64) -> Option<u64> {
    size.map(|size| size.saturating_mul(unit))
}

/// Authorization rules for a line.
pub(super) fn rules_of(rules: &Option<Vec<QueueRule>>, with_keys: bool) -> Vec<Rule> {
    let rules = rules.iter().flatten();
    rules.map(|rule| rule_of(rule, with_keys)).collect()
}

fn rule_of(rule: &QueueRule, with_keys: bool) -> Rule {
    let key = |key: &Option<Secret>| {
        let key = key.as_ref().filter(|_| with_keys);
        key.map(|key| key.expose().to_owned())
    };
    Rule {
        name: rule.name.clone(),
        rights: rule
            .rights
            .iter()
            .map(|it| it.as_str().to_owned())
            .collect(),
        primary_key: key(&rule.primary_key),
        secondary_key: key(&rule.secondary_key),
    }
}

/// The settings of a definition; or what is wrong with it.
pub(super) fn settings_of(it: &BusDefinition) -> Result<QueueSettings, String> {
    let known = [
        EntityStatus::Active,
        EntityStatus::Disabled,
        EntityStatus::SendDisabled,
        EntityStatus::ReceiveDisabled,
    ];
    Ok(QueueSettings {
        lock_duration: span(it.lock_duration_ms),
        max_size_megabytes: size("size_bytes_max", it.size_bytes_max, MEGABYTE)?,
        requires_duplicate_detection: it.detects_duplicates,
        requires_session: it.requires_session,
        default_time_to_live: span(it.default_time_to_live_ms),
        dead_letters_expired: it.dead_letters_expired,
        duplicate_window: span(it.duplicate_window_ms),
        max_delivery_count: it.max_delivery_count,
        enable_batched_operations: it.enable_batched_operations,
        authorization_rules: read_rules(&it.authorization_rules)?,
        status: status(&it.status, known)?,
        forward_to: it.forward_to.clone(),
        user_metadata: metadata_of_line(&it.user_metadata)?,
        support_ordering: it.support_ordering,
        auto_delete_on_idle: span(it.auto_delete_on_idle_ms),
        enable_partitioning: it.enable_partitioning,
        forward_dead_letters_to: it.forward_dead_letters_to.clone(),
        enable_express: it.enable_express,
        max_message_size_kilobytes: size(
            "message_size_bytes_max",
            it.message_size_bytes_max,
            KILOBYTE,
        )?,
        ..QueueSettings::default()
    })
}

pub(super) fn span(ms: Option<u64>) -> Option<Duration> {
    ms.map(Duration::from_millis)
}

/// A size in units of the service.
pub(super) fn size(name: &str, size: Option<u64>, unit: u64) -> Result<Option<u64>, String> {
    match size {
        Some(size) if !size.is_multiple_of(unit) => Err(format!(
            "{name} is {size}, and must be a multiple of {unit}"
        )),
        size => Ok(size.map(|size| size / unit)),
    }
}

/// A status, which is one of those that the kind of entity has.
pub(super) fn status<const N: usize>(
    text: &Option<String>,
    known: [EntityStatus; N],
) -> Result<Option<EntityStatus>, String> {
    let Some(text) = text else {
        return Ok(None);
    };
    let words: Vec<String> = known.iter().map(|it| it.as_str().to_owned()).collect();
    let found = known.into_iter().find(|it| it.as_str() == text);
    found.map(Some).ok_or_else(|| {
        format!(
            "status is {text:?}, and must be one of {}",
            words.join(", ")
        )
    })
}

/// Authorization rules for the service.
pub(super) fn read_rules(rules: &[Rule]) -> Result<Option<Vec<QueueRule>>, String> {
    let rules: Vec<QueueRule> = rules.iter().map(read_rule).collect::<Result<_, _>>()?;
    Ok((!rules.is_empty()).then_some(rules))
}

fn read_rule(rule: &Rule) -> Result<QueueRule, String> {
    let right = |text: &String| match text.as_str() {
        "Manage" => Ok(Right::Manage),
        "Send" => Ok(Right::Send),
        "Listen" => Ok(Right::Listen),
        other => Err(format!(
            "a right of rule {:?} is {other:?}, and must be Manage, Send or Listen",
            rule.name
        )),
    };
    let rights: Result<Vec<Right>, String> = rule.rights.iter().map(right).collect();
    let key = |key: &Option<String>| key.as_deref().map(Secret::new);
    Ok(QueueRule {
        name: rule.name.clone(),
        rights: rights?,
        primary_key: key(&rule.primary_key),
        secondary_key: key(&rule.secondary_key),
        unknown: UnknownElements::default(),
    })
}

/// The lock of a message that is received to be settled, and of one whose import was killed in between.
pub(super) const LOCK_WHILE_FILLED: Duration = Duration::from_secs(10);

/// An import that is killed again and again makes no dead letters that way.
pub(super) const DELIVERIES_WHILE_FILLED: u32 = 1_000;

/// What a queue gets when it is created: it must take messages, and keep them, until all have come.
pub(super) fn while_it_is_filled(settings: &QueueSettings) -> QueueSettings {
    QueueSettings {
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

/// A name or metadata: an empty text for none.
pub(super) fn target(to: &Option<String>) -> String {
    to.clone().unwrap_or_default()
}

/// What a queue gets at the end: the settings that it could not have while it was filled.
pub(super) fn completed(now: &QueueSettings, wanted: &QueueSettings) -> QueueSettings {
    QueueSettings {
        status: Some(wanted.status.clone().unwrap_or(EntityStatus::Active)),
        forward_to: Some(target(&wanted.forward_to)),
        forward_dead_letters_to: Some(target(&wanted.forward_dead_letters_to)),
        user_metadata: Some(target(&wanted.user_metadata)),
        lock_duration: wanted.lock_duration.or(now.lock_duration),
        max_delivery_count: wanted.max_delivery_count.or(now.max_delivery_count),
        // Without this element the rules stay.
        authorization_rules: None,
        ..now.clone()
    }
}

/// The names of settings that a definition has and the queue has otherwise. A queue of the import gets some of them at
/// the end: they are left out.
pub(super) fn differences(
    now: &QueueSettings,
    wanted: &BusDefinition,
    owner: Owner,
) -> Vec<String> {
    let wanted = BusDefinition {
        authorization_rules: Vec::new(),
        ..wanted.clone()
    };
    let now = definition_of(now, false);
    match owner {
        Owner::Other => with_targets(
            others(&now, &wanted),
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
            &BusDefinition {
                status: None,
                forward_to: None,
                forward_dead_letters_to: None,
                user_metadata: None,
                lock_duration_ms: None,
                max_delivery_count: None,
                ..wanted
            },
        ),
    }
}

/// Adds the names of targets that an entity has and a line does not: a line without one means that there is none.
pub(super) fn with_targets(
    mut names: Vec<String>,
    targets: [(&str, &Option<String>, &Option<String>); 2],
) -> Vec<String> {
    let more = targets
        .into_iter()
        .filter(|(_, now, wanted)| now.is_some() && wanted.is_none());
    names.extend(more.map(|(name, _, _)| name.to_owned()));
    names
}

/// The names of members that a definition has and another has otherwise.
pub(super) fn others<D: Serialize>(now: &D, wanted: &D) -> Vec<String> {
    let members = |it: &D| match serde_json::to_value(it) {
        Ok(Json::Object(members)) => members,
        Ok(_) | Err(_) => Map::new(),
    };
    let (now, wanted) = (members(now), members(wanted));
    let names = wanted
        .iter()
        .filter(|(name, value)| now.get(*name) != Some(value));
    names.map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> QueueSettings {
        QueueSettings {
            lock_duration: Some(Duration::from_secs(5)),
            max_size_megabytes: Some(2048),
            requires_session: Some(true),
            default_time_to_live: Some(QueueSettings::FOREVER),
            status: Some(EntityStatus::SendDisabled),
            forward_to: Some("other".into()),
            user_metadata: Some(String::new()),
            authorization_rules: Some(vec![QueueRule {
                name: "r".into(),
                rights: vec![Right::Send, Right::Listen],
                primary_key: Some(Secret::new("one")),
                secondary_key: None,
                unknown: UnknownElements::default(),
            }]),
            ..QueueSettings::default()
        }
    }

    #[test]
    fn a_definition_comes_back() {
        let definition = definition_of(&full(), true);
        let again = definition_of(&settings_of(&definition).unwrap(), true);
        assert_eq!(again, definition);
        assert_eq!(definition.default_time_to_live_ms, None);
        assert_eq!(
            definition.authorization_rules[0].primary_key.as_deref(),
            Some("one")
        );
        let without = definition_of(&full(), false);
        assert_eq!(without.authorization_rules[0].primary_key, None);
    }

    #[test]
    fn a_wrong_value_is_named_with_what_is_allowed() {
        let with = |change: fn(&mut BusDefinition)| {
            let mut definition = definition_of(&full(), true);
            change(&mut definition);
            settings_of(&definition).unwrap_err()
        };
        let error = with(|it| it.status = Some("Open".into()));
        assert!(
            error.contains("\"Open\"") && error.contains("SendDisabled"),
            "{error}"
        );
        let error = with(|it| it.size_bytes_max = Some(7));
        assert!(error.contains("size_bytes_max is 7"), "{error}");
        let error = with(|it| it.authorization_rules[0].rights = vec!["Read".into()]);
        assert!(
            error.contains("\"Read\"") && error.contains("Listen"),
            "{error}"
        );
    }

    #[test]
    fn what_would_move_messages_comes_last() {
        let first = while_it_is_filled(&full());
        assert_eq!(
            (first.status, first.forward_to),
            (Some(EntityStatus::Active), None)
        );
        let now = while_it_is_filled(&full());
        let last = completed(&now, &full());
        assert_eq!(last.forward_to.as_deref(), Some("other"));
        assert_eq!(last.status, Some(EntityStatus::SendDisabled));
        let long = QueueSettings {
            lock_duration: Some(Duration::from_mins(5)),
            ..QueueSettings::default()
        };
        let first = while_it_is_filled(&long);
        assert_eq!(first.lock_duration, Some(LOCK_WHILE_FILLED));
        let last = completed(&first, &long);
        assert_eq!(last.lock_duration, long.lock_duration);
        assert_eq!(Owner::of(&now.user_metadata), Owner::Import);
        assert_eq!(last.user_metadata.as_deref(), Some(""));
        let wanted = definition_of(&full(), true);
        assert!(differences(&now, &wanted, Owner::Import).is_empty());
        assert!(differences(&full(), &wanted, Owner::Other).is_empty());
        let late = differences(&now, &wanted, Owner::Other);
        assert_eq!(late, ["forward_to", "status"]);
        let other = BusDefinition {
            user_metadata: Some("other".into()),
            requires_session: Some(false),
            ..definition_of(&full(), true)
        };
        let of_import = differences(&now, &other, Owner::Import);
        assert_eq!(of_import, ["requires_session"]);
        let of_others = differences(&full(), &other, Owner::Other);
        assert_eq!(of_others, ["requires_session", "user_metadata"]);
    }
}
