//! The state of the engine in the page files of the log: recovered is as it was, on a disk that loses power and bits.

use std::collections::BTreeSet;

use bytes::Bytes;
use kew_engine::bus::{
    BusCommand, BusMessage, BusOutcome, BusQueueOptions, Disposition, ReceiveMode, SessionChoice,
};
use kew_engine::storage::{StorageCommand, StorageOutcome};
use kew_engine::{
    BodyEncoding, BodyLocation, Command, EntityName, Event, Journal, Outcome, RestoringPages,
    RunLength, Service, SnapshotPages, State, Timestamp, Token, Turn, VisibilityTimeout,
};
use kew_log::{
    BoxError, FaultyStorage, LogId, LogPosition, ManifestError, PageContent, PageNumber,
    PageOptions, PageStore, PlannedSnapshot, ReadManifest, Restored, SnapshotContent, SnapshotForm,
    Storage, read_manifest, read_table, remove_pairs,
};

const IDENTITY: LogId = LogId {
    cluster: 3,
    partition: 0,
};

/// Files end after a few pages.
const OPTIONS: PageOptions = PageOptions {
    file_size_bytes: 12_000,
    copied_bytes_max: 4_000,
    pairs_max: 4,
};

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % bound
    }
}

/// The pieces of a state as those of a manifest.
struct Content(SnapshotPages);

impl SnapshotContent for Content {
    fn plan(&mut self) -> PlannedSnapshot {
        PlannedSnapshot {
            parts: self.0.parts().len(),
            pages: self.0.page_count(),
        }
    }

    fn put_part(&self, index: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.parts()[index]);
    }

    fn page(&self, index: usize) -> Option<PageNumber> {
        let page = self.0.page(index)?;
        Some(PageNumber::new(page.as_u64()))
    }

    fn put_page(&self, index: usize, page: &mut PageContent) {
        let bytes = self.0.encode(index).unwrap();
        page.begin(bytes.kind);
        for group in &bytes.groups {
            page.add_group(|out| out.extend_from_slice(group));
        }
    }

    fn keep(&self, index: usize, page: PageNumber) {
        let page = kew_engine::PageNumber::new(page.as_u64());
        self.0.keep(index, page);
    }
}

/// The state of a manifest.
fn restore(
    storage: &FaultyStorage,
    position: LogPosition,
) -> Result<(State, ReadManifest), ManifestError> {
    let (mut state, mut restoring) = (State::new(), RestoringPages::default());
    let read = read_manifest(storage, IDENTITY, position, &mut |restored| {
        let restored = match restored {
            Restored::Part(part) => state.restore(part),
            Restored::Page(page, content) => {
                let page = kew_engine::PageNumber::new(page.as_u64());
                let groups: Vec<&[u8]> = content.groups().collect();
                state.restore_page(&mut restoring, page, content.kind, &groups)
            }
        };
        restored.map_err(BoxError::from)
    })?;
    let finished = state.finish_pages(restoring);
    finished.map_err(|error| ManifestError::Restore(position, error.into()))?;
    Ok((state, read))
}

/// Places of bodies, as a log would give them.
struct Places(u64);

impl Journal for Places {
    fn store_body(&mut self, body: &[u8]) -> BodyLocation {
        self.0 += 8 * (4 + body.len() as u64 / 8);
        BodyLocation::new(self.0, 9, u32::try_from(body.len()).unwrap())
    }

    fn record(&mut self, _: &Event) {}
}

/// What a client may know after a crash: the whole parts of the state of the last manifest that was written, and of
/// one that was begun.
#[derive(Default)]
struct Told {
    written: Vec<Vec<u8>>,
    begun: Option<Vec<Vec<u8>>>,
}

struct Partition {
    storage: FaultyStorage,
    state: State,
    store: PageStore,
    kept: Vec<LogPosition>,
    random: Random,
    now: Timestamp,
    places: Places,
    locks: Vec<Token>,
    receipts: Vec<(Token, Token)>,
}

