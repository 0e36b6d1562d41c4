//! The cost of searching a damaged segment for records.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kew_log::{BatchBuilder, FaultyStorage, LogOptions, Need, OpenError, Storage, StorageFile};

use crate::node::{Messages, Node};

/// Counts the bytes that are read.
struct Counting {
    storage: FaultyStorage,
    read_bytes: Arc<AtomicU64>,
}

struct CountingFile {
    file: Arc<dyn StorageFile>,
    read_bytes: Arc<AtomicU64>,
}

impl Storage for Counting {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.storage.create(name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(CountingFile {
            file: self.storage.open(name)?,
            read_bytes: Arc::clone(&self.read_bytes),
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.storage.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.storage.remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.storage.list()
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.storage.sync_dir()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.storage.free_bytes()
    }
}

impl StorageFile for CountingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.file.read_at(buffer, offset)?;
        self.read_bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

/// How much a start reads of a damaged segment of that size, full of look-alikes: a client that
/// writes messages knows the format, but not the salt.
fn read_bytes_of_a_start(segment_bytes: u64) -> u64 {
    let storage = FaultyStorage::new();
    let options = LogOptions {
        segment_size_first_bytes: segment_bytes,
        segment_size_max_bytes: segment_bytes,
        batch_size_max_bytes: segment_bytes,
        turn_space_min_bytes: 1 << 10,
        settlement_reserve_bytes: 1 << 10,
        ballast_size_bytes: 0,
        ..LogOptions::default()
    };
    let mut node = Node::open_with(&storage, options, 5).unwrap();
    // The longest possible one: a reader that trusts it reads to the end of the segment.
    let mut look_alike = [0; 24];
    look_alike[12] = 1;
    look_alike[13] = 1;
    let room = node.log.reserve(Need::grow(0)).unwrap().room_bytes;
    let count = usize::try_from(room / 24).unwrap() - 200;
    let mut body = look_alike.repeat(count);
    let length = body.len();
    for at in (0..length).step_by(24) {
        // All differ, or all would pass the check together or fail together.
        let rest = u32::try_from(length - at).unwrap() / 2;
        body[at + 4..at + 8].copy_from_slice(&rest.to_le_bytes());
        body[at + 8..at + 12].copy_from_slice(&u32::try_from(at).unwrap().to_le_bytes());
    }
    for content in [&body[..], b"the last one"] {
        let reservation = node.log.reserve(Need::grow(0)).unwrap();
        let mut batch = BatchBuilder::at(reservation.position);
        let offset = batch.push_body(content).offset;
        // The first one is aligned like a record.
        let mut batch = BatchBuilder::at(reservation.position);
        let padding = vec![0; usize::try_from(8 - offset % 8).unwrap()];
        batch.push_body(&[&padding, content].concat());
        node.log.append(reservation, batch).unwrap();
        node.log.run_commit().unwrap();
    }
    drop(node);
    storage.flip("segment-00000000000000000001", 4096, 1);
    let read_bytes: Arc<AtomicU64> = Arc::default();
    let counting = Arc::new(Counting {
        storage,
        read_bytes: Arc::clone(&read_bytes),
    });
    let error = kew_log::SegmentLog::open(counting, options, 5, &mut Messages::default())
        .err()
        .unwrap();
    assert!(matches!(error, OpenError::Corrupt { offset: 4096, .. }));
    read_bytes.load(Ordering::Relaxed)
}

#[test]
fn the_search_behind_damage_takes_time_in_proportion_to_the_segment() {
    for segment_bytes in [1 << 20, 4 << 20] {
        let read_bytes = read_bytes_of_a_start(segment_bytes);
        assert!(
            read_bytes < 8 * segment_bytes,
            "{read_bytes} bytes of {segment_bytes}"
        );
    }
}
