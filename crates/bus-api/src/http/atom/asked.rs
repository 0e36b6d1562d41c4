//! The queue description in a request.
//!
//! Elements are known by their names, in any order and with any prefix. Read-only elements, such as
//! counts, are ignored, since clients send back what they received. Unknown elements are ignored
//! too: a later version of the service may have sent them to a client.

use std::ops::RangeInclusive;

use kew_engine::bus::EntityStatus;
use kew_xml::Element;

use super::rules::AskedRule;
use crate::configuration::duration;
use crate::http::answers::HttpError;

/// The longest user metadata, in characters.
const USER_METADATA_LENGTH_MAX: usize = 1024;

/// The requested settings. Missing ones are `None`.
#[derive(Debug, Default)]
pub(super) struct AskedQueue {
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
    /// An update keeps the maximum message size: the client does not know that it exists.
    pub(super) keeps_message_size: bool,
}

impl AskedQueue {
    /// Reads the body of a request: an entry with a `QueueDescription` in its `content`.
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
            "QueueDescription" => Self::of(description),
            "TopicDescription" | "SubscriptionDescription" | "RuleDescription" => {
                Err(HttpError::bad_request(format!(
                    "{} cannot be served: topics, subscriptions and their rules are not supported.",
                    description.local_name()
                )))
            }
            other => Err(HttpError::bad_request(format!(
                "The content of the entry is {other}, and must be QueueDescription."
            ))),
        }
    }

    fn of(description: &Element<'_>) -> Result<Self, HttpError> {
        let mut asked = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for element in &description.children {
            if seen.contains(&element.local_name()) {
                return Err(element.invalid(format!("a second {}", element.local_name())));
            }
            seen.push(element.local_name());
            asked.take(element)?;
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
            "AuthorizationRules" => self.rules = Some(AskedRule::read_all(element)?),
            "Status" => self.status = Some(status(element)?),
            "ForwardTo" => self.forward_to = text(element)?,
            "ForwardDeadLetteredMessagesTo" => self.forward_dead_letters_to = text(element)?,
            "UserMetadata" => self.user_metadata = Some(user_metadata(element)?),
            "SupportOrdering" => self.support_ordering = Some(boolean(element)?),
            "AutoDeleteOnIdle" => self.auto_delete_on_idle_ms = Some(time(element)?),
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
