//! The settings of a queue: from the command line, and as they are shown.

use std::time::Duration;

use kew_client::{EntityStatus, QueueDescription, QueueSettings};
use serde::Serialize;

use super::view::rfc3339_ms;
use crate::bus_entity_args::{SettingsArgs, Status};
use crate::queue_command::Failure;
use crate::queue_values::{Life, Target};

const MEGABYTE: u64 = 1 << 20;
const KILOBYTE: u64 = 1 << 10;

/// Sets what the command line asks for. Everything else stays.
pub(super) fn apply(settings: &mut QueueSettings, asked: &SettingsArgs) -> Result<(), Failure> {
    let whole = |flag: &str, size: Option<u64>, unit: u64, name: &str| match size {
        Some(size) if !size.is_multiple_of(unit) => Err(Failure::Usage(format!(
            "{flag} is {size} bytes, and must be a whole number of {name}"
        ))),
        size => Ok(size.map(|size| size / unit)),
    };
    let megabytes = whole("--max-size", asked.max_size, MEGABYTE, "MiB")?;
    let kilobytes = whole(
        "--max-message-size",
        asked.max_message_size,
        KILOBYTE,
        "KiB",
    )?;
    let target = |target: &Target| match target {
        Target::Queue(name) => name.clone(),
        Target::None => String::new(),
    };
    set(&mut settings.max_size_megabytes, megabytes);
    set(&mut settings.max_message_size_kilobytes, kilobytes);
    set(&mut settings.lock_duration, asked.lock_duration);
    set(&mut settings.default_time_to_live, asked.ttl.map(life));
    set(&mut settings.max_delivery_count, asked.max_delivery_count);
    set(&mut settings.duplicate_window, asked.duplicate_window);
    set(
        &mut settings.dead_letters_expired,
        asked.dead_letter_expired,
    );
    set(
        &mut settings.forward_to,
        asked.forward_to.as_ref().map(target),
    );
    let dead_letters_to = asked.forward_dead_letters_to.as_ref().map(target);
    set(&mut settings.forward_dead_letters_to, dead_letters_to);
    set(
        &mut settings.auto_delete_on_idle,
        asked.auto_delete_on_idle.map(life),
    );
    set(&mut settings.status, asked.status.map(status));
    set(&mut settings.user_metadata, asked.user_metadata.clone());
    Ok(())
}

fn set<T>(place: &mut Option<T>, asked: Option<T>) {
    if asked.is_some() {
        *place = asked;
    }
}

fn status(status: Status) -> EntityStatus {
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

/// A queue with its counts and settings. What the service does not say is left out.
#[derive(Debug, Serialize)]
pub(super) struct QueueView {
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
    failed_transfers: Option<u64>,
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

impl QueueView {
    pub(super) fn of(queue: QueueDescription) -> Self {
        let QueueDescription {
            name,
            settings,
            state,
        } = queue;
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let unless_forever =
            |duration: Option<Duration>| duration.filter(|&it| it < QueueSettings::FOREVER).map(ms);
        let unless_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
        let detects_duplicates = settings.requires_duplicate_detection;
        let window = settings.duplicate_window.map(ms);
        Self {
            name,
            status: settings.status.map(|status| status.as_str().to_owned()),
            active_messages: state.active_count,
            scheduled_messages: state.scheduled_count,
            dead_letters: state.dead_letter_count,
            failed_transfers: state.transfer_dead_letter_count,
            size_bytes: state.size_bytes,
            size_bytes_max: settings
                .max_size_megabytes
                .map(|size| size.saturating_mul(MEGABYTE)),
            message_size_bytes_max: settings
                .max_message_size_kilobytes
                .map(|size| size.saturating_mul(KILOBYTE)),
            requires_session: settings.requires_session,
            detects_duplicates,
            duplicate_window_ms: window.filter(|_| detects_duplicates != Some(false)),
            lock_duration_ms: settings.lock_duration.map(ms),
            max_delivery_count: settings.max_delivery_count,
            default_time_to_live_ms: unless_forever(settings.default_time_to_live),
            dead_letters_expired: settings.dead_letters_expired,
            auto_delete_on_idle_ms: unless_forever(settings.auto_delete_on_idle),
            forward_to: unless_empty(settings.forward_to),
            forward_dead_letters_to: unless_empty(settings.forward_dead_letters_to),
            user_metadata: unless_empty(settings.user_metadata),
            created_at: state.created_at.map(rfc3339_ms),
            updated_at: state.updated_at.map(rfc3339_ms),
            used_at: state.accessed_at.map(rfc3339_ms),
        }
    }
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
            ttl: Some(Life::Never),
            max_size: Some(2 << 30),
            forward_to: Some(Target::None),
            status: Some(Status::SendDisabled),
            ..SettingsArgs::default()
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
        for asked in [
            SettingsArgs {
                max_size: Some((1 << 20) + 1),
                ..SettingsArgs::default()
            },
            SettingsArgs {
                max_message_size: Some(1000),
                ..SettingsArgs::default()
            },
        ] {
            let mut settings = QueueSettings::default();
            assert!(apply(&mut settings, &asked).is_err(), "{asked:?}");
        }
    }
}
