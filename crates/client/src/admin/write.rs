//! The description of a queue in a request.

use super::settings::QueueSettings;
use super::{NAMESPACE, duration, forward, rules};
use crate::error::Error;
use crate::http::xml::{is_allowed, put_text};

/// The elements that a client may set, in the order that the service requires: it ignores what is out of order.
pub(super) const ELEMENTS: [&str; 20] = [
    "LockDuration",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DuplicateDetectionHistoryTimeWindow",
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "IsAnonymousAccessible",
    "AuthorizationRules",
    "Status",
    "ForwardTo",
    "UserMetadata",
    "SupportOrdering",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "ForwardDeadLetteredMessagesTo",
    "EnableExpress",
    "MaxMessageSizeInKilobytes",
];

/// What is written into an element.
enum Content {
    Text(String),
    /// The whole element.
    Element(String),
}

/// The body of a request. Fails if there is a text that XML cannot carry.
pub(super) fn entry(settings: &QueueSettings, host: &str) -> Result<Vec<u8>, Error> {
    let mut out = format!(
        "<entry xmlns=\"http://www.w3.org/2005/Atom\"><content type=\"application/xml\">\
         <QueueDescription xmlns=\"{NAMESPACE}\""
    );
    settings.unknown.put_prefixes(&mut out, &[]);
    out.push('>');
    for (name, content) in ELEMENTS.into_iter().zip(contents(settings, host)) {
        match (content, settings.unknown.named(name)) {
            (Some(Content::Text(text)), _) => {
                out.extend(["<", name, ">"]);
                put_text(&mut out, &text);
                out.extend(["</", name, ">"]);
            }
            (Some(Content::Element(element)), _) => out.push_str(&element),
            (None, Some(element)) => out.push_str(element),
            (None, None) => {}
        }
    }
    settings.unknown.put_all_but(&mut out, &ELEMENTS);
    out.push_str("</QueueDescription></content></entry>");
    match out.chars().all(is_allowed) {
        true => Ok(out.into_bytes()),
        false => Err(Error::refused(
            "the settings of the queue have characters that XML cannot carry",
        )),
    }
}

/// What each of the [`ELEMENTS`] holds.
fn contents(it: &QueueSettings, host: &str) -> [Option<Content>; ELEMENTS.len()] {
    let text = |text: Option<String>| text.map(Content::Text);
    let boolean = |value: Option<bool>| text(value.map(|it| it.to_string()));
    let number = |value: Option<u64>| text(value.map(|it| it.to_string()));
    let span = |value| text(Option::map(value, duration::format));
    let target = |value: &Option<String>| {
        let address = |target: &String| match target.is_empty() {
            true => String::new(),
            false => forward::address(target, host),
        };
        text(value.as_ref().map(address))
    };
    let rules = it.authorization_rules.as_deref().map(rules::write);
    [
        span(it.lock_duration),
        number(it.max_size_megabytes),
        boolean(it.requires_duplicate_detection),
        boolean(it.requires_session),
        span(it.default_time_to_live),
        boolean(it.dead_letters_expired),
        span(it.duplicate_window),
        number(it.max_delivery_count.map(u64::from)),
        boolean(it.enable_batched_operations),
        boolean(it.is_anonymous_accessible),
        rules.map(Content::Element),
        text(it.status.as_ref().map(|it| it.as_str().to_owned())),
        target(&it.forward_to),
        text(it.user_metadata.clone()),
        boolean(it.support_ordering),
        span(it.auto_delete_on_idle),
        boolean(it.enable_partitioning),
        target(&it.forward_dead_letters_to),
        boolean(it.enable_express),
        number(it.max_message_size_kilobytes),
    ]
}
