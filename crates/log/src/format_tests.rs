use proptest::prelude::*;

use super::names::Name;
use super::*;

fn header() -> SegmentHeader {
    SegmentHeader {
        partition: 0,
        number: 2,
        epoch: Epoch::new(3),
        base: LogPosition::new(0x10_0000),
        capacity_bytes: 0x20_0000,
        salt: 0x0123_4567_89ab_cdef,
        durable: LogPosition::new(0x8000),
    }
}

fn sealed(payload: &[u8], position: u64) -> Vec<u8> {
    let mut buffer = vec![0; RECORD_HEADER_SIZE];
    buffer.extend_from_slice(payload);
    let position = LogPosition::new(position);
    let durable = LogPosition::new(0x10_1000);
    seal_record(
        &mut buffer,
        header().seal(),
        position,
        RecordKind::Batch,
        0x1122_3344,
        durable,
    );
    buffer
}

/// What a reader does with the bytes of one record.
fn check(bytes: &[u8], seal: Seal, position: u64) -> Result<Vec<u8>, FormatError> {
    let position = LogPosition::new(position);
    let Some(first) = bytes.first_chunk() else {
        return Err(FormatError::Damaged("short"));
    };
    let header = RecordHeader::decode(first, seal, position)?;
    let end = RECORD_HEADER_SIZE + header.payload_length as usize;
    let payload = bytes
        .get(RECORD_HEADER_SIZE..end)
        .ok_or(FormatError::Damaged("short"))?;
    if record_crc(first, payload, seal, position) != header.crc {
        return Err(FormatError::Damaged("crc"));
    }
    header.check_version().map(|()| payload.to_vec())
}

#[test]
fn golden_segment_header() {
    let hex = "4b455753 45474d00 01000000 00000000 02000000 00000000 03000000 00000000 \
               00001000 00000000 00002000 00000000 efcdab89 67452301 00800000 00000000 da5d8181";
    assert_eq!(to_hex(&header().encode()), hex.replace(' ', ""));
    assert_eq!(SegmentHeader::decode(&header().encode()), Ok(header()));
}

#[test]
fn golden_record() {
    let hex = "6c0b0116 05000000 44332211 0101ea2f 00101000 00000000 68656c6c 6f000000";
    assert_eq!(to_hex(&sealed(b"hello", 0x10_1000)), hex.replace(' ', ""));
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_flipped_bit_of_a_segment_header_is_noticed() {
    let bytes = header().encode();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes;
        damaged[bit / 8] ^= 1 << (bit % 8);
        let error = SegmentHeader::decode(&damaged).unwrap_err();
        assert!(matches!(error, FormatError::Damaged(_)), "bit {bit}");
    }
}

#[test]
fn a_header_with_impossible_numbers_is_refused() {
    let refused = |change: fn(&mut SegmentHeader)| {
        let mut header = header();
        change(&mut header);
        SegmentHeader::decode(&header.encode()).is_err()
    };
    assert!(refused(|h| h.base = LogPosition::new(u64::MAX - 7)));
    assert!(refused(|h| h.base = LogPosition::new(9)));
    assert!(refused(|h| h.capacity_bytes = u64::MAX - 7));
    assert!(refused(|h| h.capacity_bytes = 4096));
    assert!(refused(|h| h.durable = LogPosition::new(1 << 40)));
    assert!(!refused(|h| h.durable = h.limit()));
}

#[test]
fn a_newer_version_is_distinguished_from_damage() {
    let mut bytes = header().encode();
    bytes[8] = 2;
    let damaged = SegmentHeader::decode(&bytes).unwrap_err();
    assert!(matches!(damaged, FormatError::Damaged(_)));
    let crc = crc32c::crc32c(&bytes[..64]);
    bytes[64..].copy_from_slice(&crc.to_le_bytes());
    let newer = SegmentHeader::decode(&bytes).unwrap_err();
    assert_eq!(newer, FormatError::Newer(2));
    assert_eq!(newer.to_string(), "format version 2 is newer than 1");
}

#[test]
fn every_truncation_and_every_flipped_bit_of_a_record_is_noticed() {
    let record = sealed(b"a payload of some length", 0x10_2000);
    let seal = header().seal();
    assert!(check(&record, seal, 0x10_2000).is_ok());
    for length in 0..record.len() {
        assert!(check(&record[..length], seal, 0x10_2000).is_err());
        // What a torn write leaves: the rest is zeros.
        let mut torn = record[..length].to_vec();
        torn.resize(record.len(), 0);
        assert_eq!(check(&torn, seal, 0x10_2000).is_ok(), torn == record);
    }
    for bit in 0..record.len() * 8 {
        let mut damaged = record.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(check(&damaged, seal, 0x10_2000).is_err(), "bit {bit}");
    }
}

#[test]
fn a_record_is_valid_in_its_place_only() {
    let record = sealed(b"payload", 0x10_2000);
    assert!(check(&record, header().seal(), 0x10_2008).is_err());
    for change in [
        (|h: &mut SegmentHeader| h.salt += 1) as fn(&mut SegmentHeader),
        |h| h.epoch = h.epoch.next(),
    ] {
        let mut other = header();
        change(&mut other);
        assert!(check(&record, other.seal(), 0x10_2000).is_err());
    }
}

#[test]
fn names_are_read_as_they_are_written() {
    assert_eq!(names::parse(&names::segment(7)), Name::Segment(7));
    assert_eq!(
        names::parse(&names::snapshot(u64::MAX)),
        Name::Snapshot(u64::MAX)
    );
    for temporary in [
        names::segment_in_preparation(1),
        names::snapshot_in_preparation(1),
        names::recycled(1),
    ] {
        assert_eq!(names::parse(&temporary), Name::Temporary);
    }
    for foreign in [
        "segment-1",
        "segment-+0000000000000000001",
        "segment-00000000000000000001.bak",
        "segment-99999999999999999999",
        "snapshot-",
        "segment",
        "",
    ] {
        assert_eq!(names::parse(foreign), Name::Foreign, "{foreign}");
    }
}

proptest! {
    #[test]
    fn records_round_trip(payload: Vec<u8>, position in (0u64..1 << 40).prop_map(|p| p * 8)) {
        let record = sealed(&payload, position);
        prop_assert_eq!(record.len() as u64, record_size_bytes(payload.len() as u64));
        prop_assert_eq!(check(&record, header().seal(), position), Ok(payload));
    }

    #[test]
    fn segment_headers_round_trip(
        number in 0u64..1 << 62,
        epoch in 0u64..1 << 62,
        base in 0u64..1 << 50,
        pages in 2u64..1 << 20,
        salt: u64,
    ) {
        let header = SegmentHeader {
            partition: 0,
            number,
            epoch: Epoch::new(epoch),
            base: LogPosition::new(base * 8),
            capacity_bytes: pages * 4096,
            salt,
            durable: LogPosition::new(base * 8),
        };
        prop_assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn random_bytes_are_no_record(bytes: [u8; 64]) {
        prop_assert!(check(&bytes, header().seal(), 0x10_2000).is_err());
        let mut start = [0; SEGMENT_HEADER_SIZE];
        start[..64].copy_from_slice(&bytes);
        prop_assert!(SegmentHeader::decode(&start).is_err());
    }
}
