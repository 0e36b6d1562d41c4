//! What a newer Kew has written is not damage: it is refused, also by a repair.

use std::sync::Arc;

use super::*;
use crate::format::{RECORD_HEADER_SIZE, RecordHeader, SEGMENT_HEADER_SIZE, content_crc};
use crate::replay::Ignore;
use crate::{BatchBuilder, FaultyStorage, Need, Salvage, SegmentLog};

const SEGMENT: &str = "segment-00000000000000000001";

/// A log of three batches; the positions of their records.
fn written() -> (FaultyStorage, Vec<u64>) {
    let storage = FaultyStorage::new();
    let options = LogOptions {
        ballast_size_bytes: 0,
        ..LogOptions::default()
    };
    let (mut log, _) =
        SegmentLog::open(Arc::new(storage.clone()), options, 3, &mut Ignore).unwrap();
    let mut positions = Vec::new();
    for _ in 0..3 {
        let reservation = log.reserve(Need::grow(0)).unwrap();
        positions.push(reservation.position.as_u64());
        let mut batch = BatchBuilder::at(reservation.position);
        batch.push_event(b"event");
        log.append(reservation, batch).unwrap();
        log.run_commit().unwrap();
    }
    (storage, positions)
}

/// Makes a record one that version 3 wrote, whole in every respect.
fn make_newer(storage: &FaultyStorage, position: u64) {
    let content = storage.content(SEGMENT).unwrap();
    let header: &[u8; SEGMENT_HEADER_SIZE] = content.first_chunk().unwrap();
    let header = SegmentHeader::decode(header).unwrap();
    let at = usize::try_from(position).unwrap();
    let mut bytes: [u8; RECORD_HEADER_SIZE] = *content[at..].first_chunk().unwrap();
    let found = RecordHeader::decode(&bytes, header.seal()).unwrap();
    bytes[39] = 3;
    let length = usize::try_from(found.payload_length).unwrap();
    let payload = &content[at + RECORD_HEADER_SIZE..][..length];
    let crc = content_crc(&bytes, payload, header.log.chain_start());
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    seal_again(&mut bytes, header.seal(), found.durable);
    storage.corrupt(SEGMENT, position, &bytes);
}

#[test]
fn a_record_of_a_newer_version_is_refused_in_any_place() {
    let (storage, positions) = written();
    for position in positions {
        let disk = storage.kill();
        make_newer(&disk, position);
        let before = disk.files();
        let error = SegmentLog::open(
            Arc::new(disk.clone()),
            LogOptions::default(),
            3,
            &mut Ignore,
        )
        .err()
        .unwrap();
        assert_eq!(
            error.to_string(),
            format!(
                "{SEGMENT} has format version 3, and this version of Kew reads versions up to 2"
            )
        );
        let error = Salvage::look(Arc::new(disk.clone())).err().unwrap();
        assert!(matches!(error, OpenError::NewerFormat { found: 3, .. }));
        assert_eq!(disk.files(), before);
    }
}
