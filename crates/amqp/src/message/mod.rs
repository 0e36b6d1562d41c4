//! Messages: their sections are found once and stay encoded (AMQP 1.0, 3.2).
//!
//! Nothing is decoded only to be encoded again. A broker stores the bytes of a message, and on
//! delivery writes a new header and new annotations before the rest: [`Message::bare`] and the
//! footer, byte for byte.
//!
//! Delivery annotations may be anywhere, because the Python SDK writes them last and Service Bus
//! accepts that. They are moved to their place before anything else reads the message.

mod batch;
mod section;

use std::ops::Range;

use bytes::{Bytes, BytesMut};

pub use batch::{BATCH_FORMAT, batch_messages, write_batch};
pub use section::{Header, MessageId, Properties, Sections, write_data};

use crate::codec::{
    Composite, Decode, DecodeError, Encode, Map, MapWriter, Raw, Reader, descriptor_code,
    write_described, write_map,
};

const HEADER: u64 = 0x70;
const DELIVERY_ANNOTATIONS: u64 = 0x71;
const MESSAGE_ANNOTATIONS: u64 = 0x72;
const PROPERTIES: u64 = 0x73;
const APPLICATION_PROPERTIES: u64 = 0x74;
const DATA: u64 = 0x75;
const AMQP_SEQUENCE: u64 = 0x76;
const AMQP_VALUE: u64 = 0x77;
const FOOTER: u64 = 0x78;

const NAMES: &[(u64, &str)] = &[
    (HEADER, "amqp:header:list"),
    (DELIVERY_ANNOTATIONS, "amqp:delivery-annotations:map"),
    (MESSAGE_ANNOTATIONS, "amqp:message-annotations:map"),
    (PROPERTIES, "amqp:properties:list"),
    (APPLICATION_PROPERTIES, "amqp:application-properties:map"),
    (DATA, "amqp:data:binary"),
    (AMQP_SEQUENCE, "amqp:amqp-sequence:list"),
    (AMQP_VALUE, "amqp:amqp-value:*"),
    (FOOTER, "amqp:footer:map"),
];

/// The kind of sections that a body consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyKind {
    /// There are none.
    #[default]
    Empty,
    /// Bytes, in one section or more.
    Data,
    /// Lists, in one section or more.
    Sequence,
    /// One value.
    Value,
}

/// A message whose sections were found and checked. The default has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    bytes: Bytes,
    header: Option<Range<usize>>,
    delivery_annotations: Option<Range<usize>>,
    message_annotations: Option<Range<usize>>,
    properties: Option<Range<usize>>,
    application_properties: Option<Range<usize>>,
    body: Range<usize>,
    kind: BodyKind,
    footer: Option<Range<usize>>,
    /// Where the bare message begins.
    bare: usize,
}

impl Message {
    /// Finds the sections.
    ///
    /// Sections must come in their fixed order, each once. Only data and sequences may be repeated,
    /// and only delivery annotations may be anywhere. Descriptors are matched exactly, and all of
    /// each section is checked.
    ///
    /// If delivery annotations are not directly after the header, the message is copied once.
    pub fn scan(bytes: Bytes) -> Result<Self, DecodeError> {
        Self::scan_into(bytes, &mut Sections::default())
    }

    /// The same, and keeps the sections that are read to be checked: those of [`Message::header`],
    /// [`Message::message_annotations`] and [`Message::properties`]. Those that the message does not
    /// have are the defaults.
    pub fn scan_into(bytes: Bytes, sections: &mut Sections) -> Result<Self, DecodeError> {
        *sections = Sections::default();
        let (message, misplaced) = Self::scan_in_order(bytes, sections)?;
        match misplaced {
            None => Ok(message),
            Some(misplaced) => {
                let bytes = message.with_in_place(misplaced);
                let (message, _) = Self::scan_in_order(bytes, sections)?;
                Ok(message)
            }
        }
    }

