//! Receive and delete: a message is removed only if its bytes were read and are whole. The partition of these tests
//! gives each command to a state without bodies in memory too, and compares.

use super::*;

impl Partition {
    fn damage(&mut self, number: u64) {
        self.damage_in(&jobs(), number);
    }

    fn damage_in(&mut self, queue: &EntityName, number: u64) {
        let last = self.bodies_of(queue, number).len() - 1;
        self.damage_body(queue, number, last);
    }

    fn bodies_of(&self, queue: &EntityName, number: u64) -> Vec<BodyLocation> {
        let queue = self.state.catalogue.find(queue).unwrap();
        let backlog = &self.state.bus[&queue].backlog;
        let message = backlog.get(SequenceNumber::new(number)).unwrap();
        message.bodies().collect()
    }

    /// Damages one of its bodies: the sent one is the first.
    fn damage_body(&mut self, queue: &EntityName, number: u64, place: usize) {
        let body = self.bodies_of(queue, number)[place];
        self.log.damaged.insert(body);
        if let Some(cold) = &mut self.cold {
            cold.damage(body);
        }
    }

    fn take_messages(
        &mut self,
        count: u32,
        session: Option<Token>,
    ) -> Result<Vec<u64>, BusRefusal> {
        self.take_from(jobs(), count, session)
    }

    fn take_from(
        &mut self,
        queue: EntityName,
        count: u32,
        session: Option<Token>,
    ) -> Result<Vec<u64>, BusRefusal> {
        let outcome = self.ask(BusCommand::Receive {
            queue,
            count,
            mode: ReceiveMode::ReceiveAndDelete,
            session,
        })?;
        let BusOutcome::Received(messages) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(messages.iter().all(|message| message.lock.is_none()));
        let numbers = messages.iter().map(|it| it.sequence_number.as_u64());
        Ok(numbers.collect())
    }
}

fn damaged(sequence_number: u64) -> BusRefusal {
    BusRefusal::MessageDamaged { sequence_number }
}

#[test]
fn a_damaged_message_fails_its_delivery_and_keeps_no_other_back() {
    let mut p = Partition::with(BusQueueOptions {
        max_delivery_count: 3,
        ..BusQueueOptions::default()
    });
    for body in ["one", "two", "three", "four"] {
        p.send(text(body)).unwrap();
    }
    p.damage(1);
    p.damage(3);
    assert_eq!(p.take_messages(1, None), Err(damaged(1)));
    assert_eq!(p.take_messages(10, None), Ok(vec![2, 4]));
    let counts = p.counts();
    assert_eq!((counts.active, counts.dead_letters), (2, 0));
    // The third failure of the first, and the second one of the other.
    assert_eq!(p.take_messages(10, None), Err(damaged(1)));
    let counts = p.counts();
    assert_eq!((counts.active, counts.dead_letters), (1, 1));
    assert_eq!(p.take_messages(10, None), Err(damaged(3)));
    assert_eq!(p.take_messages(10, None), Ok(vec![]));
    assert_eq!(p.counts().dead_letters, 2);
    assert_eq!(p.replayed(), p.state);
}

/// A damaged dead letter has nowhere to go, and those behind it are received all the same.
#[test]
fn a_damaged_dead_letter_does_not_keep_those_behind_it_back() {
    let mut p = Partition::with(BusQueueOptions::default());
    for body in ["one", "two", "three", "four"] {
        p.send(text(body)).unwrap();
    }
    for lock in locks(&p.receive()) {
        p.settle(lock, Disposition::DeadLetter { overlay: None });
    }
    p.damage_in(&dead(), 1);
    p.damage_in(&dead(), 3);
    assert_eq!(p.take_from(dead(), 1, None), Ok(vec![2]));
    assert_eq!(p.take_from(dead(), 1, None), Ok(vec![4]));
    let events = p.log.events.len();
    for _ in 0..20 {
        assert_eq!(p.take_from(dead(), 1, None), Err(damaged(1)));
    }
    assert_eq!(p.log.events.len(), events, "nothing has changed");
    assert_eq!(p.counts().dead_letters, 2);
}

/// Of a message with changes to its properties one body is damaged, and nobody needs the other one.
#[test]
fn a_dead_letter_of_which_one_body_is_damaged_does_not_keep_others_back() {
    for is_change_damaged in [false, true] {
        let mut p = Partition::with(BusQueueOptions::default());
        for body in ["one", "two", "three"] {
            p.send(text(body)).unwrap();
        }
        for lock in locks(&p.receive()) {
            let overlay = Some(Bytes::from_static(b"reason"));
            p.settle(lock, Disposition::DeadLetter { overlay });
        }
        let place = usize::from(is_change_damaged);
        p.damage_body(&dead(), 1, place);
        p.damage_body(&dead(), 2, 1 - place);
        assert_eq!(p.take_from(dead(), 1, None), Ok(vec![3]));
        assert_eq!(p.take_from(dead(), 2, None), Err(damaged(1)));
    }
}

