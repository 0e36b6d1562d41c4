//! What a client has shown, and what of it is being judged.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::authorization::bad_token::BadToken;
use crate::authorization::credential::{Credential, Refused};
use crate::authorization::grant::Grant;
use crate::authorization::grants::Grants;
use crate::authorization::put_token::PutToken;
use crate::authorization::rights::Right;
use crate::connection::client::links::link::Link;
use crate::connection::client::links::requests::Asker;
use crate::connection::client::patience::{BUSY_PAUSE, BUSY_TRIES};
use crate::ground::origin::Origin;
use crate::memory::account::Part;
use crate::messages::request::Asked;
use crate::shared::Shared;

/// A request to take a token.
pub(crate) struct Put {
    pub(crate) asker: Asker,
    pub(crate) asked: Asked,
    pub(crate) operation: String,
    /// Nothing while it is judged.
    pub(crate) token: Option<Result<PutToken, Refused>>,
    pub(crate) began: Instant,
    /// What it holds.
    pub(crate) _part: Part,
}

/// A token that was put and judged.
pub(crate) struct Judged {
    pub(crate) put: PutToken,
    pub(crate) result: Result<Grant, BadToken>,
    /// How often rules had been changed before.
    pub(crate) changes: u64,
}

/// A judgement that may need the broker.
pub(crate) type Judging = Pin<Box<dyn Future<Output = Judged> + Send>>;

/// Grants, and tokens that are being judged.
pub(crate) struct Credentials {
    pub(crate) grants: Grants,
    /// Tokens that were put and are not judged yet, in order. The first one is under way.
    putting: VecDeque<Put>,
    /// Tells that tokens are to be judged again.
    pub(crate) rule_changes: watch::Receiver<u64>,
    /// How often rules had been changed when tokens were judged again last.
    judged_changes: u64,
}

impl Credentials {
    pub(crate) fn new(rule_changes: watch::Receiver<u64>) -> Self {
        Self {
            grants: Grants::default(),
            putting: VecDeque::new(),
            rule_changes,
            judged_changes: 0,
        }
    }

    /// Whether a link that was attached is still allowed.
    pub(crate) fn allow(&self, link: &Link) -> bool {
        match link {
            Link::Sender(it) => self.grants.allow(&it.attached.entity, Right::Send),
            Link::Receiver(it) => self.grants.allow(&it.attached.entity, Right::Listen),
            Link::Opening(_) | Link::Requests(_) | Link::Replies(_) | Link::Coordinator => true,
        }
    }

    /// Has a token wait until those before it are judged. Says whether there is none.
    pub(crate) fn put(&mut self, put: Put) -> bool {
        self.putting.push_back(put);
        self.putting.len() == 1
    }

    /// The token that is to be judged next, unless its judgement is under way.
    pub(crate) fn next_put(&mut self) -> Option<Result<PutToken, Refused>> {
        self.putting.front_mut()?.token.take()
    }

    /// Takes out the token that was judged.
    pub(crate) fn take_put(&mut self) -> Option<Put> {
        self.putting.pop_front()
    }

    /// Nobody waits for what was put any more.
    pub(crate) fn forget_puts(&mut self) {
        self.putting.clear();
    }

    /// Judges a token, by the rules of now.
    pub(crate) fn judge(&self, shared: &Arc<Shared>, origin: Origin, put: PutToken) -> Judging {
        let shared = Arc::clone(shared);
        let changes = *self.rule_changes.borrow();
        Box::pin(async move {
            let authority = &shared.authority;
            let judged = authority.grant_for(&put.token, &put.audience, origin);
            let result = match judged.await {
                Ok(grant) => put.check_entity(&shared.broker).await.map(|()| grant),
                refused => refused,
            };
            Judged {
                put,
                result,
                changes,
            }
        })
    }

    /// Whether rules have been changed since they were so often.
    pub(crate) fn are_rules_changed_since(&self, changes: u64) -> bool {
        changes != *self.rule_changes.borrow()
    }

    /// Everything is to be judged again by the rules of now. Says how often they were changed.
    pub(crate) fn begin_to_judge_again(&mut self) -> u64 {
        self.judged_changes = *self.rule_changes.borrow_and_update();
        self.judged_changes
    }

    /// Takes what was judged again. Says whether something may be allowed no more.
    pub(crate) fn take_judged_again(&mut self, judged: &JudgedAgain) -> bool {
        // Rules were changed since: another judgement is under way.
        if judged.changes != self.judged_changes {
            return false;
        }
        let grant = judged.grant.clone();
        self.grants.judged_again(&judged.credential, grant)
    }
}

/// A credential that was judged after rules were changed.
pub(crate) struct JudgedAgain {
    pub(crate) credential: Credential,
    /// Nothing if it holds no more.
    pub(crate) grant: Option<Grant>,
    /// How often rules had been changed before.
    pub(crate) changes: u64,
}

/// That the broker is busy says nothing about a token.
pub(crate) async fn judged_patiently(
    shared: &Shared,
    token: &str,
    audience: &str,
    origin: Origin,
) -> Option<Grant> {
    for _ in 0..BUSY_TRIES {
        match shared.authority.grant_for(token, audience, origin).await {
            Err(BadToken::Unavailable) => tokio::time::sleep(BUSY_PAUSE).await,
            judged => return judged.ok(),
        }
    }
    None
}
