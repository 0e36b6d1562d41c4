//! Answers of management: descriptions of entities and rules, lists of them, and the namespace.

use std::str::FromStr;
use std::time::SystemTime;

use percent_encoding::percent_decode_str;

use super::description::{
    Description, EntityDescription, EntityState, NamespaceInfo, Page, UnknownElements,
};
use super::elements::{Elements, Odd, Part, Settings};
use super::settings::{QueueSettings, SubscriptionSettings, TopicSettings};
use super::{forward, time};
use crate::http::xml::Element;

/// What the service alone writes into a description.
const STATE: [&str; 10] = [
    // A rule's, which an entry has as its title, too.
    "Name",
    "SizeInBytes",
    "MessageCount",
    "SubscriptionCount",
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
    /// It says that there is no such entity: it is an empty list, or it describes something else.
    NoEntity(String),
    Unreadable(String),
}

/// A document, and what holds within an entry of it.
pub(super) struct Source<'a> {
    document: &'a str,
    /// Attributes `xmlns:…` around the entry's description and on it, the innermost last.
    prefixes: Vec<(String, String)>,
}

impl<'a> Source<'a> {
    pub(super) fn new(document: &'a str, around: &[&Element<'_>]) -> Self {
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
            if !known.contains(&child.local_name()) {
                self.keep(child, &mut unknown);
            }
        }
        unknown
    }

    /// An element as the service wrote it, with the prefixes that it does not declare itself.
    pub(super) fn kept(&self, element: &Element<'_>) -> UnknownElements {
        let mut kept = UnknownElements::default();
        self.keep(element, &mut kept);
        let own = |name: &String| element.attributes.iter().any(|(it, _)| it == name);
        kept.prefixes.retain(|(name, _)| !own(name));
        kept
    }

    fn keep(&self, element: &Element<'_>, kept: &mut UnknownElements) {
        if let Some(source) = self.document.get(element.place.clone()) {
            let name = element.local_name().to_owned();
            kept.elements.push((name, source.to_owned()));
            kept.prefixes.clone_from(&self.prefixes);
        }
    }
}

/// The entity or the rule of an answer that is an entry.
pub(super) fn one<S: Settings>(body: &[u8], host: &str) -> Result<Description<S>, BadAnswer> {
    let (document, root) = parsed(body)?;
    check_entry(&root, S::WHAT)?;
    entry(document, &[&root], host)
}

/// The queue, topic or subscription of an answer that is an entry.
pub(super) fn any(body: &[u8], host: &str) -> Result<EntityDescription, BadAnswer> {
    let (document, root) = parsed(body)?;
    check_entry(&root, "entity")?;
    let (_, described) = content_of(&root)?;
    let around = &[&root];
    Ok(match described.local_name() {
        QueueSettings::ELEMENT => EntityDescription::Queue(entry(document, around, host)?),
        TopicSettings::ELEMENT => EntityDescription::Topic(entry(document, around, host)?),
        SubscriptionSettings::ELEMENT => {
            EntityDescription::Subscription(entry(document, around, host)?)
        }
        other => {
            let what = format!("there is no such entity: it is {other}");
            return Err(BadAnswer::NoEntity(what));
        }
    })
}

fn check_entry(root: &Element<'_>, what: &str) -> Result<(), BadAnswer> {
    match root.local_name() {
        "entry" => Ok(()),
        // As Azure answers.
        "feed" => Err(BadAnswer::NoEntity(format!("there is no such {what}"))),
        other => Err(unreadable(format!("XML that is {other}, and no entry"))),
    }
}

