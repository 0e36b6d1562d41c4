//! The known facts about accounts, their quotas, and the service's properties.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kew_broker::Rejection;
use kew_engine::storage::{StorageCommand, StorageOutcome, StorageRefusal};
use kew_engine::{
    AccountQuota, AccountRecord, Command, MESSAGE_OVERHEAD_BYTES, Outcome, QuotaLimit, Refusal,
};

use super::message::Certainty;
use super::queue::Queue;
use super::{Operation, Seen, Violation, promise, violated};
use crate::workload::ACCOUNT;

/// The possible states of an account: `None` if it may not exist.
type Possible = Vec<Option<AccountRecord>>;

#[derive(Clone, Debug)]
pub(super) struct Accounts {
    accounts: BTreeMap<Arc<str>, Possible>,
    properties: Vec<Option<Bytes>>,
}

impl Default for Accounts {
    fn default() -> Self {
        Self {
            accounts: BTreeMap::new(),
            properties: vec![None],
        }
    }
}

impl Accounts {
    /// Whether a command is about accounts, and not about one queue.
    pub(super) fn is_about(command: &Command) -> bool {
        matches!(
            command,
            Command::SetServiceProperties { .. }
                | Command::ReadServiceProperties { .. }
                | Command::PutAccount { .. }
                | Command::RemoveAccount { .. }
                | Command::ListAccounts
        )
    }

    /// Looks at an operation on accounts.
    pub(super) fn check(
        &mut self,
        operation: &Operation,
        queues: &mut BTreeMap<usize, Queue>,
    ) -> Result<(), Violation> {
        match &operation.seen {
            Seen::Answered(Ok((outcome, _))) => self.succeeded(operation, outcome, queues),
            Seen::Answered(Err(Rejection::Refused(refusal))) => {
                self.refused(operation, refusal, queues)
            }
            Seen::Answered(Err(
                Rejection::Busy | Rejection::NotOwner | Rejection::Full | Rejection::ReadFailed,
            )) => Ok(()),
            Seen::Answered(Err(Rejection::Stopped | Rejection::Unknown)) | Seen::Unknown => {
                self.unknown(&operation.command, queues);
                Ok(())
            }
        }
    }

    fn succeeded(
        &mut self,
        operation: &Operation,
        outcome: &Outcome,
        queues: &mut BTreeMap<usize, Queue>,
    ) -> Result<(), Violation> {
        match (&operation.command, outcome) {
            (Command::SetServiceProperties { properties, .. }, Outcome::ServicePropertiesSet) => {
                self.properties = vec![Some(properties.clone())];
                Ok(())
            }
            (Command::ReadServiceProperties { .. }, Outcome::ServiceProperties(seen)) => {
                if !self.properties.contains(seen) {
                    let known = &self.properties;
                    return violated!(promise::NO_CHANGE, "properties {seen:?}, not of {known:?}");
                }
                self.properties = vec![seen.clone()];
                Ok(())
            }
            (Command::PutAccount { account, is_new }, Outcome::AccountPut) => {
                self.must_be(&account.name, !is_new, operation)?;
                *self.possible(&account.name) = vec![Some(account.clone())];
                Ok(())
            }
            (
                Command::RemoveAccount {
                    account,
                    with_queues,
                },
                Outcome::AccountRemoved,
            ) => {
                self.must_be(account, true, operation)?;
                *self.possible(account) = vec![None];
                if **account == *ACCOUNT {
                    self.properties = vec![None];
                    for queue in queues.values_mut() {
                        if *with_queues {
                            queue.vanish(Certainty::Yes);
                        } else {
                            queue.must_be_absent(operation)?;
                        }
                    }
                }
                Ok(())
            }
            (Command::ListAccounts, Outcome::Accounts(listed)) => self.listed(listed, operation),
            (command, outcome) => {
                violated!(promise::ANSWERS_FIT, "{command:?} answered {outcome:?}")
            }
        }
    }

    fn listed(&mut self, listed: &[AccountRecord], operation: &Operation) -> Result<(), Violation> {
        for account in listed {
            self.must_be(&account.name, true, operation)?;
        }
        for (name, possible) in &mut self.accounts {
            let seen = listed.iter().find(|account| account.name == *name);
            let seen = seen.cloned();
            if !possible.contains(&seen) {
                let promise = if seen.is_none() {
                    promise::NO_LOSS
                } else {
                    promise::NO_CHANGE
                };
                return violated!(promise, "account {name} is {seen:?}, not of {possible:?}");
            }
            *possible = vec![seen];
        }
        Ok(())
    }

    fn refused(
        &mut self,
        operation: &Operation,
        refusal: &Refusal,
        queues: &BTreeMap<usize, Queue>,
    ) -> Result<(), Violation> {
        match (&operation.command, refusal) {
            (Command::PutAccount { account, .. }, Refusal::AccountAlreadyExists { .. }) => {
                self.must_be(&account.name, true, operation)
            }
            (
                Command::PutAccount {
                    account: AccountRecord { name, .. },
                    ..
                }
                | Command::RemoveAccount { account: name, .. },
                Refusal::AccountNotFound { .. },
            ) => self.must_be(name, false, operation),
            (Command::RemoveAccount { account, .. }, Refusal::AccountNotEmpty { .. }) => {
                let (_, queues_max) = count(queues);
                if **account != *ACCOUNT || queues_max == 0 {
                    return violated!(promise::COUNTS_CONSERVED, "no queues: {operation:?}");
                }
                self.must_be(account, true, operation)
            }
            (command, refusal) => {
                violated!(promise::ANSWERS_FIT, "{command:?} refused: {refusal}")
            }
        }
    }