fn storage_queue() -> EntityName {
    EntityName::storage_queue("acct", "jobs")
}

fn bus_queue() -> EntityName {
    EntityName {
        service: Service::ServiceBus,
        account: "namespace".into(),
        name: "queue".into(),
    }
}

fn positions(storage: &FaultyStorage) -> Result<Vec<LogPosition>, ManifestError> {
    let names = storage.list();
    let names = names.map_err(|error| ManifestError::Restore(LogPosition::new(0), error.into()))?;
    let names = names
        .iter()
        .filter_map(|name| name.strip_prefix("snapshot-"));
    let positions = names.map(|digits| LogPosition::new(digits.parse().unwrap()));
    let sorted: BTreeSet<LogPosition> = positions.collect();
    Ok(sorted.into_iter().collect())
}

impl Partition {
    /// Starts with the newest manifest whose pages are whole.
    fn start(storage: &FaultyStorage, seed: u64) -> Result<Self, ManifestError> {
        let mut kept = Vec::new();
        let (mut state, mut newest) = (State::new(), None);
        for position in positions(storage)?.into_iter().rev() {
            if newest.is_some() {
                kept.push((position, read_table(storage, position)?));
                continue;
            }
            match restore(storage, position) {
                Ok((restored, read)) => {
                    state = restored;
                    newest = Some(position);
                    kept.push((position, read));
                }
                Err(ManifestError::Damaged(_)) => {}
                Err(error) => return Err(error),
            }
        }
        kept.reverse();
        let positions = kept.iter().map(|(position, _)| *position).collect();
        let store = PageStore::open(storage, IDENTITY, OPTIONS, seed, kept);
        let store = store.map_err(ManifestError::Io)?;
        let mut partition = Self {
            storage: storage.clone(),
            now: state
                .last_event_at()
                .max(Timestamp::from_ms(1_750_000_000_000)),
            state,
            store,
            kept: positions,
            random: Random(seed),
            places: Places(4096 + (seed << 20)),
            locks: Vec::new(),
            receipts: Vec::new(),
        };
        if !partition.state.is_initialized() {
            partition.create();
        }
        Ok(partition)
    }

    fn create(&mut self) {
        self.ask(Command::Initialize {
            secret: [7; 16],
            run_length: RunLength::TINY,
        });
        self.ask(Command::Storage(StorageCommand::CreateQueue {
            queue: storage_queue(),
            metadata: Default::default(),
        }));
        for (suffix, requires_session) in [("", false), ("s", true)] {
            self.ask(Command::Bus(BusCommand::CreateQueue {
                queue: EntityName {
                    name: format!("queue{suffix}").into(),
                    ..bus_queue()
                },
                options: BusQueueOptions {
                    requires_session,
                    duplicate_window_ms: Some(60_000),
                    ..BusQueueOptions::default()
                },
            }));
        }
    }

    fn ask(&mut self, command: Command) -> Option<Outcome> {
        let mut turn = Turn::new(&mut self.state, self.now, &mut self.places);
        turn.decide(command).result.ok()
    }

