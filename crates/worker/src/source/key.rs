//! What a message is known by.

use std::fmt;

/// The same at each delivery of a message, and unique in its queue.
///
/// A source makes one of what its service says: of an id, or of a sequence number and the time of arrival, because
/// numbers begin anew if a queue is deleted and created again. The text of the second is made when it is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key(Kind);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Kind {
    #[default]
    Unknown,
    Numbered {
        number: i64,
        enqueued_ms: u64,
    },
    Named(String),
}

impl Key {
    /// Of a message that the service has given a number, and of its arrival in milliseconds since 1970-01-01 UTC.
    pub fn numbered(number: i64, enqueued_ms: u64) -> Self {
        Self(Kind::Numbered {
            number,
            enqueued_ms,
        })
    }

    /// Whether nothing tells the message from others: it is not known again.
    pub fn is_unknown(&self) -> bool {
        self.0 == Kind::Unknown
    }

    /// The id that it was made of, if it was made of one.
    pub(crate) fn name(&self) -> &str {
        match &self.0 {
            Kind::Named(name) => name,
            Kind::Unknown | Kind::Numbered { .. } => "",
        }
    }
}

/// Of an id. An empty one says nothing.
impl From<String> for Key {
    fn from(name: String) -> Self {
        Self(match name.is_empty() {
            true => Kind::Unknown,
            false => Kind::Named(name),
        })
    }
}

impl From<&str> for Key {
    fn from(name: &str) -> Self {
        Self::from(name.to_owned())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Unknown => Ok(()),
            Kind::Numbered {
                number,
                enqueued_ms,
            } => write!(f, "{number}@{enqueued_ms}"),
            Kind::Named(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_by_what_they_are_made_of() {
        let keys = [
            Key::default(),
            Key::numbered(7, 1),
            Key::numbered(7, 2),
            "7@1".into(),
        ];
        let texts = keys.each_ref().map(Key::to_string);
        assert_eq!(texts, ["", "7@1", "7@2", "7@1"]);
        assert_ne!(keys[1], keys[2]);
        assert_eq!(
            keys.each_ref().map(Key::is_unknown),
            [true, false, false, false]
        );
        assert_eq!(Key::from(""), Key::default());
        assert_eq!(keys[3].name(), "7@1");
        assert_eq!(keys[1].name(), "");
    }
}
