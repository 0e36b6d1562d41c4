//! Values of the command line, checked where they are read.

use std::time::{Duration, SystemTime};

use kew_client::Entity;
use kew_engine::SUBSCRIPTIONS;

/// A queue's name: 3 to 63 of `a-z`, `0-9` and single hyphens within.
///
/// Source: *Naming queues and metadata*.
pub(crate) fn queue_name(text: &str) -> Result<String, String> {
    let in_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !(3..=63).contains(&text.len()) {
        return Err("a queue's name has 3 to 63 characters".into());
    }
    if !text.bytes().all(in_name) {
        return Err("a queue's name can have only lower-case letters, digits and hyphens".into());
    }
    if text.starts_with('-') || text.ends_with('-') || text.contains("--") {
        return Err("each hyphen in a queue's name must be between letters or digits".into());
    }
    Ok(text.to_owned())
}

/// `NAME=VALUE`; the name is an identifier, the value is limited to what HTTP can carry.
pub(crate) fn metadata_pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("metadata is NAME=VALUE")?;
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let goes_on_well = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !starts_well || !goes_on_well {
        return Err("the name begins with a letter or _ and has letters, digits and _".into());
    }
    if !value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err("the value can have only printable ASCII characters and spaces".into());
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// A message's id or receipt: any text that can be sent.
pub(crate) fn message_part(text: &str) -> Result<String, String> {
    if text.is_empty() || text == "." || text == ".." {
        return Err("not an id or receipt: use the values that receive prints".into());
    }
    Ok(text.to_owned())
}

/// A message's number, id or lock token in a path of Service Bus.
pub(crate) fn bus_message_part(text: &str) -> Result<String, String> {
    if text.contains('/') {
        return Err(
            "an id with / cannot be part of a path: use the sequence number of the message".into(),
        );
    }
    message_part(text)
        .map_err(|_| "not an id or lock token: use the values that receive prints".into())
}

/// A text that XML can carry.
pub(crate) fn xml_text(text: &str) -> Result<String, String> {
    let is_wrong = |c: &char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
    match text.chars().find(is_wrong) {
        Some(wrong) => Err(format!(
            "the text has the character {:#x}, which XML cannot contain",
            u32::from(wrong)
        )),
        None => Ok(text.to_owned()),
    }
}

/// A number with `ms`, `s`, `m`, `h` or `d`; seconds without.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let wrong = || "a duration is a number with ms, s, m, h or d, for example 90s".to_owned();
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let ms = number.checked_mul(unit_ms).filter(|&ms| ms < 1 << 53);
    ms.map(Duration::from_millis)
        .ok_or_else(|| "the duration is too long".to_owned())
}

/// A duration for the service, which counts in seconds.
pub(crate) fn whole_seconds(text: &str) -> Result<u32, String> {
    let duration = duration(text)?;
    if duration.subsec_millis() != 0 {
        return Err("the duration must be in whole seconds".into());
    }
    u32::try_from(duration.as_secs()).map_err(|_| "the duration is too long".to_owned())
}

/// Seconds, or -1 for `never`.
pub(crate) fn time_to_live(text: &str) -> Result<i64, String> {
    if text == "never" {
        return Ok(-1);
    }
    whole_seconds(text).map(i64::from)
}

/// A name and a value.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".into()),
    }
}

/// A time in the form of RFC 3339.
pub(crate) fn point_in_time(text: &str) -> Result<SystemTime, String> {
    let time: Result<jiff::Timestamp, _> = text.parse();
    time.map(SystemTime::from)
        .map_err(|_| "expected a time such as 2026-01-31T12:00:00Z".to_owned())
}

/// A duration that may be endless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Ends(Duration),
    Never,
}

/// A duration, or `never`.
pub(crate) fn life(text: &str) -> Result<Life, String> {
    match text {
        "never" => Ok(Life::Never),
        _ => duration(text).map(Life::Ends),
    }
}

/// A Service Bus queue or topic to forward to, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Entity(String),
    None,
}

/// The name of a Service Bus queue or topic, or `none`.
pub(crate) fn target(text: &str) -> Result<Target, String> {
    match text {
        "none" => Ok(Target::None),
        _ => bus_queue_name(text).map(Target::Entity),
    }
}

/// A Service Bus queue that is managed over HTTP: its name must not contain the path segments that
/// identify requests about messages.
pub(crate) fn bus_queue_name(text: &str) -> Result<String, String> {
    let name = bus_entity(text)?;
    if name.contains('$') {
        return Err(
            "sub-queues are created and deleted with their queue: use the name of the queue".into(),
        );
    }
    let lower = name.to_lowercase();
    let mut segments = lower.rsplit('/');
    let (last, second, third) = (segments.next(), segments.next(), segments.next());
    let is_head = (second, last) == (Some("messages"), Some("head")) && third.is_some();
    let is_message = third == Some("messages") && segments.next().is_some();
    if is_head || is_message {
        return Err("over HTTP this is the path of a message, not of a queue".into());
    }
    let of_subscription = lower.split_once(SUBSCRIPTIONS).map(|(_, path)| path);
    if of_subscription.is_some_and(|path| path.split('/').nth(1) == Some("rules")) {
        return Err("this is the path of a rule: kew bus rule manages rules".into());
    }
    Ok(name)
}

