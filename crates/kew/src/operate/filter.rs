//! Which messages a command uses: as Kew's own interface reads it, and by the same rules for messages that came over
//! AMQP.

use kew_bus_api::MessageView;
use serde_json::{Map, Value};

use super::own::encode;
use crate::operate_args::FilterArgs;
use crate::queue_command::Failure;

impl FilterArgs {
    /// As Kew reads it: fields that are not set are left out.
    pub(super) fn to_json(&self) -> Value {
        let text = |text: &Option<String>| text.clone().map_or(Value::Null, Value::from);
        let number = |number: Option<u64>| number.map_or(Value::Null, Value::from);
        let mut fields: Map<String, Value> = [
            ("from", number(self.from)),
            ("to", number(self.until)),
            ("enqueued_after", text(&self.after)),
            ("enqueued_before", text(&self.before)),
            ("state", text(&self.state)),
            ("reason", text(&self.reason)),
            ("description", text(&self.description)),
            ("subject", text(&self.subject)),
            ("content_type", text(&self.content_type)),
            ("message_id", text(&self.message_id)),
            ("session_id", text(&self.session)),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        if !self.property.is_empty() {
            let properties = self.property.iter();
            let properties = properties.map(|(name, value)| (name.clone(), typed(value)));
            fields.insert("properties".into(), Value::Object(properties.collect()));
        }
        fields.into()
    }

    /// The same as parameters of a request.
    pub(super) fn to_query(&self) -> String {
        let mut query = String::new();
        let Value::Object(fields) = self.to_json() else {
            return query;
        };
        for (name, value) in &fields {
            match value {
                Value::Object(properties) => {
                    for (name, value) in properties {
                        query += &format!("&property={}", encode(&format!("{name}={value}")));
                    }
                }
                Value::String(text) => query += &format!("&{name}={}", encode(text)),
                value => query += &format!("&{name}={value}"),
            }
        }
        query
    }
}

/// The conditions, ready to be compared.
#[derive(Debug)]
pub(super) struct Filter<'a> {
    args: &'a FilterArgs,
    after: Option<jiff::Timestamp>,
    before: Option<jiff::Timestamp>,
    properties: Vec<(&'a str, Value)>,
}

impl<'a> Filter<'a> {
    pub(super) fn new(args: &'a FilterArgs) -> Result<Self, Failure> {
        if args.state.as_deref() == Some("locked") {
            let message = "--state locked needs Kew's own interface: other services do not say which messages \
                           are locked";
            return Err(Failure::Refused {
                message: message.into(),
                code: Some("NotKew"),
            });
        }
        let time = |flag: &str, text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                Failure::Usage(format!(
                    "{flag} {text}: expected a time such as 2026-01-31T12:00:00Z"
                ))
            }),
        };
        let properties = args.property.iter();
        Ok(Self {
            after: time("--after", &args.after)?,
            before: time("--before", &args.before)?,
            properties: properties
                .map(|(name, text)| (name.as_str(), typed(text)))
                .collect(),
            args,
        })
    }

    /// The first sequence number that can match.
    pub(super) fn first(&self) -> u64 {
        self.args.from.unwrap_or_default()
    }

    /// Whether this number, and all later ones, are beyond the last that can match.
    pub(super) fn is_beyond(&self, number: u64) -> bool {
        self.args.until.is_some_and(|last| number > last)
    }

    pub(super) fn matches(&self, message: &MessageView) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        let at: Option<jiff::Timestamp> = message
            .enqueued_at
            .as_deref()
            .and_then(|at| at.parse().ok());
        let args = self.args;
        let number = message.sequence_number;
        number >= self.first()
            && !self.is_beyond(number)
            && self
                .after
                .is_none_or(|after| at.is_some_and(|at| at >= after))
            && self
                .before
                .is_none_or(|before| at.is_some_and(|at| at < before))
            && is(&args.state, Some(message.state))
            && is(&args.reason, message.dead_letter_reason.as_deref())
            && args.description.as_deref().is_none_or(|part| {
                let description = message.dead_letter_description.as_deref();
                description.is_some_and(|text| text.contains(part))
            })
            && is(&args.subject, message.subject.as_deref())
            && is(&args.content_type, message.content_type.as_deref())
            && is(&args.message_id, message.message_id.as_deref())
            && is(&args.session, message.session_id.as_deref())
            && self
                .properties
                .iter()
                .all(|(name, value)| message.properties.get(*name) == Some(value))
    }
}

/// The value of a property: a scalar of JSON, or a text as it is.
pub(super) fn typed(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Bool(_) | Value::Number(_) | Value::String(_))) => value,
        _ => Value::from(text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn args() -> FilterArgs {
        FilterArgs {
            from: None,
            until: None,
            after: None,
            before: None,
            state: None,
            reason: None,
            description: None,
            subject: None,
            content_type: None,
            message_id: None,
            session: None,
            property: Vec::new(),
        }
    }

    #[test]
    fn every_condition_counts() {
        let message = MessageView {
            sequence_number: 5,
            state: "active",
            enqueued_at: Some("2026-01-31T12:00:00.500Z".into()),
            dead_letter_reason: Some("Late".into()),
            dead_letter_description: Some("much too late".into()),
            subject: Some("s".into()),
            properties: json!({"tries": 2}).as_object().unwrap().clone(),
            ..MessageView::default()
        };
        let text = |text: &str| Some(text.to_owned());
        let tries = |value: &str| vec![("tries".to_owned(), value.to_owned())];
        for (filter, is_match) in [
            (args(), true),
            (
                FilterArgs {
                    from: Some(6),
                    ..args()
                },
                false,
            ),
            (
                FilterArgs {
                    until: Some(5),
                    ..args()
                },
                true,
            ),
            (
                FilterArgs {
                    until: Some(4),
                    ..args()
                },
                false,
            ),
            (
                FilterArgs {
                    after: text("2026-01-31T12:00:00.500Z"),
                    ..args()
                },
                true,
            ),
            (
                FilterArgs {
                    before: text("2026-01-31T12:00:00.500Z"),
                    ..args()
                },
                false,
            ),
            (
                FilterArgs {
                    state: text("deferred"),
                    ..args()
                },
                false,
            ),
            (
                FilterArgs {
                    reason: text("Late"),
                    ..args()
                },
                true,
            ),
            (
                FilterArgs {
                    reason: text("late"),
                    ..args()
                },
                false,
            ),
            (
                FilterArgs {
                    description: text("too"),
                    ..args()
                },
                true,
            ),
            (
                FilterArgs {
                    subject: text("t"),
                    ..args()
                },
                false,
            ),
            (
                FilterArgs {
                    content_type: text("t"),
                    ..args()
                },
                false,
            ),
            (
                FilterArgs {
                    property: tries("2"),
                    ..args()
                },
                true,
            ),
            (
                FilterArgs {
                    property: tries("\"2\""),
                    ..args()
                },
                false,
            ),
        ] {
            assert_eq!(
                Filter::new(&filter).unwrap().matches(&message),
                is_match,
                "{filter:?}"
            );
        }
        let locked = FilterArgs {
            state: text("locked"),
            ..args()
        };
        assert!(Filter::new(&locked).is_err());
        let soon = FilterArgs {
            after: text("soon"),
            ..args()
        };
        assert!(
            Filter::new(&soon)
                .unwrap_err()
                .message()
                .contains("expected a time")
        );
    }
}
