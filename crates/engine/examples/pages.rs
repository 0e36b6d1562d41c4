//! What pages take: bytes of a message, the time for a run of 1,024, and the bytes of a snapshot that follows changes.
//! It is the engine alone: no log.
//!
//! `cargo run --release -p kew-engine --example pages`

#![expect(clippy::print_stdout, reason = "it exists for its output")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;
use kew_engine::bus::{
    BusCommand, BusMessage, BusOutcome, BusQueueOptions, Disposition, ReceiveMode,
};
use kew_engine::{
    BodyLocation, Command, EntityName, Event, Journal, Outcome, PageBytes, PageNumber,
    RestoringPages, RunLength, Service, SnapshotPages, State, Timestamp, Turn,
};

type Failure = Box<dyn std::error::Error>;

/// The kind of a run's page.
const RUN: u8 = 5;

/// Places of bodies as the log gives them: so many in each record.
struct Places {
    in_record: u32,
    record: u64,
    count: u32,
}

impl Journal for Places {
    fn store_body(&mut self, body: &[u8]) -> BodyLocation {
        if self.count == self.in_record {
            self.record += 24 + u64::from(110 * self.in_record).next_multiple_of(8);
            self.count = 0;
        }
        self.count += 1;
        BodyLocation::new(
            self.record,
            110 * self.count - 65,
            u32::try_from(body.len()).unwrap_or(u32::MAX),
        )
    }

    fn record(&mut self, _: &Event) {}
}

struct Partition {
    state: State,
    places: Places,
    now: Timestamp,
    random: u64,
    /// What the last snapshot has.
    pages: Vec<(PageNumber, PageBytes)>,
    last_page: u64,
}

/// What was written of a snapshot.
struct Written {
    pages: usize,
    size_bytes: usize,
    seconds: f64,
}

impl Partition {
    fn new(in_record: u32) -> Result<Self, Failure> {
        let mut partition = Self {
            state: State::new(),
            places: Places {
                in_record,
                record: 4096,
                count: 0,
            },
            now: Timestamp::from_ms(1_750_000_000_000),
            random: 1,
            pages: Vec::new(),
            last_page: 0,
        };
        partition.ask(Command::Initialize {
            secret: [42; 16],
            run_length: RunLength::DEFAULT,
        })?;
        let options = BusQueueOptions::default();
        let queue = queue();
        partition.ask_bus(BusCommand::CreateQueue { queue, options })?;
        Ok(partition)
    }

    fn ask(&mut self, command: Command) -> Result<Outcome, Failure> {
        let mut turn = Turn::new(&mut self.state, self.now, &mut self.places);
        Ok(turn.decide(command).result?)
    }

