//! The writer of values with parts: into one buffer, each in its smallest encoding.

use bytes::{BufMut, BytesMut};

use super::value::Symbol;
use super::{Descriptor, Encode, code};

/// The difference between the code of a form with 1-byte sizes and the one with 4-byte sizes.
const WIDE: u8 = 0x10;

/// A value with a size: `code` is that of the short form.
pub(super) fn put_sized(out: &mut BytesMut, code: u8, bytes: &[u8]) {
    if let Ok(size) = u8::try_from(bytes.len()) {
        out.put_slice(&[code, size]);
    } else {
        out.put_u8(code + WIDE);
        out.put_u32(size_of(bytes.len()));
    }
    out.put_slice(bytes);
}

/// A list, map or array of encoded elements: `code` is that of the short form.
pub(super) fn put_compound(
    out: &mut BytesMut,
    code: u8,
    count: u32,
    constructor: &[u8],
    elements: &[u8],
) {
    let size = constructor.len() + elements.len();
    match (u8::try_from(size + 1), u8::try_from(count)) {
        (Ok(size), Ok(count)) => out.put_slice(&[code, size, count]),
        _ => {
            out.put_u8(code + WIDE);
            out.put_u32(size_of(size + 4));
            out.put_u32(count);
        }
    }
    out.put_slice(constructor);
    out.put_slice(elements);
}

/// # Panics
///
/// At 4 GiB, more than any frame or message can have.
fn size_of(size: usize) -> u32 {
    u32::try_from(size).expect("a value of 4 GiB or more has no encoding")
}

pub(super) fn put_described_head(out: &mut BytesMut, descriptor: &Descriptor) {
    out.put_u8(code::DESCRIBED);
    descriptor.encode(out);
}

/// A described value: `write` writes the value itself.
pub fn write_described(out: &mut BytesMut, descriptor: u64, write: impl FnOnce(&mut BytesMut)) {
    put_described_head(out, &Descriptor::Code(descriptor));
    write(out);
}

/// The short header is written first, and made longer if the elements need it.
struct Compound {
    begin: usize,
    count: u32,
}

const SHORT_HEAD: usize = 3;
const LONG_HEAD: usize = 9;

impl Compound {
    fn begin(out: &mut BytesMut) -> Self {
        let begin = out.len();
        out.put_slice(&[0; SHORT_HEAD]);
        Self { begin, count: 0 }
    }

    fn finish(self, out: &mut BytesMut, code: u8) {
        let size = out.len() - self.begin - SHORT_HEAD;
        let mut head = [0; LONG_HEAD];
        let mut rest = &mut head[..];
        match (u8::try_from(size + 1), u8::try_from(self.count)) {
            (Ok(size), Ok(count)) => {
                rest.put_slice(&[code, size, count]);
            }
            _ => {
                rest.put_u8(code + WIDE);
                rest.put_u32(size_of(size + 4));
                rest.put_u32(self.count);
                out.put_slice(&[0; LONG_HEAD - SHORT_HEAD]);
                let elements = self.begin + SHORT_HEAD;
                out.copy_within(elements..elements + size, self.begin + LONG_HEAD);
            }
        }
        let written = LONG_HEAD - rest.len();
        let place = out.iter_mut().skip(self.begin).take(written);
        for (byte, value) in place.zip(head) {
            *byte = value;
        }
    }
}

/// Writes the fields of a list. Nulls at its end are left out.
pub struct ListWriter<'a> {
    out: &'a mut BytesMut,
    compound: Compound,
    fields: u32,
    end: usize,
}

impl ListWriter<'_> {
    /// The next field.
    pub fn field(&mut self, value: &(impl Encode + ?Sized)) {
        self.fields += 1;
        if value.is_null() {
            self.out.put_u8(code::NULL);
        } else {
            value.encode(self.out);
            self.wrote();
        }
    }

    /// The next field of a declared type.
    pub fn declared(&mut self, value: &impl Encode) {
        if value.is_default() {
            self.null();
        } else {
            self.field(value);
        }
    }

    /// The next field, with a function that writes it.
    pub fn with(&mut self, write: impl FnOnce(&mut BytesMut)) {
        self.fields += 1;
        write(self.out);
        self.wrote();
    }

    /// A field that is left out.
    pub fn null(&mut self) {
        self.fields += 1;
        self.out.put_u8(code::NULL);
    }

    fn wrote(&mut self) {
        self.compound.count = self.fields;
        self.end = self.out.len();
    }
}

/// A list.
pub fn write_list(out: &mut BytesMut, write: impl FnOnce(&mut ListWriter<'_>)) {
    let compound = Compound::begin(out);
    let end = out.len();
    let mut list = ListWriter {
        out,
        compound,
        fields: 0,
        end,
    };
    write(&mut list);
    let ListWriter { compound, end, .. } = list;
    out.truncate(end);
    if compound.count == 0 {
        out.truncate(compound.begin);
        out.put_u8(code::LIST0);
    } else {
        compound.finish(out, code::LIST8);
    }
}

/// Writes the entries of a map.
pub struct MapWriter<'a> {
    out: &'a mut BytesMut,
    compound: Compound,
}

impl MapWriter<'_> {
    /// A key and its value.
    pub fn entry(&mut self, key: &(impl Encode + ?Sized), value: &(impl Encode + ?Sized)) {
        key.encode(self.out);
        value.encode(self.out);
        self.compound.count += 2;
    }

    /// A key, and a function that writes its value.
    pub fn entry_with(&mut self, key: &(impl Encode + ?Sized), write: impl FnOnce(&mut BytesMut)) {
        key.encode(self.out);
        write(self.out);
        self.compound.count += 2;
    }
}

/// A map.
pub fn write_map(out: &mut BytesMut, write: impl FnOnce(&mut MapWriter<'_>)) {
    let compound = Compound::begin(out);
    let mut map = MapWriter { out, compound };
    write(&mut map);
    let MapWriter { compound, .. } = map;
    compound.finish(out, code::MAP8);
}

/// An array of symbols.
pub fn write_symbols(out: &mut BytesMut, symbols: &[Symbol]) {
    let is_short = symbols.iter().all(|s| s.as_str().len() <= 0xff);
    let mut elements = BytesMut::new();
    for symbol in symbols {
        let name = symbol.as_str().as_bytes();
        match u8::try_from(name.len()) {
            Ok(size) if is_short => elements.put_u8(size),
            _ => elements.put_u32(size_of(name.len())),
        }
        elements.put_slice(name);
    }
    let element = if is_short {
        code::SYMBOL8
    } else {
        code::SYMBOL32
    };
    let count = size_of(symbols.len());
    put_compound(out, code::ARRAY8, count, &[element], &elements);
}

impl super::Map {
    /// A map that is written at once.
    pub fn build(write: impl FnOnce(&mut MapWriter<'_>)) -> Self {
        let mut items = BytesMut::new();
        let mut map = MapWriter {
            out: &mut items,
            compound: Compound { begin: 0, count: 0 },
        };
        write(&mut map);
        let count = map.compound.count;
        Self {
            count,
            items: items.freeze(),
        }
    }
}
