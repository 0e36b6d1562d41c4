//! Accounts with their quotas, access policies, and the properties of services.

use std::sync::Arc;

use super::*;
use crate::catalogue::Scope;
use crate::catalogue::{AccountQuota, AccountRecord, AccountSecret, QuotaLimit};
use crate::command::Command;
use crate::outcome::Outcome;
use crate::outcome::Refusal;
use crate::state::State;
use crate::storage::{AccessPolicies, AccessPolicy};
use crate::table::MESSAGE_OVERHEAD_BYTES;
use crate::vocabulary::EntityName;

fn account(name: &str, queues_max: Option<u64>, size_bytes_max: Option<u64>) -> AccountRecord {
    AccountRecord {
        name: name.into(),
        keys: [b"one", b"two"].map(|key| AccountSecret::new(key).unwrap()),
        quota: AccountQuota {
            queues_max,
            size_bytes_max,
        },
        is_disabled: false,
    }
}

fn policies(id: &str) -> AccessPolicies {
    let policy = AccessPolicy {
        id: id.into(),
        start: None,
        expiry: None,
        permissions: Some("r".into()),
    };
    AccessPolicies::new(vec![policy]).unwrap()
}

impl Partition {
    fn put(&mut self, account: AccountRecord, is_new: bool) -> Result<Outcome, Refusal> {
        self.ask(Command::PutAccount { account, is_new })
    }

    fn remove(&mut self, name: &str, with_queues: bool) -> Result<Outcome, Refusal> {
        self.ask(Command::RemoveAccount {
            account: name.into(),
            with_queues,
        })
    }

    fn create_named(&mut self, account: &str, name: &str) -> Result<Outcome, Refusal> {
        self.ask(Command::Storage(StorageCommand::CreateQueue {
            queue: EntityName::storage_queue(account, name),
            metadata: Metadata::default(),
        }))
    }

    fn policies(&mut self) -> AccessPolicies {
        match self.ask(Command::Storage(StorageCommand::ReadQueue {
            queue: jobs(),
        })) {
            Ok(Outcome::Storage(StorageOutcome::Queue(view))) => view.policies,
            other => panic!("{other:?}"),
        }
    }

    fn properties(&mut self) -> Option<Bytes> {
        let asked = self.ask(Command::ReadServiceProperties {
            service: Service::QueueStorage,
            account: "acct".into(),
        });
        match asked {
            Ok(Outcome::ServiceProperties(properties)) => properties,
            other => panic!("{other:?}"),
        }
    }

    fn set_properties(&mut self, size: usize) -> Result<Outcome, Refusal> {
        self.ask(Command::SetServiceProperties {
            service: Service::QueueStorage,
            account: "acct".into(),
            properties: vec![b'p'; size].into(),
        })
    }

    fn used(&self) -> (u64, u64) {
        let usage = self.state.usage_of("acct");
        (usage.queues, usage.size_bytes)
    }
}

fn exceeded(limit: QuotaLimit, needed: u64, allowed: u64) -> Result<Outcome, Refusal> {
    Err(Refusal::Storage(StorageRefusal::AccountQuotaExceeded {
        account: "acct".into(),
        limit,
        needed,
        allowed,
    }))
}

#[test]
fn an_account_is_added_replaced_listed_and_removed() {
    let mut p = Partition::new();
    let name = || "acct".into();
    let missing = || Err(Refusal::AccountNotFound { account: name() });
    assert_eq!(p.put(account("acct", None, None), false), missing());
    assert_eq!(p.remove("acct", true), missing());
    let added = p.put(account("acct", None, None), true);
    assert_eq!(added, Ok(Outcome::AccountPut));
    let twice = p.put(account("acct", Some(1), None), true);
    assert_eq!(
        twice,
        Err(Refusal::AccountAlreadyExists { account: name() })
    );
    p.put(account("beta", None, None), true).unwrap();
    p.put(account("acct", Some(2), None), false).unwrap();
    let all = vec![account("acct", Some(2), None), account("beta", None, None)];
    assert_eq!(p.ask(Command::ListAccounts), Ok(Outcome::Accounts(all)));
    p.check_restart();
    assert_eq!(p.remove("acct", false), Ok(Outcome::AccountRemoved));
    let rest = vec![account("beta", None, None)];
    assert_eq!(p.ask(Command::ListAccounts), Ok(Outcome::Accounts(rest)));
    p.check_restart();
}

