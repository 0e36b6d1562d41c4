//! The checks that every reader of documents makes: characters, tags, references, declarations.

use std::borrow::Cow;

use memchr::{memchr_iter, memrchr};
use quick_xml::escape::resolve_xml_entity;
use quick_xml::events::{BytesDecl, BytesRef, BytesStart};

use crate::Error;

/// How deep elements nest, the root included.
pub const DEPTH_MAX: usize = 16;

/// How many elements a document has.
pub const ELEMENTS_MAX: usize = 4096;

/// How many attributes an element has. Checking them for repeats is quadratic.
const ATTRIBUTES_MAX: usize = 64;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Whether XML 1.0 allows the character in a document.
pub const fn is_allowed(character: char) -> bool {
    matches!(
        character,
        '\t' | '\n' | '\r' | '\u{20}'..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..
    )
}

/// The document without a byte order mark, of characters that XML allows.
pub fn characters(document: &[u8]) -> Result<&str, Error> {
    let document = document.strip_prefix(BYTE_ORDER_MARK).unwrap_or(document);
    match std::str::from_utf8(document) {
        Ok(document) => {
            check_characters(document)?;
            Ok(document)
        }
        Err(error) => Err(invalid(
            document,
            error.valid_up_to(),
            "the document is not UTF-8",
        )),
    }
}

/// Refuses characters that are not allowed anywhere in a document.
fn check_characters(document: &str) -> Result<(), Error> {
    let forbidden =
        |byte: &u8| (*byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r')) || *byte == 0xEF;
    // 0xEF begins U+FFFE and U+FFFF, and little else: look closer only then.
    if !document.as_bytes().iter().any(forbidden) {
        return Ok(());
    }
    match document
        .char_indices()
        .find(|(_, character)| !is_allowed(*character))
    {
        None => Ok(()),
        Some((offset, character)) => Err(invalid(
            document.as_bytes(),
            offset,
            format!("U+{:04X} is not allowed in XML", u32::from(character)),
        )),
    }
}

/// Checks an element's name and attributes, or returns what is wrong.
pub fn check_tag(element: &BytesStart<'_>) -> Result<(), Box<str>> {
    let name_starts_well = element
        .name()
        .as_ref()
        .starts_with(|c: char| c.is_alphabetic() || c == '_' || c == ':');
    if !name_starts_well {
        return Err("an element has no name".into());
    }
    for (index, attribute) in element.attributes().enumerate() {
        if index >= ATTRIBUTES_MAX {
            return Err("too many attributes".into());
        }
        attribute.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Checks an XML declaration that begins at `start`, or returns what is wrong.
pub fn check_declaration(declaration: &BytesDecl<'_>, start: usize) -> Result<(), Box<str>> {
    if start != 0 {
        return Err("an XML declaration that is not at the start".into());
    }
    let encoding = match declaration.encoding() {
        None => return Ok(()),
        Some(encoding) => encoding.map_err(|error| error.to_string())?,
    };
    let is_utf8 = ["utf-8", "utf8", "us-ascii", "ascii"]
        .iter()
        .any(|name| encoding.eq_ignore_ascii_case(name));
    if is_utf8 {
        Ok(())
    } else {
        Err("the encoding is not UTF-8".into())
    }
}

/// The text that a reference stands for, or what is wrong with it.
pub fn resolve(reference: &BytesRef<'_>) -> Result<Cow<'static, str>, Box<str>> {
    let character = reference
        .resolve_char_ref()
        .map_err(|error| error.to_string())?;
    match character {
        Some(character) if is_allowed(character) => Ok(character.to_string().into()),
        Some(_) => Err("a reference to a character that is not allowed in XML".into()),
        None => match resolve_xml_entity(reference) {
            Some(text) => Ok(text.into()),
            None => Err("a reference to an entity that is not declared".into()),
        },
    }
}

/// What is wrong at `offset`, with line and column counted from 1.
pub fn invalid(document: &[u8], offset: usize, reason: impl Into<Box<str>>) -> Error {
    let before = document.get(..offset).unwrap_or(document);
    let line_start = memrchr(b'\n', before).map_or(0, |index| index + 1);
    Error::Malformed {
        line: memchr_iter(b'\n', before).count() + 1,
        column: before.len() - line_start + 1,
        reason: reason.into(),
    }
}
