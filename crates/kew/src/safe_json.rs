//! JSON with terminal control characters escaped.
//!
//! JSON escapes only the control characters of ASCII. This also escapes the others, and those that
//! change the direction of text, because text from servers and clients must not reach a terminal
//! unescaped. Every reader decodes the same text.

use std::io;

use serde::Serialize;
use serde_json::ser::Formatter;

use crate::queue_command::is_active;

/// Writes a value on one line.
pub(crate) fn write(out: impl io::Write, value: &impl Serialize) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(out, Escaping);
    value.serialize(&mut serializer).map_err(io::Error::from)
}

/// The same as a text.
pub(crate) fn to_string(value: &impl Serialize) -> io::Result<String> {
    let mut bytes = Vec::new();
    write(&mut bytes, value)?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        let mut rest = fragment;
        while let Some((before, active)) = rest.char_indices().find(|(_, c)| is_active(*c)) {
            let (plain, from_active) = rest.split_at(before);
            writer.write_all(plain.as_bytes())?;
            let mut units = [0; 2];
            for unit in active.encode_utf16(&mut units) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = from_active.get(active.len_utf8()..).unwrap_or_default();
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn active_characters_are_escaped_and_decode_the_same() {
        for (text, expected) in [
            ("plain äöü 😀 \\ \"", r#""plain äöü 😀 \\ \"""#),
            ("\u{1b}[31m\u{7f}", r#""\u001b[31m\u007f""#),
            (
                "a\u{80}\u{85}\u{9b}31m\u{9f}",
                r#""a\u0080\u0085\u009b31m\u009f""#,
            ),
            (
                "\u{61c}\u{200e}\u{200f}\u{2028}",
                r#""\u061c\u200e\u200f\u2028""#,
            ),
            (
                "x\u{202a}\u{202e}\u{2066}\u{2069}y",
                r#""x\u202a\u202e\u2066\u2069y""#,
            ),
        ] {
            let value = json!({ "a": text, text: [text] });
            let written = to_string(&value).expect("it can be written");
            assert!(written.contains(expected), "{written}");
            assert!(!written.contains(is_active), "{written}");
            assert_eq!(
                serde_json::from_str::<Value>(&written).expect("JSON"),
                value
            );
        }
    }
}
