//! The credentials of a client, and those that are being judged.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::authorization::bad_token::BadToken;
use crate::authorization::credential::{Credential, Refused, Shown};
use crate::authorization::grant::Grant;
use crate::authorization::grants::Grants;
use crate::authorization::put_token::PutToken;
use crate::authorization::rights::Right;
use crate::connection::client::links::firsts::First;
use crate::connection::client::links::link::Link;
use crate::connection::client::links::requests::Asker;
use crate::connection::client::patience::{BUSY_PAUSE, BUSY_TRIES};
use crate::ground::origin::Origin;
use crate::memory::account::Part;
use crate::messages::request::Asked;
use crate::shared::Shared;

/// A request to put a token.
pub(crate) struct Put {
    pub(crate) asker: Asker,
    pub(crate) asked: Asked,
    pub(crate) operation: String,
    /// `None` while it is judged.
    pub(crate) token: Option<Result<PutToken, Refused>>,
    pub(crate) began: Instant,
    /// The memory that it takes.
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
    /// Tokens that were put and are not judged yet, in order. The first one is in progress.
    putting: VecDeque<Put>,
    /// Notifies that tokens must be judged again.
    pub(crate) rule_changes: watch::Receiver<u64>,
    /// How often rules had been changed when tokens were last judged again.
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

    /// Whether an attached link is still allowed.
    pub(crate) fn allow(&self, link: &Link) -> bool {
        match link {
            Link::Sender(it) => [&it.asked]
                .into_iter()
                .chain(&it.destination)
                .all(|entity| self.grants.allow(entity, Right::Send)),
            Link::Receiver(it) => self.grants.allow(&it.attached.entity, Right::Listen),
            Link::Opening(_) | Link::Requests(_) | Link::Replies(_) | Link::Coordinator => true,
        }
    }

    /// Whether a first entity may get failed transfers now. A client that handles its messages has the right to receive
    /// them, and often no other one.
    pub(crate) fn allow_failed_transfers(&self, first: &First) -> bool {
        let rights = [Right::Listen, Right::Send];
        rights
            .into_iter()
            .any(|right| self.grants.allow(&first.asked, right))
    }

    /// Queues a token behind those that wait for judgement. Returns whether it is the only one.
    pub(crate) fn put(&mut self, put: Put) -> bool {
        self.putting.push_back(put);
        self.putting.len() == 1
    }

    /// The token to judge next, unless it is being judged already.
    pub(crate) fn next_put(&mut self) -> Option<Result<PutToken, Refused>> {
        self.putting.front_mut()?.token.take()
    }

    /// Takes out the token that was judged.
    pub(crate) fn take_put(&mut self) -> Option<Put> {
        self.putting.pop_front()
    }

    /// Forgets the tokens that were put: the client does not wait any more.
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

    /// Whether rules have changed since they had been changed `changes` times.
    pub(crate) fn are_rules_changed_since(&self, changes: u64) -> bool {
        changes != *self.rule_changes.borrow()
    }

    /// Everything must be judged again by the current rules. Returns how often they were changed.
    pub(crate) fn begin_to_judge_again(&mut self) -> u64 {
        self.judged_changes = *self.rule_changes.borrow_and_update();
        self.judged_changes
    }

    /// Applies a new judgement. Returns whether a right may have been lost.
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
    /// `None` if it is no longer valid.
    pub(crate) grant: Option<Grant>,
    /// How often rules had been changed before.
    pub(crate) changes: u64,
}

/// Judges a credential again. Waits while the broker is busy, because that is no verdict, but for 5 s at most: nobody keeps
/// for longer what may have been taken away. While the partition has no owner here, nothing is carried out, so that does not
/// count.
pub(crate) async fn judged_patiently(
    shared: &Shared,
    shown: &Shown,
    origin: Origin,
) -> Option<Grant> {
    let ownership = shared.broker.ownership();
    loop {
        let mut owners = ownership.watch();
        drop(owners.wait_for(Option::is_some).await);
        let judging = async {
            loop {
                match judged(shared, shown, origin).await {
                    Err(BadToken::Unavailable) if ownership.epoch().is_none() => return None,
                    Err(BadToken::Unavailable) => tokio::time::sleep(BUSY_PAUSE).await,
                    judged => return Some(judged.ok().flatten()),
                }
            }
        };
        let judged = tokio::time::timeout(BUSY_PAUSE * BUSY_TRIES, judging).await;
        if let Some(grant) = judged.unwrap_or(Some(None)) {
            return grant;
        }
    }
}

/// What is granted for a credential now.
async fn judged(shared: &Shared, shown: &Shown, origin: Origin) -> Result<Option<Grant>, BadToken> {
    let authority = &shared.authority;
    match &shown.credential {
        Credential::Signature(token) => {
            let audience = shown.audience.as_deref().unwrap_or_default();
            authority.grant_for(token, audience, origin).await.map(Some)
        }
        Credential::Password(password) => authority.grant_of_password(password, origin).await,
        // It does not depend on rules.
        Credential::Bearer => Ok(Some(shown.grant.clone())),
    }
}