/// A topic, which has a name of its own.
pub(crate) fn bus_topic_name(text: &str) -> Result<String, String> {
    let name = bus_queue_name(text)?;
    match Entity::new(&name).subscription_names() {
        None => Ok(name),
        Some((topic, _)) => Err(format!(
            "this is a subscription: its topic is {topic}, and kew bus subscription manages it"
        )),
    }
}

/// A subscription of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubscriptionName {
    pub(crate) topic: String,
    pub(crate) name: String,
}

impl std::fmt::Display for SubscriptionName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/subscriptions/{}", self.topic, self.name)
    }
}

/// A subscription, in any case of letters.
pub(crate) fn bus_subscription(text: &str) -> Result<SubscriptionName, String> {
    let name = bus_queue_name(text)?;
    let entity = Entity::new(&name);
    let names = entity.subscription_names();
    let (topic, name) = names.ok_or("a subscription is TOPIC/subscriptions/NAME")?;
    Ok(SubscriptionName {
        topic: topic.to_owned(),
        name: name.to_owned(),
    })
}

/// A rule of a subscription. `.` and `..` are steps in the path of a request. The server checks how long a new name is.
pub(crate) fn bus_rule_name(text: &str) -> Result<String, String> {
    let is_refused = |c: char| c.is_control() || r"/\?#@*".contains(c);
    if matches!(text, "" | "." | "..") || text.contains(is_refused) {
        return Err(
            "a rule's name has 1 to 50 characters: no control characters, none of / \\ ? # @ *, and it is not . or .."
                .into(),
        );
    }
    Ok(text.to_owned())
}

/// A Service Bus queue or one of its sub-queues. The server checks the rest of the name.
pub(crate) fn bus_entity(text: &str) -> Result<String, String> {
    let name = text.trim_matches('/');
    let is_step = |segment: &str| matches!(segment, "" | "." | "..");
    if name.split('/').any(is_step) {
        return Err(
            "a queue's name can have letters, digits, . - _ and single slashes between them".into(),
        );
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let ms = |text| duration(text).map(|duration| duration.as_millis()).ok();
        for (text, expected) in [
            ("0", Some(0)),
            ("30", Some(30_000)),
            ("250ms", Some(250)),
            ("2m", Some(120_000)),
            ("7d", Some(604_800_000)),
            ("", None),
            ("s", None),
            ("-1", None),
            ("1.5s", None),
            ("1w", None),
            ("99999999999999999999d", None),
            ("9999999999999d", None),
        ] {
            assert_eq!(ms(text), expected, "{text}");
        }
        assert_eq!(whole_seconds("1h"), Ok(3600));
        assert!(whole_seconds("1ms").is_err());
        assert_eq!(time_to_live("never"), Ok(-1));
    }

    #[test]
    fn names_of_service_bus() {
        for good in [
            "q",
            "Orders",
            "a/b.c",
            "messages",
            "a/messages",
            "/q/",
            "messages/x",
        ] {
            assert!(bus_queue_name(good).is_ok(), "{good}");
        }
        // A deletion of these would delete messages instead.
        for bad in [
            "",
            "a//b",
            "a/../b",
            "q/messages/head",
            "q/Messages/1/2",
            "q/$deadletterqueue",
        ] {
            assert!(bus_queue_name(bad).is_err(), "{bad}");
        }
        assert_eq!(
            bus_entity("q/$DeadLetterQueue").as_deref(),
            Ok("q/$DeadLetterQueue")
        );
        assert_eq!(target("none"), Ok(Target::None));
        assert_eq!(life("never"), Ok(Life::Never));
        assert_eq!(life("2m"), Ok(Life::Ends(Duration::from_mins(2))));
        assert!(point_in_time("2026-01-31T12:00:00Z").is_ok());
        assert!(point_in_time("noon").is_err());
    }

    #[test]
    fn names_of_topics_and_subscriptions() {
        let shown = |text| bus_subscription(text).map(|it| it.to_string());
        let expected = Ok("a/T/subscriptions/S".to_owned());
        assert_eq!(shown("/a/T/Subscriptions/S"), expected);
        for bad in ["t", "t/subscriptions", "t/subscriptions/a/b", "t/x/s", ""] {
            assert!(shown(bad).is_err(), "{bad}");
        }
        assert!(shown("t/subscriptions/s/$deadletterqueue").is_err());
        assert_eq!(bus_topic_name("a/t").as_deref(), Ok("a/t"));
        let told = bus_topic_name("t/Subscriptions/s").unwrap_err();
        assert!(told.contains("its topic is t"), "{told}");
        assert_eq!(bus_rule_name("$Default").as_deref(), Ok("$Default"));
        assert_eq!(bus_rule_name("ünïcode name").as_deref(), Ok("ünïcode name"));
        for bad in [
            "", ".", "..", "a/b", "a\\b", "a?b", "a#b", "a@b", "a*b", "a\nb",
        ] {
            assert!(bus_rule_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names() {
        for good in ["abc", "a-b-c", "0a9"] {
            assert!(queue_name(good).is_ok(), "{good}");
        }
        for bad in ["", "ab", "Abc", "a--b", "-abc", "abc-", "a/b", "a.b", "äbc"] {
            assert!(queue_name(bad).is_err(), "{bad}");
        }
        assert!(metadata_pair("a_1=x = y").is_ok());
        for bad in ["a", "=x", "1a=x", "a-b=x", "a=\n", "a=ä"] {
            assert!(metadata_pair(bad).is_err(), "{bad}");
        }
    }
}