/// A receiver passes over a bounded number of them.
#[test]
fn many_damaged_dead_letters_are_told_of() {
    let mut p = Partition::with(BusQueueOptions::default());
    let count = 70;
    for _ in 0..count {
        p.send(text("body")).unwrap();
    }
    for _ in 0..count / 10 {
        for lock in locks(&p.receive()) {
            p.settle(lock, Disposition::DeadLetter { overlay: None });
        }
    }
    for number in 1..=66 {
        p.damage_in(&dead(), number);
    }
    assert_eq!(p.take_from(dead(), 1, None), Err(damaged(1)));
    assert_eq!(p.take_from(dead(), 3, None), Ok(vec![67]));
}

/// A change to its properties is damaged, and the sent body is whole.
#[test]
fn a_message_with_a_damaged_change_is_damaged() {
    let mut p = Partition::with(BusQueueOptions::default());
    p.send(text("one")).unwrap();
    let locked = p.receive();
    let overlay = Some(Bytes::from_static(b"changed"));
    p.settle(locked[0].lock.unwrap(), Disposition::Abandon { overlay });
    p.damage(1);
    assert_eq!(p.take_messages(1, None), Err(damaged(1)));
    assert_eq!(p.receive()[0].delivery_count, 2);
}

#[test]
fn a_damaged_message_of_a_session_is_counted_under_the_lock_of_the_session() {
    let mut p = Partition::with(BusQueueOptions {
        requires_session: true,
        max_delivery_count: 2,
        ..BusQueueOptions::default()
    });
    for body in ["one", "two"] {
        p.send(of_session(body, "s")).unwrap();
    }
    p.damage(1);
    let session = p.accept(SessionChoice::Next).unwrap().lock;
    assert_eq!(p.take_messages(1, Some(session)), Err(damaged(1)));
    assert_eq!(p.take_messages(1, Some(session)), Err(damaged(1)));
    assert_eq!(p.take_messages(1, Some(session)), Ok(vec![2]));
    assert_eq!(p.counts().dead_letters, 1);
    assert_eq!(p.replayed(), p.state);
}

#[test]
fn of_deferred_messages_none_is_removed_if_one_is_damaged() {
    let mut p = Partition::with(BusQueueOptions::default());
    for body in ["one", "two"] {
        p.send(text(body)).unwrap();
    }
    for lock in locks(&p.receive()) {
        p.settle(lock, Disposition::Defer { overlay: None });
    }
    p.damage(2);
    let read = |numbers: &[u64]| BusCommand::ReceiveDeferred {
        read: DeferredRead {
            queue: jobs(),
            numbers: numbers.iter().map(|it| SequenceNumber::new(*it)).collect(),
            mode: ReceiveMode::ReceiveAndDelete,
            session: None,
        },
    };
    let events = p.log.events.len();
    assert_eq!(p.ask(read(&[1, 2])).unwrap_err(), damaged(2));
    assert_eq!(p.log.events.len(), events, "nothing has changed");
    assert!(p.ask(read(&[1])).is_ok());
}

#[test]
fn an_operator_takes_no_damaged_message() {
    let mut p = Partition::with(BusQueueOptions::default());
    p.send(text("one")).unwrap();
    p.damage(1);
    let take = |mode| BusCommand::TakeMessage {
        queue: jobs(),
        number: SequenceNumber::new(1),
        mode,
    };
    let events = p.log.events.len();
    let refused = p.ask(take(ReceiveMode::ReceiveAndDelete));
    assert_eq!(refused.unwrap_err(), damaged(1));
    assert_eq!(p.log.events.len(), events, "nothing has changed");
    assert!(p.ask(take(ReceiveMode::PeekLock)).is_ok());
}

/// The command keeps to its description, which does not count on damage.
#[test]
fn many_damaged_messages_become_dead_letters_a_few_at_a_time() {
    let mut p = Partition::with(BusQueueOptions {
        requires_session: true,
        max_delivery_count: 1,
        ..BusQueueOptions::default()
    });
    let id = "s".repeat(SESSION_ID_SIZE_BYTES_MAX);
    for number in 1..=14 {
        p.send(of_session("body", &id)).unwrap();
        p.damage(number);
    }
    p.send(of_session("whole", &id)).unwrap();
    let session = p.accept(SessionChoice::Next).unwrap().lock;
    let mut refused = 0;
    let taken = loop {
        match p.take_messages(4, Some(session)) {
            Ok(taken) => break taken,
            Err(_) => refused += 1,
        }
        assert!(refused < 14, "no damaged message goes");
    };
    assert_eq!(taken, [15]);
    // Three have room beside four others, and the last two leave some for the whole one.
    assert_eq!(refused, 4);
    assert_eq!(p.counts().dead_letters, 14);
}

/// A log of which nothing was read.
struct Unread;

impl Journal for Unread {
    fn store_body(&mut self, _: &[u8]) -> BodyLocation {
        BodyLocation::default()
    }

    fn record(&mut self, _: &Event) {}

    fn body(&mut self, _: BodyLocation) -> BodyRead {
        BodyRead::Missing
    }
}

/// A caller that does not look at what is missing must not lose messages.
#[test]
#[should_panic(expected = "a command was not prepared")]
fn nothing_is_removed_whose_bytes_were_not_read() {
    let mut p = Partition::with(BusQueueOptions::default());
    p.send(text("one")).unwrap();
    let take = BusCommand::Receive {
        queue: jobs(),
        count: 1,
        mode: ReceiveMode::ReceiveAndDelete,
        session: None,
    };
    Turn::new(&mut p.state, p.now, &mut Unread).decide(Command::Bus(take));
}
