//! The kill loop: a customer submits, programs die, and afterwards every transaction is charged exactly once.
//!
//! `KEW_BILLING_TRANSACTIONS` and `KEW_BILLING_KILLS` make it larger, and `KEW_SEED` repeats a run's choices.

use std::time::{Duration, Instant};

use kew_billing::archive::{Archive, Lines};
use kew_billing::check::{Findings, check};
use kew_billing::journal::{Entry, Journal};
use kew_billing::place::{Place, QUEUES};
use tokio::time::{sleep, timeout};

use crate::fleet::{Fleet, VICTIMS, WORKERS_MAX};

const TRANSACTIONS: u64 = 6_000;
const KILLS: u64 = 15;

/// Work items of a package.
const PARTS: u64 = 20;

/// Customers that die before one submits everything.
const CUSTOMERS_DIE: u64 = 3;

/// Messages that the program that dies has under way at most: a package becomes so many items.
const UNDER_WAY: u64 = 2 * PARTS;

/// How long a kill waits for work under way.
const WORK_WITHIN: Duration = Duration::from_secs(10);

/// How long the rest may take after the last kill, for each 100,000 transactions begun; and how long a kill may take.
const PATIENCE: Duration = Duration::from_secs(180);

fn from_environment(name: &str, default: u64) -> u64 {
    let Ok(value) = std::env::var(name) else {
        return default;
    };
    let read = value.parse();
    read.unwrap_or_else(|_| panic!("{name} is not a number: {value}"))
}

/// Prints a line of the report, which is shown if the test fails or with --show-output.
#[expect(
    clippy::print_stdout,
    reason = "a test reports where its harness captures it"
)]
fn show(text: &str) {
    println!("{text}");
}

/// Choices that a seed repeats.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

async fn findings(place: &Place) -> Findings {
    let archive = place.archive::<Lines>().await.unwrap();
    let submitted = Journal::of(&place.data).read().unwrap();
    check(&archive, &submitted).await.unwrap()
}

/// A customer that submits so many transactions.
fn customer(fleet: &Fleet, transactions: u64) -> tokio::process::Command {
    let package_size = (transactions / 12).clamp(PARTS, 10_000);
    let part_size = package_size.div_ceil(PARTS).to_string();
    let package_size = package_size.to_string();
    let count = transactions.to_string();
    fleet.customer(&[
        "submit",
        "--transactions",
        &count,
        "--package-size",
        &package_size,
        "--part-size",
        &part_size,
    ])
}

async fn submit(fleet: &Fleet, transactions: u64) {
    let status = customer(fleet, transactions).status().await.unwrap();
    assert!(status.success(), "{status}");
}