    /// Something that clients do.
    fn act(&mut self) {
        self.now = self.now.plus_ms(self.random.below(900));
        match self.random.below(8) {
            0..2 => {
                let size = usize::try_from(self.random.below(90)).unwrap();
                let lasts = self.random.below(3);
                self.ask(Command::Storage(StorageCommand::Send {
                    queue: storage_queue(),
                    body: Bytes::from(vec![1; size]),
                    encoding: BodyEncoding::Text,
                    time_to_live_seconds: (lasts == 0).then_some(20),
                    visibility_timeout: VisibilityTimeout::ZERO,
                }));
            }
            2 => {
                let received = self.ask(Command::Storage(StorageCommand::Receive {
                    queue: storage_queue(),
                    count: 3,
                    visibility_timeout: VisibilityTimeout::from_seconds(30).unwrap(),
                }));
                if let Some(Outcome::Storage(StorageOutcome::Received(messages))) = received {
                    let messages = messages.iter();
                    (self.receipts).extend(messages.map(|it| (it.message, it.receipt)));
                }
            }
            3 => {
                if let Some((message, receipt)) = self.receipts.pop() {
                    self.ask(Command::Storage(StorageCommand::Delete {
                        queue: storage_queue(),
                        message,
                        receipt,
                    }));
                }
            }
            4..6 => self.send_to_bus(),
            6 => {
                let received = self.ask(Command::Bus(BusCommand::Receive {
                    queue: bus_queue(),
                    count: 3,
                    mode: ReceiveMode::PeekLock,
                    session: None,
                }));
                if let Some(Outcome::Bus(BusOutcome::Received(messages))) = received {
                    self.locks.extend(messages.iter().filter_map(|it| it.lock));
                }
            }
            _ => {
                let how = match self.random.below(4) {
                    0 => Disposition::Complete,
                    1 => Disposition::Abandon { overlay: None },
                    2 => Disposition::Defer {
                        overlay: Some(Bytes::from_static(b"change")),
                    },
                    _ => Disposition::DeadLetter { overlay: None },
                };
                let settlements = self.locks.pop().map(|lock| (lock, how));
                self.ask(Command::Bus(BusCommand::Settle {
                    queue: bus_queue(),
                    settlements: settlements.into_iter().collect(),
                }));
                self.ask(Command::Bus(BusCommand::AcceptSession {
                    queue: EntityName {
                        name: "queues".into(),
                        ..bus_queue()
                    },
                    session: SessionChoice::Next,
                }));
            }
        }
    }

    fn send_to_bus(&mut self) {
        let session = self.random.below(9);
        let message = BusMessage {
            body: Bytes::from_static(b"message"),
            message_id: Some(format!("id{}", self.random.below(40)).into()),
            session: (session > 4).then(|| format!("session{session}").into()),
            time_to_live_ms: (self.random.below(3) == 0).then_some(30_000),
            scheduled_at: (self.random.below(4) == 0).then(|| self.now.plus_ms(5_000)),
        };
        let queue = match session > 4 {
            true => EntityName {
                name: "queues".into(),
                ..bus_queue()
            },
            false => bus_queue(),
        };
        let messages = vec![message];
        self.ask(Command::Bus(BusCommand::Send { queue, messages }));
    }

    fn parts(&self) -> Vec<Vec<u8>> {
        let mut parts = Vec::new();
        self.state.snapshot(|part| parts.push(part.to_vec()));
        parts
    }

    /// Writes a manifest while clients go on, and removes what is not needed any more.
    fn snapshot(&mut self, told: &mut Told) -> Result<(), ManifestError> {
        let position = LogPosition::new(self.kept.last().map_or(1, |it| it.as_u64() + 1));
        told.begun = Some(self.parts());
        self.state.begin_snapshot();
        let snapshot = self.state.gather(u64::MAX).unwrap();
        let job = self
            .store
            .begin(position, 0, 0, SnapshotForm::Pages)
            .unwrap();
        for _ in 0..self.random.below(4) {
            self.act();
        }
        let mut content = Content(snapshot.plan_pages());
        let written = job.run(&self.storage, &mut content, |_| Ok(false));
        let written = self.store.complete(written);
        written.map_err(|error| ManifestError::Restore(position, error.into()))?;
        told.written = told.begun.take().unwrap_or_default();
        self.kept.push(position);
        while self.kept.len() > 2 {
            let oldest = self.kept.remove(0);
            let name = format!("snapshot-{:020}", oldest.as_u64());
            let removed = self.storage.remove(&name);
            let removed = removed.and_then(|()| self.storage.sync_dir());
            removed.map_err(|error| ManifestError::Restore(oldest, error.into()))?;
            self.store.forget(oldest);
        }
        let unneeded = self.store.unneeded();
        let removed = remove_pairs(&self.storage, &unneeded);
        self.store.forget_pairs(&unneeded);
        removed.map_err(ManifestError::Io)
    }
}

