//! Reads small documents whole: elements within elements, with text in the innermost.
//!
//! Depth, elements and attributes are limited, and document types are refused. Attributes are read only when
//! they are asked for.

use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};

use crate::Error;
use crate::document::{
    DEPTH_MAX, ELEMENTS_MAX, characters, check_declaration, check_tag, invalid, resolve,
};

/// How many characters of a value an error shows.
const SHOWN_LENGTH_MAX: usize = 256;

/// An element and its content.
#[derive(Debug)]
pub struct Element<'a> {
    document: &'a str,
    /// Where its tag begins.
    start: usize,
    /// Its name, with its prefix if it has one.
    pub name: Box<str>,
    /// Its text: all pieces between its children, joined.
    text: String,
    /// Its child elements, in order.
    pub children: Vec<Element<'a>>,
}

/// The root element of a document, with any name.
///
/// Refuses with [`Error::Malformed`] a document that is not well-formed UTF-8 XML, and an element
/// that has both text and children.
pub fn parse(document: &[u8]) -> Result<Element<'_>, Error> {
    let document = characters(document)?;
    let reader = TreeReader {
        document,
        open: Vec::new(),
        root: None,
        element_count: 0,
    };
    reader.read()
}

/// The root element of a document, which must have that name.
///
/// Refuses with [`Error::Malformed`] everything that [`parse`] refuses, and another root.
pub fn read<'a>(document: &'a [u8], root: &str) -> Result<Element<'a>, Error> {
    let element = parse(document)?;
    if &*element.name == root {
        Ok(element)
    } else {
        Err(element.invalid(format!("the root element is not {root}")))
    }
}

impl<'a> Element<'a> {
    /// Its text, without surrounding white space.
    ///
    /// Refuses with [`Error::Value`] if it has child elements.
    pub fn text(&self) -> Result<&str, Error> {
        match self.children.first() {
            None => Ok(self.text.trim()),
            Some(child) => Err(self.invalid_value(format!("{} is not allowed in it", child.name))),
        }
    }

    /// Its text as it is, with surrounding white space.
    ///
    /// Refuses with [`Error::Value`] if it has child elements.
    pub fn exact_text(&self) -> Result<&str, Error> {
        self.text().map(|_| self.text.as_str())
    }

    /// The value of its first attribute with this name and any prefix.
    pub fn attribute(&self, local_name: &str) -> Option<String> {
        // The tag was checked when the document was read.
        let mut tag = Reader::from_str(self.document.get(self.start..)?);
        let (Ok(Event::Start(tag)) | Ok(Event::Empty(tag))) = tag.read_event() else {
            return None;
        };
        let mut attributes = tag.attributes().flatten();
        let found = attributes.find(|it| it.key.local_name().as_ref() == local_name)?;
        let value = found.normalized_value(XmlVersion::Explicit1_0);
        value.ok().map(|value| value.into_owned())
    }

