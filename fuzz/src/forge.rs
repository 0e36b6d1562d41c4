//! Segments and snapshots with right checksums, written from `crates/log/FORMAT.md` alone.
//!
//! This is a second implementation of that document: the tests compare it with the golden
//! directory.

const SEGMENT_HEADER_BLOCK_SIZE: usize = 4096;
const RECORD_HEADER_SIZE: usize = 24;

/// `crc(a, b, …)` of the document.
fn crc(parts: &[&[u8]]) -> u32 {
    crc_from(0, parts)
}

fn crc_from(begun: u32, parts: &[&[u8]]) -> u32 {
    parts
        .iter()
        .fold(begun, |crc, part| crc32c::crc32c_append(crc, part))
}

/// The fields of a segment's header.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// The segment's number.
    pub number: u64,
    /// The epoch that made it.
    pub epoch: u64,
    /// The position of the file's first byte.
    pub base: u64,
    /// Size of the file.
    pub capacity: u64,
    /// A random number.
    pub salt: u64,
    /// Everything before this was durable when the file got its name.
    pub durable: u64,
}

/// A segment in the making.
#[derive(Debug)]
pub struct Segment {
    header: Header,
    records: Vec<u8>,
    chain: u32,
}

/// The fields of a record's header, besides its checksums.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// 1 batch, 2 mark, 3 roll.
    pub kind: u8,
    /// 1.
    pub version: u8,
    /// Everything before this was durable before this record was written.
    pub durable: u64,
}

impl Segment {
    /// An empty segment that continues after a record with the checksum `chain`.
    pub fn new(header: Header, chain: u32) -> Self {
        Self {
            header,
            records: Vec::new(),
            chain,
        }
    }

    /// The position of the next record.
    pub fn position(&self) -> u64 {
        let offset = SEGMENT_HEADER_BLOCK_SIZE + self.records.len();
        // A header may have any values.
        self.header.base.wrapping_add(offset as u64)
    }

    /// How many bytes of payload fit.
    pub fn room(&self) -> usize {
        let capacity = usize::try_from(self.header.capacity).unwrap_or(0);
        let used = SEGMENT_HEADER_BLOCK_SIZE + self.records.len() + RECORD_HEADER_SIZE + 8;
        capacity.saturating_sub(used)
    }

    /// Adds a record, and returns its checksum.
    pub fn push(&mut self, record: Record, payload: &[u8]) -> u32 {
        let seal: Vec<u8> = [self.header.epoch, self.header.salt, self.position()]
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        let mut head = [0; RECORD_HEADER_SIZE];
        let length = u32::try_from(payload.len()).expect("it fits into a segment");
        head[4..8].copy_from_slice(&length.to_le_bytes());
        head[8..12].copy_from_slice(&self.chain.to_le_bytes());
        head[12] = record.kind;
        head[13] = record.version;
        head[16..24].copy_from_slice(&record.durable.to_le_bytes());
        let check = crc(&[&seal, &head[4..14], &head[16..24]]);
        head[14..16].copy_from_slice(&check.to_le_bytes()[..2]);
        self.chain = crc(&[&seal, &head[4..24], payload]);
        head[0..4].copy_from_slice(&self.chain.to_le_bytes());
        self.records.extend_from_slice(&head);
        self.records.extend_from_slice(payload);
        self.records
            .resize(self.records.len().next_multiple_of(8), 0);
        self.chain
    }

    /// The whole file.
    pub fn finish(self) -> Vec<u8> {
        let header = self.header;
        let mut file = b"KEWSEGM\0\x01\0\0\0\0\0\0\0".to_vec();
        for number in [
            header.number,
            header.epoch,
            header.base,
            header.capacity,
            header.salt,
            header.durable,
        ] {
            file.extend_from_slice(&number.to_le_bytes());
        }
        let check = crc(&[&file]);
        file.extend_from_slice(&check.to_le_bytes());
        file.resize(SEGMENT_HEADER_BLOCK_SIZE, 0);
        file.extend_from_slice(&self.records);
        let capacity = usize::try_from(header.capacity).unwrap_or(0);
        file.resize(file.len().max(capacity), 0);
        file
    }
}

/// A whole snapshot file.
pub fn snapshot(position: u64, chain: u32, parts: &[&[u8]]) -> Vec<u8> {
    let mut file = b"KEWSNAP\0\x01\0\0\0\0\0\0\0".to_vec();
    file.extend_from_slice(&position.to_le_bytes());
    file.extend_from_slice(&chain.to_le_bytes());
    let count = u32::try_from(parts.len()).expect("few");
    file.extend_from_slice(&count.to_le_bytes());
    file.extend_from_slice(&[0; 4]);
    let mut check = crc(&[&file]);
    file.extend_from_slice(&check.to_le_bytes());
    for part in parts {
        let length = u32::try_from(part.len()).expect("short");
        let head = [&position.to_le_bytes()[..], &length.to_le_bytes()].concat();
        check = crc_from(check, &[&head, part]);
        file.extend_from_slice(&head);
        file.extend_from_slice(&check.to_le_bytes());
        file.extend_from_slice(part);
    }
    let size = file.len() as u64 + 16;
    let trailer = [&b"DONE"[..], &size.to_le_bytes()].concat();
    check = crc_from(check, &[&trailer]);
    file.extend_from_slice(&trailer);
    file.extend_from_slice(&check.to_le_bytes());
    file
}

/// An entry of a batch: an event.
pub fn push_event(batch: &mut Vec<u8>, event: &[u8]) {
    batch.push(1);
    push_length(batch, event.len());
    batch.extend_from_slice(event);
}

/// An entry of a batch at `position`: a body.
pub fn push_body(batch: &mut Vec<u8>, position: u64, body: &[u8]) {
    batch.push(2);
    push_length(batch, body.len());
    let offset = u32::try_from(batch.len() + 4).expect("short");
    let check = crc(&[&position.to_le_bytes(), &offset.to_le_bytes(), body]);
    batch.extend_from_slice(&check.to_le_bytes());
    batch.extend_from_slice(body);
}

fn push_length(batch: &mut Vec<u8>, length: usize) {
    let mut rest = length;
    while rest >= 0x80 {
        batch.push(u8::try_from(rest & 0x7f).expect("7 bits") | 0x80);
        rest >>= 7;
    }
    batch.push(u8::try_from(rest).expect("7 bits"));
}
