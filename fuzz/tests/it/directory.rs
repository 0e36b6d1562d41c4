//! Whole logs: forged segments and snapshots with right checksums, and the golden directory with
//! wrong bytes in it. A log either opens or is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kew_engine::State;
use kew_fuzz::forge::{self, Header, Record, Segment};
use kew_fuzz::gauge;
use kew_fuzz::golden::{
    self, EVENTS, FIRST_FORMAT_FILES, LOG_FILES, LOG_FILES_WITH_PAGES, SNAPSHOT_PARTS,
};
use kew_fuzz::mutate::{Input, changes};
use kew_log::{
    BodyLocation, BoxError, FaultyStorage, FirstFormatLog, LogOptions, LogPosition, OpenError,
    PageContent, PageNumber, Replay, SegmentLog, inspect, verify,
};

use crate::{INPUT_SIZE_MAX, INPUTS};

/// The memory for opening and reading a small log: its files several times over.
const MEMORY_MAX_BYTES: usize = 4 << 20;

/// What the parts of snapshots and the events of a log are.
#[derive(Clone, Copy)]
enum Holds {
    /// What the broker writes.
    States,
    /// Words: the golden logs hold them in place of parts, events and pages.
    Words,
}

/// Restores a state as the broker does, or takes words.
struct Owner {
    holds: Holds,
    state: State,
    parts: Vec<Vec<u8>>,
    events: u64,
    /// The pages, which have words in all logs.
    pages: Vec<(PageNumber, PageContent)>,
}

impl Owner {
    fn of(holds: Holds) -> Self {
        Self {
            holds,
            state: State::default(),
            parts: Vec::new(),
            events: 0,
            pages: Vec::new(),
        }
    }
}

impl Replay for Owner {
    fn begin(&mut self) {
        *self = Self::of(self.holds);
    }

    fn snapshot_part(&mut self, part: &[u8]) -> Result<(), BoxError> {
        match self.holds {
            Holds::States => self.state.restore(part)?,
            Holds::Words => self.parts.push(part.to_vec()),
        }
        Ok(())
    }

    fn snapshot_page(&mut self, page: PageNumber, content: &PageContent) -> Result<(), BoxError> {
        self.pages.push((page, content.clone()));
        Ok(())
    }

    fn event(&mut self, _: LogPosition, event: &[u8]) -> Result<(), BoxError> {
        self.events += 1;
        // Forged logs hold words, too.
        if let (Holds::States, Ok(event)) = (self.holds, self.state.read_event(event)) {
            self.state.apply(event);
        }
        Ok(())
    }
}

/// Opens a log and reads it. A log that opens must open again with the same content.
fn check(storage: &FaultyStorage, holds: Holds) -> Result<u64, OpenError> {
    let options = options();
    gauge::within(MEMORY_MAX_BYTES, || {
        let report = inspect(storage).expect("the storage works");
        let verified = verify(storage).is_ok();
        assert_eq!(verified, verified && report.damage.is_empty());
        let mut owner = Owner::of(holds);
        SegmentLog::open(Arc::new(storage.clone()), options, 1, &mut owner)?;
        let mut again = Owner::of(holds);
        SegmentLog::open(Arc::new(storage.clone()), options, 2, &mut again)
            .expect("it has just been opened");
        assert_eq!(
            (owner.parts, owner.events, owner.pages),
            (again.parts, again.events, again.pages)
        );
        Ok(again.events)
    })
}

fn options() -> LogOptions {
    golden::options()
}

#[test]
fn golden_directory_damaged() {
    let counts = Counts::default();
    bolero::check!()
        .with_iterations(INPUTS / 10)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let kinds = ["segment", "snapshot", "damaged-1-segment"];
            let storage = damaged(bytes, &LOG_FILES, kinds);
            counts.note(check(&storage, Holds::Words));
        });
    counts.check();
}

/// A page has a copy in another file, so much damage is harmless.
#[test]
fn golden_directory_with_pages_damaged() {
    let counts = Counts::default();
    bolero::check!()
        .with_iterations(INPUTS / 10)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let kinds = ["segment", "snapshot", "pages"];
            let storage = damaged(bytes, &LOG_FILES_WITH_PAGES, kinds);
            counts.note(check(&storage, Holds::Words));
        });
    counts.check();
}

#[derive(Default)]
struct Counts {
    opened: AtomicU64,
    refused: AtomicU64,
}

