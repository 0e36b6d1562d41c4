//! Kills of a server that copies messages into 50 subscriptions of a topic, while rules change.
//!
//! Clients publish to the topic, alone and two in a transaction, and to a queue that forwards to it. After each kill all
//! copies are looked at. A message that was accepted is once in each subscription that selects it. Messages without an
//! answer are in all of these, or in none, and those of a transaction come together. A subscription whose rule changes
//! meanwhile has a message once at most. `KEW_TOPIC_KILLS` sets how often the server is killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kew_client::{
    BusClient, Error, Filter, Message, QueueSettings, RuleSettings, Sql, SubscriptionSettings,
    TopicSettings, Value,
};
use tokio::task::JoinSet;

use crate::bus_load::{Door, is_gone, peek_all};
use crate::load::{self, from_environment, stop_in_order};
use crate::server::{PATIENCE, Server, show};
use crate::transfer::admin;

const KILLS_DEFAULT: u64 = 6;

const TOPIC: &str = "killed";
const FORWARDS: &str = "to-killed";
const SUBSCRIPTIONS: u64 = 50;
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

#[test]
fn kills_neither_lose_nor_double_copies_of_topics() {
    let kills = from_environment("KEW_TOPIC_KILLS").unwrap_or(KILLS_DEFAULT);
    let place = tempfile::tempdir().expect("a temporary directory");
    load::run(kill_loop(place.path(), kills));
}

fn start(data_dir: &Path) -> Server {
    Server::start_with(|command| {
        command.arg("serve").arg("--data-dir").arg(data_dir);
        command.args([
            "--queue-listen",
            "127.0.0.1:0",
            "--bus-listen",
            "127.0.0.1:0",
        ]);
    })
}

async fn kill_loop(data_dir: &Path, kills: u64) {
    let mut server = start(data_dir);
    create(&server).await;
    let journal = Arc::new(Journal::default());
    for _ in 0..kills {
        let wanted = journal.accepted.load(Relaxed) + ACCEPTED_EACH;
        let clients = begin(&server, &journal);
        let begun = Instant::now();
        while journal.accepted.load(Relaxed) < wanted {
            assert!(begun.elapsed() < PATIENCE, "too few messages are accepted");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.kill();
        journal.is_over.store(true, Relaxed);
        join(clients).await;
        journal.is_over.store(false, Relaxed);
        server = start(data_dir);
        check(&server, &journal).await;
    }
    stop_in_order(server).await;
    let (accepted, rules) = (
        journal.accepted.load(Relaxed),
        journal.rules_changed.load(Relaxed),
    );
    show(&format!(
        "topic_kills={kills} accepted={accepted} rules_changed={rules}"
    ));
    assert!(rules >= kills, "{rules} rules were changed");
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
    let forwards = QueueSettings {
        forward_to: Some(TOPIC.to_owned()),
        ..QueueSettings::default()
    };
    admin
        .create_queue(FORWARDS, &forwards)
        .await
        .expect("created");
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
    for waiting in [FORWARDS, TOPIC] {
        let begun = Instant::now();
        while !peek_all(&client, waiting).await.is_empty() {
            assert!(begun.elapsed() < PATIENCE, "messages wait in {waiting}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let mut copies = Vec::new();
    for subscription in 0..SUBSCRIPTIONS {
        let place = format!("{TOPIC}/subscriptions/{}", name(subscription));
        let mut found = BTreeMap::<u64, u64>::new();
        for message in peek_all(&client, &place).await {
            let body = message.body();
            let number = u64::from_be_bytes(*body.first_chunk().expect("a number"));
            *found.entry(number).or_default() += 1;
        }
        copies.push((selects(subscription), found));
    }
    let mut sent = journal.sent.lock().expect("no client panics");
    for unit in &mut *sent {
        // Subscriptions that select everything decide about what has no answer.
        let arrived = copies[0].1.contains_key(&unit.numbers[0]);
        assert!(arrived || !unit.is_accepted, "{:?} are lost", unit.numbers);
        unit.is_accepted = arrived;
        for number in &unit.numbers {
            for (subscription, (selects, found)) in copies.iter_mut().enumerate() {
                let count = found.remove(number).unwrap_or_default();
                let is_right = match selects.takes(*number) {
                    Some(takes) => count == u64::from(takes && arrived),
                    None => count <= u64::from(arrived),
                };
                let numbers = &unit.numbers;
                assert!(
                    is_right,
                    "{count} copies of {number} are in s{subscription}: {numbers:?}, arrived: {arrived}"
                );
            }
        }
    }
    for (subscription, (_, found)) in copies.iter().enumerate() {
        assert!(found.is_empty(), "s{subscription} has {found:?}");
    }
}
