//! Clients with a ledger: a mixed load on a server, and the full check of its promises.
//!
//! Writers mix all message operations over a few queues. A [`ledger::Ledger`] keeps acknowledged
//! operations and those with an unknown outcome. The full check compares the whole content of a
//! server with it. A test adds the fault; load and check are the same for all.
//!
//! The checks, for every answer and in the full check:
//!
//! - no acknowledged message is lost, none with an acknowledged delete reappears, and there is none
//!   that no client put;
//! - id and text never change, except by acknowledged or unknown updates;
//! - the latest receipt works, after a crash too, and a stale one does not;
//! - dequeue counts rise with each delivery, by no more than acknowledged and unknown ones explain;
//! - a message is not delivered before its lease has ended;
//! - the count of a queue at rest equals the number of messages that it delivers;
//! - queues and metadata are as last acknowledged.
//!
//! The clients are of `kew-client`, so its kinds of errors are checked as well: after *try again later* nothing may
//! have happened.

mod catalogue;
mod check;
mod ledger;
mod random;
mod text;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kew_client::QueueAccount;
use tokio::task::JoinSet;

use self::catalogue::Catalogue;
pub(crate) use self::ledger::CLOCK_GRAIN;
use self::ledger::Ledger;
pub(crate) use self::random::Random;
pub(crate) use self::text::Texts;
pub(crate) use self::writer::Mix;
use self::writer::Note;
use crate::server::{PATIENCE, Server, show};

pub(crate) const QUEUES: [&str; 4] = ["load-a", "load-b", "load-c", "load-d"];

/// The longest lease of a writer.
pub(crate) const LEASE_MAX: Duration = Duration::from_secs(2);

const WRITERS: u64 = 16;

/// The behaviour of the clients.
pub(crate) struct Style {
    pub(crate) writers: u64,
    pub(crate) texts: Texts,
    /// How much earlier than by the clients' clock a lease may end.
    pub(crate) clock_grain: Duration,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            writers: WRITERS,
            texts: Texts::Mixed,
            clock_grain: CLOCK_GRAIN,
        }
    }
}

/// When clients stop by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// At the first request without an answer: the server has ended.
    Unanswered,
    /// Only when told to.
    Told,
    /// When the server has been busy so long that it counts as full.
    Full,
}

/// Tells a client when to stop.
#[derive(Clone)]
struct Until {
    ending: Ending,
    told: Arc<AtomicBool>,
}

impl Until {
    fn is_over(&self) -> bool {
        self.told.load(Relaxed)
    }

    fn ends_with_a_failure(&self) -> bool {
        self.ending != Ending::Told
    }

    fn ends_when_full(&self) -> bool {
        self.ending == Ending::Full
    }
}

/// The clients of one test, over any number of servers on the same data.
pub(crate) struct Load {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) random: Random,
    catalogue: Arc<Catalogue>,
    writers: u64,
    told: Arc<AtomicBool>,
    tasks: JoinSet<Vec<Note>>,
    notes: Vec<Note>,
}

impl Load {
    pub(crate) fn new(seed: u64, style: &Style) -> Self {
        Self {
            ledger: Arc::new(Ledger::new(&QUEUES, style.texts, style.clock_grain)),
            random: Random::new(seed),
            catalogue: Arc::default(),
            writers: style.writers,
            told: Arc::default(),
            tasks: JoinSet::new(),
            notes: Vec::new(),
        }
    }

    pub(crate) async fn create_queues(&self, server: &Server) {
        let client = server.queue_client();
        for queue in QUEUES {
            client.create_queue(queue, &[]).await.expect("created");
        }
    }

    /// Starts all clients, with all operations.
    pub(crate) fn begin(&mut self, account: &QueueAccount, ending: Ending) {
        self.begin_writers(account, Mix::Everything, ending);
        let until = self.until(ending);
        let catalogue = self.catalogue.clone().run(account.clone(), until);
        self.tasks.spawn(async {
            catalogue.await;
            Vec::new()
        });
    }

