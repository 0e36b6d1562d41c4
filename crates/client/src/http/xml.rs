//! The XML of answers, as a small tree that borrows from the document, and that of requests.
//!
//! Answers come from a server that may be anything: depth is bounded, document types are refused, and
//! a document costs no more than a fixed multiple of its length, which the transport bounds.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr3;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

/// How deep elements nest; Queue Storage needs five, the ATOM of Service Bus eight.
const DEPTH_MAX: usize = 16;

/// Room for so many children is made at once: a message of Queue Storage has seven.
const CHILDREN: usize = 8;

/// An element with its text and its children.
#[derive(Debug, Default)]
pub(crate) struct Element<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: Cow<'a, str>,
    /// Names with their prefixes, and values.
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) children: Vec<Element<'a>>,
    /// Where it is in the document.
    pub(crate) place: Range<usize>,
}

impl<'a> Element<'a> {
    /// Reads a document; the error says what is wrong with it.
    pub(crate) fn parse(document: &'a [u8]) -> Result<Self, String> {
        let rest = document.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(document);
        let mark = document.len() - rest.len();
        let document = std::str::from_utf8(rest).map_err(|_| "XML that is not UTF-8")?;
        let mut reader = Reader::from_str(document);
        // The first is no element: it holds the root.
        let mut open = vec![Self::default()];
        let position =
            |reader: &Reader<&[u8]>| usize::try_from(reader.buffer_position()).unwrap_or(0);
        loop {
            let begin = position(&reader);
            let event = reader
                .read_event()
                .map_err(|error| format!("bad XML: {error}"))?;
            match event {
                Event::Start(start) => {
                    if open.len() > DEPTH_MAX {
                        return Err("XML that is nested too deeply".into());
                    }
                    open.push(Self::begun(document, &start, begin..begin, mark));
                }
                Event::Empty(start) => {
                    let place = begin..position(&reader);
                    let element = Self::begun(document, &start, place, mark);
                    last(&mut open)?.children.push(element);
                }
                Event::End(_) => {
                    let mut element = open.pop().ok_or("bad XML: an end without a start")?;
                    element.place.end = position(&reader) + mark;
                    let parent = last(&mut open)?;
                    if parent.children.is_empty() {
                        parent.children.reserve(CHILDREN);
                    }
                    parent.children.push(element);
                }
                Event::Text(text) => last(&mut open)?.text += text.xml10_content(),
                Event::CData(text) => last(&mut open)?.text += text.xml10_content(),
                Event::GeneralRef(reference) => {
                    let character = reference
                        .resolve_char_ref()
                        .map_err(|error| format!("bad XML: {error}"))?;
                    let text = &mut last(&mut open)?.text;
                    match (character, resolve_xml_entity(&reference)) {
                        (Some(character), _) => text.to_mut().push(character),
                        (None, Some(entity)) => text.to_mut().push_str(entity),
                        (None, None) => return Err("bad XML: an unknown entity".into()),
                    }
                }
                Event::DocType(_) => return Err("XML with a document type".into()),
                Event::Decl(_) | Event::Comment(_) | Event::PI(_) => {}
                Event::Eof => break,
            }
        }
        match (open.pop(), open.is_empty()) {
            (Some(mut top), true) if top.children.len() == 1 => {
                Ok(top.children.pop().unwrap_or_default())
            }
            _ => Err("XML that ends too early, or has no root".into()),
        }
    }

    /// `place` is where its start is in the document, and `mark` how much of the answer is before that.
    fn begun(document: &'a str, start: &BytesStart<'_>, place: Range<usize>, mark: usize) -> Self {
        // It follows the bracket.
        let name = document.get(place.start + 1..);
        let name = name.and_then(|it| it.get(..start.name().as_ref().len()));
        let element = Self {
            name: name.unwrap_or_default(),
            place: place.start + mark..place.end + mark,
            ..Self::default()
        };
        if start.len() == element.name.len() {
            return element;
        }
        // What is wrong with attributes is of no interest where they are not used.
        let mut attributes = start.attributes();
        let attributes = attributes.with_checks(false).flatten();
        let attributes = attributes.filter_map(|attribute| {
            let value = attribute.normalized_value(XmlVersion::Implicit1_0).ok()?;
            Some((attribute.key.as_ref().to_owned(), value.into_owned()))
        });
        Self {
            attributes: attributes.collect(),
            ..element
        }
    }

    /// Its name without the prefix.
    pub(crate) fn local_name(&self) -> &str {
        let (_, local) = self.name.rsplit_once(':').unwrap_or(("", self.name));
        local
    }

