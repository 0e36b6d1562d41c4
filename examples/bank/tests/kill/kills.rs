//! The kill loop: callers call, programs die, and afterwards every confirmed transaction is booked exactly once.
//!
//! `KEW_BANK_KILLS` sets how many programs each test kills, and `KEW_SEED` repeats a run's choices.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kew_bank::audit::{Confirmed, Findings, audit};
use kew_bank::caller::Order;
use kew_bank::chance::Chance;
use kew_bank::client::Client;
use kew_bank::ledger::Ledger;
use kew_bank::queue::{Queue, Service};
use kew_bank::start::Profile;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::fleet::{Fleet, Victim};
use crate::server::Server;
use crate::skip::skip;

const KILLS_DEFAULT: u64 = 10;

const CALLERS: u64 = 8;

/// How long anything may take that must happen: the next confirmations, or the last bookings.
const PATIENCE: Duration = Duration::from_secs(120);

fn from_environment(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is not a number: {value}")),
    )
}

/// Prints a line of the report, which is shown if the test fails or with --show-output.
#[expect(
    clippy::print_stdout,
    reason = "a test reports where its harness captures it"
)]
fn show(text: &str) {
    println!("{text}");
}

/// Callers that call until they are stopped.
struct Load {
    confirmed: Arc<Mutex<Vec<Confirmed>>>,
    count: watch::Receiver<usize>,
    is_over: Arc<AtomicBool>,
    callers: JoinSet<()>,
}

impl Load {
    fn begin(web: &Client, chance: &mut Chance) -> Self {
        let (told, count) = watch::channel(0);
        let mut load = Self {
            confirmed: Arc::default(),
            count,
            is_over: Arc::default(),
            callers: JoinSet::new(),
        };
        for _ in 0..CALLERS {
            let (confirmed, is_over) = (load.confirmed.clone(), load.is_over.clone());
            let (web, told) = (web.clone(), told.clone());
            let mut chance = Chance::new(chance.number());
            load.callers.spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    let order = Order::any(&mut chance, 20);
                    order.place(&web).await;
                    let mut confirmed = confirmed.lock().unwrap();
                    confirmed.push(order.confirmed);
                    told.send_replace(confirmed.len());
                }
            });
        }
        load
    }

    /// Waits for so many more confirmations.
    async fn more(&mut self, count: u64) {
        let goal = *self.count.borrow() + usize::try_from(count).unwrap();
        let reached = self.count.wait_for(|count| *count >= goal);
        let reached = timeout(PATIENCE, reached).await;
        reached.expect("callers are confirmed in time").unwrap();
    }

    /// Lets all callers end with a confirmation.
    async fn end(mut self) -> Vec<Confirmed> {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = async {
            while let Some(ended) = self.callers.join_next().await {
                ended.unwrap();
            }
        };
        timeout(PATIENCE, ended).await.expect("callers end in time");
        std::mem::take(&mut *self.confirmed.lock().unwrap())
    }
}

async fn kill_loop(name: &str, profile: Profile, postgres: Option<Server>) {
    let kills = from_environment("KEW_BANK_KILLS").unwrap_or(KILLS_DEFAULT);
    let seed =
        from_environment("KEW_SEED").unwrap_or_else(|| Chance::from_system().unwrap().number());
    show(&format!("{name}: KEW_SEED={seed}"));
    let chance = &mut Chance::new(seed);
    let folder = tempfile::tempdir().unwrap();
    let mut fleet = Fleet::start(folder.path(), profile, postgres).await;
    let mut load = Load::begin(&fleet.client(), chance);
    let victims = fleet.victims();
    let mut killed: Vec<Victim> = Vec::new();
    for number in 0..kills {
        // The kill comes among calls and bookings under way, after so many more.
        load.more(5 + chance.below(40)).await;
        // Each kind as often as the others, and in any order.
        let round = usize::try_from(number).unwrap() / victims.len() * victims.len();
        let left: Vec<Victim> = victims
            .iter()
            .copied()
            .filter(|victim| !killed[round..].contains(victim))
            .collect();
        let place = usize::try_from(chance.below(left.len() as u64)).unwrap();
        fleet.kill(left[place], chance).await;
        killed.push(left[place]);
    }
    load.more(20).await;
    let confirmed = load.end().await;
    let findings = booked(&fleet, &confirmed).await;
    show(&format!("{name}: bank_kills={kills} {findings}"));
    assert!(findings.is_good(), "{findings:?}");
    // All callers went on until they were confirmed, so there is nothing else.
    assert_eq!(findings.stored, findings.confirmed);
    nothing_is_left(&fleet).await;
    fleet.stop().await;
}

/// Waits until all are booked, and returns what was found then.
async fn booked(fleet: &Fleet, confirmed: &[Confirmed]) -> Findings {
    let ledger = Ledger::open(fleet.store()).await.unwrap();
    let mut findings = audit(&ledger, confirmed).await.unwrap();
    let complete = async {
        while !findings.is_complete() {
            sleep(Duration::from_millis(100)).await;
            findings = audit(&ledger, confirmed).await.unwrap();
        }
    };
    // The caller judges what is not complete.
    let _ = timeout(PATIENCE, complete).await;
    findings
}

/// Redelivered messages of booked transactions are deleted too, and none has moved aside.
async fn nothing_is_left(fleet: &Fleet) {
    let connection_string = fleet.connection_string();
    let queue = Queue::connect(connection_string, "bank-transactions", PATIENCE).unwrap();
    let empty = async {
        while queue.depth().await.unwrap() != Some(0) {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, empty)
        .await
        .expect("the queue gets empty");
    match queue.service() {
        Service::Storage(client) => {
            let poison = client.queue_properties("bank-transactions-poison").await;
            assert_eq!(poison.unwrap_err().code(), Some("QueueNotFound"));
        }
        Service::Bus { admin, .. } => {
            let state = admin.queue(queue.name()).await.unwrap().state;
            assert_eq!(state.dead_letter_count, Some(0));
        }
    }
}

#[tokio::test]
async fn every_confirmed_transaction_is_booked_once_despite_kills() {
    kill_loop("Queue Storage, SQLite", Profile::Storage, None).await;
}

#[tokio::test]
async fn on_postgresql_too() {
    match Server::start().await {
        Some(server) => {
            let name = "Service Bus, PostgreSQL";
            kill_loop(name, Profile::Bus, Some(server)).await;
        }
        None => skip(
            "the kill loop of the bank on PostgreSQL",
            "there is no PostgreSQL",
            "install postgresql",
        ),
    }
}
