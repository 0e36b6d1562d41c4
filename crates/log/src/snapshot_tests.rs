use proptest::prelude::*;

use super::*;
use crate::storage::FaultyStorage;

const POSITION: LogPosition = LogPosition::new(4096);

fn written(parts: &[Vec<u8>]) -> FaultyStorage {
    let storage = FaultyStorage::new();
    let parts: Vec<Bytes> = parts.iter().cloned().map(Bytes::from).collect();
    let header = SnapshotHeader {
        log: LogId {
            cluster: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff,
            partition: 0,
        },
        position: POSITION,
        chain: 0x0102_0304,
        time_ms: 1_700_000_000_000,
        epoch: Epoch::new(3),
        part_count: 0,
        begins_anew: false,
        has_pages: false,
        table_parts: 0,
    };
    let size = write(&storage, header, &parts).ok().unwrap();
    assert_eq!(storage.files(), [(names::snapshot(4096), size)]);
    storage
}

fn read_back(storage: &FaultyStorage) -> Option<(SnapshotHeader, Vec<Vec<u8>>)> {
    let mut reader = PartReader::open(storage, POSITION).ok()?;
    let mut parts = Vec::new();
    while let Some(part) = reader.next_part().ok()? {
        parts.push(part.to_vec());
    }
    Some((reader.header(), parts))
}

#[test]
fn golden_snapshot() {
    let storage = written(&[b"part".to_vec(), Vec::new()]);
    let content = storage.content(&names::snapshot(4096)).unwrap();
    let hex: String = content.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = "4b455753 4e415000 02000000 00000000 00100000 00000000 04030201 02000000 \
                    00000000 b6753390 ffeeddcc bbaa9988 77665544 33221100 0068e5cf 8b010000 \
                    03000000 00000000 cea9fcdb \
                    00100000 00000000 04000000 328f4fd4 70617274 \
                    00100000 00000000 00000000 dc4bab42 \
                    444f4e45 80000000 00000000 621ab761";
    assert_eq!(hex, expected.replace(' ', ""));
}

#[test]
fn every_flipped_bit_and_every_truncation_is_noticed() {
    let storage = written(&[b"one".to_vec(), b"another".to_vec()]);
    let name = names::snapshot(4096);
    let size = storage.content(&name).unwrap().len() as u64;
    for bit in 0..size * 8 {
        let disk = storage.kill();
        disk.flip(&name, bit / 8, 1 << (bit % 8));
        assert!(read_back(&disk).is_none(), "bit {bit}");
    }
    for length in 0..size {
        let disk = storage.kill();
        disk.truncate(&name, length);
        assert!(read_back(&disk).is_none(), "{length} bytes");
    }
    storage.corrupt(&name, size, b"x");
    assert!(read_back(&storage).is_none(), "one byte more");
}

#[test]
fn a_snapshot_under_another_ones_name_is_refused() {
    let storage = written(&[b"part".to_vec()]);
    let content = storage.content(&names::snapshot(4096)).unwrap();
    storage.put(&names::snapshot(8192), &content);
    let other = PartReader::open(&storage, LogPosition::new(8192));
    assert!(other.is_err());
}

#[test]
fn large_parts_are_written_whole() {
    let parts = vec![
        vec![1; 10],
        vec![2; WRITE_SIZE + 1],
        vec![3; WRITE_SIZE],
        vec![4; 5],
    ];
    assert_eq!(read_back(&written(&parts)).unwrap().1, parts);
}

proptest! {
    #[test]
    fn snapshots_round_trip(parts: Vec<Vec<u8>>) {
        let (header, read) = read_back(&written(&parts)).unwrap();
        prop_assert_eq!(header.position, POSITION);
        prop_assert_eq!(header.chain, 0x0102_0304);
        prop_assert_eq!(header.part_count as usize, parts.len());
        prop_assert_eq!(read, parts);
    }

    #[test]
    fn random_bytes_are_no_snapshot(bytes: Vec<u8>) {
        let storage = FaultyStorage::new();
        storage.put(&names::snapshot(4096), &bytes);
        prop_assert!(read_back(&storage).is_none());
    }
}