    /// Finds the sections, and delivery annotations that are out of place. These belong to no other
    /// section.
    fn scan_in_order(
        bytes: Bytes,
        sections: &mut Sections,
    ) -> Result<(Self, Option<Range<usize>>), DecodeError> {
        let mut message = Self {
            bare: bytes.len(),
            ..Self::default()
        };
        // Of delivery annotations, with their descriptor.
        let mut annotations = None;
        let mut last = 0;
        let mut reader = Reader::new(&bytes);
        while !reader.is_empty() {
            let begin = reader.position();
            let section = descriptor_code(&reader.descriptor()?, NAMES)?;
            let is_out_of_order = match section {
                DELIVERY_ANNOTATIONS => annotations.is_some(),
                DATA | AMQP_SEQUENCE if section == last => false,
                DATA..=AMQP_VALUE => last >= DATA,
                _ => section <= last,
            };
            if is_out_of_order {
                return Err(DecodeError::SectionOrder(section));
            }
            let value = reader.position();
            section::check(section, &mut reader, sections)?;
            let value = value..reader.position();
            if section == DELIVERY_ANNOTATIONS {
                annotations = Some(begin..value.end);
                message.delivery_annotations = Some(value);
            } else {
                last = section;
                message.found(section, begin, value);
            }
        }
        message.bytes = bytes;
        let place = message.header_end();
        Ok((message, annotations.filter(|at| at.start != place)))
    }

    fn header_end(&self) -> usize {
        self.header.as_ref().map_or(0, |header| header.end)
    }

    /// The bytes with misplaced delivery annotations moved behind the header.
    fn with_in_place(&self, misplaced: Range<usize>) -> Bytes {
        let (place, end) = (self.header_end(), self.bytes.len());
        let parts = if misplaced.start < place {
            // They are before the header.
            [misplaced.end..place, misplaced, place..end, end..end]
        } else {
            let (before, after) = (place..misplaced.start, misplaced.end..end);
            [0..place, misplaced, before, after]
        };
        let mut moved = BytesMut::with_capacity(end);
        for part in parts {
            moved.extend_from_slice(&self.bytes.slice(part));
        }
        moved.freeze()
    }

    fn found(&mut self, section: u64, begin: usize, value: Range<usize>) {
        if section >= PROPERTIES {
            self.bare = self.bare.min(begin);
        }
        match section {
            HEADER => self.header = Some(value),
            MESSAGE_ANNOTATIONS => self.message_annotations = Some(value),
            PROPERTIES => self.properties = Some(value),
            APPLICATION_PROPERTIES => self.application_properties = Some(value),
            FOOTER => self.footer = Some(begin..value.end),
            body => {
                self.kind = match body {
                    DATA => BodyKind::Data,
                    AMQP_SEQUENCE => BodyKind::Sequence,
                    _ => BodyKind::Value,
                };
                if self.body.is_empty() {
                    self.body.start = begin;
                }
                self.body.end = value.end;
            }
        }
    }

    /// The header, with the specification's defaults if there is none.
    pub fn header(&self) -> Result<Header, DecodeError> {
        match &self.header {
            Some(at) => Header::read_list(&mut Reader::within(&self.bytes, at.clone())),
            None => Ok(Header::default()),
        }
    }

    /// The delivery annotations.
    pub fn delivery_annotations(&self) -> Map {
        self.map(self.delivery_annotations.as_ref())
    }

    /// The message annotations.
    pub fn message_annotations(&self) -> Map {
        self.map(self.message_annotations.as_ref())
    }

    /// The properties, all null if there are none.
    pub fn properties(&self) -> Result<Properties, DecodeError> {
        match &self.properties {
            Some(at) => Properties::read_list(&mut Reader::within(&self.bytes, at.clone())),
            None => Ok(Properties::default()),
        }
    }

    /// The application properties.
    pub fn application_properties(&self) -> Map {
        self.map(self.application_properties.as_ref())
    }

    fn map(&self, at: Option<&Range<usize>>) -> Map {
        let Some(at) = at else {
            return Map::default();
        };
        let map = Map::decode(&mut Reader::within(&self.bytes, at.clone()));
        map.expect("it was checked when the message was scanned")
    }

