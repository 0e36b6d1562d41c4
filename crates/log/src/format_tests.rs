use proptest::prelude::*;

use super::names::Name;
use super::*;

const LOG: LogId = LogId {
    cluster: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff,
    partition: 0,
};

fn header() -> SegmentHeader {
    SegmentHeader {
        log: LOG,
        number: 2,
        epoch: Epoch::new(3),
        first: Some(LogPosition::new(0x10_0000)),
        capacity_bytes: 0x20_0000,
        salt: 0x0123_4567_89ab_cdef,
        durable: LogPosition::new(0x8000),
    }
}

fn sealed(payload: &[u8], position: u64) -> Vec<u8> {
    let mut buffer = vec![0; RECORD_HEADER_SIZE];
    buffer.extend_from_slice(payload);
    let sealing = Sealing {
        chain_start: LOG.chain_start(),
        seal: header().seal(),
        kind: RecordKind::Batch,
        previous: 0x1122_3344,
        position: LogPosition::new(position),
        time_ms: 1_700_000_000_000,
        epoch: Epoch::new(2),
        durable: LogPosition::new(0x10_1000),
    };
    seal_record(&mut buffer, sealing);
    buffer
}

/// What a reader does with the bytes of one record.
fn check(bytes: &[u8], seal: Seal, position: u64) -> Result<Vec<u8>, FormatError> {
    let position = LogPosition::new(position);
    let Some(first) = bytes.first_chunk() else {
        return Err(FormatError::Damaged("short"));
    };
    let header = RecordHeader::decode(first, seal)?;
    if header.position != position {
        return Err(FormatError::Damaged("position"));
    }
    let end = RECORD_HEADER_SIZE + header.payload_length as usize;
    let payload = bytes
        .get(RECORD_HEADER_SIZE..end)
        .ok_or(FormatError::Damaged("short"))?;
    if content_crc(first, payload, LOG.chain_start()) != header.content {
        return Err(FormatError::Damaged("crc"));
    }
    header.check_version().map(|()| payload.to_vec())
}

#[test]
fn golden_segment_header() {
    let hex = "4b455753 45474d00 02000000 00000000 02000000 00000000 03000000 00000000 \
               00001000 00000000 00002000 00000000 efcdab89 67452301 00800000 00000000 234db226 \
               ffeeddcc bbaa9988 77665544 33221100 d2c1f3e3";
    assert_eq!(to_hex(&header().encode()), hex.replace(' ', ""));
    assert_eq!(SegmentHeader::decode(&header().encode()), Ok(header()));
}

/// A backup tells copies of files apart by the last checksum of a header.
#[test]
fn the_last_checksum_of_a_segment_header_covers_all_of_it() {
    let last = |header: SegmentHeader| read_u32(&header.encode(), SEGMENT_HEADER_SIZE - 4);
    let changed = [
        SegmentHeader {
            number: 3,
            ..header()
        },
        SegmentHeader {
            salt: 1,
            ..header()
        },
        SegmentHeader {
            log: LogId { cluster: 1, ..LOG },
            ..header()
        },
    ];
    for other in changed {
        assert_ne!(last(other), last(header()));
    }
}

#[test]
fn golden_record() {
    let hex = "4fe72b28 a6b33d5b 44332211 05000000 00101000 00000000 0068e5cf 8b010000 \
               02000000 00000102 00101000 00000000 68656c6c 6f000000";
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
    assert!(refused(|h| h.first = Some(LogPosition::new(1 << 62))));
    assert!(refused(|h| h.first = Some(LogPosition::new(9))));
    assert!(refused(|h| h.epoch = Epoch::new(1 << 47)));
    assert!(refused(|h| h.capacity_bytes = u64::MAX - 7));
    assert!(refused(|h| h.capacity_bytes = 4096));
    assert!(refused(|h| h.durable = LogPosition::new(1 << 62)));
    assert!(!refused(|h| h.first = None));
}

#[test]
fn a_newer_version_is_distinguished_from_damage() {
    let mut bytes = header().encode();
    bytes[8] = 3;
    let damaged = SegmentHeader::decode(&bytes).unwrap_err();
    assert!(matches!(damaged, FormatError::Damaged(_)));
    let crc = crc32c::crc32c(&bytes[..64]);
    bytes[64..68].copy_from_slice(&crc.to_le_bytes());
    let newer = SegmentHeader::decode(&bytes).unwrap_err();
    assert_eq!(newer, FormatError::Newer(3));
    assert_eq!(newer.to_string(), "format version 3 is newer than 2");
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
fn a_beginning_is_valid_in_its_segment_only_and_every_flipped_bit_is_noticed() {
    let (seal, first) = (header().seal(), LogPosition::new(0x1_2345_6788));
    let bytes = encode_beginning(seal, first);
    assert_eq!(to_hex(&bytes[..8]), "8867452301000000");
    assert_eq!(decode_beginning(seal, &bytes), Some(first));
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decode_beginning(seal, &damaged), None, "bit {bit}");
    }
    let other = SegmentHeader {
        salt: 1,
        ..header()
    };
    assert_eq!(decode_beginning(other.seal(), &bytes), None);
    assert_eq!(decode_beginning(seal, &[0; BEGINNING_SIZE]), None);
}

#[test]
fn the_content_of_a_record_is_the_same_in_every_segment() {
    let record = sealed(b"payload", 0x10_2000);
    let mut head = *record.first_chunk().unwrap();
    let content = content_crc(&head, b"payload", LOG.chain_start());
    let other = SegmentHeader {
        salt: 1,
        epoch: Epoch::new(9),
        ..header()
    };
    seal_again(&mut head, other.seal(), LogPosition::new(0x10_2000));
    let sealed_again = RecordHeader::decode(&head, other.seal()).unwrap();
    assert_eq!(sealed_again.content, content);
    assert_eq!(content_crc(&head, b"payload", LOG.chain_start()), content);
    // And in no other log.
    for other in [
        LogId { cluster: 1, ..LOG },
        LogId {
            partition: 1,
            ..LOG
        },
    ] {
        let chain_start = other.chain_start();
        assert_ne!(content_crc(&head, b"payload", chain_start), content);
        assert_ne!(chain_start, LOG.chain_start());
    }
    assert_ne!(LOG.chain_start(), 0);
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
        epoch in 0u64..1 << 47,
        base in 0u64..1 << 50,
        pages in 2u64..1 << 20,
        salt: u64,
    ) {
        let header = SegmentHeader {
            log: LogId {
                cluster: u128::from(salt) << 3,
                partition: 7,
            },
            number,
            epoch: Epoch::new(epoch),
            first: (base > 0).then_some(LogPosition::new(base * 8)),
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
