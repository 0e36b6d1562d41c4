//! The settings of a queue, topic or subscription that result from a description in a request.
//!
//! An update replaces all settings: missing ones get their defaults, as in Azure. Settings that
//! never change and authorization rules stay, because not every SDK knows them.

use kew_engine::bus::{BusQueueOptions, BusQueueView, EntityKind, EntityStatus};

use super::asked::Asked;
use super::forward::Targets;
use crate::authorization::description::Description;
use crate::ground::constants::{DUPLICATE_WINDOW_MS, DUPLICATE_WINDOW_MS_MIN};
use crate::http::answers::HttpError;

/// Bytes in the service's megabytes, and in its kilobytes.
pub(super) const MEGABYTE: u64 = 1 << 20;
pub(super) const KILOBYTE: u64 = 1 << 10;

impl Asked {
    /// The settings of a new queue, topic or subscription with this name.
    pub(super) fn created(
        &self,
        name: &str,
        targets: &Targets,
        now_ms: u64,
    ) -> Result<BusQueueOptions, HttpError> {
        let before = BusQueueOptions::default();
        self.settings(&before, Description::named(name), targets, now_ms)
    }

    /// The new settings of an existing queue, topic or subscription.
    pub(super) fn updated(
        &self,
        view: &BusQueueView,
        targets: &Targets,
        now_ms: u64,
    ) -> Result<BusQueueOptions, HttpError> {
        let mut description = Description::decode(&view.options.description);
        if description.name.is_empty() {
            description.name = view.name.to_string();
        }
        let is_partitioned = description.enable_partitioning;
        if self.enable_partitioning.unwrap_or(is_partitioned) != is_partitioned {
            let detail = "EnablePartitioning cannot be changed once the entity is there.";
            return Err(HttpError::bad_request(detail));
        }
        self.settings(&view.options, description, targets, now_ms)
    }

    fn settings(
        &self,
        before: &BusQueueOptions,
        description: Description,
        targets: &Targets,
        now_ms: u64,
    ) -> Result<BusQueueOptions, HttpError> {
        let unset = BusQueueOptions::default();
        let detects = self.requires_duplicate_detection;
        let detects = detects.unwrap_or(before.duplicate_window_ms.is_some());
        let window_ms = self.duplicate_window_ms.unwrap_or(DUPLICATE_WINDOW_MS);
        let options = BusQueueOptions {
            lock_duration_ms: self.lock_duration_ms.unwrap_or(unset.lock_duration_ms),
            max_delivery_count: self.max_delivery_count.unwrap_or(unset.max_delivery_count),
            default_time_to_live_ms: self
                .default_time_to_live_ms
                .unwrap_or(unset.default_time_to_live_ms),
            requires_session: self.requires_session.unwrap_or(before.requires_session),
            duplicate_window_ms: detects.then_some(window_ms),
            dead_letters_expired: self.dead_letters_expired.unwrap_or(false),
            // Stored as it was set, and without effect while the queue forwards.
            auto_delete_on_idle_ms: self
                .auto_delete_on_idle_ms
                .unwrap_or(unset.auto_delete_on_idle_ms),
            forward_to: targets.forward_to.as_deref().map(in_lower_case),
            forward_dead_letters_to: targets
                .forward_dead_letters_to
                .as_deref()
                .map(in_lower_case),
            status: self.status.unwrap_or_default(),
            size_bytes_max: sized(self.max_size_megabytes, MEGABYTE, before.size_bytes_max)
                .unwrap_or(unset.size_bytes_max),
            message_size_bytes_max: self.message_size_bytes_max(before),
            description: Box::default(),
            filters_before_publishing: self.filters_before_publishing.unwrap_or(false),
            dead_letters_filter_failures: match self.kind {
                EntityKind::Subscription => self.dead_letters_filter_failures.unwrap_or(true),
                EntityKind::Queue | EntityKind::Topic => false,
            },
        };
        self.check_status(options.status)?;
        check_window(options.duplicate_window_ms, before.duplicate_window_ms)?;
        let description = self.described(description, targets, window_ms, detects, now_ms)?;
        Ok(BusQueueOptions {
            description: description.encode(),
            ..options
        })
    }

    /// A topic cannot be received from, and nothing is sent to a subscription by itself.
    fn check_status(&self, status: EntityStatus) -> Result<(), HttpError> {
        let allowed = match (self.kind, status) {
            (EntityKind::Topic, EntityStatus::ReceiveDisabled) => {
                "Status of a topic must be Active, Disabled or SendDisabled."
            }
            (EntityKind::Subscription, EntityStatus::SendDisabled) => {
                "Status of a subscription must be Active, Disabled or ReceiveDisabled."
            }
            (EntityKind::Queue | EntityKind::Topic | EntityKind::Subscription, _) => return Ok(()),
        };
        Err(HttpError::bad_request(allowed))
    }

    fn message_size_bytes_max(&self, before: &BusQueueOptions) -> u64 {
        if self.keeps_message_size {
            return before.message_size_bytes_max;
        }
        let asked = self.max_message_size_kilobytes;
        sized(asked, KILOBYTE, before.message_size_bytes_max)
            .unwrap_or_else(|| BusQueueOptions::default().message_size_bytes_max)
    }

    fn described(
        &self,
        before: Description,
        targets: &Targets,
        window_ms: u64,
        detects: bool,
        now_ms: u64,
    ) -> Result<Description, HttpError> {
        let rules = match &self.rules {
            Some(asked) => super::rules::replaced(&before.rules, asked, now_ms)?,
            None => before.rules,
        };
        let spelled = |target: &Option<String>| target.clone().unwrap_or_default();
        Ok(Description {
            rules,
            user_metadata: self.user_metadata.clone().unwrap_or_default(),
            enable_batched_operations: self.enable_batched_operations.unwrap_or(true),
            enable_partitioning: self
                .enable_partitioning
                .unwrap_or(before.enable_partitioning),
            enable_express: self.enable_express.unwrap_or(false),
            support_ordering: self.support_ordering.unwrap_or(true),
            forward_to: spelled(&targets.forward_to),
            forward_dead_letters_to: spelled(&targets.forward_dead_letters_to),
            duplicate_window_ms: (!detects).then_some(window_ms),
            ..before
        })
    }
}

/// A window of the emulator's configuration file may be shorter, and an update can keep it.
fn check_window(asked_ms: Option<u64>, before_ms: Option<u64>) -> Result<(), HttpError> {
    match asked_ms {
        Some(ms) if ms < DUPLICATE_WINDOW_MS_MIN && asked_ms != before_ms => {
            Err(HttpError::bad_request(format!(
                "DuplicateDetectionHistoryTimeWindow is {ms} ms, and must be 20 s to 7 days"
            )))
        }
        Some(_) | None => Ok(()),
    }
}

fn in_lower_case(name: &str) -> Box<str> {
    name.to_lowercase().into()
}

/// A size in bytes, from a size in larger units. If the request repeats the value that is shown,
/// the exact size stays: it may lie between two units.
fn sized(asked: Option<u64>, unit: u64, before: u64) -> Option<u64> {
    let asked = asked?;
    if before.div_ceil(unit) == asked {
        return Some(before);
    }
    Some(asked.saturating_mul(unit))
}
