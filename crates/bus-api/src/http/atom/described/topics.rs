//! The descriptions of topics and subscriptions.

use bytes::BytesMut;
use kew_xml::put_element;

use super::{Counts, Described, address};
use crate::configuration::duration;
use crate::ground::constants::DUPLICATE_WINDOW_MS;
use crate::http::atom::rules;
use crate::http::atom::settings::{KILOBYTE, MEGABYTE};
use crate::http::atom::version::ApiVersion;
use crate::http::call::Head;

impl Described<'_> {
    /// Source: Service Bus, *Topic description*.
    pub(super) fn write_topic(&self, out: &mut BytesMut, head: &Head) {
        let (options, kept) = (&self.view.options, &self.description);
        let mut put = |name: &str, value: String| put_element(out, name, &value);
        let time_to_live = duration::format(options.default_time_to_live_ms);
        put("DefaultMessageTimeToLive", time_to_live);
        let megabytes = options.size_bytes_max.div_ceil(MEGABYTE);
        put("MaxSizeInMegabytes", megabytes.to_string());
        let detects = options.duplicate_window_ms.is_some();
        put("RequiresDuplicateDetection", detects.to_string());
        let window = options.duplicate_window_ms.or(kept.duplicate_window_ms);
        put(
            "DuplicateDetectionHistoryTimeWindow",
            duration::format(window.unwrap_or(DUPLICATE_WINDOW_MS)),
        );
        put(
            "EnableBatchedOperations",
            kept.enable_batched_operations.to_string(),
        );
        put("SizeInBytes", self.view.counts.size_bytes.to_string());
        put(
            "FilteringMessagesBeforePublishing",
            options.filters_before_publishing.to_string(),
        );
        put("IsAnonymousAccessible", false.to_string());
        rules::write(out, &kept.rules);
        self.write_status(out);
        if !kept.user_metadata.is_empty() {
            put_element(out, "UserMetadata", &kept.user_metadata);
        }
        self.write_times(out);
        put_element(out, "SupportOrdering", &kept.support_ordering.to_string());
        Counts::of(self.view).write(out);
        let subscriptions = self.view.counts.subscriptions.to_string();
        put_element(out, "SubscriptionCount", &subscriptions);
        let idle = duration::format(options.auto_delete_on_idle_ms);
        put_element(out, "AutoDeleteOnIdle", &idle);
        let is_partitioned = kept.enable_partitioning.to_string();
        put_element(out, "EnablePartitioning", &is_partitioned);
        put_element(out, "EntityAvailabilityStatus", "Available");
        put_element(out, "EnableSubscriptionPartitioning", "false");
        put_element(out, "EnableExpress", &kept.enable_express.to_string());
        if ApiVersion::of(head).has_message_size() {
            let kilobytes = options.message_size_bytes_max.div_ceil(KILOBYTE);
            put_element(out, "MaxMessageSizeInKilobytes", &kilobytes.to_string());
        }
    }

    /// Source: Service Bus, *Subscription description*.
    pub(super) fn write_subscription(&self, out: &mut BytesMut, head: &Head) {
        let (options, kept) = (&self.view.options, &self.description);
        let counts = Counts::of(self.view);
        let mut put = |name: &str, value: String| put_element(out, name, &value);
        put("LockDuration", duration::format(options.lock_duration_ms));
        put("RequiresSession", options.requires_session.to_string());
        let time_to_live = duration::format(options.default_time_to_live_ms);
        put("DefaultMessageTimeToLive", time_to_live);
        put(
            "DeadLetteringOnMessageExpiration",
            options.dead_letters_expired.to_string(),
        );
        put(
            "DeadLetteringOnFilterEvaluationExceptions",
            options.dead_letters_filter_failures.to_string(),
        );
        put("MessageCount", counts.all().to_string());
        put("MaxDeliveryCount", options.max_delivery_count.to_string());
        put(
            "EnableBatchedOperations",
            kept.enable_batched_operations.to_string(),
        );
        self.write_status(out);
        if let Some(name) = &options.forward_to {
            put_element(out, "ForwardTo", &address(head, &kept.forward_to, name));
        }
        self.write_times(out);
        counts.write(out);
        if !kept.user_metadata.is_empty() {
            put_element(out, "UserMetadata", &kept.user_metadata);
        }
        if let Some(name) = &options.forward_dead_letters_to {
            let address = address(head, &kept.forward_dead_letters_to, name);
            put_element(out, "ForwardDeadLetteredMessagesTo", &address);
        }
        let idle = duration::format(options.auto_delete_on_idle_ms);
        put_element(out, "AutoDeleteOnIdle", &idle);
        put_element(out, "EntityAvailabilityStatus", "Available");
    }
}
