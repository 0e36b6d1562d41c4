//! Segments and snapshots with right checksums, written from `crates/log/FORMAT.md` alone.
//!
//! This is a second implementation of that document: the tests compare it with the golden
//! directory.

const SEGMENT_HEADER_BLOCK_SIZE: usize = 4096;
const RECORD_HEADER_SIZE: usize = 48;

/// The cluster of every forged log. Its partition is 0.
const CLUSTER: u128 = 0x1234;

/// The epoch in which every forged snapshot was begun.
const EPOCH: u64 = 1;

/// The checksum that the first batch of a log continues.
pub fn chain_start() -> u32 {
    crc(&[&CLUSTER.to_le_bytes(), &0_u32.to_le_bytes()])
}

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
    /// The position of the first record.
    pub first: u64,
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
    /// 1 batch, 3 roll.
    pub kind: u8,
    /// 2.
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
        // A header may have any values.
        self.header.first.wrapping_add(self.records.len() as u64)
    }

    /// How many bytes of payload fit.
    pub fn room(&self) -> usize {
        let capacity = usize::try_from(self.header.capacity).unwrap_or(0);
        let used = SEGMENT_HEADER_BLOCK_SIZE + self.records.len() + RECORD_HEADER_SIZE + 8;
        capacity.saturating_sub(used)
    }

    /// Adds a record, and returns the checksum that the next batch repeats.
    pub fn push(&mut self, record: Record, payload: &[u8]) -> u32 {
        let seal: Vec<u8> = [self.header.epoch, self.header.salt]
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        let mut head = [0; RECORD_HEADER_SIZE];
        let length = u32::try_from(payload.len()).expect("it fits into a segment");
        head[8..12].copy_from_slice(&self.chain.to_le_bytes());
        head[12..16].copy_from_slice(&length.to_le_bytes());
        head[16..24].copy_from_slice(&self.position().to_le_bytes());
        head[24..32].copy_from_slice(&1_000_u64.to_le_bytes());
        head[32..38].copy_from_slice(&self.header.epoch.to_le_bytes()[..6]);
        head[38] = record.kind;
        head[39] = record.version;
        head[40..48].copy_from_slice(&record.durable.to_le_bytes());
        let content = crc_from(chain_start(), &[&head[8..40], payload]);
        head[4..8].copy_from_slice(&content.to_le_bytes());
        let local = crc(&[&seal, &head[4..48]]);
        head[0..4].copy_from_slice(&local.to_le_bytes());
        if record.kind == 1 {
            self.chain = content;
        }
        self.records.extend_from_slice(&head);
        self.records.extend_from_slice(payload);
        self.records
            .resize(self.records.len().next_multiple_of(8), 0);
        self.chain
    }

    /// The whole file.
    pub fn finish(self) -> Vec<u8> {
        let header = self.header;
        let mut file = b"KEWSEGM\0\x02\0\0\0\0\0\0\0".to_vec();
        for number in [
            header.number,
            header.epoch,
            header.first,
            header.capacity,
            header.salt,
            header.durable,
        ] {
            file.extend_from_slice(&number.to_le_bytes());
        }
        let check = crc(&[&file]);
        file.extend_from_slice(&check.to_le_bytes());
        file.extend_from_slice(&CLUSTER.to_le_bytes());
        let check = crc_from(check, &[&CLUSTER.to_le_bytes()]);
        file.extend_from_slice(&check.to_le_bytes());
        file.resize(SEGMENT_HEADER_BLOCK_SIZE, 0);
        file.extend_from_slice(&self.records);
        let capacity = usize::try_from(header.capacity).unwrap_or(0);
        file.resize(file.len().max(capacity), 0);
        file
    }
}

/// A whole snapshot file without pages.
pub fn snapshot(position: u64, chain: u32, parts: &[&[u8]]) -> Vec<u8> {
    snapshot_with(position, chain, 0, parts)
}

/// A whole snapshot file with these flags.
pub fn snapshot_with(position: u64, chain: u32, flags: u32, parts: &[&[u8]]) -> Vec<u8> {
    let mut file = b"KEWSNAP\0\x02\0\0\0\0\0\0\0".to_vec();
    file.extend_from_slice(&position.to_le_bytes());
    file.extend_from_slice(&chain.to_le_bytes());
    let count = u32::try_from(parts.len()).expect("few");
    file.extend_from_slice(&count.to_le_bytes());
    file.extend_from_slice(&flags.to_le_bytes());
    let check = crc(&[&file]);
    file.extend_from_slice(&check.to_le_bytes());
    let (time_ms, epoch) = (1_000_u64.to_le_bytes(), EPOCH.to_le_bytes());
    let more = [&CLUSTER.to_le_bytes()[..], &time_ms, &epoch].concat();
    file.extend_from_slice(&more);
    let mut check = crc_from(check, &[&more]);
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