#[test]
fn what_an_account_has_goes_with_it_and_nothing_else() {
    let mut p = Partition::with_queue();
    p.put(account("acct", None, None), true).unwrap();
    p.create_named("other", "jobs").unwrap();
    p.send_with("x", Some(5), 0).unwrap();
    p.set_properties(3).unwrap();
    let namespace: (Service, Arc<str>) = (Service::ServiceBus, "acct".into());
    p.ask(Command::SetServiceProperties {
        service: namespace.0,
        account: namespace.1.clone(),
        properties: Bytes::from_static(b"rules"),
    })
    .unwrap();
    let queues = 1;
    let account = "acct".into();
    assert_eq!(
        p.remove("acct", false),
        Err(Refusal::AccountNotEmpty { account, queues })
    );
    assert_eq!(p.remove("acct", true), Ok(Outcome::AccountRemoved));
    assert_eq!(p.state.counts(), (1, 0));
    assert_eq!(p.used(), (0, 0));
    assert_eq!(p.properties(), None);
    assert!(
        p.state
            .catalogue
            .service_properties
            .contains_key(&namespace)
    );
    assert_eq!(p.state.next_deadline(), None);
    p.check_restart();
}

#[test]
fn queues_are_counted_by_account_and_given_back() {
    let mut p = Partition::new();
    p.put(account("acct", Some(2), None), true).unwrap();
    p.create_named("acct", "a").unwrap();
    p.create_named("other", "a").unwrap();
    p.create(&[]).unwrap();
    let refused = p.create_named("acct", "c");
    assert_eq!(refused, exceeded(QuotaLimit::Queues, 3, 2));
    // What is there is found, full or not.
    assert_eq!(
        p.create(&[]),
        Ok(Outcome::Storage(StorageOutcome::QueueUnchanged))
    );
    p.ask(Command::Storage(StorageCommand::DeleteQueue {
        queue: jobs(),
    }))
    .unwrap();
    p.create_named("acct", "c").unwrap();
    p.check_restart();
}

#[test]
fn bytes_are_counted_through_every_way_a_message_goes() {
    let each = MESSAGE_OVERHEAD_BYTES;
    let mut p = Partition::with_queue();
    p.put(account("acct", None, Some(2 * each + 10)), true)
        .unwrap();
    let first = p.send("12345");
    assert_eq!(p.used(), (1, each + 5));
    let refused = p.send_with("123456", None, 0);
    let needed = 2 * each + 11;
    assert_eq!(
        refused,
        exceeded(QuotaLimit::SizeBytes, needed, 2 * each + 10)
    );
    p.send_with("12345", Some(5), 0).unwrap();
    assert_eq!(p.used(), (1, 2 * each + 10));

    // A longer body is refused, one that is as long or shorter is not.
    let taken = p.receive(1, 30);
    let (message, receipt) = (taken[0].message, taken[0].receipt);
    assert_eq!(message, first.message);
    let grown = p.update(message, receipt, 9, Some("123456"));
    assert_eq!(
        grown.map(|_| Outcome::Storage(StorageOutcome::Deleted)),
        exceeded(QuotaLimit::SizeBytes, needed, 2 * each + 10)
    );
    let receipt = p.update(message, receipt, 9, Some("54321")).unwrap();
    let receipt = p.update(message, receipt, 9, Some("1")).unwrap();
    assert_eq!(p.used(), (1, 2 * each + 6));
    p.check_restart();

    p.delete(message, receipt).unwrap();
    assert_eq!(p.used(), (1, each + 5));
    p.wait_seconds(6);
    p.tick(10);
    assert_eq!(p.used(), (1, 0));
    p.send("1");
    p.ask(Command::Storage(StorageCommand::Clear { queue: jobs() }))
        .unwrap();
    assert_eq!(p.used(), (1, 0));
    p.send("1");
    p.check_restart();
    p.ask(Command::Storage(StorageCommand::DeleteQueue {
        queue: jobs(),
    }))
    .unwrap();
    assert_eq!(p.used(), (0, 0));
    p.check_restart();
}

