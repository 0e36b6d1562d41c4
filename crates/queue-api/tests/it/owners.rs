//! Accounts and rules for browsers that another owner of the log has changed, and changes whose outcome is unknown.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kew_broker::{Broker, BrokerOptions};
use kew_engine::{AccountQuota, AccountRecord, Command};
use kew_log::Epoch;
use kew_log_contract::{MemoryOptions, MemorySource};
use kew_loopback::{Fault, Faulty, faulty, handle_for_test};
use kew_principals::{Key, PrincipalError, WhichKey};
use kew_queue_api::{AccountStore, Accounts, QueueApi, QueueApiOptions, StorageAccounts};

use crate::client::{ACCOUNT, Answer, Call, Door, KEY, call};
use crate::properties::cors as rule;

/// A server that shares its log with others, one of which owns it.
struct Server {
    broker: Broker,
    faults: Arc<Faulty>,
    door: Door,
    accounts: AccountStore,
}

/// Starts a server, which owns the log.
async fn start(source: &MemorySource) -> Server {
    let started = Broker::start_on(Arc::new(source.clone()), BrokerOptions::default());
    let (broker, faults) = faulty(&handle_for_test(started.unwrap().0));
    let api = QueueApi::new(broker.clone(), QueueApiOptions::default());
    let accounts = StorageAccounts::open(broker.clone(), api.accounts().clone(), false);
    Server {
        accounts: accounts.await.unwrap(),
        door: Door::of(api),
        broker,
        faults,
    }
}

impl Server {
    /// Lets the server own the log.
    async fn take_over(&self, epoch: u64) {
        let epoch = Epoch::new(epoch);
        self.broker.promote(epoch);
        self.until(Some(epoch)).await;
    }

    /// Another server owns the log. This one learns it.
    async fn learn(&self) {
        let told = self.broker.submit(Command::ListAccounts).await;
        told.unwrap_err();
        self.until(None).await;
    }

    async fn until(&self, epoch: Option<Epoch>) {
        let mut changes = self.broker.ownership().watch();
        let changed = changes.wait_for(|now| *now == epoch);
        let changed = tokio::time::timeout(Duration::from_secs(30), changed).await;
        changed.expect("the owner changes").unwrap();
    }

    async fn until_a_command_waits(&self) {
        let waits = async {
            while self.faults.waiting() == 0 {
                tokio::task::yield_now().await;
            }
        };
        let waits = tokio::time::timeout(Duration::from_secs(30), waits).await;
        waits.expect("a command comes");
    }

    /// Adds an account, and returns its primary key.
    async fn add(&self, name: &str) -> String {
        let keys = Key::pair(None).unwrap();
        let record = StorageAccounts::record(name, AccountQuota::default(), &keys);
        primary(&self.accounts.add(&(), record).await.unwrap())
    }

    /// Replaces the primary key of an account.
    async fn rotate(&self, name: &str) -> Result<String, PrincipalError> {
        let rotated = self.accounts.rotate(&(), name, WhichKey::Primary).await;
        rotated.map(|record| primary(&record))
    }

    async fn names(&self) -> Vec<String> {
        let all = self.accounts.list(&()).await.unwrap();
        all.iter().map(|it| it.name.to_string()).collect()
    }

    async fn list(&self, account: &'static str, key: &str) -> Answer {
        self.door
            .send(signed("GET", account, "/?comp=list", key))
            .await
    }

    /// Asks as the page would before its request.
    async fn preflight(&self, account: &'static str, page: &str) -> Answer {
        let asked = call("OPTIONS", "")
            .target(&format!("/{account}/q"))
            .anonymous()
            .header("Origin", page)
            .header("Access-Control-Request-Method", "GET");
        self.door.send(asked).await
    }

    async fn share(&self, account: &'static str, key: &str, pages: &[&str]) -> Answer {
        let rules: String = pages.iter().map(|page| rule(page)).collect();
        let body = properties(&format!("<Cors>{rules}</Cors>"));
        self.door.send(set(account, key).body(body)).await
    }
}

fn primary(record: &AccountRecord) -> String {
    STANDARD.encode(record.keys[0].as_bytes())
}

fn signed(method: &'static str, account: &'static str, target: &str, key: &str) -> Call {
    call(method, "")
        .target(&format!("/{account}{target}"))
        .key(account, key)
}

fn set(account: &'static str, key: &str) -> Call {
    signed("PUT", account, "/?restype=service&comp=properties", key)
}

fn properties(content: &str) -> String {
    format!("<StorageServiceProperties>{content}</StorageServiceProperties>")
}

fn changes_account(command: &Command) -> bool {
    matches!(
        command,
        Command::PutAccount { .. } | Command::RemoveAccount { .. }
    )
}

fn sets_properties(command: &Command) -> bool {
    matches!(command, Command::SetServiceProperties { .. })
}

