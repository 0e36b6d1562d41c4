//! The description of a queue, topic or subscription in a request.
//!
//! Elements are known by their names, in any order and with any prefix. Read-only elements, such as
//! counts, are ignored, since clients send back what they received. Unknown elements are ignored
//! too: a later version of the service may have sent them to a client.

use std::ops::RangeInclusive;

use kew_engine::bus::{EntityKind, EntityStatus};
use kew_xml::Element;

use super::rules::AskedRule;
use crate::configuration::duration;
use crate::http::answers::HttpError;

/// The longest user metadata, in characters.
const USER_METADATA_LENGTH_MAX: usize = 1024;

/// The requested settings. Missing ones are `None`.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// What the description is of.
    pub(super) kind: EntityKind,
    pub(super) lock_duration_ms: Option<u64>,
    pub(super) max_size_megabytes: Option<u64>,
    pub(super) requires_duplicate_detection: Option<bool>,
    pub(super) requires_session: Option<bool>,
    pub(super) default_time_to_live_ms: Option<u64>,
    pub(super) dead_letters_expired: Option<bool>,
    pub(super) duplicate_window_ms: Option<u64>,
    pub(super) max_delivery_count: Option<u32>,
    pub(super) enable_batched_operations: Option<bool>,
    pub(super) rules: Option<Vec<AskedRule>>,
    pub(super) status: Option<EntityStatus>,
    pub(super) forward_to: Option<String>,
    pub(super) forward_dead_letters_to: Option<String>,
    pub(super) user_metadata: Option<String>,
    pub(super) support_ordering: Option<bool>,
    pub(super) auto_delete_on_idle_ms: Option<u64>,
    pub(super) enable_partitioning: Option<bool>,
    pub(super) enable_express: Option<bool>,
    pub(super) max_message_size_kilobytes: Option<u64>,
    pub(super) filters_before_publishing: Option<bool>,
    pub(super) dead_letters_filter_failures: Option<bool>,
    /// An update keeps the maximum message size: the client does not know that it exists.
    pub(super) keeps_message_size: bool,
}

impl Asked {
    /// Reads the body of a request: an entry with a description in its `content`.
    pub(super) fn read(document: &[u8]) -> Result<Self, HttpError> {
        let entry = kew_xml::parse(document)?;
        let content = match entry.local_name() {
            "entry" => entry.child("content"),
            _ => None,
        };
        let description = content.and_then(|content| content.children.first());
        let description = description.ok_or_else(|| {
            HttpError::bad_request("The request body must be an entry with a content.")
        })?;
        match description.local_name() {
            "QueueDescription" => Self::of(EntityKind::Queue, description),
            "TopicDescription" => Self::of(EntityKind::Topic, description),
            "SubscriptionDescription" => Self::of(EntityKind::Subscription, description),
            "RuleDescription" => Err(HttpError::bad_request(RULES_NOT_SUPPORTED)),
            other => Err(HttpError::bad_request(format!(
                "The content of the entry is {other}, and must be QueueDescription, \
                 TopicDescription or SubscriptionDescription."
            ))),
        }
    }

    fn of(kind: EntityKind, description: &Element<'_>) -> Result<Self, HttpError> {
        let mut asked = Self {
            kind,
            ..Self::default()
        };
        let mut seen: Vec<&str> = Vec::new();
        for element in &description.children {
            if seen.contains(&element.local_name()) {
                return Err(element.invalid(format!("a second {}", element.local_name())));
            }
            seen.push(element.local_name());
            if has_element(kind, element.local_name()) {
                asked.take(element)?;
            }
        }
        Ok(asked)
    }