    /// The kind of sections that the body consists of.
    pub fn body_kind(&self) -> BodyKind {
        self.kind
    }

    /// The body's sections in encoded form, with their descriptors.
    pub fn body(&self) -> Bytes {
        self.bytes.slice(self.body.clone())
    }

    /// The encoded sections before the body: all of the message's metadata except its footer.
    pub fn before_body(&self) -> Bytes {
        let footer = self.footer.as_ref().map(|footer| footer.start);
        let end = match self.kind {
            BodyKind::Empty => footer.unwrap_or(self.bytes.len()),
            _ => self.body.start,
        };
        self.bytes.slice(..end)
    }

    /// The values of the body's sections: binaries, lists, or one value of any type.
    pub fn body_values(&self) -> impl Iterator<Item = Raw> {
        let mut left = self.body();
        std::iter::from_fn(move || {
            if left.is_empty() {
                return None;
            }
            let mut reader = Reader::new(&left);
            let value = reader.descriptor().and_then(|_| reader.raw());
            let value = value.expect("it was checked when the message was scanned");
            let read = reader.position();
            left = left.slice(read..);
            Some(value)
        })
    }

    /// The bytes of the body, if it is one section of them, as mostly.
    pub fn data(&self) -> Option<Bytes> {
        if self.kind != BodyKind::Data {
            return None;
        }
        let mut reader = Reader::within(&self.bytes, self.body.clone());
        reader.descriptor().ok()?;
        let data = Bytes::decode(&mut reader).ok()?;
        reader.is_empty().then_some(data)
    }

    /// The whole message in encoded form, with delivery annotations moved to their place.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Properties, application properties and body in encoded form: the part that no one on the way
    /// may change.
    pub fn bare(&self) -> Bytes {
        let end = match &self.footer {
            Some(footer) => footer.start,
            None => self.bytes.len(),
        };
        self.bytes.slice(self.bare..end)
    }

    /// The same with the footer: the part after a new header and new annotations on delivery.
    pub fn bare_and_footer(&self) -> Bytes {
        self.bytes.slice(self.bare..)
    }

    /// The footer with its descriptor, in encoded form.
    pub fn footer(&self) -> Bytes {
        match &self.footer {
            Some(footer) => self.bytes.slice(footer.clone()),
            None => Bytes::new(),
        }
    }
}

/// Writes the sections before the bare message. Empty annotations are left out.
pub fn write_head(
    out: &mut BytesMut,
    header: &Header,
    delivery_annotations: &Map,
    message_annotations: &Map,
) {
    header.encode(out);
    write_annotations(out, DELIVERY_ANNOTATIONS, delivery_annotations);
    write_annotations(out, MESSAGE_ANNOTATIONS, message_annotations);
}

/// The same with functions that write the annotations directly into the output. Delivery
/// annotations are left out if there is no function for them.
pub fn write_new_head(
    out: &mut BytesMut,
    header: &Header,
    delivery_annotations: Option<impl FnOnce(&mut MapWriter<'_>)>,
    message_annotations: impl FnOnce(&mut MapWriter<'_>),
) {
    header.encode(out);
    if let Some(write) = delivery_annotations {
        write_described(out, DELIVERY_ANNOTATIONS, |out| write_map(out, write));
    }
    write_described(out, MESSAGE_ANNOTATIONS, |out| {
        write_map(out, message_annotations)
    });
}

fn write_annotations(out: &mut BytesMut, section: u64, annotations: &Map) {
    if !annotations.is_empty() {
        write_described(out, section, |out| annotations.encode(out));
    }
}

/// Writes application properties.
pub fn write_application_properties(out: &mut BytesMut, properties: &Map) {
    write_annotations(out, APPLICATION_PROPERTIES, properties);
}

/// Writes a body of one value.
pub fn write_value(out: &mut BytesMut, value: &impl Encode) {
    write_described(out, AMQP_VALUE, |out| value.encode(out));
}