#[tokio::test]
async fn accounts_are_those_that_the_last_owner_has_left() {
    let source = MemorySource::new(MemoryOptions::default());
    let first = start(&source).await;
    let old = first.add("orders").await;
    let gone = first.add("goods").await;
    first.list("orders", &old).await.check_status(200);

    let second = start(&source).await;
    second.list("orders", &old).await.check_status(200);
    let new = second.rotate("orders").await.unwrap();
    second.accounts.remove(&(), "goods", true).await.unwrap();
    let added = second.add("others").await;

    // A server that follows judges nobody: a client tries again, with whichever key.
    first.learn().await;
    for (account, key) in [("orders", &old), ("orders", &new), ("others", &added)] {
        let answer = first.list(account, key).await;
        answer.check_error(503, "ServerBusy");
    }
    let refused = first.rotate("orders").await;
    assert!(matches!(refused, Err(PrincipalError::Busy)), "{refused:?}");

    first.take_over(100).await;
    let answer = first.list("orders", &old).await;
    answer.check_error(403, "AuthenticationFailed");
    first.list("orders", &new).await.check_status(200);
    first.list("others", &added).await.check_status(200);
    let answer = first.list("goods", &gone).await;
    answer.check_error(404, "ResourceNotFound");

    // And back again.
    let newest = first.rotate("orders").await.unwrap();
    second.take_over(101).await;
    let answer = second.list("orders", &new).await;
    answer.check_error(403, "AuthenticationFailed");
    second.list("orders", &newest).await.check_status(200);
    assert_eq!(second.names().await, ["orders", "others"]);
}

/// The old key is still that of the account as this server knows it, and is not when the server owns the log again.
#[tokio::test]
async fn a_body_during_another_ownership_does_nothing() {
    let source = MemorySource::new(MemoryOptions::default());
    let first = start(&source).await;
    let old = first.add("orders").await;
    let bytes = signed("PUT", "orders", "/late", &old)
        .body("late")
        .to_bytes();
    let (last, begin) = bytes.split_last().unwrap();
    let wire = &mut first.door.connect();
    wire.write(begin).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let second = start(&source).await;
    let new = second.rotate("orders").await.unwrap();
    first.take_over(100).await;
    wire.write(&[*last]).await;
    let answer = wire.answer(false).await;
    answer.check_error(403, "AuthenticationFailed");
    let answer = first.list("orders", &new).await;
    assert!(answer.elements("Name").is_empty(), "{answer:?}");
}

/// A request that was judged and waits to be carried out is not carried out by a later ownership of the server.
#[tokio::test]
async fn a_request_is_carried_out_in_the_epoch_that_it_was_judged_in() {
    let source = MemorySource::new(MemoryOptions::default());
    let first = start(&source).await;
    let key = first.add("orders").await;
    first
        .faults
        .fail(|it| matches!(it, Command::Storage(_)), Fault::Waits);
    let mut wire = first.door.connect();
    let put = signed("PUT", "orders", "/late", &key);
    let putting = tokio::spawn(async move { wire.send(put).await });
    first.until_a_command_waits().await;
    let second = start(&source).await;
    second.rotate("orders").await.unwrap();
    first.take_over(100).await;
    first.faults.release();
    let answer = putting.await.unwrap();
    answer.check_error(503, "ServerBusy");
}

#[tokio::test]
async fn rules_for_browsers_are_those_that_the_last_owner_has_left() {
    let source = MemorySource::new(MemoryOptions::default());
    let first = start(&source).await;
    let key = first.add("orders").await;
    let pages = ["http://one", "http://two"];
    first.share("orders", &key, &pages).await.check_status(202);
    for page in pages {
        first.preflight("orders", page).await.check_status(200);
    }

    let second = start(&source).await;
    let pages = ["http://two", "http://three"];
    second.share("orders", &key, &pages).await.check_status(202);
    first.learn().await;
    let answer = first.preflight("orders", "http://three").await;
    answer.check_error(503, "ServerBusy");

    first.take_over(100).await;
    let expected = [("one", 403), ("two", 200), ("three", 200)];
    for (page, status) in expected {
        let answer = first.preflight("orders", &format!("http://{page}")).await;
        answer.check_status(status);
    }
}

/// A server that serves a fixed account.
async fn start_with_a_fixed_account(source: &MemorySource) -> Server {
    let server = start(source).await;
    let options = QueueApiOptions {
        accounts: Accounts::well_known(),
        ..QueueApiOptions::default()
    };
    Server {
        door: Door::of(QueueApi::new(server.broker.clone(), options)),
        ..server
    }
}

/// An account that is not of the log stays the same: the epoch alone says that its rules are old.
#[tokio::test]
async fn rules_of_a_fixed_account_are_those_that_the_last_owner_has_left() {
    let source = MemorySource::new(MemoryOptions::default());
    let (account, page) = (ACCOUNT, "http://page");
    let first = start_with_a_fixed_account(&source).await;
    first.share(account, KEY, &[page]).await.check_status(202);
    first.preflight(account, page).await.check_status(200);
    let second = start_with_a_fixed_account(&source).await;
    second.share(account, KEY, &[]).await.check_status(202);
    first.learn().await;
    let answer = first.preflight(account, page).await;
    answer.check_error(503, "ServerBusy");
    first.take_over(100).await;
    first.preflight(account, page).await.check_status(403);
}