    fn unknown(&mut self, command: &Command, queues: &mut BTreeMap<usize, Queue>) {
        match command {
            Command::SetServiceProperties { properties, .. } => {
                self.properties.push(Some(properties.clone()));
            }
            Command::PutAccount { account, .. } => {
                self.possible(&account.name).push(Some(account.clone()));
            }
            Command::RemoveAccount { account, .. } => {
                let possible = self.possible(account);
                if possible.iter().all(Option::is_none) {
                    return;
                }
                possible.push(None);
                if **account == *ACCOUNT {
                    self.properties.push(None);
                    queues
                        .values_mut()
                        .for_each(|queue| queue.vanish(Certainty::Maybe));
                }
            }
            _ => {}
        }
    }

    fn possible(&mut self, name: &Arc<str>) -> &mut Possible {
        let possible = self.accounts.entry(name.clone());
        possible.or_insert_with(|| vec![None])
    }

    /// I1, I3: an account exists, or does not, as an answer says.
    fn must_be(
        &mut self,
        name: &Arc<str>,
        there: bool,
        operation: &Operation,
    ) -> Result<(), Violation> {
        let possible = self.possible(name);
        possible.retain(|account| account.is_some() == there);
        match (possible.is_empty(), there) {
            (false, _) => Ok(()),
            (true, true) => violated!(promise::NO_RESURRECTION, "no account {name}: {operation:?}"),
            (true, false) => violated!(promise::NO_LOSS, "account {name} is there: {operation:?}"),
        }
    }

    /// All possible quotas of the queues' account.
    fn quotas(&self) -> Vec<AccountQuota> {
        let Some(possible) = self.accounts.get(ACCOUNT) else {
            return vec![AccountQuota::default()];
        };
        let quota = |account: &Option<AccountRecord>| {
            let account = account.as_ref();
            account.map(|account| account.quota).unwrap_or_default()
        };
        possible.iter().map(quota).collect()
    }

    /// I7: a refusal for a quota requires that it is used up, and deleted messages do not count.
    pub(super) fn check_refusal(
        &self,
        operation: &Operation,
        refusal: &Refusal,
        queues: &BTreeMap<usize, Queue>,
    ) -> Result<(), Violation> {
        let Refusal::Storage(StorageRefusal::AccountQuotaExceeded {
            limit,
            needed,
            allowed,
            ..
        }) = refusal
        else {
            return Ok(());
        };
        let is_known = self.quotas().iter().any(|quota| match limit {
            QuotaLimit::Queues => quota.queues_max == Some(*allowed),
            QuotaLimit::SizeBytes => quota.size_bytes_max == Some(*allowed),
        });
        let most = match (&operation.command, limit) {
            (Command::Storage(StorageCommand::CreateQueue { .. }), QuotaLimit::Queues) => {
                count(queues).1 + 1
            }
            (Command::Storage(StorageCommand::Send { body, .. }), QuotaLimit::SizeBytes) => {
                size(operation, queues).1 + body.len() as u64 + MESSAGE_OVERHEAD_BYTES
            }
            (
                Command::Storage(StorageCommand::Update {
                    body: Some((_, body)),
                    ..
                }),
                QuotaLimit::SizeBytes,
            ) => size(operation, queues).1 + body.len() as u64,
            (command, _) => {
                return violated!(promise::ANSWERS_FIT, "{command:?} refused: {refusal}");
            }
        };
        if !is_known || needed <= allowed || *needed > most {
            return violated!(
                promise::COUNTS_CONSERVED,
                "{refusal}, with at most {most} needed: {operation:?}"
            );
        }
        Ok(())
    }

    /// I7: a success must be within the quota. Called before its effect is added.
    pub(super) fn check_success(
        &self,
        operation: &Operation,
        outcome: &Outcome,
        queues: &BTreeMap<usize, Queue>,
    ) -> Result<(), Violation> {
        let (limit, least): (fn(&AccountQuota) -> Option<u64>, u64) =
            match (&operation.command, outcome) {
                (
                    Command::Storage(StorageCommand::CreateQueue { .. }),
                    Outcome::Storage(StorageOutcome::QueueCreated),
                ) => (|quota| quota.queues_max, count(queues).0 + 1),
                (
                    Command::Storage(StorageCommand::Send { body, .. }),
                    Outcome::Storage(StorageOutcome::Sent(_)),
                ) => {
                    let new = body.len() as u64 + MESSAGE_OVERHEAD_BYTES;
                    (
                        |quota| quota.size_bytes_max,
                        size(operation, queues).0 + new,
                    )
                }
                _ => return Ok(()),
            };
        let is_exceeded = |quota: &AccountQuota| limit(quota).is_some_and(|max| least > max);
        if self.quotas().iter().all(is_exceeded) {
            return violated!(
                promise::COUNTS_CONSERVED,
                "at least {least} are used, above every quota: {operation:?}"
            );
        }
        Ok(())
    }
}

/// How many queues there are at least and at most.
fn count(queues: &BTreeMap<usize, Queue>) -> (u64, u64) {
    let of = |is: fn(Certainty) -> bool| {
        let queues = queues.values();
        queues.filter(|queue| is(queue.certainty())).count() as u64
    };
    (
        of(|certainty| certainty == Certainty::Yes),
        of(|certainty| certainty != Certainty::No),
    )
}

/// How many bytes messages take at least and at most.
fn size(operation: &Operation, queues: &BTreeMap<usize, Queue>) -> (u64, u64) {
    queues.values().fold((0, 0), |(least, most), queue| {
        let (more_least, more_most) = queue.size_bytes(operation.until);
        (least + more_least, most + more_most)
    })
}
