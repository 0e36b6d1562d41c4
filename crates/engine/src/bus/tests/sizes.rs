//! What is reserved to drain a full disk bounds the pages of what becomes of the messages.

use super::*;
use crate::snapshot::StateSize;

const MANY: usize = 2000;

/// A dead letter that is forwarded gets this name.
fn long() -> EntityName {
    entity(&"n".repeat(200))
}

/// What its pages take, with the heads that the log gives them, if none of them is there already.
fn pages_bytes(state: &State) -> u64 {
    let planned = state.share().plan_pages();
    let pages = (0..planned.page_count()).map(|index| {
        let page = planned.encode(index).unwrap();
        64 + page.groups.iter().map(Vec::len).sum::<usize>()
    });
    pages.sum::<usize>() as u64
}

/// Queues of usual runs, whose messages differ in length and in the end of their time to live.
fn filled(options: BusQueueOptions, run_length: RunLength) -> Partition {
    let mut p = Partition {
        state: State::new(),
        now: Timestamp::from_ms(1_000_000),
        log: Log::default(),
        cold: None,
        copies_at_once: u64::MAX,
    };
    let initialize = Command::Initialize {
        secret: [42; 16],
        run_length,
    };
    p.decide(initialize, USUAL).unwrap();
    p.create(&entity("elsewhere"), BusQueueOptions::default())
        .unwrap();
    p.create(&long(), options).unwrap();
    for first in (0..MANY).step_by(100) {
        let message = |number: usize| BusMessage {
            time_to_live_ms: Some(100_000 + (number as u64 * 7919) % 9973),
            ..text(&"x".repeat(number % 17))
        };
        let messages = (first..first + 100).map(message).collect();
        let queue = long();
        p.ask(BusCommand::Send { queue, messages }).unwrap();
        p.pass_ms(37);
    }
    p
}

/// Checks that the pages take no more than was said before, by either bound.
fn check(p: &Partition, before: (StateSize, u64), story: &str) {
    let (size, pages_before) = before;
    let pages_bytes = pages_bytes(&p.state);
    let by_pages = pages_before + size.consumed_bytes_max;
    let by_counts = size.pages_bytes_max + size.new_bytes_max;
    assert!(
        pages_bytes <= by_pages,
        "{story}: {pages_bytes}, {by_pages}"
    );
    assert!(
        pages_bytes <= by_counts,
        "{story}: {pages_bytes}, {by_counts}"
    );
    assert_eq!(p.state.counts().1, MANY as u64, "{story}");
}

fn receive_all(p: &mut Partition) -> Vec<Token> {
    let mut all = Vec::new();
    loop {
        let messages = p.receive_from(&long(), None);
        if messages.is_empty() {
            return all;
        }
        all.extend(locks(&messages));
        p.pass_ms(3);
    }
}

fn settle_all(p: &mut Partition, disposition: &Disposition) {
    for lock in receive_all(p) {
        p.settle_in(&long(), lock, disposition.clone());
    }
}

#[test]
fn what_becomes_of_messages_on_a_full_disk_is_bounded_before() {
    let plain = BusQueueOptions::default();
    let forwards = BusQueueOptions {
        dead_letters_expired: true,
        forward_dead_letters_to: Some("elsewhere".into()),
        ..plain.clone()
    };
    let dead_letters = BusQueueOptions {
        forward_dead_letters_to: None,
        ..forwards.clone()
    };
    for run_length in [RunLength::DEFAULT, RunLength::TINY] {
        for options in [&plain, &forwards, &dead_letters] {
            let mut p = filled(options.clone(), run_length);
            let before = (p.state.size(false), pages_bytes(&p.state));
            receive_all(&mut p);
            check(&p, before, "locked");
            p.pass_ms(61_000);
            p.tick();
            check(&p, before, "unlocked");
            let again = Disposition::Abandon { overlay: None };
            settle_all(&mut p, &again);
            check(&p, before, "abandoned");
            if options.dead_letters_expired {
                p.pass_ms(200_000);
                p.tick();
                check(&p, before, "expired, and forwarded");
            }
        }
    }
}