impl Counts {
    fn note<T, E>(&self, outcome: Result<T, E>) {
        let outcome = match outcome {
            Ok(_) => &self.opened,
            Err(_) => &self.refused,
        };
        outcome.fetch_add(1, Relaxed);
    }

    /// There was harmless damage, and damage that was not.
    fn check(&self) {
        let [opened, refused] = [&self.opened, &self.refused].map(|count| count.load(Relaxed));
        let inputs = opened + refused;
        assert!(
            opened > inputs / 20 && refused > inputs / 20,
            "{opened} logs opened, {refused} were refused: the inputs test little"
        );
    }
}

/// A golden directory with other bytes in some files, or with more files of these kinds.
fn damaged(bytes: &[u8], files: &[(&str, &[u8])], kinds: [&str; 3]) -> FaultyStorage {
    let mut input = Input::new(bytes);
    let storage = golden::disk(files);
    for _ in 0..=input.byte() % 3 {
        let (name, content) = files[usize::from(input.byte()) % files.len()];
        let mut content = content.to_vec();
        match input.byte() % 8 {
            0 => storage.lose_file(name),
            1 => {
                // Replaces a file by another one.
                let (other, _) = files[usize::from(input.byte()) % files.len()];
                storage.put(other, &content);
            }
            2 => {
                // A file with an unused number.
                let kind = kinds[usize::from(input.byte()) % kinds.len()];
                storage.put(&format!("{kind}-{:020}", input.number()), &content);
            }
            _ => {
                changes(&mut content, &mut input);
                storage.put(name, &content);
            }
        }
    }
    storage
}

/// A start reads a log of the format before, too.
#[test]
fn golden_directory_of_the_first_format_damaged() {
    let counts = Counts::default();
    bolero::check!()
        .with_iterations(INPUTS / 10)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let mut input = Input::new(bytes);
            let storage = golden::disk(&FIRST_FORMAT_FILES);
            for _ in 0..=input.byte() % 3 {
                let at = usize::from(input.byte()) % FIRST_FORMAT_FILES.len();
                let (name, content) = FIRST_FORMAT_FILES[at];
                let mut content = content.to_vec();
                changes(&mut content, &mut input);
                storage.put(name, &content);
            }
            counts.note(gauge::within(MEMORY_MAX_BYTES, || {
                let log = FirstFormatLog::read(&storage, &mut Owner::of(Holds::Words))?;
                // A place that the owner of the events knows. Its bytes may be any.
                let _ = log.body(BodyLocation {
                    record: LogPosition::new(input.number()),
                    offset: 7,
                    length: 700,
                });
                Ok::<_, OpenError>(())
            }));
        });
    counts.check();
}

/// Records of any kind and content, each with right checksums, or nearly.
#[test]
fn forged_records() {
    bolero::check!()
        .with_iterations(INPUTS / 10)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let storage = FaultyStorage::new();
            storage.put("segment-00000000000000000001", &forge_segment(bytes));
            let _ = check(&storage, Holds::States);
        });
}

fn header() -> Header {
    Header {
        number: 1,
        epoch: 1,
        first: 4096,
        capacity: 8 << 10,
        salt: 7,
        durable: 0,
    }
}

fn forge_segment(bytes: &[u8]) -> Vec<u8> {
    let mut input = Input::new(bytes);
    let mut header = header();
    if input.byte().is_multiple_of(8) {
        match input.byte() % 5 {
            0 => header.number = input.number(),
            1 => header.first = input.number(),
            2 => header.durable = input.number(),
            3 => header.epoch = input.number(),
            _ => header.capacity = 4096 + (input.number() % (1 << 16)),
        }
    }
    let mut segment = Segment::new(header, forge::chain_start());
    while !input.is_empty() {
        let mut record = Record {
            kind: 1,
            version: 2,
            durable: segment.position(),
        };
        let mut payload = Vec::new();
        match input.byte() % 8 {
            0 => payload.extend_from_slice(input.piece()),
            1 => {
                record.kind = input.byte();
                record.version = input.byte() % 4;
                payload.extend_from_slice(input.piece());
            }
            2 => {
                record.kind = 3;
                payload.extend_from_slice(&input.number().to_le_bytes());
            }
            // A batch without entries.
            3 => {}
            4 => {
                record.durable = input.number();
                forge::push_event(&mut payload, input.piece());
            }
            5 => {
                forge_batch(&mut payload, segment.position(), &mut input);
                changes(&mut payload, &mut input);
            }
            _ => forge_batch(&mut payload, segment.position(), &mut input),
        }
        if payload.len() > segment.room() {
            break;
        }
        segment.push(record, &payload);
    }
    let mut file = segment.finish();
    if bytes.first().is_some_and(|first| first % 4 == 1) {
        changes(&mut file, &mut Input::new(bytes));
    }
    file
}

