use kew_engine::bus::{BusCommand, ReceiveMode};
use kew_engine::storage::{Metadata, StorageCommand};
use kew_engine::{BodyLocation, Group};

use super::*;

fn queue(name: &str) -> EntityName {
    EntityName::storage_queue("acct", name)
}

fn read(name: &str) -> Command {
    Command::Storage(StorageCommand::ReadQueue { queue: queue(name) })
}

fn write(name: &str) -> Command {
    let (queue, metadata) = (queue(name), Metadata::default());
    Command::Storage(StorageCommand::CreateQueue { queue, metadata })
}

fn about_all() -> Command {
    Command::RemoveAccount {
        account: "acct".into(),
        with_queues: true,
    }
}

/// What a command misses: bodies, and records unless it takes messages.
fn missing_of(command: &Command) -> Missing {
    let mut missing = Missing::default();
    missing.bodies.insert(BodyLocation::default());
    if !command.describe().needs_bodies {
        missing.add(Group::default(), 1);
    }
    missing
}

/// Commands under their numbers. They wait for a read, or for nothing but others.
#[derive(Default)]
struct Waiting {
    lanes: Lanes<u32>,
    /// By ticket.
    ids: HashMap<u32, u64>,
}

impl Waiting {
    fn enter(&mut self, source: u64, ticket: u32, command: Command, misses: bool) {
        let missing = match misses {
            true => missing_of(&command),
            false => Missing::default(),
        };
        let source = Source::numbered(source);
        let candidate = Candidate::new(ticket, command);
        let id = self.lanes.wait(candidate, source, &missing);
        self.ids.insert(ticket, id);
    }

    fn is_held_back(&self, source: u64, command: Command) -> bool {
        let source = Source::numbered(source);
        self.lanes.hold_back(source, &Candidate::new(0, command))
    }

    fn there(&mut self, ticket: u32) {
        self.lanes.note_records(self.ids[&ticket]);
        self.lanes.note_bodies(self.ids[&ticket]);
    }

    /// Decides what can be decided, and returns the tickets.
    fn decide(&mut self) -> Vec<u32> {
        let mut decided = Vec::new();
        while let Some(mut candidate) = self.lanes.take_front() {
            self.lanes.leave(&mut candidate);
            decided.push(candidate.ticket);
        }
        decided
    }
}

#[test]
fn writers_of_a_queue_go_in_order_and_other_queues_do_not_wait() {
    let mut w = Waiting::default();
    w.enter(1, 1, write("a"), true);
    w.enter(2, 2, write("a"), false);
    w.enter(3, 3, write("b"), true);
    assert_eq!(w.decide(), []);
    assert!(w.is_held_back(4, write("a")));
    assert!(!w.is_held_back(4, read("a")));
    assert!(!w.is_held_back(4, write("c")));
    w.there(3);
    assert_eq!(w.decide(), [3]);
    w.there(1);
    assert_eq!(w.decide(), [1, 2]);
    assert!(w.lanes.is_empty());
}

#[test]
fn a_source_keeps_its_order_within_a_queue() {
    let mut w = Waiting::default();
    w.enter(1, 1, read("a"), true);
    assert!(w.is_held_back(1, read("a")));
    assert!(!w.is_held_back(1, read("b")));
    assert!(!w.is_held_back(2, write("a")));
    w.enter(1, 2, write("a"), false);
    // There is a writer that waits, but not for itself.
    assert!(!w.is_held_back(2, write("a")));
    assert!(w.is_held_back(1, write("a")));
    assert_eq!(w.decide(), []);
    w.there(1);
    assert_eq!(w.decide(), [1, 2]);
}

