//! The sections of a message before its body (AMQP 1.0, 3.2).
//!
//! `kew-amqp` checks each value. What is here finds values without a counted reference for each of them.

use std::ops::Range;

use bytes::Bytes;
use kew_amqp::codec::{DecodeError, Descriptor, Reader};
use kew_filter::Value;
use thiserror::Error;

use crate::scalar::value_of;

/// Bytes that are not a message.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("the {section} of the message cannot be read: {error}")]
pub struct Malformed {
    /// The section.
    pub section: &'static str,
    /// What is wrong with it.
    pub error: DecodeError,
}

/// A section, in the order that they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    Header,
    DeliveryAnnotations,
    MessageAnnotations,
    Properties,
    ApplicationProperties,
    /// The body, or the footer of a message without one.
    Rest,
}

impl Section {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Section::Header => "header",
            Section::DeliveryAnnotations => "delivery annotations",
            Section::MessageAnnotations => "message annotations",
            Section::Properties => "properties",
            Section::ApplicationProperties => "application properties",
            Section::Rest => "body",
        }
    }

    fn code(self) -> u64 {
        match self {
            Section::Header => 0x70,
            Section::DeliveryAnnotations => 0x71,
            Section::MessageAnnotations => 0x72,
            Section::Properties => 0x73,
            Section::ApplicationProperties => 0x74,
            Section::Rest => 0x75,
        }
    }

    fn of(descriptor: &Descriptor) -> Result<Self, DecodeError> {
        match descriptor {
            Descriptor::Code(code) => Ok(match *code {
                0x70 => Section::Header,
                0x71 => Section::DeliveryAnnotations,
                0x72 => Section::MessageAnnotations,
                0x73 => Section::Properties,
                0x74 => Section::ApplicationProperties,
                0x75..=0x78 => Section::Rest,
                other => return Err(DecodeError::UnknownDescriptor(other)),
            }),
            Descriptor::Symbol(name) => Ok(match name.as_str() {
                "amqp:header:list" => Section::Header,
                "amqp:delivery-annotations:map" => Section::DeliveryAnnotations,
                "amqp:message-annotations:map" => Section::MessageAnnotations,
                "amqp:properties:list" => Section::Properties,
                "amqp:application-properties:map" => Section::ApplicationProperties,
                "amqp:data:binary"
                | "amqp:amqp-sequence:list"
                | "amqp:amqp-value:*"
                | "amqp:footer:map" => Section::Rest,
                _ => return Err(DecodeError::UnknownDescriptorSymbol),
            }),
        }
    }
}

/// Shows each section before the body with the place of its value. Delivery annotations may be anywhere, because
/// Python's SDK writes them last; the caller sees those before the body.
pub(crate) fn walk<'a>(
    bytes: &'a Bytes,
    mut see: impl FnMut(Section, Compound<'a>) -> Result<(), DecodeError>,
) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    let mut last = None;
    let mut has_delivery_annotations = false;
    while !reader.is_empty() {
        let section = reader.descriptor().and_then(|it| Section::of(&it));
        let section = section.map_err(|error| Malformed {
            section: "next section",
            error,
        })?;
        let malformed = |error| Malformed {
            section: section.name(),
            error,
        };
        let is_out_of_order = match section {
            Section::Rest => return Ok(()),
            Section::DeliveryAnnotations => std::mem::replace(&mut has_delivery_annotations, true),
            Section::Header
            | Section::MessageAnnotations
            | Section::Properties
            | Section::ApplicationProperties => last.replace(section) >= Some(section),
        };
        if is_out_of_order {
            return Err(malformed(DecodeError::SectionOrder(section.code())));
        }
        let at = reader.position();
        let value = match section {
            Section::Header | Section::Properties => Compound::list(bytes, at),
            Section::DeliveryAnnotations
            | Section::MessageAnnotations
            | Section::ApplicationProperties
            | Section::Rest => Compound::map(bytes, at),
        };
        let value = value.map_err(malformed)?;
        let end = value.end();
        see(section, value).map_err(malformed)?;
        reader = Reader::within(bytes, end..bytes.len());
    }
    Ok(())
}

