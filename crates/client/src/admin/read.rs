//! Answers of management: descriptions of queues, lists of them, and the namespace.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use percent_encoding::percent_decode_str;

use super::settings::{
    EntityStatus, NamespaceInfo, QueueDescription, QueuePage, QueueSettings, QueueState,
    UnknownElements,
};
use super::{duration, forward, rules, time};
use crate::http::xml::Element;

/// What the service alone writes into a description.
const STATE: [&str; 8] = [
    "SizeInBytes",
    "MessageCount",
    "CreatedAt",
    "UpdatedAt",
    "AccessedAt",
    "CountDetails",
    "EntityAvailabilityStatus",
    "SkippedUpdate",
];

/// Why an answer is not what was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadAnswer {
    /// It says that there is no such queue: it is an empty list, or it describes something else.
    NoQueue(String),
    Unreadable(String),
}

/// A document, and what holds within an entry of it.
pub(super) struct Source<'a> {
    document: &'a str,
    /// Attributes `xmlns:…` around the entry's description and on it, the innermost last.
    prefixes: Vec<(String, String)>,
}

impl<'a> Source<'a> {
    fn new(document: &'a str, around: &[&Element<'_>]) -> Self {
        let mut prefixes: Vec<(String, String)> = Vec::new();
        for (name, value) in around.iter().flat_map(|element| &element.attributes) {
            if name.starts_with("xmlns:") {
                prefixes.retain(|(before, _)| before != name);
                prefixes.push((name.clone(), value.clone()));
            }
        }
        Self { document, prefixes }
    }

    /// The children whose names are not among those.
    pub(super) fn unknown(&self, element: &Element<'_>, known: &[&str]) -> UnknownElements {
        let mut unknown = UnknownElements::default();
        for child in &element.children {
            if !known.contains(&child.local_name())
                && let Some(source) = self.document.get(child.place.clone())
            {
                let name = child.local_name().to_owned();
                unknown.elements.push((name, source.to_owned()));
            }
        }
        if !unknown.elements.is_empty() {
            unknown.prefixes.clone_from(&self.prefixes);
        }
        unknown
    }
}

/// The queue of an answer that is an entry.
pub(super) fn queue(body: &[u8], host: &str) -> Result<QueueDescription, BadAnswer> {
    let (document, root) = parsed(body)?;
    match root.local_name() {
        "entry" => entry(document, &[&root], host),
        // As Azure answers.
        "feed" => Err(BadAnswer::NoQueue("there is no such queue".to_owned())),
        other => Err(unreadable(format!("XML that is {other}, and no entry"))),
    }
}

/// A page of a list that began after `skip` queues and asked for `top`.
pub(super) fn page(body: &[u8], host: &str, skip: u64, top: u64) -> Result<QueuePage, BadAnswer> {
    let (document, root) = parsed(body)?;
    if root.local_name() != "feed" {
        let what = format!("XML that is {}, and no feed", root.local_name());
        return Err(unreadable(what));
    }
    let entries = root.children.iter().filter(|it| it.local_name() == "entry");
    let queues = entries.map(|it| entry(document, &[&root, it], host));
    let queues = queues.collect::<Result<Vec<_>, _>>()?;
    let mut links = root.children.iter().filter(|it| it.local_name() == "link");
    let next = links.find(|link| link.attribute("rel") == Some("next"));
    let next = match next.map(|link| link.attribute("href").and_then(skip_of)) {
        // A service that stays where it is would be asked for ever.
        Some(Some(next)) if next > skip => Some(next),
        Some(_) => return Err(unreadable("a list that does not go on".to_owned())),
        None => {
            let count = u64::try_from(queues.len()).unwrap_or(u64::MAX);
            (count >= top).then(|| skip.saturating_add(count))
        }
    };
    Ok(QueuePage { queues, next })
}

/// The number after `$skip=` in the address of a page.
fn skip_of(address: &str) -> Option<u64> {
    let (_, query) = address.split_once('?')?;
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let is_skip = |name: &str| {
        let name = percent_decode_str(name).decode_utf8_lossy();
        name.eq_ignore_ascii_case("$skip")
    };
    let (_, number) = pairs.find(|(name, _)| is_skip(name))?;
    number.parse().ok()
}

/// Source: Service Bus, *Get namespace information*.
pub(super) fn namespace(body: &[u8]) -> Result<NamespaceInfo, BadAnswer> {
    let (_, root) = parsed(body)?;
    let content = root.child("content");
    let info = content.and_then(|content| content.child("NamespaceInfo"));
    let info = info.ok_or_else(|| unreadable("no NamespaceInfo".to_owned()))?;
    let text = |name: &str| {
        let text = text_of(info, name).map(str::to_owned);
        text.ok_or_else(|| unreadable(format!("a NamespaceInfo without {name}")))
    };
    Ok(NamespaceInfo {
        name: text("Name")?,
        alias: text_of(info, "Alias")
            .filter(|it| !it.is_empty())
            .map(str::to_owned),
        sku: text("MessagingSKU")?,
        messaging_units: number(info, "MessagingUnits")?,
        created_at: moment(info, "CreatedTime")?,
        modified_at: moment(info, "ModifiedTime")?,
    })
}

fn parsed(body: &[u8]) -> Result<(&str, Element<'_>), BadAnswer> {
    let root = Element::parse(body).map_err(unreadable)?;
    let document = std::str::from_utf8(body);
    let document = document.map_err(|_| unreadable("XML that is not UTF-8".to_owned()))?;
    Ok((document, root))
}

