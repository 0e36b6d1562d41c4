//! The receivers that wait for one thing, in the order in which they began, and the members that may wait
//! soon.
//!
//! The list knows no lock, no thread and no time, so that a test can compare it with a model.

use std::collections::BTreeMap;

/// A list of waiting members. Each operation takes time logarithmic in the number of waiting members.
#[derive(Debug)]
pub(super) struct WaitList<W> {
    waiting: BTreeMap<u64, W>,
    next_ticket: u64,
    /// How many members there are, waiting or not.
    members: usize,
    /// A wake-up came while no member waited: the next member that wants to wait looks first.
    is_owed: bool,
    /// How often all members were woken.
    rounds: u64,
}

impl<W> Default for WaitList<W> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            next_ticket: 0,
            members: 0,
            is_owed: false,
            rounds: 0,
        }
    }
}

impl<W> WaitList<W> {
    /// Adds a member. Returns how often all members were woken before.
    pub(super) fn join(&mut self) -> u64 {
        self.members += 1;
        self.rounds
    }

    /// Removes a member that does not wait. Returns whether any member is left.
    pub(super) fn leave(&mut self) -> bool {
        self.members -= 1;
        self.members > 0
    }

    /// Waits, unless something has come since `rounds` or a wake-up is owed. In that case it returns `None`,
    /// and the member looks at once.
    pub(super) fn wait(&mut self, rounds: &mut u64, waiter: W) -> Option<u64> {
        let is_behind = std::mem::replace(rounds, self.rounds) != self.rounds;
        if is_behind || std::mem::take(&mut self.is_owed) {
            return None;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.insert(ticket, waiter);
        Some(ticket)
    }

    /// Stops waiting. Returns whether the member was still waiting, which means that it was not woken.
    pub(super) fn stop_waiting(&mut self, ticket: u64) -> bool {
        self.waiting.remove(&ticket).is_some()
    }

    pub(super) fn is_any_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes the member that has waited longest off the list, to be woken. If none waits, the next member
    /// that wants to wait looks first.
    pub(super) fn wake_one(&mut self) -> Option<W> {
        let first = self.waiting.pop_first();
        self.is_owed |= first.is_none();
        first.map(|(_, waiter)| waiter)
    }

    /// How often all members were woken. A member that is woken later need not look again for these rounds.
    pub(super) fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Takes all waiting members off the list, to be woken. The other members look before they wait.
    pub(super) fn wake_all(&mut self) -> impl Iterator<Item = W> + use<W> {
        self.rounds += 1;
        std::mem::take(&mut self.waiting).into_values()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The next step of a member of the model.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Next {
        Look,
        Wait,
        /// It waits under this ticket.
        Sleep(u64),
    }

    #[derive(Debug)]
    struct Member {
        rounds: u64,
        next: Next,
        /// Woken, and it has not looked since.
        is_told: bool,
    }

    /// A queue, its receivers, and the rules that receivers and partitions keep to.
    #[derive(Default)]
    struct World {
        list: WaitList<usize>,
        members: Vec<Option<Member>>,
        messages: usize,
        looks: usize,
        /// Causes of looks: a member joins, a message comes or is left, a wake-up is passed on.
        causes: usize,
    }

    impl World {
        fn wake_one(&mut self) {
            self.causes += 1;
            if self.list.members == 0 {
                return;
            }
            if let Some(index) = self.list.wake_one() {
                self.tell(index);
            }
        }

        fn tell(&mut self, index: usize) {
            let member = self.members[index].as_mut().unwrap();
            member.next = Next::Look;
            member.rounds = self.list.rounds();
            member.is_told = true;
        }

        fn join(&mut self) {
            self.causes += 1;
            let rounds = self.list.join();
            self.members.push(Some(Member {
                rounds,
                next: Next::Look,
                is_told: false,
            }));
        }

        /// Lets a member do what comes next; a look takes `takes` messages at most.
        fn step(&mut self, index: usize, takes: usize) {
            let Some(member) = &mut self.members[index] else {
                return;
            };
            match member.next {
                Next::Look => {
                    member.is_told = false;
                    self.looks += 1;
                    let taken = takes.min(self.messages);
                    self.messages -= taken;
                    if taken > 0 && self.messages > 0 {
                        self.wake_one();
                    }
                    match taken {
                        0 => self.members[index].as_mut().unwrap().next = Next::Wait,
                        _ => self.leave(index),
                    }
                }
                Next::Wait => match self.list.wait(&mut member.rounds, index) {
                    Some(ticket) => member.next = Next::Sleep(ticket),
                    None => {
                        member.next = Next::Look;
                        member.is_told = true;
                    }
                },
                Next::Sleep(_) => {}
            }
        }

        fn leave(&mut self, index: usize) {
            let Some(member) = self.members[index].take() else {
                return;
            };
            if let Next::Sleep(ticket) = member.next {
                assert!(self.list.stop_waiting(ticket));
            }
            if self.list.leave() && member.is_told {
                self.wake_one();
            }
        }

        fn wake_all(&mut self) {
            self.causes += self.list.members;
            let woken: Vec<_> = self.list.wake_all().collect();
            for index in woken {
                self.tell(index);
            }
        }

        /// Lets all members go on until they sleep or have left.
        fn settle(&mut self) {
            while let Some(index) = (0..self.members.len()).find(|index| {
                let member = self.members[*index].as_ref();
                member.is_some_and(|it| !matches!(it.next, Next::Sleep(_)))
            }) {
                self.step(index, 1);
            }
        }
    }

    proptest! {
        #[test]
        fn no_receiver_sleeps_beside_a_message_or_looks_without_a_cause(
            steps in proptest::collection::vec((0_u8..12, 0_usize..8, 1_usize..4), 1..300),
        ) {
            let mut world = World::default();
            for (kind, which, count) in steps {
                let index = which.min(world.members.len().saturating_sub(1));
                match kind {
                    0 => world.join(),
                    1 | 2 => {
                        world.messages += count;
                        (0..count).for_each(|_| world.wake_one());
                    }
                    _ if world.members.is_empty() => {}
                    3 => world.leave(index),
                    4 => world.wake_all(),
                    5 => world.settle(),
                    _ => {
                        // Any member that has not left.
                        let there: Vec<_> = (0..world.members.len())
                            .filter(|index| world.members[*index].is_some())
                            .collect();
                        if !there.is_empty() {
                            world.step(there[which % there.len()], count);
                        }
                    }
                }
                prop_assert!(world.looks <= world.causes);
            }
            world.settle();
            let sleepers = world.members.iter().flatten().count();
            prop_assert!(world.messages == 0 || sleepers == 0);
            prop_assert!(world.looks <= world.causes);
        }
    }

    #[test]
    fn a_thousand_receivers_that_do_not_wait_are_notified_once() {
        let mut list = WaitList::default();
        let mut rounds: Vec<u64> = (0..1000).map(|_| list.join()).collect();
        for _ in 0..5000 {
            assert_eq!(list.wake_one(), None);
        }
        let looks = rounds
            .iter_mut()
            .map(|rounds| list.wait(rounds, ()).is_none())
            .filter(|looks| *looks);
        assert_eq!(looks.count(), 1);
    }
}
