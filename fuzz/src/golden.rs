//! Bytes that were right when they were written.

use kew_log::{FaultyStorage, LogOptions};

/// The sizes that the golden data directory was written with.
pub fn options() -> LogOptions {
    LogOptions {
        segment_size_first_bytes: 8 << 10,
        segment_size_max_bytes: 8 << 10,
        batch_size_max_bytes: 4 << 10,
        turn_space_min_bytes: 1 << 10,
        settlement_reserve_bytes: 1 << 10,
        recycled_segments_max: 0,
        ballast_size_bytes: 0,
        recent_bytes_max: 1 << 10,
    }
}

macro_rules! golden {
    ($($name:literal),* $(,)?) => {
        [$((
            $name,
            include_bytes!(concat!("../../crates/log/tests/golden/v1/partition-0/", $name)) as &[u8],
        )),*]
    };
}

/// The files of the golden data directory's log.
pub const LOG_FILES: [(&str, &[u8]); 6] = golden![
    "segment-00000000000000000001",
    "segment-00000000000000000002",
    "segment-00000000000000000004",
    "segment-00000000000000000005",
    "snapshot-00000000000000013792",
    "snapshot-00000000000000014256",
];

/// The manifest of the golden data directory.
pub const MANIFEST: &str = include_str!("../../crates/log/tests/golden/v1/MANIFEST");

/// A disk with the golden log.
pub fn log() -> FaultyStorage {
    let storage = FaultyStorage::new();
    for (name, content) in LOG_FILES {
        storage.put(name, content);
    }
    storage
}

/// One event of every kind, as in `crates/engine/EVENTS.md`, in an order in which it can happen.
pub const EVENTS: [&[u8]; 14] = [
    b"\x01\x01\xe9\x07\xab\xab\xab\xab\xab\xab\xab\xab\xab\xab\xab\xab\xab\xab\xab\xab",
    b"\x02\x01\xe9\x07\x03\x01\x04acct\x04jobs\x01\x04Tier\x011",
    b"\x04\x01\xe9\x07\x03\x01\x04Tier\x011",
    b"\x05\x01\xe9\x07\x03\xc8\x01\x00\xe9\x07\x01\x80\x20\x0a\xac\x02",
    b"\x06\x01\xe9\x07\x03\xc8\x01\xe9\x07",
    b"\x07\x01\xe9\x07\x03\xc8\x01\xe9\x07\x01\x01\x80\x20\x0a\xac\x02",
    b"\x08\x01\xe9\x07\x03\xc8\x01",
    b"\x0a\x01\xe9\x07\x03\x01",
    b"\x09\x01\xe9\x07\x03\xc9\x01",
    b"\x0b\x01\xe9\x07\x03\x02\x01r\x01\xe8\x07\x00\x01\x02rp\x01w\x00\x01\xd0\x0f\x00",
    b"\x0c\x01\xe9\x07\x01\x04acct\x04<p/>",
    b"\x0d\x01\xe9\x07\x04acct\x03one\x03two\x01\xe8\x07\x00\x01",
    b"\x03\x01\xe9\x07\x03",
    b"\x0e\x01\xe9\x07\x04acct",
];

/// The parts of a snapshot with an account, its properties, a queue and two messages.
pub const SNAPSHOT_PARTS: [&[u8]; 6] = [
    b"\x01\x01\x01\xab\xab\xab\xab\xab\xab\xab\xab\xab\xab\xab\xab\xab\xab\xab\xab\x04\xe9\x07",
    b"\x06\x01\x04acct\x03one\x03two\x01\xe8\x07\x00\x01",
    b"\x05\x01\x01\x04acct\x04<p/>",
    b"\x02\x01\x03\x01\x04acct\x04jobs\x01\x04Tier\x011\xe9\x07\xca\x01",
    b"\x04\x01\x03\x02\x01r\x01\xe8\x07\x00\x01\x02rp\x01w\x00\x01\xd0\x0f\x00",
    b"\x03\x01\x03\xc8\x01\xe9\x07\x00\xe9\x07\x01\x00\x00\x01\x80\x20\x0a\xac\x02\
      \xc9\x01\xe9\x07\x00\xe9\x07\x02\x01\x01\x01\x80\x20\x0a\xac\x02",
];
