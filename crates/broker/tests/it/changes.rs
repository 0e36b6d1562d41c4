//! Queues that forward, and are deleted or get other settings while their messages cannot be read: these go on first.

use std::collections::VecDeque;

use kew_broker::{PartitionOptions, Rejection, Reply, TurnEnd};
use kew_engine::bus::{BusCommand, BusOutcome, BusQueueOptions};
use kew_engine::{Command, EntityName, Outcome, RunLength};
use kew_log::{Fault, FaultyStorage, JobKind, Repeat};

use crate::bus::{create, named, orders, send};
use crate::cold::lose_second_copies;
use crate::partition::Driver;
use crate::passed_over::{damage, on_pages, pages_of_runs, unlimited};
use crate::resident::limited;
use crate::support::moment;

/// Four messages are in a run, and two are read together.
const COUNT: u64 = 12;

fn tiny(options: PartitionOptions) -> PartitionOptions {
    PartitionOptions {
        run_length: RunLength::TINY,
        ..options
    }
}

fn create_named(name: &str) -> Command {
    Command::Bus(BusCommand::CreateQueue {
        queue: named(name),
        options: BusQueueOptions::default(),
    })
}

fn forward_to(destination: &str) -> Command {
    Command::Bus(BusCommand::UpdateQueue {
        queue: orders(),
        options: BusQueueOptions {
            forward_to: Some(destination.into()),
            ..BusQueueOptions::default()
        },
    })
}

fn delete_orders() -> Command {
    let queue = orders();
    Command::Bus(BusCommand::DeleteQueue { queue })
}

/// A queue whose messages are on pages alone, and the queue to which it is going to forward them.
fn filled() -> FaultyStorage {
    let mut driver = Driver::with(FaultyStorage::new(), tiny(unlimited()));
    driver.ask(create()).unwrap();
    for number in 0..COUNT {
        driver.ask(send(format!("{number}"))).unwrap();
    }
    on_pages(driver, create_named("next"))
}

/// The queue forwards, and no tick could read what is to go on.
fn about_to_forward(storage: FaultyStorage, fault: Fault) -> Driver {
    let mut driver = Driver::with(storage, tiny(limited(Some(1000))));
    ask_while_reads_fail(&mut driver, forward_to("next"), fault).unwrap();
    // Its tick comes before the command.
    ask_while_reads_fail(&mut driver, create_named("another"), fault).unwrap();
    assert_eq!(active_in(&mut driver, named("next")), 0);
    driver
}

fn ask_while_reads_fail(driver: &mut Driver, command: Command, fault: Fault) -> Reply {
    let mut commands = VecDeque::from([(0, command)]);
    let mut replies = Vec::new();
    loop {
        let now = moment(driver.now);
        let end = driver.partition.turn(now, &mut commands, &mut replies);
        while let Some(job) = driver.partition.next_job() {
            if job.kind() == JobKind::Load {
                driver.storage.fail_after(0, fault, Repeat::Sticky);
            }
            let outcome = job.run();
            driver.storage.clear_faults();
            driver.partition.complete(outcome, &mut replies).unwrap();
        }
        if end == TurnEnd::Done && driver.partition.waiting().next().is_none() {
            break;
        }
    }
    assert_eq!(replies.len(), 1);
    replies.remove(0).1
}

fn active_in(driver: &mut Driver, queue: EntityName) -> u64 {
    let read = Command::Bus(BusCommand::ReadQueue { queue });
    let Outcome::Bus(BusOutcome::Queue(view)) = driver.ask(read).unwrap().outcome else {
        panic!("it is there");
    };
    view.counts.active
}

fn is_unread(reply: &Reply) -> bool {
    matches!(reply, Err(Rejection::ReadFailed))
}

/// One failed read, and the command succeeds a second later.
#[test]
fn a_change_waits_for_due_work_that_can_be_read_later() {
    let changes = [delete_orders(), forward_to("another")];
    for (change, fault) in changes
        .into_iter()
        .flat_map(|change| [Fault::Eio, Fault::Eacces].map(|fault| (change.clone(), fault)))
    {
        let mut driver = about_to_forward(filled(), fault);
        driver.now = driver.now.plus_ms(1000);
        let reply = ask_while_reads_fail(&mut driver, change.clone(), fault);
        assert!(is_unread(&reply), "{change:?}: {reply:?}");
        let reply = driver.ask(change.clone());
        assert!(is_unread(&reply), "it is not read at once: {reply:?}");
        driver.now = driver.now.plus_ms(1000);
        driver.ask(change).unwrap();
        assert_eq!(active_in(&mut driver, named("next")), COUNT);
        assert_eq!(active_in(&mut driver, named("another")), 0);
    }
}

/// Otherwise nobody could delete a queue on sectors that are bad for ever. Other failures say nothing of what lies there.
#[test]
fn sectors_that_are_bad_three_times_hold_no_change_back() {
    let storage = filled();
    let [runs, _] = pages_of_runs(&storage);
    for page in runs {
        let offset = u64::from(page.place.offset);
        let range = offset..offset + u64::from(page.place.size_bytes);
        for copy in 0..2 {
            let name = format!("pages-{:020}", 2 * u64::from(page.place.pair) + copy);
            storage.spoil(&name, range.clone());
        }
    }
    let mut driver = about_to_forward(storage, Fault::Eio);
    let refused = (0..10).find(|_| {
        driver.now = driver.now.plus_ms(1000);
        !is_unread(&driver.ask(delete_orders()))
    });
    let refused = refused.expect("it can be deleted in the end");
    // Not all groups are asked for at once.
    assert!((2..=5).contains(&refused), "{refused}");
    assert_eq!(active_in(&mut driver, named("next")), 0);
    let mut driver = about_to_forward(filled(), Fault::Eacces);
    for _ in 0..10 {
        driver.now = driver.now.plus_ms(1000);
        let reply = ask_while_reads_fail(&mut driver, delete_orders(), Fault::Eacces);
        assert!(is_unread(&reply), "{reply:?}");
    }
}

/// Only what is lost is deleted with the queue, and what lies behind it.
#[test]
fn what_lies_before_lost_messages_goes_on_before_a_change() {
    // The first number is 1, so the first run has three. What is set aside is before nothing.
    for (sets_aside, gone_on) in [(false, 3), (true, 8)] {
        let storage = filled();
        let [runs, _] = pages_of_runs(&storage);
        assert!(runs.len() >= 3);
        damage(&storage, &runs[1..2], 0..2);
        let mut driver = about_to_forward(storage, Fault::Eacces);
        if !sets_aside {
            lose_second_copies(&driver.storage);
        }
        driver.now = driver.now.plus_ms(1000);
        driver.ask(delete_orders()).unwrap();
        assert_eq!(active_in(&mut driver, named("next")), gone_on);
    }
}
