//! Clients that publish to a topic of 51 subscriptions in every way, and the check of all copies.
//!
//! They publish alone, in batches, scheduled, in transactions, together with the completion of a copy, and over a queue
//! that forwards to the topic. Rules select by SQL and by correlation, mark copies, fail, and change meanwhile. Some
//! subscriptions require sessions, and others forward to a queue and to a second topic. One is received from.
//!
//! The check looks at everything:
//!
//! - a message that was accepted has its copies in each place that selects it, once, and its dead letters where a session
//!   is absent or a filter fails;
//! - messages without an answer have all of these, or none, and so have those of a transaction or a batch, together;
//! - a copy that is completed together with a publish is gone if that has arrived, and is there otherwise;
//! - messages that were refused, because the disk was full, have none;
//! - where a rule changes, a message has one copy at most;
//! - a copy that was completed is gone, one that was dead-lettered is a dead letter, and others are there.

mod journal;
mod places;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime};

use kew_client::{BusClient, Error, Message, Received, ReceiverOptions, Sender, Value};
use tokio::task::JoinSet;

use self::journal::{Journal, Settled};
use self::places::{Copies, ENTRANCE, KINDS, Selects, TOPIC, USED};
use crate::bus_load::{Door, peek_all};
use crate::server::{PATIENCE, Server, show};
use crate::transfer::admin;

/// How long scheduled messages wait.
const DELAY: Duration = Duration::from_millis(200);

/// The clients of one test, over any number of servers on the same data.
#[derive(Default)]
pub(crate) struct TopicLoad {
    journal: Arc<Journal>,
    clients: JoinSet<()>,
}

impl TopicLoad {
    pub(crate) async fn create(server: &Server) {
        places::create(&admin(server)).await;
    }

    /// Starts clients, which end when the server does. Without `all`, no client publishes what is stored in the topic first,
    /// and so nearly all copies are made at once.
    pub(crate) fn begin(&mut self, server: &Server, all: bool) {
        let door = Door::of(server);
        let at_once = [Way::Alone, Way::Alone, Way::Batch, Way::Batch];
        let with_stored = [
            Way::Alone,
            Way::Batch,
            Way::Scheduled,
            Way::Forwarded,
            Way::Transaction,
        ];
        let ways = if all { &with_stored[..] } else { &at_once };
        for way in ways.iter().copied() {
            let (client, journal) = (door.client(), self.journal.clone());
            self.clients.spawn(async move {
                let how = send_for_ever(&client, way, &journal).await;
                journal.ended(how);
            });
        }
        let (client, journal) = (door.client(), self.journal.clone());
        self.clients.spawn(async move {
            let how = receive_for_ever(&client, all, &journal).await;
            journal.ended(how);
        });
        let (admin, journal) = (admin(server), self.journal.clone());
        self.clients.spawn(async move {
            for (turn, name) in places::changing().iter().cycle().enumerate() {
                let rule = Selects::Changing.rule(turn % 3 != 0);
                // Over HTTP, a server that is gone has many faces.
                let set = admin.update_rule(TOPIC, name, "$Default", &rule).await;
                if set.is_err() || journal.is_over() {
                    return;
                }
                journal.rules_changed.fetch_add(1, Relaxed);
            }
        });
    }

    /// Publishes in every way until the disk of the server is full, and more than is copied in that time.
    pub(crate) async fn fill_disk(&mut self, server: &Server) {
        let door = Door::of(server);
        let ways = [
            Way::Alone,
            Way::Batch,
            Way::Scheduled,
            Way::Forwarded,
            Way::Transaction,
            Way::Flood,
            Way::Flood,
        ];
        for way in ways {
            let (client, journal) = (door.client(), self.journal.clone());
            self.clients.spawn(async move {
                match send_for_ever(&client, way, &journal).await {
                    Err(error) if is_full(&error) => {}
                    how => panic!("{how:?}"),
                }
            });
        }
        let all = async {
            while let Some(ended) = self.clients.join_next().await {
                ended.expect("no client panics");
            }
        };
        let filled = tokio::time::timeout(PATIENCE, all).await;
        filled.expect("the disk is full");
    }

    /// Completes so many copies of one subscription.
    pub(crate) async fn complete(&self, server: &Server, count: usize) {
        let client = Door::of(server).client();
        let place = places::of_topic(TOPIC, USED);
        let options = ReceiverOptions::default();
        let mut receiver = client.receiver(&place, options).await.expect("attached");
        for _ in 0..count {
            let copy = receiver.receive().await.expect("received");
            copy.complete().await.expect("completed");
            let number = number_in(&copy);
            self.journal.settles(number, Settled::Completed);
        }
    }

    /// How many messages wait for their copies.
    pub(crate) async fn waiting(&self, server: &Server) -> usize {
        peek_all(&Door::of(server).client(), TOPIC).await.len()
    }

