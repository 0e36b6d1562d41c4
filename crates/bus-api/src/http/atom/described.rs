//! The description of a queue, topic or subscription in an answer: every element, in the documented order.

mod topics;

use std::borrow::Cow;

use bytes::BytesMut;
use hyper::header::HOST;
use kew_engine::SUBSCRIPTIONS;
use kew_engine::bus::{BusQueueCounts, BusQueueView, EntityKind};
use kew_xml::put_element;

use super::asked::STATUSES;
use super::document::{CONTENT_NAMESPACES, close, open};
use super::rules;
use super::settings::{KILOBYTE, MEGABYTE};
use super::version::ApiVersion;
use crate::authorization::description::Description;
use crate::configuration::duration;
use crate::ground::constants::DUPLICATE_WINDOW_MS;
use crate::http::answers::times::rfc3339;
use crate::http::call::Head;

/// The time of last use of a queue that was never used.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// The element that describes an entity of that kind.
pub(super) fn description_name(kind: EntityKind) -> &'static str {
    match kind {
        EntityKind::Queue => "QueueDescription",
        EntityKind::Topic => "TopicDescription",
        EntityKind::Subscription => "SubscriptionDescription",
    }
}

/// A queue, topic or subscription with its stored front-end data.
pub(super) struct Described<'a> {
    view: &'a BusQueueView,
    description: Description,
}

impl<'a> Described<'a> {
    pub(super) fn of(view: &'a BusQueueView) -> Self {
        Self {
            view,
            description: Description::decode(&view.options.description),
        }
    }

    /// The name with the spelling of its creation. That of a subscription has its topic's before it.
    pub(super) fn name(&self) -> &str {
        spelled(&self.description.name, &self.view.name)
    }

    /// The name without that of its topic.
    pub(super) fn title(&self) -> &str {
        let name = self.name();
        match self.view.kind {
            EntityKind::Queue | EntityKind::Topic => name,
            EntityKind::Subscription => name.rsplit('/').next().unwrap_or(name),
        }
    }

    /// The path in links: `TOPIC/Subscriptions/NAME` for a subscription, as the service spells it.
    pub(super) fn path(&self) -> Cow<'_, str> {
        let name = self.name();
        let topic_length = match self.view.kind {
            EntityKind::Queue | EntityKind::Topic => None,
            EntityKind::Subscription => name.to_lowercase().find(SUBSCRIPTIONS),
        };
        match topic_length.and_then(|length| name.get(..length)) {
            Some(topic) => format!("{topic}/Subscriptions/{}", self.title()).into(),
            None => name.into(),
        }
    }

    /// Writes the description.
    pub(super) fn write(&self, out: &mut BytesMut, head: &Head) {
        let name = description_name(self.view.kind);
        open(out, name, CONTENT_NAMESPACES);
        match self.view.kind {
            EntityKind::Queue => self.write_queue(out, head),
            EntityKind::Topic => self.write_topic(out, head),
            EntityKind::Subscription => self.write_subscription(out, head),
        }
        close(out, name);
    }

    fn write_queue(&self, out: &mut BytesMut, head: &Head) {
        let (options, kept) = (&self.view.options, &self.description);
        let detects = options.duplicate_window_ms.is_some();
        let window = options.duplicate_window_ms.or(kept.duplicate_window_ms);
        let counts = Counts::of(self.view);
        let mut put = |name: &str, value: String| put_element(out, name, &value);
        put("LockDuration", duration::format(options.lock_duration_ms));
        let megabytes = options.size_bytes_max.div_ceil(MEGABYTE);
        put("MaxSizeInMegabytes", megabytes.to_string());
        put("RequiresDuplicateDetection", detects.to_string());
        put("RequiresSession", options.requires_session.to_string());
        let time_to_live = duration::format(options.default_time_to_live_ms);
        put("DefaultMessageTimeToLive", time_to_live);
        put(
            "DeadLetteringOnMessageExpiration",
            options.dead_letters_expired.to_string(),
        );
        put(
            "DuplicateDetectionHistoryTimeWindow",
            duration::format(window.unwrap_or(DUPLICATE_WINDOW_MS)),
        );
        put("MaxDeliveryCount", options.max_delivery_count.to_string());
        put(
            "EnableBatchedOperations",
            kept.enable_batched_operations.to_string(),
        );
        put("SizeInBytes", self.view.counts.size_bytes.to_string());
        put("MessageCount", counts.all().to_string());
        put("IsAnonymousAccessible", false.to_string());
        rules::write(out, &kept.rules);
        self.write_rest(out, head, &counts);
    }

    fn write_rest(&self, out: &mut BytesMut, head: &Head, counts: &Counts) {
        let (options, kept) = (&self.view.options, &self.description);
        self.write_status(out);
        if let Some(name) = &options.forward_to {
            put_element(out, "ForwardTo", &address(head, &kept.forward_to, name));
        }
        if !kept.user_metadata.is_empty() {
            put_element(out, "UserMetadata", &kept.user_metadata);
        }
        self.write_times(out);
        put_element(out, "SupportOrdering", &kept.support_ordering.to_string());
        counts.write(out);
        let idle = duration::format(options.auto_delete_on_idle_ms);
        put_element(out, "AutoDeleteOnIdle", &idle);
        let is_partitioned = kept.enable_partitioning.to_string();
        put_element(out, "EnablePartitioning", &is_partitioned);
        put_element(out, "EntityAvailabilityStatus", "Available");
        if let Some(name) = &options.forward_dead_letters_to {
            let address = address(head, &kept.forward_dead_letters_to, name);
            put_element(out, "ForwardDeadLetteredMessagesTo", &address);
        }
        put_element(out, "EnableExpress", &kept.enable_express.to_string());
        if ApiVersion::of(head).has_message_size() {
            let kilobytes = options.message_size_bytes_max.div_ceil(KILOBYTE);
            put_element(out, "MaxMessageSizeInKilobytes", &kilobytes.to_string());
        }
    }
}