fn forge_batch(payload: &mut Vec<u8>, position: u64, input: &mut Input<'_>) {
    for _ in 0..=input.byte() % 4 {
        match input.byte() % 3 {
            0 => forge::push_body(payload, position, input.piece()),
            1 => forge::push_event(payload, input.piece()),
            _ => {
                let golden = EVENTS[usize::from(input.byte()) % EVENTS.len()];
                forge::push_event(payload, golden);
            }
        }
    }
}

/// Snapshots with right checksums around any parts, and with wrong bytes.
#[test]
fn forged_snapshot() {
    bolero::check!()
        .with_iterations(INPUTS / 10)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let mut input = Input::new(bytes);
            let mut segment = Segment::new(header(), forge::chain_start());
            let chain = segment.push(
                Record {
                    kind: 1,
                    version: 2,
                    durable: 4096,
                },
                &[],
            );
            let position = segment.position();
            let storage = FaultyStorage::new();
            storage.put("segment-00000000000000000001", &segment.finish());

            let mut parts: Vec<Vec<u8>> = SNAPSHOT_PARTS.iter().map(|part| part.to_vec()).collect();
            for part in &mut parts {
                if input.byte().is_multiple_of(4) {
                    changes(part, &mut input);
                }
            }
            for _ in 0..input.byte() % 3 {
                parts.push(input.piece().to_vec());
            }
            let mut flags = 0;
            if input.byte().is_multiple_of(2) {
                flags = add_table(&mut parts, &mut input);
            }
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            let chain = if input.byte().is_multiple_of(8) {
                chain ^ 1
            } else {
                chain
            };
            let mut file = forge::snapshot_with(position, chain, flags, &parts);
            if input.byte().is_multiple_of(2) {
                changes(&mut file, &mut input);
            }
            storage.put(&format!("snapshot-{position:020}"), &file);
            let _ = check(&storage, Holds::States);
        });
}

/// Puts a table of pages before the parts. Returns the flags of the header.
fn add_table(parts: &mut Vec<Vec<u8>>, input: &mut Input<'_>) -> u32 {
    let table = [input.piece().to_vec(), input.piece().to_vec()];
    let count = usize::from(input.byte()) % 3;
    let told = match input.byte() % 4 {
        0 => input.byte().into(),
        _ => u32::try_from(count).unwrap_or_default(),
    };
    let mut first = vec![match input.byte() % 4 {
        0 => input.byte() & 0x7f,
        _ => u8::try_from(count).unwrap_or_default(),
    }];
    // The number of the next page.
    first.extend_from_slice(match input.byte() % 4 {
        0 => b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        1 => input.piece(),
        _ => b"\x90\x4e",
    });
    let table = std::iter::once(first).chain(table.into_iter().take(count));
    parts.splice(0..0, table.collect::<Vec<_>>());
    2 | told << 8
}

/// The forger and the log agree on the document: its files are accepted.
#[test]
fn well_forged_directories_open() {
    let mut segment = Segment::new(header(), forge::chain_start());
    let mut payload = Vec::new();
    for event in EVENTS {
        forge::push_event(&mut payload, event);
    }
    forge::push_body(&mut payload, segment.position(), b"a body");
    let record = |kind, durable| Record {
        kind,
        version: 2,
        durable,
    };
    let chain = segment.push(record(1, 4096), &payload);
    let position = segment.position();
    segment.push(record(1, position), &[]);
    let file = segment.finish();

    let storage = FaultyStorage::new();
    storage.put("segment-00000000000000000001", &file);
    assert_eq!(
        check(&storage, Holds::States).expect("right"),
        EVENTS.len() as u64
    );

    let storage = FaultyStorage::new();
    storage.put("segment-00000000000000000001", &file);
    let snapshot = forge::snapshot(position, chain, &SNAPSHOT_PARTS);
    storage.put(&format!("snapshot-{position:020}"), &snapshot);
    let report = verify(&storage).expect("right");
    assert_eq!(
        report.snapshot_used.map(LogPosition::as_u64),
        Some(position)
    );
    assert_eq!(check(&storage, Holds::States).expect("right"), 0);
}
