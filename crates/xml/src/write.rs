//! Answers are written by hand, directly into the buffer that is sent.

use bytes::{BufMut as _, BytesMut};
use memchr::{memchr_iter, memchr3};

use crate::document::is_allowed;

/// How every document begins. The service puts a byte order mark before it, which no reader needs.
pub const DECLARATION: &[u8] = b"<?xml version=\"1.0\" encoding=\"utf-8\"?>";

/// Writes character data: `&`, `<` and `>` are escaped, and a carriage return, which readers would
/// otherwise turn into a line feed.
///
/// The text must have only characters that XML allows: stored text was checked when it was read.
pub fn put_text(out: &mut BytesMut, text: &[u8]) {
    let mut start = 0;
    for end in memchr_iter(b'\r', text) {
        put_line(out, text.get(start..end).unwrap_or_default());
        out.put_slice(b"&#xD;");
        start = end + 1;
    }
    put_line(out, text.get(start..).unwrap_or_default());
}

/// Writes character data without carriage returns: runs without markup are copied whole.
fn put_line(out: &mut BytesMut, line: &[u8]) {
    let mut rest = line;
    while let Some(index) = memchr3(b'&', b'<', b'>', rest) {
        let (run, hits) = rest.split_at_checked(index).unwrap_or((rest, &[]));
        out.put_slice(run);
        // Carriage returns often come in groups, so searching for each would take longer.
        rest = hits;
        while let Some((&byte, after)) = rest.split_first()
            && let Some(escaped) = escape(byte)
        {
            out.put_slice(escaped);
            rest = after;
        }
    }
    out.put_slice(rest);
}

const fn escape(byte: u8) -> Option<&'static [u8]> {
    match byte {
        b'&' => Some(b"&amp;"),
        b'<' => Some(b"&lt;"),
        b'>' => Some(b"&gt;"),
        _ => None,
    }
}

/// Writes an attribute's value, without its quotes: double quotes are escaped too.
pub fn put_attribute(out: &mut BytesMut, text: &str) {
    for (index, part) in text.split('"').enumerate() {
        if index > 0 {
            out.put_slice(b"&quot;");
        }
        put_text(out, part.as_bytes());
    }
}

/// Writes `<name>text</name>`, or `<name />` for an empty text. Characters that XML forbids become
/// U+FFFD, because the text may be anything that a client sent.
pub fn put_element(out: &mut BytesMut, name: &str, text: &str) {
    out.put_u8(b'<');
    out.put_slice(name.as_bytes());
    if text.is_empty() {
        out.put_slice(b" />");
        return;
    }
    out.put_u8(b'>');
    if text.chars().all(is_allowed) {
        put_text(out, text.as_bytes());
    } else {
        let text: String = text
            .chars()
            .map(|c| if is_allowed(c) { c } else { '\u{FFFD}' })
            .collect();
        put_text(out, text.as_bytes());
    }
    out.put_slice(b"</");
    out.put_slice(name.as_bytes());
    out.put_u8(b'>');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(text: &str, expected: &str) {
        let mut out = BytesMut::new();
        put_text(&mut out, text.as_bytes());
        assert_eq!(out, expected);
    }

    #[test]
    fn only_necessary_characters_are_escaped() {
        check_text("plain \"text\" 'too'\n\t", "plain \"text\" 'too'\n\t");
        check_text("a<b>&c", "a&lt;b&gt;&amp;c");
        check_text("a\r\nb", "a&#xD;\nb");
        check_text("\r", "&#xD;");
        check_text("&\r\r>\r", "&amp;&#xD;&#xD;&gt;&#xD;");
        check_text("", "");
        check_text("😀é", "😀é");
    }

    #[test]
    fn an_element_can_have_any_text() {
        let mut out = BytesMut::new();
        put_element(&mut out, "A", "");
        put_element(&mut out, "B", "x\0<\u{FFFF}");
        assert_eq!(out, "<A /><B>x\u{FFFD}&lt;\u{FFFD}</B>");
    }

    #[test]
    fn attributes_escape_quotes() {
        let mut out = BytesMut::new();
        put_attribute(&mut out, "a\"b<c\"");
        assert_eq!(out, "a&quot;b&lt;c&quot;");
    }
}