    /// Waits until so many more messages were accepted.
    pub(crate) async fn accepted(&self, more: u64) {
        let wanted = self.journal.accepted.load(Relaxed) + more;
        let begun = Instant::now();
        while self.journal.accepted.load(Relaxed) < wanted {
            self.journal.assert_nothing_refused();
            assert!(begun.elapsed() < PATIENCE, "too few messages are accepted");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits for the clients of a server that has ended.
    pub(crate) async fn server_is_gone(&mut self) {
        self.journal.set_over(true);
        let all = async {
            while let Some(ended) = self.clients.join_next().await {
                ended.expect("no client panics");
            }
        };
        let ended = tokio::time::timeout(PATIENCE, all).await;
        ended.expect("the clients stop");
        self.journal.set_over(false);
        self.journal.assert_nothing_refused();
    }

    /// The full check of a server without other clients: nothing waits any more, and each copy is where it must be.
    pub(crate) async fn check(&self, server: &Server) {
        let client = Door::of(server).client();
        nothing_waits(&client).await;
        let places = places::places();
        let mut found = Vec::new();
        for (place, _) in &places {
            found.push(places::look(&client, place).await);
        }
        let arrived = self.check_copies(&places, found);
        self.check_used(&client, &arrived).await;
    }

    /// Compares what was found in each place with what was sent. Returns the messages that have arrived.
    fn check_copies(
        &self,
        places: &[(String, Selects)],
        mut found: Vec<BTreeMap<u64, Copies>>,
    ) -> Vec<u64> {
        let mut arrived = Vec::new();
        for unit in &mut *self.journal.sent() {
            // A place that selects everything decides about what has no answer.
            let has_arrived = found[0].contains_key(&unit.numbers[0]);
            assert!(has_arrived || !unit.is_accepted, "{unit:?} is lost");
            let is_refused = unit.is_refused;
            assert!(!has_arrived || !is_refused, "{unit:?} was refused");
            assert!(!has_arrived || !unit.is_absent, "{unit:?} comes late");
            match unit.completes {
                Some(copy) if has_arrived => self.journal.settles(copy, Settled::Completed),
                // Another one may complete that copy later.
                Some(copy) if !unit.is_absent => self.journal.does_not_settle(copy),
                Some(_) | None => {}
            }
            unit.is_accepted = has_arrived;
            unit.is_absent = !has_arrived;
            if has_arrived {
                arrived.extend(&unit.numbers);
            }
            for number in &unit.numbers {
                for ((place, selects), found) in places.iter().zip(&mut found) {
                    let copies = found.remove(number).unwrap_or_default();
                    assert!(
                        selects.allows(*number, has_arrived, copies),
                        "{number} has {copies:?} in {place}; has arrived: {has_arrived}; {unit:?}"
                    );
                }
            }
        }
        for ((place, _), found) in places.iter().zip(&found) {
            assert!(found.is_empty(), "{place} has {found:?}, which nobody sent");
        }
        arrived
    }

    /// What was settled stays so, and everything else is there.
    async fn check_used(&self, client: &BusClient, arrived: &[u64]) {
        let place = places::of_topic(TOPIC, USED);
        let mut found = places::look(client, &place).await;
        let mut settled = self.journal.settled();
        for number in arrived {
            let copies = found.remove(number).unwrap_or_default();
            let known = settled.remove(number);
            let is_right = match known {
                Some(known) => known.allows(copies),
                None => (copies.live, copies.dead) == (1, 0),
            };
            assert!(is_right, "{number} has {copies:?} in {place}: {known:?}");
            if let Some(known) = Settled::after(copies) {
                settled.insert(*number, known);
            }
        }
        assert!(found.is_empty(), "{place} has {found:?}, which nobody sent");
    }

    /// What must have happened, or the test proves nothing.
    pub(crate) fn assert_tried(&self) {
        let accepted = self.journal.accepted.load(Relaxed);
        let rules = self.journal.rules_changed.load(Relaxed);
        let settled = self.journal.settled();
        let count = |wanted| settled.values().filter(|it| **it == wanted).count();
        let completed = count(Settled::Completed);
        let dead = count(Settled::DeadLettered);
        let sent = self.journal.sent();
        let moved = sent.iter().filter(|it| it.completes.is_some()).count();
        let lost = sent.iter().filter(|it| !it.is_accepted).count();
        show(&format!(
            "topic_accepted={accepted} topic_never_arrived={lost} topic_rules_changed={rules} \
             topic_completed={completed} topic_completed_with_a_publish={moved} topic_dead_lettered={dead}"
        ));
        let all = [rules, completed as u64, dead as u64, moved as u64];
        assert!(all.iter().all(|it| *it > 0));
    }
}

/// How a client publishes.
#[derive(Clone, Copy)]
enum Way {
    Alone,
    Batch,
    Scheduled,
    Forwarded,
    Transaction,
    /// Batches with more copies than a command makes.
    Flood,
}

async fn send_for_ever(client: &BusClient, way: Way, journal: &Journal) -> Result<(), Error> {
    let to = match way {
        Way::Forwarded => ENTRANCE,
        Way::Alone | Way::Batch | Way::Scheduled | Way::Transaction | Way::Flood => TOPIC,
    };
    let sender = client.sender(to).await?;
    while !journal.is_over() {
        let count = match way {
            Way::Alone | Way::Forwarded => 1,
            Way::Scheduled | Way::Transaction => 2,
            Way::Batch => 3,
            Way::Flood => 100,
        };
        let (place, numbers) = journal.sending(count, None);
        let messages = numbers.iter().map(|it| message(*it)).collect();
        match send(client, &sender, way, messages).await {
            Ok(()) => journal.accepted(place),
            Err(error) => {
                if is_full(&error) {
                    journal.refused(place);
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

async fn send(
    client: &BusClient,
    sender: &Sender,
    way: Way,
    mut messages: Vec<Message>,
) -> Result<(), Error> {
    match way {
        Way::Alone | Way::Forwarded => sender.send(&messages[0]).await?,
        Way::Batch | Way::Flood => {
            let mut batch = sender.new_batch();
            for message in &messages {
                assert!(batch.try_add(message)?, "a batch is larger");
            }
            sender.send_batch(&batch).await?;
        }
        Way::Scheduled => {
            for message in &mut messages {
                message.scheduled_at = Some(SystemTime::now() + DELAY);
            }
            sender.schedule(&messages).await?;
        }
        Way::Transaction => {
            let transaction = client.begin().await?;
            for message in &messages {
                transaction.send(sender, message).await?;
            }
            transaction.commit().await?;
        }
    }
    Ok(())
}

/// Whether a request was refused because the disk is full.
fn is_full(error: &Error) -> bool {
    error.to_string().contains("disk of the server is full")
}

/// Completes copies of one subscription, some of them together with a publish. Others become dead letters, or go back.
async fn receive_for_ever(
    client: &BusClient,
    with_transactions: bool,
    journal: &Journal,
) -> Result<(), Error> {
    let sender = client.sender(TOPIC).await?;
    let options = ReceiverOptions { prefetch: 8 };
    let place = places::of_topic(TOPIC, USED);
    let mut receiver = client.receiver(&place, options).await?;
    while !journal.is_over() {
        let next = tokio::time::timeout(Duration::from_millis(50), receiver.receive()).await;
        let Ok(next) = next else { continue };
        let copy = next?;
        let number = number_in(&copy);
        let known = journal.settled().get(&number).copied();
        assert_eq!(known, None, "{number} was settled, and comes again");
        match number % 11 {
            0 => copy.abandon(Vec::new()).await?,
            1..=3 => {
                journal.settles(number, Settled::DeadLettering);
                copy.dead_letter("odd", "", Vec::new()).await?;
                journal.settles(number, Settled::DeadLettered);
            }
            4..=6 if with_transactions => {
                let transaction = client.begin().await?;
                let (place, numbers) = journal.sending(1, Some(number));
                transaction.complete(&copy).await?;
                transaction.send(&sender, &message(numbers[0])).await?;
                journal.settles(number, Settled::Completing);
                transaction.commit().await?;
                journal.settles(number, Settled::Completed);
                journal.accepted(place);
            }
            _ => {
                journal.settles(number, Settled::Completing);
                copy.complete().await?;
                journal.settles(number, Settled::Completed);
            }
        }
    }
    Ok(())
}

async fn nothing_waits(client: &BusClient) {
    let begun = Instant::now();
    for way in places::ways() {
        loop {
            let waiting = peek_all(client, &way).await;
            if waiting.is_empty() {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{waiting:?} wait in {way}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn message(number: u64) -> Message {
    let kind = i64::try_from(number % KINDS).expect("small");
    Message {
        session_id: places::session(number),
        properties: vec![("kind".to_owned(), Value::Long(kind))],
        ..Message::new(body(number))
    }
}

/// A body that begins with its number.
fn body(number: u64) -> Vec<u8> {
    let mut body = number.to_be_bytes().to_vec();
    body.extend((0..number % 300).map(|at| (number.wrapping_mul(31) + at).to_le_bytes()[0]));
    body
}

/// The number of a message, whose body must be unchanged.
fn number_in(message: &Received) -> u64 {
    let found = message.body();
    let number = u64::from_be_bytes(*found.first_chunk().expect("a number"));
    assert_eq!(found, body(number), "message {number}");
    number
}
