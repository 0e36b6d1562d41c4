//! The XML of answers, as a small tree, and that of the one request that has a body.
//!
//! Answers come from a server that may be anything: depth is bounded, document types are refused, and
//! a document costs no more than a fixed multiple of its length, which the transport bounds.

use quick_xml::Reader;
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::Event;

/// How deep elements nest; the protocol needs five.
const DEPTH_MAX: usize = 16;

/// An element with its text and its children.
#[derive(Debug, Default)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) children: Vec<Element>,
}

impl Element {
    /// Reads a document; the error says what is wrong with it.
    pub(crate) fn parse(document: &[u8]) -> Result<Self, String> {
        let document = document.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(document);
        let document = std::str::from_utf8(document).map_err(|_| "XML that is not UTF-8")?;
        let mut reader = Reader::from_str(document);
        // The first is no element: it holds the root.
        let mut open = vec![Self::default()];
        loop {
            let event = reader
                .read_event()
                .map_err(|error| format!("bad XML: {error}"))?;
            match event {
                Event::Start(start) => {
                    if open.len() > DEPTH_MAX {
                        return Err("XML that is nested too deeply".into());
                    }
                    open.push(Self::named(start.name().as_ref()));
                }
                Event::Empty(start) => {
                    let element = Self::named(start.name().as_ref());
                    last(&mut open)?.children.push(element);
                }
                Event::End(_) => {
                    let element = open.pop().ok_or("bad XML: an end without a start")?;
                    last(&mut open)?.children.push(element);
                }
                Event::Text(text) => last(&mut open)?.text.push_str(&text.xml10_content()),
                Event::CData(text) => last(&mut open)?.text.push_str(&text.xml10_content()),
                Event::GeneralRef(reference) => {
                    let character = reference
                        .resolve_char_ref()
                        .map_err(|error| format!("bad XML: {error}"))?;
                    let text = &mut last(&mut open)?.text;
                    match (character, resolve_xml_entity(&reference)) {
                        (Some(character), _) => text.push(character),
                        (None, Some(entity)) => text.push_str(entity),
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

    fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// The first child of that name.
    pub(crate) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The text of the first child of that name.
    pub(crate) fn child_text(&self, name: &str) -> Result<&str, String> {
        self.child(name)
            .map(|child| child.text.as_str())
            .ok_or_else(|| format!("{} without {name}", self.name))
    }
}

fn last(open: &mut [Element]) -> Result<&mut Element, String> {
    open.last_mut()
        .ok_or_else(|| "bad XML: it has no root".to_owned())
}

/// Whether XML 1.0 allows the character in a document, and so in a message.
pub(crate) const fn is_allowed(character: char) -> bool {
    matches!(
        character,
        '\t' | '\n' | '\r' | '\u{20}'..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..
    )
}

/// The body of a put or an update.
pub(crate) fn message_body(text: &str) -> Vec<u8> {
    let mut body = String::with_capacity(text.len() + 64);
    body.push_str("<QueueMessage><MessageText>");
    for character in text.chars() {
        match character {
            '&' => body.push_str("&amp;"),
            '<' => body.push_str("&lt;"),
            '>' => body.push_str("&gt;"),
            // As it is, it would be read as a line feed.
            '\r' => body.push_str("&#13;"),
            other => body.push(other),
        }
    }
    body.push_str("</MessageText></QueueMessage>");
    body.into_bytes()
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
            "😀]]>",
            "&amp;",
        ] {
            let root = Element::parse(&message_body(text)).unwrap();
            assert_eq!(root.name, "QueueMessage");
            assert_eq!(root.child_text("MessageText"), Ok(text));
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