    fn ask_bus(&mut self, command: BusCommand) -> Result<BusOutcome, Failure> {
        match self.ask(Command::Bus(command))? {
            Outcome::Bus(outcome) => Ok(outcome),
            other => Err(format!("{other:?}").into()),
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random = (self.random).wrapping_mul(6_364_136_223_846_793_005);
        self.random = self.random.wrapping_add(1);
        (self.random >> 33) % below
    }

    /// Messages of 64 bytes arrive, 25 of them in a millisecond. Some are scheduled if they are to be mixed.
    fn send(&mut self, count: usize, is_mixed: bool) -> Result<(), Failure> {
        for index in 0..count {
            if index % 25 == 0 {
                self.now = self.now.plus_ms(1);
            }
            let is_scheduled = is_mixed && self.random(10) == 0;
            let delay_ms = 60_000 + self.random(600_000);
            let messages = vec![BusMessage {
                body: Bytes::from_static(&[b'x'; 64]),
                message_id: None,
                session: None,
                time_to_live_ms: None,
                scheduled_at: is_scheduled.then(|| self.now.plus_ms(delay_ms)),
            }];
            let queue = queue();
            self.ask_bus(BusCommand::Send { queue, messages })?;
        }
        Ok(())
    }

    /// Receives and settles at random: some stay locked, and some are as they were, but for a count.
    fn work(&mut self, count: usize) -> Result<(), Failure> {
        for _ in 0..count / 100 {
            let receive = BusCommand::Receive {
                queue: queue(),
                count: 100,
                mode: ReceiveMode::PeekLock,
                session: None,
            };
            let BusOutcome::Received(messages) = self.ask_bus(receive)? else {
                return Err("nothing was received".into());
            };
            let mut settlements = Vec::new();
            for lock in messages.iter().filter_map(|message| message.lock) {
                match self.random(10) {
                    0..2 => settlements.push((lock, Disposition::Complete)),
                    2..5 => settlements.push((lock, Disposition::Defer { overlay: None })),
                    _ => {}
                }
            }
            let queue = queue();
            self.ask_bus(BusCommand::Settle { queue, settlements })?;
        }
        Ok(())
    }

    fn plan(&mut self) -> Result<SnapshotPages, Failure> {
        self.state.begin_snapshot();
        let snapshot = self
            .state
            .gather(u64::MAX)
            .ok_or("it is gathered at once")?;
        Ok(snapshot.plan_pages())
    }

    fn snapshot(&mut self) -> Result<Written, Failure> {
        let planned = self.plan()?;
        let mut known: BTreeMap<_, _> = self.pages.drain(..).collect();
        let begun = Instant::now();
        let (mut pages, mut size_bytes) = (0, 0);
        for index in 0..planned.page_count() {
            let kept = planned.page(index);
            let kept = kept.and_then(|page| Some((page, known.remove(&page)?)));
            self.pages.push(match kept {
                Some(kept) => kept,
                None => {
                    let page = planned.encode(index).ok_or("there is such a page")?;
                    pages += 1;
                    size_bytes += size_of_page(&page);
                    self.last_page += 1;
                    (PageNumber::new(self.last_page), page)
                }
            });
        }
        let seconds = begun.elapsed().as_secs_f64();
        for (index, (page, _)) in self.pages.iter().enumerate() {
            planned.keep(index, *page);
        }
        Ok(Written {
            pages,
            size_bytes,
            seconds,
        })
    }

    fn restored(&mut self) -> Result<State, Failure> {
        let mut state = State::new();
        for part in self.plan()?.parts() {
            state.restore(part)?;
        }
        let mut restoring = RestoringPages::default();
        for (page, bytes) in &self.pages {
            let groups: Vec<&[u8]> = bytes.groups.iter().map(Vec::as_slice).collect();
            state.restore_page(&mut restoring, *page, bytes.kind, &groups)?;
        }
        state.finish_pages(restoring)?;
        Ok(state)
    }

    fn run_pages(&self) -> Vec<usize> {
        let runs = self.pages.iter().filter(|(_, page)| page.kind == RUN);
        runs.map(|(_, page)| size_of_page(page)).collect()
    }
}

fn queue() -> EntityName {
    EntityName {
        service: Service::ServiceBus,
        account: "namespace".into(),
        name: "queue".into(),
    }
}

fn size_of_page(page: &PageBytes) -> usize {
    page.groups.iter().map(Vec::len).sum()
}

#[expect(clippy::cast_precision_loss, reason = "an average for people")]
fn report(name: &str, in_record: u32, is_mixed: bool) -> Result<(), Failure> {
    const MESSAGES: usize = 200_000;
    let mut partition = Partition::new(in_record)?;
    partition.send(MESSAGES, is_mixed)?;
    if is_mixed {
        partition.work(MESSAGES * 8 / 10)?;
    }
    let written = partition.snapshot()?;
    let runs = partition.run_pages();
    let begun = Instant::now();
    let restored = partition.restored()?;
    let restore = begun.elapsed().as_secs_f64();
    if restored != partition.state {
        return Err("another state was restored".into());
    }
    let (_, messages) = partition.state.counts();
    println!(
        "{name}: {messages} messages on {} run pages, {:.2} bytes each; for each page, {:.0} us to encode and {:.0} us to restore",
        runs.len(),
        runs.iter().sum::<usize>() as f64 / messages as f64,
        written.seconds * 1e6 / runs.len() as f64,
        restore * 1e6 / runs.len() as f64,
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    report("equal, 100 in a record", 100, false)?;
    report("equal, one in a record", 1, false)?;
    report("mixed, 100 in a record", 100, true)?;
    report("mixed, one in a record", 1, true)?;
    let mut partition = Partition::new(1)?;
    partition.send(1_000_000, false)?;
    for puts in [0, 150_000, 0] {
        partition.send(puts, false)?;
        let Written {
            pages,
            size_bytes,
            seconds,
        } = partition.snapshot()?;
        let (_, messages) = partition.state.counts();
        println!(
            "at {messages}, after {puts} puts: {pages} pages, {size_bytes} bytes in each copy, {seconds:.3} s"
        );
    }
    let (begun, mut size_bytes) = (Instant::now(), 0);
    partition.state.snapshot(|part| size_bytes += part.len());
    let seconds = begun.elapsed().as_secs_f64();
    println!("a whole snapshot: {size_bytes} bytes, {seconds:.3} s");
    Ok(())
}