fn entry(
    document: &str,
    around: &[&Element<'_>],
    host: &str,
) -> Result<QueueDescription, BadAnswer> {
    let [.., entry] = around else {
        return Err(unreadable("no entry".to_owned()));
    };
    let content = entry.child("content");
    let described = content.and_then(|content| content.children.first());
    let (Some(content), Some(described)) = (content, described) else {
        return Err(unreadable("an entry without a content".to_owned()));
    };
    if described.local_name() != "QueueDescription" {
        let what = format!("there is no such queue: it is {}", described.local_name());
        return Err(BadAnswer::NoQueue(what));
    }
    let name = text_of(entry, "title").filter(|it| !it.is_empty());
    let name = name.ok_or_else(|| unreadable("an entry without a title".to_owned()))?;
    let around = [around, &[content, described]].concat();
    let source = Source::new(document, &around);
    Ok(QueueDescription {
        name: name.to_owned(),
        settings: settings(&source, described, host)?,
        state: state(described)?,
    })
}

fn settings(source: &Source<'_>, it: &Element<'_>, host: &str) -> Result<QueueSettings, BadAnswer> {
    let target = |name: &str| {
        let target = text_of(it, name).filter(|it| !it.is_empty());
        target.map(|target| forward::shown(target, host))
    };
    let rules = it.child("AuthorizationRules");
    let authorization_rules = rules.and_then(|rules| rules::read(source, rules));
    let mut known = super::write::ELEMENTS.to_vec();
    known.extend(STATE);
    if authorization_rules.is_none() {
        known.retain(|name| *name != "AuthorizationRules");
    }
    Ok(QueueSettings {
        lock_duration: span(it, "LockDuration")?,
        max_size_megabytes: number(it, "MaxSizeInMegabytes")?,
        requires_duplicate_detection: boolean(it, "RequiresDuplicateDetection")?,
        requires_session: boolean(it, "RequiresSession")?,
        default_time_to_live: span(it, "DefaultMessageTimeToLive")?,
        dead_letters_expired: boolean(it, "DeadLetteringOnMessageExpiration")?,
        duplicate_window: span(it, "DuplicateDetectionHistoryTimeWindow")?,
        max_delivery_count: number(it, "MaxDeliveryCount")?,
        enable_batched_operations: boolean(it, "EnableBatchedOperations")?,
        is_anonymous_accessible: boolean(it, "IsAnonymousAccessible")?,
        authorization_rules,
        status: text_of(it, "Status").map(EntityStatus::of),
        forward_to: target("ForwardTo"),
        // Spaces belong to it.
        user_metadata: it.child("UserMetadata").map(|it| it.text.to_string()),
        support_ordering: boolean(it, "SupportOrdering")?,
        auto_delete_on_idle: span(it, "AutoDeleteOnIdle")?,
        enable_partitioning: boolean(it, "EnablePartitioning")?,
        forward_dead_letters_to: target("ForwardDeadLetteredMessagesTo"),
        enable_express: boolean(it, "EnableExpress")?,
        max_message_size_kilobytes: number(it, "MaxMessageSizeInKilobytes")?,
        unknown: source.unknown(it, &known),
    })
}

fn state(it: &Element<'_>) -> Result<QueueState, BadAnswer> {
    let count = |name: &str| match it.child("CountDetails") {
        Some(details) => number(details, name),
        None => Ok(None),
    };
    Ok(QueueState {
        size_bytes: number(it, "SizeInBytes")?,
        message_count: number(it, "MessageCount")?,
        active_count: count("ActiveMessageCount")?,
        dead_letter_count: count("DeadLetterMessageCount")?,
        scheduled_count: count("ScheduledMessageCount")?,
        transfer_count: count("TransferMessageCount")?,
        transfer_dead_letter_count: count("TransferDeadLetterMessageCount")?,
        created_at: moment(it, "CreatedAt")?,
        updated_at: moment(it, "UpdatedAt")?,
        accessed_at: moment(it, "AccessedAt")?,
        availability: text_of(it, "EntityAvailabilityStatus").map(str::to_owned),
    })
}

/// The text of a child, if there is one of that name.
pub(super) fn text_of<'a>(element: &'a Element<'_>, name: &str) -> Option<&'a str> {
    element.child(name).map(|child| child.text.trim())
}

/// A value of a child; an element that is empty is none.
fn value<T>(
    element: &Element<'_>,
    name: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, BadAnswer> {
    let Some(text) = text_of(element, name).filter(|it| !it.is_empty()) else {
        return Ok(None);
    };
    let value = read(text).ok_or_else(|| unreadable(format!("a bad {name}: {text}")))?;
    Ok(Some(value))
}

fn number<T: FromStr>(element: &Element<'_>, name: &str) -> Result<Option<T>, BadAnswer> {
    value(element, name, |text| text.parse().ok())
}

fn boolean(element: &Element<'_>, name: &str) -> Result<Option<bool>, BadAnswer> {
    value(element, name, |text| match text {
        "true" | "True" | "1" => Some(true),
        "false" | "False" | "0" => Some(false),
        _ => None,
    })
}

fn span(element: &Element<'_>, name: &str) -> Result<Option<Duration>, BadAnswer> {
    value(element, name, duration::parse)
}

fn moment(element: &Element<'_>, name: &str) -> Result<Option<SystemTime>, BadAnswer> {
    value(element, name, time::parse).map(Option::flatten)
}

fn unreadable(what: String) -> BadAnswer {
    BadAnswer::Unreadable(what)
}
