//! Which lines of a file `--queue` selects.

use kew_client::Entity;

use crate::portable::{Line, Service};

/// Whether a line belongs to an entity that is wanted: a queue, a topic with its subscriptions, or one subscription,
/// which has the definition of its topic with it. Without names all are.
pub(super) fn is_wanted(line: &Line, wanted: &[String]) -> bool {
    let is = |name: &str| wanted.iter().any(|it| it.eq_ignore_ascii_case(name));
    let of = |topic: &str, name: &str| is(topic) || is(&format!("{topic}/subscriptions/{name}"));
    let owner = match line {
        _ if wanted.is_empty() => return true,
        Line::End(_) => return true,
        Line::Topic(it) => return is(&it.topic) || has_part(&it.topic, wanted),
        Line::Subscription(it) => return of(&it.topic, &it.subscription),
        Line::Rule(it) => return of(&it.topic, &it.subscription),
        Line::Message(record) => record.queue(),
        Line::BusQueue(it) => Some(it.queue.as_str()),
        Line::StorageQueue(it) => Some(it.queue.as_str()),
        Line::SessionState(it) => Some(it.queue.as_str()),
    };
    let name = owner.unwrap_or_default();
    let base = name.split("/$").next().unwrap_or(name);
    match Entity::new(base).subscription_names() {
        Some((topic, name)) => of(topic, name),
        None => is(base),
    }
}

/// Whether a subscription of this topic is wanted.
fn has_part(topic: &str, wanted: &[String]) -> bool {
    wanted.iter().any(|it| {
        let entity = Entity::new(it);
        let names = entity.subscription_names();
        names.is_some_and(|(it, _)| it.eq_ignore_ascii_case(topic))
    })
}

pub(super) fn is_of_storage(line: &Line) -> bool {
    match line {
        Line::Message(record) => record.service() == Service::QueueStorage,
        Line::StorageQueue(_) => true,
        Line::BusQueue(_)
        | Line::Topic(_)
        | Line::Subscription(_)
        | Line::Rule(_)
        | Line::SessionState(_)
        | Line::End(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_select_what_belongs_to_them() {
        let lines = [
            r#""queue": "news""#,
            r#""queue": "q/$deadletterqueue""#,
            r#""topic": "news", "definition": {}"#,
            r#""topic": "news", "subscription": "a", "definition": {}"#,
            r#""topic": "news", "subscription": "a", "rule": "r", "filter": "true""#,
            r#""queue": "news/subscriptions/a/$deadletterqueue""#,
            r#""queue": "news/subscriptions/b""#,
            r#""queue": "News/Subscriptions/A", "session_id": "s", "session_state": {"text": ""}"#,
        ];
        let read = |members: &&str| {
            let text = format!(r#"{{"version": 1, "service": "service-bus", {members}}}"#);
            Line::read(text.as_bytes()).unwrap()
        };
        let lines: Vec<Line> = lines.iter().map(read).collect();
        for (wanted, expected) in [
            (&[][..], "11111111"),
            (&["NEWS"], "10111111"),
            (&["q"], "01000000"),
            (&["news/Subscriptions/A"], "00111101"),
            (&["news/subscriptions/b", "q"], "01100010"),
            (&["new"], "00000000"),
        ] {
            let wanted: Vec<String> = wanted.iter().map(|it| (*it).to_owned()).collect();
            let found = lines.iter().map(|line| match is_wanted(line, &wanted) {
                true => '1',
                false => '0',
            });
            assert_eq!(found.collect::<String>(), expected, "{wanted:?}");
        }
    }
}