/// The state of whole parts.
fn whole(parts: &[Vec<u8>]) -> State {
    let mut state = State::new();
    parts.iter().for_each(|part| state.restore(part).unwrap());
    state
}

/// Clients act, manifests are written, and starts follow, until the storage fails.
fn live(storage: &FaultyStorage, seed: u64, told: &mut Told) -> Result<(), ManifestError> {
    let mut partition = Partition::start(storage, seed)?;
    for round in 0..7 {
        for _ in 0..12 {
            partition.act();
        }
        partition.snapshot(told)?;
        if round % 3 == 2 {
            partition = Partition::start(storage, seed + round)?;
            assert!(partition.state == whole(&told.written), "seed {seed}");
        }
    }
    Ok(())
}

#[test]
fn a_state_is_recovered_from_its_pages_after_a_power_cut_at_any_call() {
    for seed in 1..3 {
        // Not every call: each story takes a while.
        for calls in (0..).step_by(3) {
            let storage = FaultyStorage::new();
            let mut told = Told::default();
            storage.crash_after(calls);
            let ended = live(&storage, seed, &mut told);
            storage.clear_faults();
            if ended.is_ok() {
                break;
            }
            let mut random = Random(seed ^ calls);
            let mut choice = |bound: u32| u32::try_from(random.below(bound.into())).unwrap();
            let after = storage.crash(&mut choice);
            let Some(newest) = positions(&after).unwrap().last().copied() else {
                assert!(told.written.is_empty(), "seed {seed}, call {calls}");
                continue;
            };
            let (state, _) = restore(&after, newest).unwrap();
            let is_begun = told.begun.as_ref().is_some_and(|it| whole(it) == state);
            let is_written = whole(&told.written) == state;
            assert!(is_begun || is_written, "seed {seed}, call {calls}");
            state.check_live_bytes();
        }
    }
}

#[test]
fn rot_in_a_page_of_any_kind_costs_nothing_and_in_both_copies_the_newest_manifest() {
    let storage = FaultyStorage::new();
    let mut partition = Partition::start(&storage, 5).unwrap();
    let (mut older, mut told) = (Vec::new(), Told::default());
    for _ in 0..4 {
        for _ in 0..40 {
            partition.act();
        }
        older = std::mem::take(&mut told.written);
        partition.snapshot(&mut told).unwrap();
    }
    let (older, newest) = (whole(&older), whole(&told.written));
    let tables: Vec<ReadManifest> = (partition.kept.iter())
        .map(|position| read_table(&storage, *position).unwrap())
        .collect();
    let shared: BTreeSet<_> = tables[0].table.pages().iter().map(|it| it.number).collect();
    let mut kinds = BTreeSet::new();
    let mut reader = kew_log::PageReader::new(&storage, IDENTITY);
    for page in tables[1].table.pages() {
        kinds.insert(reader.read(page.number, page.place).unwrap().content.kind);
        let random = partition.random.below(page.place.size_bytes.into());
        let offset = u64::from(page.place.offset) + random;
        let damaged = storage.kill();
        let file = |copy: u64| format!("pages-{:020}", 2 * u64::from(page.place.pair) + copy);
        damaged.flip(&file(0), offset, 16);
        let start = Partition::start(&damaged, 6).unwrap();
        assert!(start.state == newest, "{page:?}");
        damaged.flip(&file(1), offset, 16);
        // The older manifest may name the same page: then there is none.
        let start = Partition::start(&damaged, 6).unwrap();
        match shared.contains(&page.number) {
            true => assert!(start.kept.is_empty(), "{page:?}"),
            false => assert!(start.state == older, "{page:?}"),
        }
    }
    assert_eq!(kinds, [1, 2, 3, 4, 5].into(), "a page of each kind");
}
