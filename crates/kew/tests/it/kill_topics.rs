//! Kills and power cuts of a server that copies messages into 50 subscriptions of a topic, while rules change.
//!
//! Clients publish to the topic, alone and two in a transaction, and to a queue that forwards to it. One more subscription
//! forwards its copies to a queue, and those of another are completed. After each end of the server all copies are looked
//! at. A message that was accepted is once in each subscription that selects it, unless its copy was completed. Messages
//! without an answer are in all of these, or in none, and those of a transaction come together. A subscription whose rule
//! changes meanwhile has a message once at most. `KEW_TOPIC_KILLS` sets how often the server is killed, and
//! `KEW_TOPIC_POWER_CUTS` how often the power fails ([`power_cut`](crate::power_cut) says how).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kew_client::{
    BusClient, Error, Filter, Message, QueueSettings, ReceiverOptions, RuleSettings, Sql,
    SubscriptionSettings, TopicSettings, Value,
};
use tokio::task::JoinSet;

use crate::bus_load::{Door, is_gone, peek_all};
use crate::load::{self, Random, from_environment, stop_in_order};
use crate::power_cut::Disk;
use crate::server::{PATIENCE, Server, show};
use crate::transfer::admin;

const KILLS_DEFAULT: u64 = 15;
const CUTS_DEFAULT: u64 = 8;

const TOPIC: &str = "killed";
const FORWARDS: &str = "to-killed";
const SUBSCRIPTIONS: u64 = 50;
/// A subscription that gets everything and passes it on to a queue.
const PASSING: &str = "passing";
const PASSED_ON: &str = "passed-on";
/// A subscription that gets everything, of which copies are completed.
const COMPLETED: &str = "completed";
/// What rules see of a message is its number modulo this.
const KINDS: u64 = 5;

/// How many messages are accepted between two kills at least.
const ACCEPTED_EACH: u64 = 120;

/// Which messages a subscription gets.
#[derive(Clone, Copy)]
enum Selects {
    All,
    Kind(u64),
    /// All but those of kind 1 or 2: its rule changes between the two.
    Changing,
}

fn selects(subscription: u64) -> Selects {
    match subscription % 6 {
        0 => Selects::All,
        5 => Selects::Changing,
        kind => Selects::Kind(kind),
    }
}

impl Selects {
    /// Whether a message comes. `None` if that depends on the moment.
    fn takes(self, number: u64) -> Option<bool> {
        let kind = number % KINDS;
        match self {
            Self::All => Some(true),
            Self::Kind(wanted) => Some(kind == wanted),
            Self::Changing => (kind != 1 && kind != 2).then_some(true),
        }
    }

    fn rule(self, is_other: bool) -> RuleSettings {
        let filter = match self {
            Self::All => Filter::True,
            Self::Kind(kind) => sql(format!("kind = {kind}")),
            Self::Changing if is_other => sql("kind <> 2".to_owned()),
            Self::Changing => sql("kind <> 1".to_owned()),
        };
        RuleSettings {
            filter,
            ..RuleSettings::default()
        }
    }
}

fn sql(text: String) -> Filter {
    Filter::Sql(Sql {
        text,
        ..Sql::default()
    })
}

fn path(subscription: &str) -> String {
    format!("{TOPIC}/subscriptions/{subscription}")
}

fn name(subscription: u64) -> String {
    format!("s{subscription}")
}

/// Messages that are sent together.
struct Sent {
    numbers: Vec<u64>,
    is_accepted: bool,
}

/// What all clients know.
#[derive(Default)]
struct Journal {
    sent: Mutex<Vec<Sent>>,
    last: AtomicU64,
    accepted: AtomicU64,
    /// Copies in [`COMPLETED`] by number, and whether the completion was confirmed.
    completed: Mutex<BTreeMap<u64, bool>>,
    rules_changed: AtomicU64,
    refused: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

impl Journal {
    /// Notes that these are going to be sent. Returns their place in the journal.
    fn sending(&self, count: u64) -> (usize, Vec<u64>) {
        let first = self.last.fetch_add(count, Relaxed) + 1;
        let numbers: Vec<u64> = (first..first + count).collect();
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.push(Sent {
            numbers: numbers.clone(),
            is_accepted: false,
        });
        (sent.len() - 1, numbers)
    }

    fn accepted(&self, place: usize) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent[place].is_accepted = true;
        let count = sent[place].numbers.len() as u64;
        self.accepted.fetch_add(count, Relaxed);
    }

    fn completes(&self, number: u64, is_confirmed: bool) {
        let mut completed = self
            .completed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        completed.insert(number, is_confirmed);
    }

