//! The content of a golden data directory: a fixed history, with fixed entropy, on any storage.
//!
//! The history is short and contains every kind of record and file: batches, a mark, a roll, a
//! recovery that copies a tail, two snapshots, a prepared segment.

use std::sync::Arc;

use bytes::Bytes;
use kew_log::{
    BatchBuilder, BodyLocation, BoxError, LogOptions, LogPosition, Need, PageOptions, Replay,
    SegmentLog, Storage,
};

/// The manifest that belongs to it.
pub(crate) const MANIFEST: &str = "# Kew wrote this file. It says how to read the directory.\nformat = 2\nid = \"6b657720676f6c64656e206469726563\"\n";

/// Small segments, so that few bytes show much.
pub(crate) fn options() -> LogOptions {
    LogOptions {
        segment_size_first_bytes: 8 << 10,
        segment_size_max_bytes: 8 << 10,
        batch_size_max_bytes: 4 << 10,
        turn_space_min_bytes: 1 << 10,
        settlement_reserve_bytes: 1 << 10,
        recycled_segments_max: 0,
        ballast_size_bytes: 0,
        recent_bytes_max: 1 << 10,
        pages: PageOptions::default(),
    }
}

/// The whole replayed history as words: a snapshot is all words before it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Words(pub(crate) Vec<String>);

impl Replay for Words {
    fn begin(&mut self) {
        self.0.clear();
    }

    fn snapshot_part(&mut self, part: &[u8]) -> Result<(), BoxError> {
        self.0.push(String::from_utf8(part.to_vec())?);
        Ok(())
    }

    fn event(&mut self, _: LogPosition, event: &[u8]) -> Result<(), BoxError> {
        self.0.push(String::from_utf8(event.to_vec())?);
        Ok(())
    }
}

/// The content of the directory, for comparison.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// Every event, in order.
    pub(crate) words: Words,
    /// Where some bodies lie, with the bodies.
    pub(crate) bodies: Vec<(BodyLocation, Vec<u8>)>,
}

/// Writes the history into an empty storage.
pub(crate) fn write(storage: &Arc<dyn Storage>) -> Expected {
    let mut expected = Expected::default();

    let mut log = open(storage, 0x1111, &expected);
    jobs(&mut log);
    for round in 0..6 {
        append(&mut log, &mut expected, &format!("first run {round}"), 700);
        jobs(&mut log);
    }
    snapshot(&mut log, &expected);
    // A batch in progress while the next is appended, and no mark: recovery copies it.
    append(&mut log, &mut expected, "overlapped", 10);
    let job = log.next_job().expect("a commit");
    append(&mut log, &mut expected, "overlapping", 300);
    let outcome = job.run();
    log.complete(outcome).expect("a commit");
    jobs(&mut log);

    let mut log = open(storage, 0x2222, &expected);
    jobs(&mut log);
    append(&mut log, &mut expected, "second run", 0);
    jobs(&mut log);
    snapshot(&mut log, &expected);
    append(&mut log, &mut expected, &"a long event ".repeat(20), 100);
    jobs(&mut log);
    assert!(log.mark());
    jobs(&mut log);
    expected
}

fn open(storage: &Arc<dyn Storage>, entropy: u64, expected: &Expected) -> SegmentLog {
    let mut words = Words::default();
    let (log, _) =
        SegmentLog::open(Arc::clone(storage), options(), entropy, &mut words).expect("a whole log");
    assert_eq!(words, expected.words);
    log
}

fn append(log: &mut SegmentLog, expected: &mut Expected, event: &str, body_length: usize) {
    let reservation = log.reserve(Need::grow(0)).expect("room");
    let mut batch = BatchBuilder::at(reservation.position);
    let body: Vec<u8> = (1..=251).cycle().take(body_length).collect();
    let location = batch.push_body(&body);
    batch.push_event(event.as_bytes());
    batch.push_event_with(|buffer| buffer.extend_from_slice(b"and"));
    log.append(reservation, batch).expect("it was reserved");
    expected
        .words
        .0
        .extend([event.to_owned(), "and".to_owned()]);
    expected.bodies.push((location, body));
}

fn snapshot(log: &mut SegmentLog, expected: &Expected) {
    let parts = expected.words.0.iter();
    let parts: Vec<_> = parts.map(|word| Bytes::from(word.clone())).collect();
    let all = LogPosition::new(0)..log.end();
    log.snapshot(parts, &all).expect("all is durable");
    jobs(log);
}

fn jobs(log: &mut SegmentLog) {
    while let Some(job) = log.next_job() {
        let outcome = job.run();
        log.complete(outcome).expect("the storage works");
    }
}
