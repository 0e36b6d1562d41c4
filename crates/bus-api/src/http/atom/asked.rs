//! The description of a queue, topic or subscription in a request.
//!
//! Elements are known by their names, in any order and with any prefix. Read-only elements, such as
//! counts, are ignored, since clients send back what they received. Unknown elements are ignored
//! too: a later version of the service may have sent them to a client.

use std::ops::RangeInclusive;

use kew_engine::bus::{EntityKind, EntityStatus, NewRule};
use kew_filter::FilterDefinition;
use kew_xml::Element;

use super::rules::AskedRule;
use super::subscription_rules::DESCRIPTION;
use crate::configuration::duration;
use crate::definitions::{self, DEFAULT_RULE};
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
    /// The first rule of a subscription.
    default_rule: Option<NewRule>,
    /// An update keeps the maximum message size: the client does not know that it exists.
    pub(super) keeps_message_size: bool,
}

impl Asked {
    /// Reads the body of a request: an entry with a description in its `content`.
    pub(super) fn read(document: &[u8]) -> Result<Self, HttpError> {
        let entry = kew_xml::parse(document)?;
        let description = described_in(&entry)?;
        match description.local_name() {
            "QueueDescription" => Self::of(EntityKind::Queue, description),
            "TopicDescription" => Self::of(EntityKind::Topic, description),
            "SubscriptionDescription" => Self::of(EntityKind::Subscription, description),
            DESCRIPTION => Err(HttpError::bad_request(
                "The path of a rule must be TOPIC/Subscriptions/SUBSCRIPTION/Rules/NAME.",
            )),
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

    /// The rule that a new subscription has in the place of `$Default`, which matches all messages.
    pub(super) fn first_rule(&mut self) -> Option<Box<NewRule>> {
        let rule = self.default_rule.take();
        rule.filter(|rule| !is_default(rule)).map(Box::new)
    }

    /// Refuses a first rule for a subscription that has its rules already, unless clients send it anyway.
    pub(super) fn check_has_no_first_rule(&self) -> Result<(), HttpError> {
        match &self.default_rule {
            Some(rule) if !is_default(rule) => Err(HttpError::bad_request(
                "DefaultRuleDescription is only for a new subscription: change the rules of this one instead.",
            )),
            Some(_) | None => Ok(()),
        }
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
            "DefaultRuleDescription" => {
                self.default_rule = Some(definitions::atom::read(element, None)?)
            }
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

/// The description in the body of a request: an entry has it in its `content`.
pub(super) fn described_in<'e, 'd>(entry: &'e Element<'d>) -> Result<&'e Element<'d>, HttpError> {
    let content = match entry.local_name() {
        "entry" => entry.child("content"),
        _ => None,
    };
    let description = content.and_then(|content| content.children.first());
    description
        .ok_or_else(|| HttpError::bad_request("The request body must be an entry with a content."))
}

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

/// Whether a rule is the one that a subscription has anyway.
fn is_default(rule: &NewRule) -> bool {
    let matches_all = matches!(rule.definition.filter(), FilterDefinition::True);
    matches_all
        && rule.definition.action().is_none()
        && rule.name.eq_ignore_ascii_case(DEFAULT_RULE)
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
