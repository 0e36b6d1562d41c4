//! Authorization rules that another owner of the log has changed, and changes of rules whose outcome is unknown.

use std::sync::Arc;
use std::time::Duration;

use kew_amqp::performative::DeliveryState;
use kew_amqp::{Event, LinkId};
use kew_broker::Broker;
use kew_bus_api::{AuthorizationRule, Rights, RuleScope};
use kew_engine::Command;
use kew_engine::bus::BusCommand;
use kew_log::Epoch;
use kew_log_contract::{MemoryOptions, MemorySource};
use kew_loopback::{Fault, Faulty, faulty};
use kew_principals::PrincipalError;

use crate::client::{Client, Server, message, token_by};
use crate::rest::{Answer, ask, ask_as};

const UNAUTHORIZED: &str = "amqp:unauthorized-access";
const JOBS: &str = "sb://localhost/jobs";

/// A server on a log, which it owns, and faults of its commands.
async fn start(source: &MemorySource) -> (Server, Arc<Faulty>) {
    let (broker, faults) = faulty(&Server::broker_on_log(source.clone()));
    (Server::start_beside(broker).await, faults)
}

/// A server alone, with queues.
async fn start_alone() -> (Server, Arc<Faulty>) {
    let source = MemorySource::new(MemoryOptions::default());
    let (server, faults) = start(&source).await;
    (server.with_queues().await, faults)
}

/// Two servers on one log, of which the second one owns it.
struct Pair {
    first: Server,
    faults: Arc<Faulty>,
    source: MemorySource,
}

impl Pair {
    async fn open() -> Self {
        let source = MemorySource::new(MemoryOptions::default());
        let (first, faults) = start(&source).await;
        Self {
            first: first.with_queues().await,
            faults,
            source,
        }
    }

    /// The second one becomes the owner. The first one does not know it before its next command.
    async fn second(&self) -> Server {
        self.first.at_rest().await;
        start(&self.source).await.0
    }
}

async fn until_a_command_waits(faults: &Faulty) {
    let waits = async {
        while faults.waiting() == 0 {
            tokio::task::yield_now().await;
        }
    };
    let waits = tokio::time::timeout(Duration::from_secs(30), waits).await;
    waits.expect("a command comes");
}

async fn until(broker: &Broker, epoch: Option<Epoch>) {
    let mut changes = broker.ownership().watch();
    let changed = changes.wait_for(|now| *now == epoch);
    let changed = tokio::time::timeout(Duration::from_secs(30), changed).await;
    changed.expect("the owner changes").unwrap();
}

async fn take_over(server: &Server, epoch: u64) {
    let epoch = Epoch::new(epoch);
    server.broker().promote(epoch);
    until(server.broker(), Some(epoch)).await;
}

/// The server learns that another one owns the log.
async fn learn(server: &Server) {
    let told = server.broker().submit(Command::ListAccounts).await;
    told.unwrap_err();
    until(server.broker(), None).await;
}

fn rule(name: &str) -> AuthorizationRule {
    AuthorizationRule::generate(name, Rights::ALL, 1).unwrap()
}

fn token_of(rule: &AuthorizationRule) -> String {
    token_by(&rule.name, JOBS, &rule.primary_key, u64::MAX / 2)
}

async fn stranger(server: &Server) -> Client {
    let mut client = server.connect("ANONYMOUS", None);
    client.begun().await;
    client
}

/// A client with a link by this rule's token.
async fn sender(server: &Server, rule: &AuthorizationRule) -> (Client, LinkId) {
    let mut client = stranger(server).await;
    assert_eq!(client.put_token(JOBS, &token_of(rule)).await, 202);
    let link = client.sender("jobs").await.unwrap();
    (client, link)
}

async fn check_detached(client: &mut Client, link: LinkId) {
    let error = client.until(|event| match event {
        Event::Detached {
            link: id, error, ..
        } if *id == link => Some(error.clone()),
        _ => None,
    });
    let condition = error.await.unwrap().condition.to_string();
    assert_eq!(condition, UNAUTHORIZED);
}

async fn check_attached(client: &mut Client, link: LinkId) {
    let sent = client.send(link, 0, message("x")).await;
    assert_eq!(sent, DeliveryState::ACCEPTED);
}

/// The status of a put token.
async fn put(server: &Server, rule: &AuthorizationRule) -> i64 {
    stranger(server)
        .await
        .put_token(JOBS, &token_of(rule))
        .await
}