/// A page of a list that began after `skip` entries and asked for `top`.
pub(super) fn page<S: Settings>(
    body: &[u8],
    host: &str,
    skip: u64,
    top: u64,
) -> Result<Page<Description<S>>, BadAnswer> {
    let (document, root) = parsed(body)?;
    if root.local_name() != "feed" {
        let what = format!("XML that is {}, and no feed", root.local_name());
        return Err(unreadable(what));
    }
    let entries = root.children.iter().filter(|it| it.local_name() == "entry");
    let items = entries.map(|it| entry(document, &[&root, it], host));
    let items = items.collect::<Result<Vec<_>, _>>()?;
    let mut links = root.children.iter().filter(|it| it.local_name() == "link");
    let next = links.find(|link| link.attribute("rel") == Some("next"));
    let next = match next.map(|link| link.attribute("href").and_then(skip_of)) {
        // A service that stays where it is would be asked for ever.
        Some(Some(next)) if next > skip => Some(next),
        Some(_) => return Err(unreadable("a list that does not go on".to_owned())),
        None => {
            let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
            (count >= top).then(|| skip.saturating_add(count))
        }
    };
    Ok(Page { items, next })
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

/// The content of an entry, and the description in it.
fn content_of<'e, 'd>(
    entry: &'e Element<'d>,
) -> Result<(&'e Element<'d>, &'e Element<'d>), BadAnswer> {
    let content = entry.child("content");
    let both = content.and_then(|content| Some((content, content.children.first()?)));
    both.ok_or_else(|| unreadable("an entry without a content".to_owned()))
}

fn entry<S: Settings>(
    document: &str,
    around: &[&Element<'_>],
    host: &str,
) -> Result<Description<S>, BadAnswer> {
    let [.., entry] = around else {
        return Err(unreadable("no entry".to_owned()));
    };
    let (content, described) = content_of(entry)?;
    if described.local_name() != S::ELEMENT {
        let (what, found) = (S::WHAT, described.local_name());
        let what = format!("there is no such {what}: it is {found}");
        return Err(BadAnswer::NoEntity(what));
    }
    let name = text_of(entry, "title").filter(|it| !it.is_empty());
    let name = name.ok_or_else(|| unreadable("an entry without a title".to_owned()))?;
    let around = [around, &[content, described]].concat();
    let source = Source::new(document, &around);
    Ok(Description {
        name: name.to_owned(),
        settings: settings(&source, described, host)?,
        state: state(described)?,
    })
}

/// Reads elements of a description.
struct Reading<'a> {
    source: &'a Source<'a>,
    description: &'a Element<'a>,
    host: &'a str,
    /// The names that were read. All others are unknown.
    known: Vec<&'static str>,
    /// The first thing that is wrong.
    wrong: Option<String>,
}

impl Reading<'_> {
    fn found<T: Part>(&mut self, name: &'static str) -> Option<T> {
        let element = self.description.child(name);
        match element.map(|it| T::read(self.source, it)) {
            // It stays among the unknown ones.
            Some(Err(Odd::Unknown)) => return None,
            Some(Err(Odd::Bad(what))) => self.fail(format!("a bad {name}: {what}")),
            Some(Ok(found)) => {
                self.known.push(name);
                return found;
            }
            None => {}
        }
        self.known.push(name);
        None
    }

    fn fail(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }
}

impl Elements for Reading<'_> {
    fn value<T: Part>(&mut self, name: &'static str, value: &mut Option<T>) {
        *value = self.found(name);
    }

    fn required<T: Part>(&mut self, name: &'static str, value: &mut T) {
        match self.found(name) {
            Some(found) => *value = found,
            None => {
                let description = self.description.local_name();
                self.fail(format!("a {description} without {name}"));
            }
        }
    }

    fn target(&mut self, name: &'static str, target: &mut Option<String>) {
        self.known.push(name);
        let address = text_of(self.description, name).filter(|it| !it.is_empty());
        *target = address.map(|address| forward::shown(address, self.host));
    }
}

fn settings<S: Settings>(
    source: &Source<'_>,
    description: &Element<'_>,
    host: &str,
) -> Result<S, BadAnswer> {
    let mut settings = S::default();
    let mut reading = Reading {
        source,
        description,
        host,
        known: STATE.to_vec(),
        wrong: None,
    };
    settings.each(&mut reading);
    if let Some(what) = reading.wrong {
        return Err(unreadable(what));
    }
    *settings.unknown() = source.unknown(description, &reading.known);
    Ok(settings)
}

fn state(it: &Element<'_>) -> Result<EntityState, BadAnswer> {
    let count = |name: &str| match it.child("CountDetails") {
        Some(details) => number(details, name),
        None => Ok(None),
    };
    Ok(EntityState {
        size_bytes: number(it, "SizeInBytes")?,
        message_count: number(it, "MessageCount")?,
        active_count: count("ActiveMessageCount")?,
        dead_letter_count: count("DeadLetterMessageCount")?,
        scheduled_count: count("ScheduledMessageCount")?,
        transfer_count: count("TransferMessageCount")?,
        transfer_dead_letter_count: count("TransferDeadLetterMessageCount")?,
        subscription_count: number(it, "SubscriptionCount")?,
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

fn moment(element: &Element<'_>, name: &str) -> Result<Option<SystemTime>, BadAnswer> {
    value(element, name, time::parse).map(Option::flatten)
}

fn unreadable(what: String) -> BadAnswer {
    BadAnswer::Unreadable(what)
}