#[tokio::test]
async fn a_change_writes_no_rule_back_that_another_owner_has_removed() {
    let source = MemorySource::new(MemoryOptions::default());
    let first = start(&source).await;
    let key = first.add("orders").await;
    let page = "http://one";
    first.share("orders", &key, &[page]).await.check_status(202);
    first.preflight("orders", page).await.check_status(200);

    // It leaves the rules as they are. It has read them, and waits to write.
    first.faults.fail(sets_properties, Fault::Waits);
    let metrics = "<HourMetrics><Version>1.0</Version><Enabled>false</Enabled><RetentionPolicy>\
        <Enabled>false</Enabled></RetentionPolicy></HourMetrics>";
    let leaves_rules = set("orders", &key).body(properties(metrics));
    let mut wire = first.door.connect();
    let changing = tokio::spawn({
        let leaves_rules = leaves_rules.clone();
        async move { wire.send(leaves_rules).await }
    });
    first.until_a_command_waits().await;
    let second = start(&source).await;
    second.share("orders", &key, &[]).await.check_status(202);
    first.take_over(100).await;
    first.faults.release();
    let answer = changing.await.unwrap();
    answer.check_error(503, "ServerBusy");
    // The client tries again.
    first.door.send(leaves_rules).await.check_status(202);
    let answer = first.preflight("orders", page).await;
    answer.check_status(403);
    let read = signed("GET", "orders", "/?restype=service&comp=properties", &key);
    let answer = first.door.send(read).await;
    assert!(answer.elements("AllowedOrigins").is_empty(), "{answer:?}");
}

/// Rotates a key with this fault. Returns the server with the key before, and the one that the log has now.
async fn rotate_in_vain(fault: Fault) -> (Server, [String; 2]) {
    let server = start(&MemorySource::new(MemoryOptions::default())).await;
    let before = server.add("orders").await;
    server.faults.fail(changes_account, fault);
    let unknown = server.rotate("orders").await;
    assert!(
        matches!(unknown, Err(PrincipalError::Unknown)),
        "{unknown:?}"
    );
    let now = server.accounts.find(&(), "orders").await.unwrap();
    (server, [before, primary(&now)])
}

#[tokio::test]
async fn a_key_whose_change_is_unknown_and_was_made_is_the_new_one() {
    let (server, [before, now]) = rotate_in_vain(Fault::LosesAnswer).await;
    assert_ne!(before, now);
    let answer = server.list("orders", &before).await;
    answer.check_error(403, "AuthenticationFailed");
    server.list("orders", &now).await.check_status(200);
}

#[tokio::test]
async fn a_key_whose_change_is_unknown_and_was_not_made_is_the_old_one() {
    let (server, [before, now]) = rotate_in_vain(Fault::LosesCommand).await;
    assert_eq!(before, now);
    server.list("orders", &before).await.check_status(200);
}

#[tokio::test]
async fn an_account_whose_removal_is_unknown_is_served_if_it_is_there() {
    for (fault, status) in [(Fault::LosesAnswer, 404), (Fault::LosesCommand, 200)] {
        let server = start(&MemorySource::new(MemoryOptions::default())).await;
        let key = server.add("orders").await;
        server.faults.fail(changes_account, fault);
        let unknown = server.accounts.remove(&(), "orders", true).await;
        assert!(
            matches!(unknown, Err(PrincipalError::Unknown)),
            "{unknown:?}"
        );
        server.list("orders", &key).await.check_status(status);
        // The next change brings nothing back.
        server.add("others").await;
        server.list("orders", &key).await.check_status(status);
        let is_there = server.names().await.contains(&"orders".to_owned());
        assert_eq!(is_there, status == 200);
    }
}

#[tokio::test]
async fn rules_for_browsers_whose_change_is_unknown_are_those_of_the_log() {
    for (fault, statuses) in [
        (Fault::LosesAnswer, [403, 200]),
        (Fault::LosesCommand, [200, 403]),
    ] {
        let server = start(&MemorySource::new(MemoryOptions::default())).await;
        let key = server.add("orders").await;
        let pages = ["http://one", "http://two"];
        let shared = server.share("orders", &key, &pages[..1]).await;
        shared.check_status(202);
        server.preflight("orders", pages[0]).await.check_status(200);
        server.faults.fail(sets_properties, fault);
        let unknown = server.share("orders", &key, &pages[1..]).await;
        unknown.check_error(500, "OperationTimedOut");
        for (page, status) in pages.into_iter().zip(statuses) {
            server.preflight("orders", page).await.check_status(status);
        }
    }
}