/// Sends over HTTP.
async fn send(server: &Server, rule: &AuthorizationRule) -> Answer {
    let token = token_of(rule);
    let headers = [("Authorization", token.as_str())];
    ask_as(server, "POST", "jobs/messages", &headers, "x").await
}

/// How a connection ends that begins with the rule's name and key. `None` if it is opened.
async fn refusal_of(server: &Server, rule: &AuthorizationRule) -> Option<String> {
    let response = format!("\0{}\0{}", rule.name, rule.primary_key);
    let mut client = server.connect("PLAIN", Some(&response));
    let end = client.until(|event| match event {
        Event::Opened(_) => Some(None),
        Event::Closed { error, .. } => Some(Some(format!("{error:?}"))),
        _ => None,
    });
    end.await
}

async fn names(server: &Server, queue: Option<&str>) -> Vec<String> {
    let rules = server.api().rules().list(&RuleScope::of(queue)).await;
    rules
        .unwrap()
        .into_iter()
        .map(|it| it.name.into())
        .collect()
}

fn sets_properties(command: &Command) -> bool {
    matches!(command, Command::SetServiceProperties { .. })
}

fn updates_queue(command: &Command) -> bool {
    matches!(command, Command::Bus(BusCommand::UpdateQueue { .. }))
}

#[tokio::test]
async fn rules_are_those_that_the_last_owner_has_left() {
    let pair = Pair::open().await;
    let first = &pair.first;
    let [gone, kept, new] = ["gone", "kept", "new"].map(rule);
    for rule in [&gone, &kept] {
        first.add_rule(None, rule.clone()).await.unwrap();
    }
    let (mut lost, lost_link) = sender(first, &gone).await;
    let (mut stays, kept_link) = sender(first, &kept).await;

    let second = pair.second().await;
    second.remove_rule(None, "gone").await.unwrap();
    second.add_rule(None, new.clone()).await.unwrap();
    // A server that follows judges nobody: a client tries again, with whichever key.
    learn(first).await;
    for rule in [&gone, &kept, &new] {
        assert_eq!(put(first, rule).await, 503);
        assert_eq!(send(first, rule).await.status, 503);
        let refused = refusal_of(first, rule).await.unwrap();
        assert!(refused.contains("SystemTemporary"), "{refused}");
    }
    let refused = first.add_rule(None, rule("other")).await;
    assert!(matches!(refused, Err(PrincipalError::Busy)), "{refused:?}");

    take_over(first, 100).await;
    for (rule, is_there) in [(&gone, false), (&kept, true), (&new, true)] {
        assert_eq!(put(first, rule).await, if is_there { 202 } else { 401 });
        let answer = send(first, rule).await;
        assert_eq!(answer.status, if is_there { 201 } else { 401 });
        let refused = refusal_of(first, rule).await;
        assert_eq!(refused.is_none(), is_there, "{refused:?}");
    }
    check_detached(&mut lost, lost_link).await;
    check_attached(&mut stays, kept_link).await;

    // The next change does not bring the rule back.
    first.add_rule(None, rule("other")).await.unwrap();
    assert_eq!(names(first, None).await, ["kept", "new", "other"]);
    take_over(&second, 101).await;
    assert_eq!(names(&second, None).await, ["kept", "new", "other"]);
    assert_eq!(put(&second, &gone).await, 401);
}

/// A connection by a name and a key is judged again, too, and so is a link by the rule of a queue.
#[tokio::test]
async fn connections_are_judged_again_in_a_later_epoch() {
    let pair = Pair::open().await;
    let first = &pair.first;
    let [of_all, of_queue] = ["plain", "own"].map(rule);
    first.add_rule(None, of_all.clone()).await.unwrap();
    first
        .add_rule(Some("jobs"), of_queue.clone())
        .await
        .unwrap();
    let response = format!("\0plain\0{}", of_all.primary_key);
    let mut plain = first.connect("PLAIN", Some(&response));
    plain.begun().await;
    let plain_link = plain.sender("jobs").await.unwrap();
    let (mut own, own_link) = sender(first, &of_queue).await;

    let second = pair.second().await;
    second.remove_rule(None, "plain").await.unwrap();
    second.remove_rule(Some("jobs"), "own").await.unwrap();
    take_over(first, 100).await;
    check_detached(&mut plain, plain_link).await;
    check_detached(&mut own, own_link).await;
}

