//! What is reserved to drain a full disk bounds what leases add to pages, wherever they lie.

use super::*;

/// The most messages that a run has here.
const RUN: u64 = 1024;

impl Queue {
    /// What the pages of the newest snapshot take, with the heads that the log gives them.
    fn pages_bytes(&self) -> u64 {
        let pages = self.store.pages.iter();
        let sizes = pages.map(|(_, page)| 64 + page.groups.iter().map(Vec::len).sum::<usize>());
        sizes.sum::<usize>() as u64
    }

    /// Leases these messages, so that hardly two neighbours have the same lease.
    fn lease_each(&mut self, numbers: &[u64]) {
        let number_of = |number: u64, below: u64| u32::try_from(number * 7919 % below).unwrap();
        self.effects(numbers.iter().map(|number| Effect::Leased {
            at: place(*number),
            lease: Lease {
                generation: LeaseGeneration::new(1 + number_of(*number, 300)),
                deliveries: 1 + number_of(*number, 200),
                standing: Standing {
                    state: MessageState::Locked { deferred: false },
                    until: Timestamp::from_ms(90_000 + 997 * number),
                },
            },
            body: None,
            was: Was::default(),
        }));
    }
}

/// How the messages lie before they are leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lies {
    InMemory,
    /// They are read back.
    Read,
    /// Only their patches are in memory.
    OnPages,
}

#[test]
fn leases_take_no_more_than_was_said_before() {
    for at in [Lies::InMemory, Lies::Read, Lies::OnPages] {
        for of_each_run in [40, 64, 65, 70, 100, 300, RUN] {
            for leased_of_each in [1, 60, 65, RUN] {
                let mut queue = Queue::new();
                queue.create(ENTITY, "queue");
                queue.put(1..4 * RUN);
                let is_left = |number: &u64| number % RUN * of_each_run % RUN < of_each_run;
                queue.delete((1..4 * RUN).filter(|number| !is_left(number)));
                queue.snapshot();
                let left: Vec<u64> = (1..4 * RUN).filter(is_left).collect();
                match at {
                    Lies::InMemory => {}
                    Lies::Read => {
                        queue.evict();
                        queue.read(left.iter().copied());
                    }
                    Lies::OnPages => queue.state = queue.store.restarted(0).0,
                }
                let before = queue.pages_bytes();
                let size = queue.state.size(at != Lies::InMemory);
                let runs = left.chunk_by(|one, other| one / RUN == other / RUN);
                let leased = usize::try_from(leased_of_each).unwrap();
                let leased = runs.flat_map(|run| run.iter().take(leased));
                let leased: Vec<u64> = leased.copied().collect();
                queue.lease_each(&leased);
                queue.snapshot();
                let (took, may_take) = (queue.pages_bytes(), before + size.consumed_bytes_max);
                let story = format!("{at:?}, {leased_of_each} of {of_each_run}");
                assert!(took <= may_take, "{story}: {took}, and not {may_take}");
                assert!(took <= size.pages_bytes_max, "{story}: {took} of all");
            }
        }
    }
}