    fn take(&mut self, element: &Element<'_>) -> Result<(), HttpError> {
        match element.local_name() {
            "LockDuration" => self.lock_duration_ms = Some(time(element)?),
            "MaxSizeInMegabytes" => {
                self.max_size_megabytes = Some(number(element, 1..=1 << 30)?);
            }
            "RequiresDuplicateDetection" => {
                self.requires_duplicate_detection = Some(boolean(element)?);
            }
            "RequiresSession" => self.requires_session = Some(boolean(element)?),
            "DefaultMessageTimeToLive" => self.default_time_to_live_ms = Some(time(element)?),
            "DeadLetteringOnMessageExpiration" => {
                self.dead_letters_expired = Some(boolean(element)?);
            }
            "DuplicateDetectionHistoryTimeWindow" => {
                self.duplicate_window_ms = Some(time(element)?);
            }
            "MaxDeliveryCount" => {
                let count = number(element, 1..=u64::from(i32::MAX.unsigned_abs()))?;
                self.max_delivery_count = u32::try_from(count).ok();
            }
            "EnableBatchedOperations" => self.enable_batched_operations = Some(boolean(element)?),
            "IsAnonymousAccessible" if boolean(element)? => {
                return Err(
                    element.invalid_value("must be false: anonymous access is not supported")
                );
            }
            "EnableSubscriptionPartitioning" if boolean(element)? => {
                return Err(
                    element.invalid_value("must be false: one partition has all of a topic")
                );
            }
            "AuthorizationRules" => self.rules = Some(AskedRule::read_all(element)?),
            "Status" => self.status = Some(status(element)?),
            "ForwardTo" => self.forward_to = text(element)?,
            "ForwardDeadLetteredMessagesTo" => self.forward_dead_letters_to = text(element)?,
            "UserMetadata" => self.user_metadata = Some(user_metadata(element)?),
            "SupportOrdering" => self.support_ordering = Some(boolean(element)?),
            "AutoDeleteOnIdle" => self.auto_delete_on_idle_ms = Some(time(element)?),
            "FilteringMessagesBeforePublishing" => {
                self.filters_before_publishing = Some(boolean(element)?);
            }
            "DeadLetteringOnFilterEvaluationExceptions" => {
                self.dead_letters_filter_failures = Some(boolean(element)?);
            }
            "DefaultRuleDescription" => check_default_rule(element)?,
            "EnablePartitioning" => self.enable_partitioning = Some(boolean(element)?),
            "EnableExpress" => self.enable_express = Some(boolean(element)?),
            "MaxMessageSizeInKilobytes" => {
                self.max_message_size_kilobytes = Some(number(element, 1..=1024)?);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Why rules are refused.
pub(super) const RULES_NOT_SUPPORTED: &str = "Rules of subscriptions are not supported yet: each subscription has the rule \
     $Default, which matches all messages.";

/// Whether a description of that kind has the element. Others are ignored.
///
/// Source: Service Bus, *Topic description* and *Subscription description*.
fn has_element(kind: EntityKind, name: &str) -> bool {
    let is_of_topics = matches!(
        name,
        "FilteringMessagesBeforePublishing" | "EnableSubscriptionPartitioning"
    );
    let is_of_subscriptions = matches!(
        name,
        "DeadLetteringOnFilterEvaluationExceptions" | "DefaultRuleDescription"
    );
    match kind {
        EntityKind::Queue => !is_of_topics && !is_of_subscriptions,
        EntityKind::Topic => {
            let is_of_receivers = matches!(
                name,
                "LockDuration"
                    | "RequiresSession"
                    | "DeadLetteringOnMessageExpiration"
                    | "MaxDeliveryCount"
                    | "ForwardTo"
                    | "ForwardDeadLetteredMessagesTo"
            );
            !is_of_receivers && !is_of_subscriptions
        }
        EntityKind::Subscription => {
            let is_of_senders = matches!(
                name,
                "MaxSizeInMegabytes"
                    | "RequiresDuplicateDetection"
                    | "DuplicateDetectionHistoryTimeWindow"
                    | "IsAnonymousAccessible"
                    | "AuthorizationRules"
                    | "SupportOrdering"
                    | "EnablePartitioning"
                    | "EnableExpress"
                    | "MaxMessageSizeInKilobytes"
            );
            !is_of_senders && !is_of_topics
        }
    }
}

/// Refuses a first rule other than `$Default` without an action, which matches all messages: clients send that one, too.
fn check_default_rule(rule: &Element<'_>) -> Result<(), HttpError> {
    let text = |element: Option<&Element<'_>>, name: &str| -> Result<String, HttpError> {
        match element.and_then(|element| element.child(name)) {
            Some(child) => Ok(child.text()?.trim().to_owned()),
            None => Ok(String::new()),
        }
    };
    let name = text(Some(rule), "Name")?;
    let is_named = name.is_empty() || name.eq_ignore_ascii_case("$Default");
    let filter = text(rule.child("Filter"), "SqlExpression")?;
    let action = text(rule.child("Action"), "SqlExpression")?;
    match is_named && filter == "1=1" && action.is_empty() {
        true => Ok(()),
        false => Err(HttpError::bad_request(RULES_NOT_SUPPORTED)),
    }
}

fn time(element: &Element<'_>) -> Result<u64, HttpError> {
    duration::parse(element.text()?)
        .ok_or_else(|| element.invalid_value("must be a duration of ISO 8601 such as PT1M"))
}

fn boolean(element: &Element<'_>) -> Result<bool, HttpError> {
    let text = element.text()?;
    match text {
        "1" => Ok(true),
        "0" => Ok(false),
        _ if text.eq_ignore_ascii_case("true") => Ok(true),
        _ if text.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err(element.invalid_value("must be true or false")),
    }
}

fn number(element: &Element<'_>, range: RangeInclusive<u64>) -> Result<u64, HttpError> {
    let number = element.text()?.parse().ok();
    number
        .filter(|number| range.contains(number))
        .ok_or_else(|| {
            let (from, to) = (range.start(), range.end());
            element.invalid_value(format!("must be a number from {from} to {to}"))
        })
}

fn status(element: &Element<'_>) -> Result<EntityStatus, HttpError> {
    let text = element.text()?;
    let mut all = STATUSES.iter();
    let found = all.find(|(_, name)| name.eq_ignore_ascii_case(text));
    found.map(|(status, _)| *status).ok_or_else(|| {
        element.invalid_value("must be Active, Disabled, SendDisabled or ReceiveDisabled")
    })
}

/// Every status by its name.
pub(super) const STATUSES: [(EntityStatus, &str); 4] = [
    (EntityStatus::Active, "Active"),
    (EntityStatus::Disabled, "Disabled"),
    (EntityStatus::SendDisabled, "SendDisabled"),
    (EntityStatus::ReceiveDisabled, "ReceiveDisabled"),
];

/// A text; an empty one means that there is none.
fn text(element: &Element<'_>) -> Result<Option<String>, HttpError> {
    let text = element.text()?;
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

fn user_metadata(element: &Element<'_>) -> Result<String, HttpError> {
    let text = element.text()?;
    if text.chars().count() <= USER_METADATA_LENGTH_MAX {
        return Ok(text.to_owned());
    }
    let allowed = format!("must have at most {USER_METADATA_LENGTH_MAX} characters");
    Err(element.invalid_value(allowed))
}