/// A link survives ownerships in which its rule stays, however long the server follows.
#[tokio::test]
async fn a_link_stays_while_its_server_follows() {
    let pair = Pair::open().await;
    let first = &pair.first;
    let rule = rule("kept");
    first.add_rule(None, rule.clone()).await.unwrap();
    let (mut client, link) = sender(first, &rule).await;
    let second = pair.second().await;
    learn(first).await;
    // It is judged again while nobody owns the log here.
    first.api().rules().note_change();
    assert_eq!(put(first, &rule).await, 503);
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(60)).await;
    tokio::time::resume();
    take_over(first, 100).await;
    check_attached(&mut client, link).await;
    drop(second);
}

#[tokio::test]
async fn a_rule_whose_removal_is_unknown_is_in_force_if_it_is_there() {
    for (fault, is_there) in [(Fault::LosesAnswer, false), (Fault::LosesCommand, true)] {
        let (server, faults) = start_alone().await;
        let rules = ["perhaps", "kept"].map(rule);
        for rule in &rules {
            server.add_rule(None, rule.clone()).await.unwrap();
        }
        let [perhaps, _] = &rules;
        let (mut client, link) = sender(&server, perhaps).await;
        faults.fail(sets_properties, fault);
        let unknown = server.remove_rule(None, "perhaps").await;
        assert!(
            matches!(unknown, Err(PrincipalError::Unknown)),
            "{unknown:?}"
        );
        let status = if is_there { 202 } else { 401 };
        assert_eq!(put(&server, perhaps).await, status);
        match is_there {
            true => check_attached(&mut client, link).await,
            false => check_detached(&mut client, link).await,
        }
        // The next change writes no rule back that is gone.
        server.add_rule(None, rule("next")).await.unwrap();
        assert_eq!(put(&server, perhaps).await, status);
        let expected: &[&str] = match is_there {
            true => &["perhaps", "kept", "next"],
            false => &["kept", "next"],
        };
        assert_eq!(names(&server, None).await, expected);
    }
}

/// A change has read the rules, and is to be written when another owner has removed one of them.
#[tokio::test]
async fn a_change_writes_no_rule_back_that_another_owner_has_removed() {
    for queue in [None, Some("jobs")] {
        let pair = Pair::open().await;
        let first = &pair.first;
        first.add_rule(queue, rule("gone")).await.unwrap();
        let is_change = match queue {
            None => sets_properties,
            Some(_) => updates_queue,
        };
        pair.faults.fail(is_change, Fault::Waits);
        let changing = {
            let api = first.api();
            tokio::spawn(async move { api.rules().add(&RuleScope::of(queue), rule("new")).await })
        };
        until_a_command_waits(&pair.faults).await;
        let second = start(&pair.source).await.0;
        second.remove_rule(queue, "gone").await.unwrap();
        take_over(first, 100).await;
        pair.faults.release();
        let refused = changing.await.unwrap();
        assert!(matches!(refused, Err(PrincipalError::Busy)), "{refused:?}");
        first.add_rule(queue, rule("new")).await.unwrap();
        assert_eq!(names(first, queue).await, ["new"]);
    }
}

/// An update of a queue keeps its rules, and so it writes them.
#[tokio::test]
async fn an_update_of_a_queue_writes_no_rule_back_that_another_owner_has_removed() {
    let pair = Pair::open().await;
    let first = &pair.first;
    let queue = Some("jobs");
    first.add_rule(queue, rule("gone")).await.unwrap();
    let update = || async {
        let body = "<entry xmlns=\"http://www.w3.org/2005/Atom\"><content type=\"application/xml\">\
            <QueueDescription xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\">\
            <MaxDeliveryCount>7</MaxDeliveryCount></QueueDescription></content></entry>";
        let path = "jobs?api-version=2021-05";
        ask(first, "PUT", path, &[("If-Match", "*")], body).await
    };
    pair.faults.fail(updates_queue, Fault::Waits);
    let meanwhile = async {
        until_a_command_waits(&pair.faults).await;
        let second = start(&pair.source).await.0;
        second.remove_rule(queue, "gone").await.unwrap();
        take_over(first, 100).await;
        pair.faults.release();
        second
    };
    let (answer, _second) = tokio::join!(update(), meanwhile);
    assert_eq!(answer.status, 503, "{answer:?}");
    let answer = update().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(names(first, queue).await.is_empty());
}