    /// The one child of each of these names, if there is one.
    ///
    /// Refuses with [`Error::Unsupported`] a child with another name, and with [`Error::Malformed`]
    /// two children with one name.
    pub fn fields<const N: usize>(
        &self,
        names: [&'static str; N],
    ) -> Result<[Option<&Element<'a>>; N], Error> {
        let mut found = [None; N];
        for child in &self.children {
            let place = names
                .iter()
                .position(|name| **name == *child.name)
                .and_then(|index| found.get_mut(index));
            match place {
                None => return Err(child.unsupported()),
                Some(Some(_)) => return Err(child.invalid(format!("a second {}", child.name))),
                Some(place @ None) => *place = Some(child),
            }
        }
        Ok(found)
    }

    /// Its children, which must all have that name.
    ///
    /// Refuses other children with [`Error::Unsupported`].
    pub fn items(&self, name: &str) -> Result<&[Element<'a>], Error> {
        match self.children.iter().find(|child| *child.name != *name) {
            None => Ok(&self.children),
            Some(other) => Err(other.unsupported()),
        }
    }

    /// Its name without its prefix.
    pub fn local_name(&self) -> &str {
        let local = self.name.rsplit_once(':').map(|(_, local)| local);
        local.unwrap_or(&self.name)
    }

    /// Its first child with this name and any prefix.
    pub fn child(&self, local_name: &str) -> Option<&Self> {
        let mut children = self.children.iter();
        children.find(|child| child.local_name() == local_name)
    }

    /// It is not allowed here.
    pub fn unsupported<E: From<Error>>(&self) -> E {
        E::from(Error::Unsupported {
            name: self.name.clone(),
        })
    }

    /// The document is malformed at this element.
    pub fn invalid<E: From<Error>>(&self, reason: impl Into<Box<str>>) -> E {
        E::from(invalid(self.document.as_bytes(), self.start, reason))
    }

    /// Its value is not valid. The error shows at most the beginning of it.
    pub fn invalid_value<E: From<Error>>(&self, reason: impl Into<Box<str>>) -> E {
        let value: String = self.text.trim().chars().take(SHOWN_LENGTH_MAX).collect();
        E::from(Error::Value {
            name: self.name.clone(),
            value: value.into(),
            reason: reason.into(),
        })
    }
}

struct TreeReader<'a> {
    document: &'a str,
    /// The elements that have begun and not ended, outermost first.
    open: Vec<Element<'a>>,
    root: Option<Element<'a>>,
    element_count: usize,
}

