//! Reads the body of Put Message and Update Message: `QueueMessage` with its `MessageText`.
//!
//! The text is kept exactly: white space stays, line ends are normalised as XML requires, CDATA is
//! text, and markup that a client forgot to escape is dropped while its text stays, as in Azure.
//! Document types are refused, so the only entities are the five of XML, and depth, elements and
//! attributes are limited: no document costs more than its length.
//!
//! Source: *Put Message*; XML 1.0, 2.2 and 2.11.

use bytes::Bytes;
use kew_xml::document::{
    DEPTH_MAX, ELEMENTS_MAX, characters, check_declaration, check_tag, invalid, resolve,
};
use quick_xml::Reader;
use quick_xml::events::{BytesRef, BytesStart, Event};

use crate::error::Error;

const ROOT: &str = "QueueMessage";
const TEXT: &str = "MessageText";

/// The text of the message in `document`, at most `size_bytes_max` bytes of UTF-8.
///
/// Refuses with `InvalidXmlDocument` a document that is not well-formed UTF-8 XML with the right
/// root, with `MissingRequiredXmlNode` a missing `MessageText`, with `UnsupportedXmlNode` anything
/// beside it, and with `RequestBodyTooLarge` a longer text.
pub(crate) fn message_text(document: &[u8], size_bytes_max: usize) -> Result<Bytes, Error> {
    let document = characters(document)?;
    MessageReader {
        document,
        depth: 0,
        elements: 0,
        found: false,
        in_text: false,
        text: Vec::with_capacity(document.len().min(size_bytes_max)),
        size_bytes_max,
    }
    .read()
}

struct MessageReader<'a> {
    document: &'a str,
    depth: usize,
    elements: usize,
    /// Whether there was a `MessageText`.
    found: bool,
    in_text: bool,
    text: Vec<u8>,
    size_bytes_max: usize,
}