    /// The value of an attribute, by its name without a prefix.
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        let mut all = self.attributes.iter();
        let found = all.find(|(it, _)| it.rsplit(':').next() == Some(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The first child of that name, with any prefix.
    pub(crate) fn child(&self, name: &str) -> Option<&Self> {
        let is_it = |child: &&Self| {
            let prefix = child.name.strip_suffix(name);
            prefix.is_some_and(|prefix| prefix.is_empty() || prefix.ends_with(':'))
        };
        self.children.iter().find(is_it)
    }

    /// The text of the first child of that name.
    pub(crate) fn child_text(&self, name: &str) -> Result<&str, String> {
        self.child(name)
            .map(|child| &*child.text)
            .ok_or_else(|| format!("{} without {name}", self.name))
    }
}

fn last<'a, 'd>(open: &'a mut [Element<'d>]) -> Result<&'a mut Element<'d>, String> {
    open.last_mut()
        .ok_or_else(|| "bad XML: it has no root".to_owned())
}

/// Whether XML 1.0 allows the character in a document, and so in a message of Queue Storage.
pub const fn is_allowed(character: char) -> bool {
    matches!(
        character,
        '\t' | '\n' | '\r' | '\u{20}'..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..
    )
}

/// Whether [`is_allowed`] says so of all characters.
pub(crate) fn are_allowed(text: &str) -> bool {
    // 0xEF begins U+FFFE and U+FFFF, and little else: characters are looked at only then.
    let mut suspicious = false;
    for byte in text.bytes() {
        suspicious |= byte == 0xEF || byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r');
    }
    !suspicious || text.chars().all(is_allowed)
}

/// The body of a put or an update.
pub(crate) fn message_body(text: &str) -> String {
    let mut body = String::with_capacity(text.len() + 64);
    body.push_str("<QueueMessage><MessageText>");
    put_text(&mut body, text);
    body.push_str("</MessageText></QueueMessage>");
    body
}

/// Writes an element with a text, all of whose characters are allowed.
pub(crate) fn put_element(out: &mut String, name: &str, text: &str) {
    out.extend(["<", name, ">"]);
    put_text(out, text);
    out.extend(["</", name, ">"]);
}

/// Writes a text. What lies between special characters is copied at once: a text has up to 64 KiB.
pub(crate) fn put_text(out: &mut String, text: &str) {
    for (index, line) in text.split('\r').enumerate() {
        if index > 0 {
            // As it is, it would be read as a line feed.
            out.push_str("&#13;");
        }
        let mut rest = line;
        while let Some(at) = memchr3(b'&', b'<', b'>', rest.as_bytes()) {
            let (plain, special) = rest.split_at(at);
            out.push_str(plain);
            let (special, after) = special.split_at(1);
            out.push_str(match special {
                "&" => "&amp;",
                "<" => "&lt;",
                _ => "&gt;",
            });
            rest = after;
        }
        out.push_str(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for text in [
            "",
            " \t\n ",
            "a<b>&\"c\"'",
            "line\r\nend\r",
            "\r&\r\r<>",
            "😀]]>",
            "&amp;",
        ] {
            let document = message_body(text);
            let root = Element::parse(document.as_bytes()).unwrap();
            assert_eq!(root.name, "QueueMessage");
            assert_eq!(root.child_text("MessageText"), Ok(text));
        }
    }

    #[test]
    fn all_characters_are_looked_at() {
        for allowed in ["", "text\t\r\n", "\u{FEFF}ü\u{FFFD}\u{10FFFF}"] {
            assert!(are_allowed(allowed), "{allowed:?}");
        }
        for forbidden in ["\0", "text\u{1F}", "\u{FFFE}", "text\u{FFFF}text"] {
            assert!(!are_allowed(forbidden), "{forbidden:?}");
        }
    }

    #[test]
    fn the_forms_of_services() {
        let document = "\u{FEFF}<?xml version=\"1.0\" encoding=\"utf-8\"?><A x='1'><B /><C>1<![CDATA[<2>]]>&#x33;</C><B>second</B></A>";
        let root = Element::parse(document.as_bytes()).unwrap();
        assert_eq!(root.child_text("B"), Ok(""));
        assert_eq!(root.child_text("C"), Ok("1<2>3"));
        assert_eq!(root.child_text("D"), Err("A without D".to_owned()));
    }

    #[test]
    fn what_is_no_document_is_refused() {
        let deep = format!("{}{}", "<a>".repeat(40), "</a>".repeat(40));
        for document in [
            "",
            "text",
            "<a>",
            "<a></b>",
            "</a>",
            "<a/><b/>",
            "<a>&x;</a>",
            "<a>&#xD800;</a>",
            "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
            &deep,
        ] {
            assert!(Element::parse(document.as_bytes()).is_err(), "{document}");
        }
        assert!(Element::parse(b"<a>\xff</a>").is_err());
    }
}