/// What all three kinds write.
impl Described<'_> {
    fn write_status(&self, out: &mut BytesMut) {
        let status = STATUSES
            .iter()
            .find(|(it, _)| *it == self.view.options.status);
        put_element(out, "Status", status.map_or("Unknown", |(_, name)| name));
    }

    fn write_times(&self, out: &mut BytesMut) {
        let (created_at, used_at) = (self.view.created_at, self.view.used_at);
        put_element(out, "CreatedAt", &rfc3339(created_at));
        put_element(out, "UpdatedAt", &rfc3339(self.view.updated_at));
        let accessed_at = if used_at == created_at {
            NEVER.to_owned()
        } else {
            rfc3339(used_at)
        };
        put_element(out, "AccessedAt", &accessed_at);
    }
}

/// The spelling of a name, unless it is unknown or belongs to another name.
fn spelled<'a>(spelling: &'a str, name: &'a str) -> &'a str {
    if spelling.to_lowercase() == name {
        spelling
    } else {
        name
    }
}

/// A queue's absolute address, with the host that the client uses.
fn address(head: &Head, spelling: &str, name: &str) -> String {
    let host = head.header(HOST).unwrap_or("localhost");
    format!("sb://{host}/{}", spelled(spelling, name))
}

/// The counts of a queue, in the service's words.
struct Counts {
    active: u64,
    dead_letters: u64,
    scheduled: u64,
    /// Messages that wait to be forwarded to another queue.
    transfer: u64,
    transfer_dead_letters: u64,
}

impl Counts {
    fn of(view: &BusQueueView) -> Self {
        let BusQueueCounts {
            active,
            scheduled,
            dead_letters,
            failed_transfers,
            ..
        } = view.counts;
        let (active, transfer) = match view.options.forward_to {
            Some(_) => (0, active),
            None => (active, 0),
        };
        Self {
            active,
            dead_letters,
            scheduled,
            transfer,
            transfer_dead_letters: failed_transfers,
        }
    }

    fn all(&self) -> u64 {
        let Self {
            active,
            dead_letters,
            scheduled,
            transfer,
            transfer_dead_letters,
        } = self;
        active + dead_letters + scheduled + transfer + transfer_dead_letters
    }

    /// JavaScript reads the prefix from the one attribute of `CountDetails`.
    fn write(&self, out: &mut BytesMut) {
        let namespace =
            b" xmlns:d2p1=\"http://schemas.microsoft.com/netservices/2011/06/servicebus\"";
        open(out, "CountDetails", namespace);
        for (name, count) in [
            ("d2p1:ActiveMessageCount", self.active),
            ("d2p1:DeadLetterMessageCount", self.dead_letters),
            ("d2p1:ScheduledMessageCount", self.scheduled),
            ("d2p1:TransferMessageCount", self.transfer),
            (
                "d2p1:TransferDeadLetterMessageCount",
                self.transfer_dead_letters,
            ),
        ] {
            put_element(out, name, &count.to_string());
        }
        close(out, "CountDetails");
    }
}