    /// The end of a client: the server disappeared, or it refused something.
    fn ended(&self, how: Result<(), Error>) {
        if let Err(error) = how
            && !is_gone(&error)
        {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            refused.push(error.to_string());
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }
}

fn message(number: u64) -> Message {
    let kind = i64::try_from(number % KINDS).expect("small");
    Message {
        properties: vec![("kind".to_owned(), Value::Long(kind))],
        ..Message::new(number.to_be_bytes().to_vec())
    }
}

fn number_in(body: &[u8]) -> u64 {
    u64::from_be_bytes(*body.first_chunk().expect("a number"))
}

/// How the server ends, and where its data are.
enum Machine {
    Kills(tempfile::TempDir),
    PowerCuts(Box<Disk>, Random),
}

impl Machine {
    fn start(&mut self) -> Server {
        Server::start_with(|command| {
            match self {
                Self::Kills(place) => {
                    command.arg("serve").arg("--data-dir").arg(place.path());
                    command.args(["--queue-listen", "127.0.0.1:0"]);
                }
                Self::PowerCuts(disk, random) => disk.arrange(command, random.next()),
            }
            command.args(["--bus-listen", "127.0.0.1:0"]);
        })
    }

    fn end(&mut self, server: Server) {
        match self {
            Self::Kills(_) => server.kill(),
            Self::PowerCuts(disk, random) => disk.cut(server, random),
        }
    }
}

#[test]
fn kills_neither_lose_nor_double_copies_of_topics() {
    let kills = from_environment("KEW_TOPIC_KILLS").unwrap_or(KILLS_DEFAULT);
    let place = tempfile::tempdir().expect("a temporary directory");
    load::run(end_often(Machine::Kills(place), kills));
}

#[test]
fn power_cuts_neither_lose_nor_double_copies_of_topics() {
    let cuts = from_environment("KEW_TOPIC_POWER_CUTS").unwrap_or(CUTS_DEFAULT);
    let Some(disk) = Disk::new() else {
        return;
    };
    let random = Random::new(load::seed());
    let machine = Machine::PowerCuts(Box::new(disk), random);
    load::run(end_often(machine, cuts));
}

async fn end_often(mut machine: Machine, ends: u64) {
    let mut server = machine.start();
    create(&server).await;
    let journal = Arc::new(Journal::default());
    for _ in 0..ends {
        let wanted = journal.accepted.load(Relaxed) + ACCEPTED_EACH;
        let clients = begin(&server, &journal);
        let begun = Instant::now();
        while journal.accepted.load(Relaxed) < wanted {
            assert!(begun.elapsed() < PATIENCE, "too few messages are accepted");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        machine.end(server);
        journal.is_over.store(true, Relaxed);
        join(clients).await;
        journal.is_over.store(false, Relaxed);
        server = machine.start();
        check(&server, &journal).await;
    }
    stop_in_order(server).await;
    let accepted = journal.accepted.load(Relaxed);
    let rules = journal.rules_changed.load(Relaxed);
    let completed = journal.completed.lock().expect("no client panics");
    let completed = completed.values().filter(|it| **it).count() as u64;
    show(&format!(
        "ends={ends} accepted={accepted} completed={completed} rules_changed={rules}"
    ));
    assert!(rules >= ends, "{rules} rules were changed");
    assert!(completed >= ends, "{completed} copies were completed");
}

async fn create(server: &Server) {
    let admin = admin(server);
    let topic = TopicSettings::default();
    admin.create_topic(TOPIC, &topic).await.expect("created");
    for subscription in 0..SUBSCRIPTIONS {
        let name = name(subscription);
        let settings = SubscriptionSettings::default();
        let created = admin.create_subscription(TOPIC, &name, &settings).await;
        created.expect("created");
        let rule = selects(subscription).rule(false);
        let set = admin.update_rule(TOPIC, &name, "$Default", &rule).await;
        set.expect("replaced");
    }
    let queue = QueueSettings::default();
    let created = admin.create_queue(PASSED_ON, &queue).await;
    created.expect("created");
    let passing = SubscriptionSettings {
        forward_to: Some(PASSED_ON.to_owned()),
        ..SubscriptionSettings::default()
    };
    for (name, settings) in [
        (PASSING, &passing),
        (COMPLETED, &SubscriptionSettings::default()),
    ] {
        let created = admin.create_subscription(TOPIC, name, settings).await;
        created.expect("created");
    }
    let forwards = QueueSettings {
        forward_to: Some(TOPIC.to_owned()),
        ..QueueSettings::default()
    };
    let created = admin.create_queue(FORWARDS, &forwards).await;
    created.expect("created");
}

fn begin(server: &Server, journal: &Arc<Journal>) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    for to in [TOPIC, TOPIC, FORWARDS] {
        let (client, journal) = (Door::of(server).client(), journal.clone());
        clients.spawn(async move {
            let how = send_for_ever(&client, to, &journal).await;
            journal.ended(how);
        });
    }
    let (client, of_transactions) = (Door::of(server).client(), journal.clone());
    clients.spawn(async move {
        let how = transact_for_ever(&client, &of_transactions).await;
        of_transactions.ended(how);
    });
    let (client, of_completions) = (Door::of(server).client(), journal.clone());
    clients.spawn(async move {
        let how = complete_for_ever(&client, &of_completions).await;
        of_completions.ended(how);
    });
    let (admin, journal) = (admin(server), journal.clone());
    clients.spawn(async move {
        let changing = (0..SUBSCRIPTIONS).filter(|it| matches!(selects(*it), Selects::Changing));
        for (turn, subscription) in changing.cycle().enumerate() {
            let rule = Selects::Changing.rule(turn % 3 != 0);
            let name = name(subscription);
            // Over HTTP, a server that is gone has many faces.
            let set = admin.update_rule(TOPIC, &name, "$Default", &rule).await;
            if set.is_err() || journal.is_over() {
                return;
            }
            journal.rules_changed.fetch_add(1, Relaxed);
        }
    });
    clients
}

async fn send_for_ever(client: &BusClient, to: &str, journal: &Journal) -> Result<(), Error> {
    let sender = client.sender(to).await?;
    while !journal.is_over() {
        let (place, numbers) = journal.sending(1);
        sender.send(&message(numbers[0])).await?;
        journal.accepted(place);
    }
    Ok(())
}

async fn transact_for_ever(client: &BusClient, journal: &Journal) -> Result<(), Error> {
    let sender = client.sender(TOPIC).await?;
    while !journal.is_over() {
        let transaction = client.begin().await?;
        let (place, numbers) = journal.sending(2);
        for number in numbers {
            transaction.send(&sender, &message(number)).await?;
        }
        transaction.commit().await?;
        journal.accepted(place);
    }
    Ok(())
}

async fn complete_for_ever(client: &BusClient, journal: &Journal) -> Result<(), Error> {
    let options = ReceiverOptions { prefetch: 8 };
    let mut receiver = client.receiver(&path(COMPLETED), options).await?;
    while !journal.is_over() {
        let soon = Duration::from_millis(20);
        let Ok(message) = tokio::time::timeout(soon, receiver.receive()).await else {
            continue;
        };
        let message = message?;
        let number = number_in(&message.body());
        journal.completes(number, false);
        message.complete().await?;
        journal.completes(number, true);
    }
    Ok(())
}

async fn join(mut clients: JoinSet<()>) {
    let all = async {
        while let Some(ended) = clients.join_next().await {
            ended.expect("no client panics");
        }
    };
    let ended = tokio::time::timeout(PATIENCE, all).await;
    ended.expect("the clients stop");
}

/// Nothing waits any more, and each copy is where it must be.
async fn check(server: &Server, journal: &Journal) {
    let refused = std::mem::take(&mut *journal.refused.lock().expect("no client panics"));
    assert!(refused.is_empty(), "{refused:?}");
    let client = Door::of(server).client();
    for waiting in [FORWARDS, TOPIC, &path(PASSING)] {
        let begun = Instant::now();
        while !peek_all(&client, waiting).await.is_empty() {
            assert!(begun.elapsed() < PATIENCE, "messages wait in {waiting}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let mut copies = Vec::new();
    for subscription in 0..SUBSCRIPTIONS {
        let place = path(&name(subscription));
        let found = numbers_in(&client, &place).await;
        copies.push((place, selects(subscription), found));
    }
    let found = numbers_in(&client, PASSED_ON).await;
    copies.push((PASSED_ON.to_owned(), Selects::All, found));
    let mut left = numbers_in(&client, &path(COMPLETED)).await;
    let completed = journal.completed.lock().expect("no client panics");
    let mut sent = journal.sent.lock().expect("no client panics");
    for unit in &mut *sent {
        // A subscription that selects everything decides about what has no answer.
        let arrived = copies[0].2.contains_key(&unit.numbers[0]);
        let numbers = &unit.numbers;
        assert!(arrived || !unit.is_accepted, "{numbers:?} are lost");
        unit.is_accepted = arrived;
        for number in numbers {
            for (place, selects, found) in &mut copies {
                let count = found.remove(number).unwrap_or_default();
                let is_right = match selects.takes(*number) {
                    Some(takes) => count == u64::from(takes && arrived),
                    None => count <= u64::from(arrived),
                };
                assert!(
                    is_right,
                    "{count} copies of {number} are in {place}: {numbers:?}, arrived: {arrived}"
                );
            }
            let count = left.remove(number).unwrap_or_default();
            let is_right = match completed.get(number) {
                Some(true) => arrived && count == 0,
                Some(false) => arrived && count <= 1,
                None => count == u64::from(arrived),
            };
            let how = completed.get(number);
            assert!(
                is_right,
                "{count} copies of {number} are in {COMPLETED}: {how:?}, arrived: {arrived}"
            );
        }
    }
    copies.push((path(COMPLETED), Selects::All, left));
    for (place, _, found) in copies {
        assert!(found.is_empty(), "{place} has {found:?}");
    }
}

/// How often each message is there.
async fn numbers_in(client: &BusClient, place: &str) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    for message in peek_all(client, place).await {
        *found.entry(number_in(&message.body())).or_default() += 1;
    }
    found
}