/// A list or a map: the value of a section, or a part of an overlay.
#[derive(Clone, Debug)]
pub(crate) struct Compound<'a> {
    bytes: &'a Bytes,
    /// Where its code is.
    begin: usize,
    items: Range<usize>,
    count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    List,
    Map,
}

impl<'a> Compound<'a> {
    /// The list that begins there.
    pub(crate) fn list(bytes: &'a Bytes, at: usize) -> Result<Self, DecodeError> {
        Self::at(bytes, at, Shape::List)
    }

    /// The map that begins there.
    pub(crate) fn map(bytes: &'a Bytes, at: usize) -> Result<Self, DecodeError> {
        Self::at(bytes, at, Shape::Map)
    }

    /// Where its last element ends.
    pub(crate) fn end(&self) -> usize {
        self.items.end
    }

    /// The whole in its encoding.
    pub(crate) fn reader(&self) -> Reader<'a> {
        Reader::within(self.bytes, self.begin..self.items.end)
    }

    fn at(bytes: &'a Bytes, at: usize, shape: Shape) -> Result<Self, DecodeError> {
        let (expected, small, large) = match shape {
            Shape::List => ("a list", 0xC0, 0xD0),
            Shape::Map => ("a map", 0xC1, 0xD1),
        };
        let rest = bytes.get(at..).unwrap_or_default();
        let (size, begin, count) = match *rest {
            [0x45, ..] if shape == Shape::List => (0, at + 1, 0),
            [code, size, count, ..] if code == small => (u32::from(size), at + 2, count.into()),
            [code, a, b, c, d, e, f, g, h, ..] if code == large => {
                let size = u32::from_be_bytes([a, b, c, d]);
                (size, at + 5, u32::from_be_bytes([e, f, g, h]))
            }
            [found, ..] if found != small && found != large => {
                return Err(DecodeError::WrongType { expected, found });
            }
            _ => return Err(truncated(1, rest.len())),
        };
        let left = bytes.len() - begin;
        let end = usize::try_from(size).ok().filter(|size| *size <= left);
        let end = begin + end.ok_or(truncated(size.into(), left))?;
        // The count takes the first bytes of the size.
        let count_bytes = match *rest {
            [0x45, ..] => 0,
            [code, ..] if code == small => 1,
            _ => 4,
        };
        if end < begin + count_bytes {
            return Err(truncated(count_bytes as u64, end - begin));
        }
        if shape == Shape::Map && !count.is_multiple_of(2) {
            return Err(DecodeError::OddMap(count));
        }
        Ok(Self {
            bytes,
            begin: at,
            items: begin + count_bytes..end,
            count,
        })
    }

    /// Shows each element with its place among them. Each is checked.
    pub(crate) fn elements(
        &self,
        mut see: impl FnMut(u32, &'a [u8]) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        self.places(|at, place| see(at, self.bytes.get(place).unwrap_or_default()))
    }

    /// Shows where each element is. Each is checked.
    pub(crate) fn places(
        &self,
        mut see: impl FnMut(u32, Range<usize>) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        let mut reader = Reader::within(self.bytes, self.items.clone());
        for at in 0..self.count {
            let begin = reader.position();
            reader.skip()?;
            see(at, begin..reader.position())?;
        }
        match reader.remaining() {
            0 => Ok(()),
            surplus => Err(DecodeError::Surplus(surplus as u64)),
        }
    }

    /// Shows the values of a map whose keys are texts.
    pub(crate) fn named(
        &self,
        mut see: impl FnMut(&'a str, Value<'a>) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        let mut key = None;
        self.elements(|at, element| {
            if at.is_multiple_of(2) {
                key = value_of(element)?.as_text();
                return Ok(());
            }
            match key.take() {
                Some(key) => see(key, value_of(element)?),
                None => Ok(()),
            }
        })
    }
}

fn truncated(needed: u64, left: usize) -> DecodeError {
    DecodeError::Truncated {
        needed,
        left: left as u64,
    }
}
