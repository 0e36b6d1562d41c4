//! Messages of Queue Storage: texts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value as Json};

use super::{Body, Record, Section, Service};

/// A text that is put into a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) text: String,
    /// `None`: it never expires.
    pub(crate) time_to_live: Option<Duration>,
    /// How long it is hidden at first.
    pub(crate) hidden: Duration,
}

/// The record of a message; `facts` is what the service said of it.
pub(crate) fn record_of_text(
    queue: &str,
    facts: Map<String, Json>,
    text: &str,
    time_to_live: Option<Duration>,
) -> Record {
    let ms = |life: Duration| u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
    Record {
        queue: Some(queue.to_owned()),
        facts,
        time_to_live_ms: time_to_live.map(ms),
        body: Some(Body::Text(text.to_owned())),
        ..Record::empty(Service::QueueStorage)
    }
}

/// The text of a record; or why Queue Storage cannot hold it.
pub(crate) fn text_of(record: &Record, now: SystemTime) -> Result<Text, String> {
    // Queue Storage gives every message an id and a time of its own. Everything else would be lost.
    let lost = Record {
        version: record.version,
        queue: None,
        facts: Map::new(),
        message_id: None,
        created_at_ms: None,
        time_to_live_ms: None,
        scheduled_at_ms: None,
        durable: None,
        priority: None,
        body: None,
        ..record.clone()
    };
    let lost = serde_json::to_value(&lost).map_err(|error| error.to_string())?;
    let names = lost.as_object().into_iter().flat_map(Map::keys);
    let lost: Vec<&str> = names
        .map(String::as_str)
        .filter(|name| !["version", "service"].contains(name))
        .collect();
    if !lost.is_empty() {
        return Err(format!(
            "Queue Storage has no place for {}",
            lost.join(", ")
        ));
    }
    let until = record.scheduled_at_ms.and_then(|ms| u64::try_from(ms).ok());
    let until = until.map(|ms| UNIX_EPOCH + Duration::from_millis(ms));
    let hidden = until.and_then(|until| until.duration_since(now).ok());
    Ok(Text {
        text: match &record.body {
            None => String::new(),
            Some(Body::Text(text)) => text.clone(),
            Some(Body::Sections(sections)) => whole(sections)?,
            Some(Body::Base64(_) | Body::Value(_) | Body::Sequences(_)) => {
                return Err("the body is not a text, and Queue Storage holds texts".into());
            }
        },
        time_to_live: record.time_to_live_ms.map(Duration::from_millis),
        hidden: hidden.unwrap_or_default(),
    })
}

fn whole(sections: &[Section]) -> Result<String, String> {
    let texts = sections.iter().map(|section| match section {
        Section::Text(text) => Ok(text.as_str()),
        Section::Base64(_) => Err("the body is not a text, and Queue Storage holds texts".into()),
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_back() {
        for life in [None, Some(Duration::from_secs(60))] {
            let record = record_of_text("jobs", Map::new(), "text", life);
            let line = serde_json::to_vec(&record).unwrap();
            let text = text_of(&Record::read(&line).unwrap(), UNIX_EPOCH).unwrap();
            assert_eq!((&*text.text, text.time_to_live), ("text", life));
            assert_eq!(text.hidden, Duration::ZERO);
        }
    }

    #[test]
    fn what_would_be_lost_is_refused() {
        let read = |members: &str| {
            let line = format!(r#"{{"version": 1, "service": "service-bus", {members}}}"#);
            text_of(&Record::read(line.as_bytes()).unwrap(), UNIX_EPOCH)
        };
        for (members, named) in [
            (
                r#""subject": "s", "properties": {"a": true}"#,
                "properties, subject",
            ),
            (r#""body": {"base64": "/w=="}"#, "not a text"),
            (r#""body": {"value": true}"#, "not a text"),
            (
                r#""body": {"sections": [{"base64": "/w=="}]}"#,
                "not a text",
            ),
        ] {
            let error = read(members).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
        let whole =
            read(r#""body": {"sections": [{"text": "a"}, {"text": "b"}]}, "durable": true"#);
        assert_eq!(whole.unwrap().text, "ab");
        let later = read(r#""body": {"text": "x"}, "scheduled_at_ms": 5000"#).unwrap();
        assert_eq!(later.hidden, Duration::from_secs(5));
    }
}