    /// Starts only writers.
    pub(crate) fn begin_writers(&mut self, account: &QueueAccount, mix: Mix, ending: Ending) {
        self.told = Arc::default();
        for number in 0..self.writers {
            let random = Random::new(self.random.next() ^ number);
            let (account, ledger) = (account.clone(), self.ledger.clone());
            let until = self.until(ending);
            self.tasks
                .spawn(writer::run(account, ledger, random, mix, until));
        }
    }

    fn until(&self, ending: Ending) -> Until {
        Until {
            ending,
            told: self.told.clone(),
        }
    }

    /// Waits until `count` more operations are answered: at least ten a second.
    pub(crate) async fn acknowledged(&self, count: u64) {
        let enough = self.ledger.acknowledged_count() + count;
        let begun = Instant::now();
        let all = PATIENCE + Duration::from_millis(100) * u32::try_from(count).unwrap_or(u32::MAX);
        while self.ledger.acknowledged_count() < enough {
            assert!(begun.elapsed() < all, "the writers are too slow");
            self.acknowledged_within(1, PATIENCE).await;
        }
    }

    /// Waits until `count` more operations are answered, for at most `patience`.
    pub(crate) async fn acknowledged_within(&self, count: u64, patience: Duration) {
        let enough = self.ledger.acknowledged_count() + count;
        let begun = Instant::now();
        while self.ledger.acknowledged_count() < enough {
            assert!(begun.elapsed() < patience, "the writers stand still");
            // Each client keeps its receiver of the stop signal.
            assert!(
                Arc::strong_count(&self.told) > 1,
                "the writers have given up"
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Tells the clients to stop, and waits until they have.
    pub(crate) async fn end(&mut self) {
        self.told.store(true, Relaxed);
        self.ended(PATIENCE).await;
    }

    /// Waits until the clients have stopped.
    pub(crate) async fn ended(&mut self, patience: Duration) {
        let all = async {
            while let Some(ended) = self.tasks.join_next().await {
                self.notes.extend(ended.expect("no panic"));
            }
        };
        tokio::time::timeout(patience, all)
            .await
            .expect("the clients stop");
    }

    /// Waits for the clients of a server that has ended: unanswered operations now have an outcome,
    /// known or not.
    pub(crate) async fn server_is_gone(&mut self) {
        self.end().await;
        for note in self.notes.drain(..) {
            note(&self.ledger);
        }
        self.ledger.assert_sound();
    }

    /// The full check of a server without other clients.
    pub(crate) async fn check(&mut self, server: &Server) {
        check::everything(server, &self.ledger, &mut self.random).await;
        self.catalogue.check(&server.queue_client()).await;
    }

    /// The full check again, and every message is deleted.
    pub(crate) async fn empty_at_last(&self, server: &Server) {
        check::empty_at_last(server, &self.ledger).await;
    }

    /// Ends a test whose server can be stopped cleanly: a restart, the full check, and deleting
    /// every message.
    pub(crate) async fn finish(&mut self, server: Server, again: impl FnOnce() -> Server) {
        self.end().await;
        stop_in_order(server).await;
        self.server_is_gone().await;
        let server = again();
        self.check(&server).await;
        self.empty_at_last(&server).await;
        stop_in_order(server).await;
        self.show_report();
    }

    /// Prints a summary of the clients' operations.
    pub(crate) fn show_report(&self) {
        show(&self.ledger.report());
        show(&self.catalogue.report());
    }
}

/// Asks a server to stop, on a thread that may block; it must stop without an error.
pub(crate) async fn stop_in_order(server: Server) {
    let ended = tokio::task::spawn_blocking(|| server.terminate()).await;
    ended.expect("it ends well");
}

/// Runs a test with the threads that the clients need.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(test)
}

/// The seed of a run: `KEW_SEED` repeats its choices, not its timing.
pub(crate) fn seed() -> u64 {
    let time = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let seed = from_environment("KEW_SEED").unwrap_or(u64::from(time.subsec_nanos()));
    show(&format!("KEW_SEED={seed}"));
    seed
}

/// A number from the environment.
pub(crate) fn from_environment(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
}