#[test]
fn a_command_about_all_waits_for_those_before_it_and_writers_wait_for_it() {
    let mut w = Waiting::default();
    w.enter(1, 1, read("a"), true);
    assert!(w.is_held_back(2, about_all()));
    w.enter(2, 2, about_all(), false);
    assert!(w.is_held_back(3, write("b")));
    assert!(!w.is_held_back(3, read("b")));
    w.enter(3, 3, write("b"), false);
    w.enter(3, 4, write("b"), true);
    assert_eq!(w.decide(), []);
    w.there(1);
    assert_eq!(w.decide(), [1, 2, 3]);
    w.there(4);
    assert_eq!(w.decide(), [4]);
    assert!(w.lanes.is_empty());
}

/// One that was tried and waits again keeps its place.
#[test]
fn a_command_that_waits_again_keeps_its_place() {
    let mut w = Waiting::default();
    w.enter(1, 1, write("a"), true);
    w.enter(2, 2, about_all(), false);
    w.enter(3, 3, write("a"), false);
    w.there(1);
    let first = w.lanes.take_front().unwrap();
    assert_eq!(first.ticket, 1);
    let missing = missing_of(&first.command);
    w.lanes.wait(first, Source::numbered(1), &missing);
    assert_eq!(w.decide(), []);
    w.there(1);
    assert_eq!(w.decide(), [1, 2, 3]);
}

#[test]
fn nothing_passes_a_reader_that_was_tried_too_often() {
    let mut w = Waiting::default();
    w.enter(1, 1, read("a"), true);
    for _ in 0..TRIES_MAX {
        assert!(!w.is_held_back(2, write("a")));
        assert!(w.lanes.late_queues().is_empty());
        w.there(1);
        let again = w.lanes.take_front().unwrap();
        let missing = missing_of(&again.command);
        w.lanes.wait(again, Source::numbered(1), &missing);
    }
    assert!(w.is_held_back(2, write("a")));
    assert!(w.lanes.late_queues().contains(&queue("a")));
    w.there(1);
    assert_eq!(w.decide(), [1]);
    assert!(w.lanes.late_queues().is_empty());
    assert!(w.lanes.is_empty());
}

/// A reader of no numbered source has no lanes. What it reads is kept all the same, and nothing passes it in the end.
#[test]
fn a_reader_without_lanes_has_its_queues() {
    let mut w = Waiting::default();
    w.enter(0, 1, read("a/$deadletterqueue"), true);
    assert!(w.lanes.is_pinned(Group::default().run()));
    for _ in 0..TRIES_MAX {
        w.there(1);
        let again = w.lanes.take_front().unwrap();
        let missing = missing_of(&again.command);
        w.lanes.wait(again, Source::ALONE, &missing);
    }
    assert!(w.is_held_back(2, write("a")));
    w.there(1);
    assert_eq!(w.decide(), [1]);
    assert!(!w.lanes.is_pinned(Group::default().run()));
}

/// Thousands that wait behind one read cost one look each when they come, and one when they go.
#[test]
fn many_that_wait_behind_one_are_not_looked_at_for_each_that_comes() {
    let mut w = Waiting::default();
    w.enter(1, 0, write("a"), true);
    for ticket in 1..20_000 {
        w.enter(1, ticket, write("a"), false);
    }
    assert!(!w.lanes.has_ready());
    w.there(0);
    assert_eq!(w.decide().len(), 20_000);
    assert!(w.lanes.looks <= 2 * 20_000 + 1, "{} looks", w.lanes.looks);
}

fn of_bus(name: &str) -> EntityName {
    EntityName {
        service: kew_engine::Service::ServiceBus,
        account: "ns".into(),
        name: name.into(),
    }
}

fn receive(name: &str, mode: ReceiveMode) -> Command {
    Command::Bus(BusCommand::Receive {
        queue: of_bus(name),
        count: 1,
        mode,
        session: None,
    })
}

fn take(name: &str) -> Command {
    receive(name, ReceiveMode::ReceiveAndDelete)
}

fn settle(name: &str) -> Command {
    Command::Bus(BusCommand::Settle {
        queue: of_bus(name),
        settlements: Vec::new(),
    })
}