#[test]
fn a_quota_below_what_is_used_lets_it_drain() {
    let mut p = Partition::with_queue();
    let sent = p.send("12345");
    p.put(account("acct", Some(0), Some(0)), true).unwrap();
    let receipt = p.update(sent.message, sent.receipt, 0, Some("1")).unwrap();
    assert!(p.send_with("", None, 0).is_err());
    p.delete(sent.message, receipt).unwrap();
    assert_eq!(p.used(), (1, 0));
}

#[test]
fn a_refusal_for_the_quota_rests_on_the_whole_partition() {
    let mut p = Partition::with_queue();
    p.put(account("acct", None, Some(0)), true).unwrap();
    let decision = p.decide(Command::Storage(StorageCommand::Send {
        queue: jobs(),
        body: Bytes::new(),
        encoding: BodyEncoding::Text,
        time_to_live_seconds: None,
        visibility_timeout: VisibilityTimeout::ZERO,
    }));
    assert!(decision.result.is_err());
    assert_eq!(decision.scope, Scope::Everything);
}

#[test]
fn policies_live_and_die_with_their_queue() {
    let mut p = Partition::with_queue();
    assert!(p.policies().is_empty());
    let set = Command::Storage(StorageCommand::SetQueuePolicies {
        queue: jobs(),
        policies: policies("reader"),
    });
    assert_eq!(
        p.ask(set.clone()),
        Ok(Outcome::Storage(StorageOutcome::QueuePoliciesSet))
    );
    assert_eq!(p.policies(), policies("reader"));
    p.check_restart();
    let mut restored = State::new();
    p.state.snapshot(|part| restored.restore(part).unwrap());
    assert_eq!(restored, p.state);
    p.ask(Command::Storage(StorageCommand::DeleteQueue {
        queue: jobs(),
    }))
    .unwrap();
    let queue = "jobs".into();
    assert_eq!(
        p.ask(set),
        Err(Refusal::Storage(StorageRefusal::QueueNotFound { queue }))
    );
    p.create(&[]).unwrap();
    assert!(p.policies().is_empty());
    p.check_restart();
}

#[test]
fn properties_of_a_service_are_kept_as_they_are() {
    let mut p = Partition::new();
    assert_eq!(p.properties(), None);
    assert_eq!(p.set_properties(5), Ok(Outcome::ServicePropertiesSet));
    assert_eq!(p.properties(), Some(Bytes::from_static(b"ppppp")));
    p.check_restart();
    p.set_properties(64 * 1024).unwrap();
    let (size_bytes, limit_bytes) = (64 * 1024 + 1, 64 * 1024);
    assert_eq!(
        p.set_properties(size_bytes),
        Err(Refusal::PropertiesTooLarge {
            size_bytes,
            limit_bytes
        })
    );
    p.check_restart();
}

#[test]
fn raw_bodies_stay_raw() {
    let mut p = Partition::with_queue();
    let body = Bytes::from_static(&[0xff, 0, 7]);
    let sent = p.ask(Command::Storage(StorageCommand::Send {
        queue: jobs(),
        body: body.clone(),
        encoding: BodyEncoding::Raw,
        time_to_live_seconds: None,
        visibility_timeout: VisibilityTimeout::ZERO,
    }));
    let Ok(Outcome::Storage(StorageOutcome::Sent(sent))) = sent else {
        panic!("{sent:?}");
    };
    p.check_restart();
    p.ask(Command::Storage(StorageCommand::Update {
        queue: jobs(),
        message: sent.message,
        receipt: sent.receipt,
        visibility_timeout: VisibilityTimeout::ZERO,
        body: Some((BodyEncoding::Text, body.clone())),
    }))
    .unwrap();
    let taken = p.receive(1, 0);
    assert_eq!(taken[0].encoding, BodyEncoding::Text);
    p.ask(Command::Storage(StorageCommand::Update {
        queue: jobs(),
        message: taken[0].message,
        receipt: taken[0].receipt,
        visibility_timeout: VisibilityTimeout::ZERO,
        body: Some((BodyEncoding::Raw, body)),
    }))
    .unwrap();
    let mut restored = State::new();
    p.state.snapshot(|part| restored.restore(part).unwrap());
    p.state = restored;
    assert_eq!(p.receive(1, 0)[0].encoding, BodyEncoding::Raw);
}