/// A customer dies after it has noted a package, and before it has noted that the queue has it.
async fn customer_dies(fleet: &Fleet, transactions: u64) {
    let data = fleet.place().data;
    let mut dying = customer(fleet, transactions).spawn().unwrap();
    let begun = async {
        let is_open = |it: &Entry| it.submitted_ms.is_none();
        // A package that an earlier customer left open is sent first, and is no sign of this one.
        let before = Journal::of(&data).read().unwrap().len();
        loop {
            let entries = Journal::of(&data).read().unwrap();
            if entries.len() > before && entries.values().any(is_open) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, begun).await.expect("a package begins");
    dying.start_kill().unwrap();
    let status = dying.wait().await.unwrap();
    assert_eq!(status.code(), None, "the customer died in its work");
}

/// How many parts are in files.
async fn parts(archive: &Archive<Lines>) -> u64 {
    let complete = archive.packages().await.unwrap().len();
    let waiting = archive.waiting_parts().await.unwrap();
    u64::try_from(complete).unwrap() * PARTS + u64::try_from(waiting).unwrap()
}

/// Waits until so many more parts are in files, of all that were submitted, so that a kill hits work.
async fn more_parts(archive: &Archive<Lines>, count: u64, all: u64) {
    let goal = (parts(archive).await + count).min(all);
    let more = async {
        while parts(archive).await < goal {
            sleep(Duration::from_millis(10)).await;
        }
    };
    // The programs that died may not be back yet.
    let _ = timeout(WORK_WITHIN, more).await;
}

async fn queues_get_empty(place: &Place) {
    let empty = async {
        for queue in QUEUES {
            while place
                .queues
                .queue_properties(queue)
                .await
                .map_or(1, |it| it.approximate_message_count)
                > 0
            {
                sleep(Duration::from_millis(100)).await;
            }
            let poison = format!("{queue}-poison");
            let poison = place.queues.queue_properties(&poison).await.unwrap_err();
            assert_eq!(poison.code(), Some("QueueNotFound"), "{queue}");
        }
    };
    timeout(PATIENCE, empty)
        .await
        .expect("the queues get empty");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_transaction_is_charged_once_despite_kills() {
    let transactions = from_environment("KEW_BILLING_TRANSACTIONS", TRANSACTIONS);
    let kills = from_environment("KEW_BILLING_KILLS", KILLS);
    let seed = from_environment("KEW_SEED", u64::from(kew_billing::program::chance()));
    show(&format!("billing: KEW_SEED={seed}"));
    let mut chance = Chance(seed);
    let folder = tempfile::tempdir().unwrap();
    let mut fleet = Fleet::start(folder.path()).await;
    let place = fleet.place();
    for _ in 0..CUSTOMERS_DIE {
        customer_dies(&fleet, transactions).await;
    }
    submit(&fleet, transactions).await;
    let archive = place.archive::<Lines>().await.unwrap();
    let submitted = || Journal::of(&place.data).read().unwrap().len();
    let (mut done, began): (Vec<&str>, _) = (Vec::new(), Instant::now());
    let mut last = Instant::now();
    while u64::try_from(done.len()).unwrap() < kills {
        if archive.packages().await.unwrap().len() == submitted() {
            submit(&fleet, transactions / 4).await;
        }
        let all = u64::try_from(submitted()).unwrap() * PARTS;
        more_parts(&archive, 1 + chance.below(8), all).await;
        let workers = fleet.workers().len();
        assert!(workers <= WORKERS_MAX as usize, "{workers} workers run");
        // Each kind as often as the others, and in any order.
        let round = done.len() / VICTIMS.len() * VICTIMS.len();
        let mut left: Vec<&str> = VICTIMS.to_vec();
        left.retain(|it| !done[round..].contains(it));
        let place = usize::try_from(chance.below(u64::try_from(left.len()).unwrap())).unwrap();
        let choice = u32::try_from(chance.below(1_000)).unwrap();
        // The agent starts a worker while there is work. Until then there is none to kill.
        if fleet.kill(left[place], choice).await {
            let (at, parts) = (began.elapsed(), parts(&archive).await);
            show(&format!(
                "killed {} after {at:.1?} and {parts} parts",
                left[place]
            ));
            done.push(left[place]);
            last = Instant::now();
        }
        assert!(
            last.elapsed() < PATIENCE,
            "none of {left:?} could be killed"
        );
    }
    let hundreds = u32::try_from(transactions / 100_000 + 1).unwrap();
    let complete = async {
        while archive.packages().await.unwrap().len() < submitted() {
            sleep(Duration::from_millis(100)).await;
        }
    };
    // The findings say what is missing.
    let _ = timeout(PATIENCE * hundreds, complete).await;
    let found = findings(&place).await;
    let seconds = began.elapsed().as_secs();
    show(&format!("billing_kills={kills} seconds={seconds} {found}"));
    assert!(found.is_good(), "{found:?}");
    assert!(found.transactions >= transactions);
    queues_get_empty(&place).await;
    assert_eq!(archive.waiting_parts().await.unwrap(), 0);
    objects_were_used(&place, kills);
    fleet.stop().await;
}

/// Every queue had messages with objects, and few are left: at most those that a killed program had under way.
fn objects_were_used(place: &Place, kills: u64) {
    for queue in QUEUES {
        // Folders of days stay.
        let days = std::fs::read_dir(place.data.join("claims").join(queue));
        let days = days.unwrap_or_else(|error| panic!("{queue} had no object: {error}"));
        let objects = days.map(|day| std::fs::read_dir(day.unwrap().path()).unwrap().count());
        let left = u64::try_from(objects.sum::<usize>()).unwrap();
        show(&format!("{queue}: {left} objects are left"));
        assert!(
            left <= (kills + CUSTOMERS_DIE) * UNDER_WAY,
            "{queue}: {left}"
        );
    }
}