/// One that waits for bodies alone holds back those that take from the same queue, and its own source.
#[test]
fn a_receiver_that_waits_for_bodies_holds_back_receivers_alone() {
    let mut w = Waiting::default();
    w.enter(1, 1, take("a"), true);
    assert!(w.is_held_back(2, take("a")));
    assert!(w.is_held_back(2, take("a/$deadletterqueue")));
    assert!(w.is_held_back(2, receive("a", ReceiveMode::PeekLock)));
    assert!(w.is_held_back(1, settle("a")));
    assert!(!w.is_held_back(2, settle("a")));
    assert!(!w.is_held_back(2, take("b")));
    // A receiver that waits behind it holds back no more than that.
    w.enter(2, 2, receive("a", ReceiveMode::PeekLock), false);
    assert!(!w.is_held_back(3, settle("a")));
    assert!(w.is_held_back(2, settle("a")));
    w.there(1);
    assert_eq!(w.decide(), [1, 2]);
    assert!(w.lanes.is_empty());
}

/// Records decide what a command may take, so nothing of its queue changes while it waits for them.
#[test]
fn a_receiver_that_misses_records_too_holds_writers_back() {
    let mut w = Waiting::default();
    w.enter(1, 1, take("a"), true);
    w.enter(1, 2, settle("b"), false);
    w.there(1);
    let first = w.lanes.take_front().unwrap();
    let mut missing = Missing::default();
    missing.add(Group::default(), 1);
    w.lanes.wait(first, Source::numbered(1), &missing);
    assert!(w.is_held_back(2, settle("a")));
    w.enter(2, 3, settle("a"), false);
    assert_eq!(w.decide(), [2]);
    w.lanes.note_records(w.ids[&1]);
    // Its records are there. It misses bodies again, and writers go on.
    let first = w.lanes.take_front().unwrap();
    let mut missing = Missing::default();
    missing.bodies.insert(BodyLocation::default());
    w.lanes.wait(first, Source::numbered(1), &missing);
    assert!(!w.is_held_back(2, settle("b")));
    assert_eq!(w.decide(), [3]);
    w.there(1);
    assert_eq!(w.decide(), [1]);
    assert!(w.lanes.is_empty());
}

/// A writer that waits for its own source alone comes behind a receiver that finds only now that it misses records.
#[test]
fn a_receiver_that_begins_to_miss_records_holds_back_those_that_waited_aside() {
    let mut w = Waiting::default();
    w.enter(1, 1, take("a"), true);
    w.enter(2, 2, receive("a", ReceiveMode::PeekLock), false);
    // Behind the first of its own source.
    w.enter(1, 3, settle("a"), false);
    assert!(!w.is_held_back(3, settle("a")));
    w.there(1);
    let mut first = w.lanes.take_front().unwrap();
    w.lanes.leave(&mut first);
    let second = w.lanes.take_front().unwrap();
    assert_eq!(second.ticket, 2);
    let mut missing = Missing::default();
    missing.add(Group::default(), 1);
    w.lanes.wait(second, Source::numbered(2), &missing);
    assert_eq!(w.decide(), []);
    assert!(w.is_held_back(3, settle("a")));
    w.there(2);
    assert_eq!(w.decide(), [2, 3]);
    assert!(w.lanes.is_empty());
}

/// A receiver that came behind a writer stays behind it.
#[test]
fn a_receiver_waits_behind_writers_that_came_first() {
    let mut w = Waiting::default();
    w.enter(1, 1, settle("a"), true);
    assert!(w.is_held_back(2, take("a")));
    w.enter(2, 2, take("a"), false);
    w.enter(3, 3, settle("a"), false);
    assert_eq!(w.decide(), []);
    w.there(1);
    assert_eq!(w.decide(), [1, 2, 3]);
    assert!(w.lanes.is_empty());
}