impl<'a> TreeReader<'a> {
    fn read(mut self) -> Result<Element<'a>, Error> {
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
            match event {
                Event::Start(tag) => self.begin(&tag, start)?,
                Event::Empty(tag) => {
                    self.begin(&tag, start)?;
                    self.end(start)?;
                }
                // The reader has checked that names match.
                Event::End(_) => self.end(start)?,
                Event::Text(text) => self.push(&text.xml10_content(), start)?,
                Event::CData(text) => self.push(&text.xml10_content(), start)?,
                Event::GeneralRef(reference) => match resolve(&reference) {
                    Ok(text) => self.push(&text, start)?,
                    Err(reason) => return Err(self.invalid(start, reason)),
                },
                Event::Decl(declaration) => check_declaration(&declaration, start)
                    .map_err(|reason| self.invalid(start, reason))?,
                Event::DocType(_) => {
                    return Err(self.invalid(start, "document types are not allowed"));
                }
                Event::Comment(_) | Event::PI(_) => {}
                Event::Eof => break,
            }
        }
        match self.root.take() {
            Some(root) if self.open.is_empty() => Ok(root),
            Some(_) | None => Err(self.invalid(self.document.len(), "the document ends too early")),
        }
    }

    fn begin(&mut self, tag: &BytesStart<'_>, start: usize) -> Result<(), Error> {
        self.element_count += 1;
        if self.element_count > ELEMENTS_MAX || self.open.len() >= DEPTH_MAX {
            return Err(self.invalid(start, "too many elements"));
        }
        check_tag(tag).map_err(|reason| self.invalid(start, reason))?;
        if self.root.is_some() {
            return Err(self.invalid(start, "a second root element"));
        }
        self.open.push(Element {
            document: self.document,
            start,
            name: tag.name().as_ref().into(),
            text: String::new(),
            children: Vec::new(),
        });
        Ok(())
    }

    fn end(&mut self, start: usize) -> Result<(), Error> {
        let Some(element) = self.open.pop() else {
            return Err(self.invalid(start, "an end tag without a start tag"));
        };
        if !element.children.is_empty() && !element.text.trim().is_empty() {
            return Err(element.invalid("text between elements"));
        }
        match self.open.last_mut() {
            Some(parent) => parent.children.push(element),
            None => self.root = Some(element),
        }
        Ok(())
    }

    fn push(&mut self, text: &str, start: usize) -> Result<(), Error> {
        match self.open.last_mut() {
            Some(element) => {
                element.text.push_str(text);
                Ok(())
            }
            None if text.trim().is_empty() => Ok(()),
            None => Err(self.invalid(start, "text is not allowed here")),
        }
    }

    fn invalid(&self, offset: usize, reason: impl Into<Box<str>>) -> Error {
        invalid(self.document.as_bytes(), offset, reason)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn code_of(error: &Error) -> &'static str {
        match error {
            Error::Malformed { .. } => "malformed",
            Error::Unsupported { .. } => "unsupported",
            Error::Value { .. } => "value",
        }
    }

    fn code(document: &str) -> &'static str {
        match read(document.as_bytes(), "A") {
            Ok(_) => "ok",
            Err(error) => code_of(&error),
        }
    }

    #[test]
    fn elements_are_found_in_any_order() {
        let document = "\u{FEFF}<?xml version='1.0'?>\n<A>\n <C> &lt;x&#33; </C><!-- --><B/></A>\n";
        let root = read(document.as_bytes(), "A").unwrap();
        let [b, c, d] = root.fields(["B", "C", "D"]).unwrap();
        assert_eq!(b.unwrap().text().unwrap(), "");
        assert_eq!(c.unwrap().text().unwrap(), "<x!");
        assert!(d.is_none());
        assert!(root.text().is_err());
        for (names, expected) in [(["B", "X"], "unsupported"), (["X", "C"], "unsupported")] {
            assert_eq!(code_of(&root.fields(names).unwrap_err()), expected);
        }
        assert!(root.items("B").is_err());
        let twice = read(b"<A><B/><B/></A>", "A").unwrap();
        assert_eq!(twice.items("B").unwrap().len(), 2);
        let refused = twice.fields(["B"]).unwrap_err();
        assert_eq!(code_of(&refused), "malformed");
    }

    #[test]
    fn malformed_documents_are_refused() {
        for document in [
            "",
            "A",
            "<B/>",
            "<A>",
            "<A></B>",
            "<A/><A/>",
            "<A/>x",
            "<A>x<B/></A>",
            "<A>&x;</A>",
            "<A>&#0;</A>",
            "<!DOCTYPE A [<!ENTITY x 'y'>]><A>&x;</A>",
            "<A a='1' a='2'/>",
            "<A>\u{1}</A>",
            &format!("<A>{}</A>", "<a>".repeat(20)),
            &format!("<A>{}</A>", "<a/>".repeat(5000)),
        ] {
            assert_eq!(code(document), "malformed", "{document}");
        }
        assert_eq!(code("<A><![CDATA[<]]></A>"), "ok");
    }

    #[test]
    fn a_name_matches_with_any_prefix() {
        let root = parse(b"<n:A xmlns:n='u'><m:B/><n:B>x</n:B></n:A>").unwrap();
        assert_eq!((root.local_name(), &*root.name), ("A", "n:A"));
        assert_eq!(root.child("B").unwrap().text().unwrap(), "");
        assert!(root.child("n:B").is_none());
    }

    #[test]
    fn an_attribute_is_found_with_any_prefix() {
        let document = b"\xEF\xBB\xBF<?xml version='1.0'?><A>x&#33;<![CDATA[]]></A>";
        assert_eq!(parse(document).unwrap().attribute("type"), None);
        let document = "<A><B x='>' i:type = \"a &lt; b\"> c </B><B type='d'/><i:type/></A>";
        let root = parse(document.as_bytes()).unwrap();
        let [first, second, third] = &root.children[..] else {
            panic!("{root:?}")
        };
        assert_eq!(first.attribute("type").as_deref(), Some("a < b"));
        assert_eq!(first.attribute("x").as_deref(), Some(">"));
        assert_eq!(first.attribute("i:type"), None);
        assert_eq!(second.attribute("type").as_deref(), Some("d"));
        assert_eq!(third.attribute("type"), None);
        assert_eq!((first.text(), first.exact_text()), (Ok("c"), Ok(" c ")));
        assert!(root.exact_text().is_err());
    }

    proptest! {
        #[test]
        fn reading_never_panics(document in ".{0,200}") {
            if let Ok(root) = read(document.as_bytes(), "A") {
                let _ = root.attribute("type");
            }
        }
    }
}