impl<'a> MessageReader<'a> {
    fn read(mut self) -> Result<Bytes, Error> {
        let mut reader = Reader::from_str(self.document);
        reader.config_mut().check_comments = true;
        loop {
            let start = usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX);
            let event = match reader.read_event() {
                Ok(event) => event,
                Err(error) => {
                    let offset = usize::try_from(reader.error_position()).unwrap_or(usize::MAX);
                    return Err(self.invalid(offset, error.to_string()));
                }
            };
            if matches!(event, Event::Eof) {
                break;
            }
            self.take(event, start)?;
        }
        if self.depth > 0 || self.elements == 0 {
            return Err(self.invalid(self.document.len(), "the document ends too early"));
        }
        if !self.found {
            return Err(Error::MissingRequiredXmlNode { name: TEXT });
        }
        Ok(self.text.into())
    }

    fn take(&mut self, event: Event<'a>, start: usize) -> Result<(), Error> {
        match event {
            Event::Start(element) => {
                self.open(&element, start)?;
                self.depth += 1;
                Ok(())
            }
            Event::Empty(element) => {
                self.open(&element, start)?;
                // An empty element has no text.
                self.in_text &= self.depth > 1;
                Ok(())
            }
            Event::End(_) => {
                // The reader has checked that names match.
                self.depth = self.depth.saturating_sub(1);
                self.in_text &= self.depth > 1;
                Ok(())
            }
            Event::Text(text) => self.push(&text.xml10_content(), start),
            Event::CData(text) if self.in_text => self.push(&text.xml10_content(), start),
            Event::CData(_) => Err(self.invalid(start, "text is not allowed here")),
            Event::GeneralRef(reference) => self.refer(&reference, start),
            Event::Decl(declaration) => {
                check_declaration(&declaration, start).map_err(|reason| self.invalid(start, reason))
            }
            Event::DocType(_) => Err(self.invalid(start, "document types are not allowed")),
            Event::Comment(_) | Event::PI(_) | Event::Eof => Ok(()),
        }
    }

    fn open(&mut self, element: &BytesStart<'_>, start: usize) -> Result<(), Error> {
        self.elements += 1;
        if self.elements > ELEMENTS_MAX || self.depth >= DEPTH_MAX {
            return Err(self.invalid(start, "too many elements"));
        }
        check_tag(element).map_err(|reason| self.invalid(start, reason))?;
        let name = element.name();
        let name = name.as_ref();
        match self.depth {
            0 if self.elements > 1 => Err(self.invalid(start, "a second root element")),
            0 if name == ROOT => Ok(()),
            0 => Err(self.invalid(start, "the root element is not QueueMessage")),
            1 if name != TEXT => Err(Error::UnsupportedXmlNode { name: name.into() }),
            1 if self.found => Err(self.invalid(start, "a second MessageText")),
            1 => {
                self.found = true;
                self.in_text = true;
                Ok(())
            }
            // Markup within the text: its own text is kept.
            _ => Ok(()),
        }
    }

    fn refer(&mut self, reference: &BytesRef<'_>, start: usize) -> Result<(), Error> {
        match resolve(reference) {
            Err(reason) => Err(self.invalid(start, reason)),
            Ok(_) if !self.in_text => Err(self.invalid(start, "text is not allowed here")),
            Ok(text) => self.push(&text, start),
        }
    }

    fn push(&mut self, text: &str, start: usize) -> Result<(), Error> {
        if !self.in_text {
            let blank = text
                .bytes()
                .all(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
            return if blank {
                Ok(())
            } else {
                Err(self.invalid(start, "text is not allowed here"))
            };
        }
        if self.text.len() + text.len() > self.size_bytes_max {
            return Err(Error::RequestBodyTooLarge {
                limit_bytes: self.size_bytes_max,
            });
        }
        self.text.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn invalid(&self, offset: usize, reason: impl Into<Box<str>>) -> Error {
        invalid(self.document.as_bytes(), offset, reason).into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(document: &[u8]) -> Result<Bytes, Error> {
        message_text(document, 65_536)
    }

    fn check(inner: &str, expected: &str) {
        let document = format!("<QueueMessage><MessageText>{inner}</MessageText></QueueMessage>");
        let text = read(document.as_bytes());
        let text = text.unwrap_or_else(|error| panic!("{inner}: {error:?}"));
        assert_eq!(text, expected, "{inner}");
    }

    fn check_invalid(document: &[u8]) {
        let result = read(document);
        assert!(
            matches!(result, Err(Error::InvalidXmlDocument { .. })),
            "{}: {result:?}",
            String::from_utf8_lossy(document)
        );
    }

    fn check_invalid_text(inner: &str) {
        let document = format!("<QueueMessage><MessageText>{inner}</MessageText></QueueMessage>");
        check_invalid(document.as_bytes());
    }

    #[test]
    fn text_is_kept_exactly() {
        check("hello", "hello");
        check("  \t\n  ", "  \t\n  ");
        check("", "");
        check("&lt;a&gt; &amp; &quot;b&quot; &apos;", "<a> & \"b\" '");
        check("&#65;&#x42;&#x1F600;", "AB😀");
        check("😀 é", "😀 é");
        check("a\r\nb\rc\nd", "a\nb\nc\nd");
        check("a&#13;&#10;b&#xD;", "a\r\nb\r");
        check("<![CDATA[<b> & ]]>x<![CDATA[\r\n]]>", "<b> & x\n");
    }

    #[test]
    fn markup_is_dropped_and_its_text_kept() {
        check("a<b c='d'>e</b>f<g/>h", "aefh");
        check("<b>x</b>", "x");
        check("a<!-- not this -->b<?nor this?>c", "abc");
    }

    #[test]
    fn envelopes() {
        for document in [
            "<QueueMessage><MessageText>x</MessageText></QueueMessage>",
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessage><MessageText>x</MessageText></QueueMessage>",
            "<?xml version='1.0' encoding='UTF-8' standalone='yes'?>\n<QueueMessage>\n  <MessageText>x</MessageText>\n</QueueMessage>\n",
            "\u{FEFF}<QueueMessage><MessageText>x</MessageText></QueueMessage>",
            "<?xml version=\"1.0\"?><!-- c --><QueueMessage a=\"1\" xmlns:i='u'><MessageText b='2'>x</MessageText></QueueMessage>",
        ] {
            assert_eq!(read(document.as_bytes()).unwrap(), "x", "{document}");
        }
        let empty = b"<QueueMessage><MessageText/></QueueMessage>";
        assert_eq!(read(empty).unwrap(), "");
    }

    #[test]
    fn malformed_documents_are_refused() {
        for document in [
            "",
            " ",
            "text",
            "<QueueMessage>",
            "<QueueMessage><MessageText>x</MessageText>",
            "<QueueMessage><MessageText>x</QueueMessage>",
            "<QueueMessage><MessageText>x</MessageText></QueueMessage><QueueMessage/>",
            "<QueueMessage><MessageText>x</MessageText></QueueMessage>tail",
            "<QueueMessage>x<MessageText>x</MessageText></QueueMessage>",
            "<QueueMessage><MessageText>x</MessageText><MessageText>y</MessageText></QueueMessage>",
            "<Other><MessageText>x</MessageText></Other>",
            "<MessageText>x</MessageText>",
            "<?xml version='1.0' encoding='utf-16'?><QueueMessage><MessageText/></QueueMessage>",
            " <?xml version='1.0'?><QueueMessage><MessageText/></QueueMessage>",
            "<QueueMessage><MessageText a='1' a='2'/></QueueMessage>",
            "<QueueMessage><MessageText a/></QueueMessage>",
        ] {
            check_invalid(document.as_bytes());
        }
        for inner in [
            "a & b", "&nbsp;", "&#0;", "&#x1;", "&#xFFFE;", "&#xD800;", "<>", "a\u{1}", "\u{FFFF}",
            "<1/>",
        ] {
            check_invalid_text(inner);
        }
        check_invalid(b"<QueueMessage><MessageText>\xff</MessageText></QueueMessage>");
        check_invalid(b"\xff\xfe<\0Q\0");
        check_invalid(b"\xfe\xff\0<\0Q");
    }

    #[test]
    fn document_types_and_bombs_are_refused() {
        check_invalid(b"<!DOCTYPE QueueMessage [<!ENTITY a 'aaaa'>]><QueueMessage><MessageText>&a;</MessageText></QueueMessage>");
        check_invalid_text(&"<a>".repeat(20));
        check_invalid_text(&"<a/>".repeat(5000));
        let attributes: String = (0..100).map(|n| format!(" a{n}=''")).collect();
        check_invalid_text(&format!("<a{attributes}/>"));
    }

    #[test]
    fn nodes_are_checked() {
        let missing = read(b"<QueueMessage></QueueMessage>");
        assert!(matches!(
            missing,
            Err(Error::MissingRequiredXmlNode {
                name: "MessageText"
            })
        ));
        let other = read(b"<QueueMessage><Other/></QueueMessage>");
        assert!(matches!(other, Err(Error::UnsupportedXmlNode { .. })));
    }

    #[test]
    fn the_limit_counts_decoded_bytes() {
        let document = |inner: &str| {
            format!("<QueueMessage><MessageText>{inner}</MessageText></QueueMessage>")
        };
        for inner in ["a".repeat(8), "&lt;".repeat(8), "😀".repeat(2)] {
            assert!(message_text(document(&inner).as_bytes(), 8).is_ok());
            let result = message_text(document(&inner).as_bytes(), 7);
            assert!(matches!(
                result,
                Err(Error::RequestBodyTooLarge { limit_bytes: 7 })
            ));
        }
    }

    #[test]
    fn errors_say_where() {
        match read(b"<QueueMessage>\n<MessageText>&x;</MessageText></QueueMessage>") {
            Err(Error::InvalidXmlDocument { line, column, .. }) => {
                assert_eq!((line, column), (2, 14));
            }
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn reading_never_panics(document: Vec<u8>) {
            let _ = read(&document);
        }

        #[test]
        fn reading_markup_never_panics(parts in proptest::collection::vec(
            prop_oneof![
                Just("<QueueMessage>"), Just("</QueueMessage>"), Just("<MessageText>"),
                Just("</MessageText>"), Just("<a b='c'>"), Just("</a>"), Just("<![CDATA["),
                Just("]]>"), Just("<!--"), Just("-->"), Just("<?xml "), Just("?>"), Just("&"),
                Just(";"), Just("<!DOCTYPE"), Just(">"), Just("<"), Just("x"), Just("\r"),
            ], 0..24)) {
            let _ = read(parts.concat().as_bytes());
        }

        #[test]
        fn written_text_is_read_back(text in "[\\t\\n\\r -\u{D7FF}\u{E000}-\u{FFFD}\u{10000}-\u{10FFFF}]{0,64}") {
            let mut document = bytes::BytesMut::from(&b"<QueueMessage><MessageText>"[..]);
            kew_xml::put_text(&mut document, text.as_bytes());
            document.extend_from_slice(b"</MessageText></QueueMessage>");
            prop_assert_eq!(read(&document).unwrap(), text);
        }
    }
}
