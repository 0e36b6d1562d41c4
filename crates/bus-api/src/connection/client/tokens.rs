//! Tokens that a client puts, and what becomes of them when rules are changed.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use super::node::{Asker, Reply};
use super::turn::TOKEN_STEPS;
use super::{BUSY_PAUSE, BUSY_TRIES, Client, Done};
use crate::authorization::authority::is_public;
use crate::authorization::bad_token::BadToken;
use crate::authorization::credential::{Credential, Password, Refused, Shown};
use crate::authorization::grant::Grant;
use crate::authorization::put_token::{self, PutToken};
use crate::ground::origin::Origin;
use crate::memory::account::{Part, Sum};
use crate::messages::request::{Asked, Request};
use crate::shared::Shared;

/// A request to take a token.
pub(super) struct Put {
    asker: Asker,
    asked: Asked,
    operation: String,
    /// Nothing while it is judged.
    token: Option<Result<PutToken, Refused>>,
    began: Instant,
    /// What it holds.
    _part: Part,
}

/// A token that was put and judged.
pub(crate) struct Judged {
    put: PutToken,
    result: Result<Grant, BadToken>,
    /// How often rules had been changed before.
    changes: u64,
}

type Judging = Pin<Box<dyn Future<Output = Judged> + Send>>;

impl Client {
    /// Takes a token, once those that were put before it were judged, so that answers come in order.
    pub(super) fn put_token(&mut self, asker: Asker, request: &Request, size_bytes: usize) {
        self.requests += 1;
        self.steps.charge(TOKEN_STEPS);
        self.putting.push_back(Put {
            asker,
            asked: request.asked.clone(),
            operation: request.operation.clone(),
            token: Some(PutToken::read(request)),
            began: Instant::now(),
            _part: self.account.fixed(Sum::RequestBytes, size_bytes),
        });
        if self.putting.len() == 1 {
            self.judge_next();
        }
    }

    pub(super) fn on_judged(&mut self, judged: Judged) {
        self.take_judged(judged);
        self.judge_next();
    }

    /// Judges what was put until the broker must be asked.
    fn judge_next(&mut self) {
        while let Some(token) = self.putting.front_mut().and_then(|put| put.token.take()) {
            let mut judging = match token {
                Ok(put) => self.judge(put),
                Err(refused) => {
                    self.answer_put(Err(refused));
                    continue;
                }
            };
            // Most are signed by a rule that is at hand.
            let mut context = Context::from_waker(Waker::noop());
            match judging.as_mut().poll(&mut context) {
                Poll::Ready(judged) => self.take_judged(judged),
                Poll::Pending => {
                    self.tasks.spawn(async move { Done::Judged(judging.await) });
                    return;
                }
            }
        }
    }

    fn judge(&self, put: PutToken) -> Judging {
        let (shared, origin) = (Arc::clone(&self.shared), self.origin);
        let changes = *self.rule_changes.borrow();
        Box::pin(async move {
            let judged = shared
                .authority
                .grant_for(&put.token, &put.audience, origin)
                .await;
            let result = match judged {
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

    fn take_judged(&mut self, judged: Judged) {
        let Judged {
            put,
            result,
            changes,
        } = judged;
        if let Err(BadToken::PublicKey(barred)) = &result {
            self.shared
                .observer
                .note_barred(&self.origin, *barred, None);
        }
        let taken = put.shown(result).and_then(|shown| self.take(shown));
        self.answer_put(taken);
        if changes != *self.rule_changes.borrow() {
            self.judge_again();
        }
    }

    fn take(&mut self, shown: Shown) -> Result<(), Refused> {
        let tokens_max = self.shared.limits.tokens_max;
        if self.grants.add(shown, tokens_max)? {
            // It may be worth less than the one whose place it has taken.
            self.detach_what_is_not_allowed();
        }
        self.trust();
        Ok(())
    }

    fn answer_put(&mut self, result: Result<(), Refused>) {
        let Some(put) = self.putting.pop_front() else {
            return;
        };
        let status = result
            .as_ref()
            .map_or_else(|(status, _)| *status, |()| put_token::TAKEN);
        self.note_token(&put.operation, status, put.began.elapsed());
        self.requests = self.requests.saturating_sub(1);
        let reply = Reply {
            answer: put_token::answer(&put.asked, result),
            reply_to: put.asked.reply_to,
            renewed: None,
            room: None,
        };
        self.reply(&put.asker, reply);
    }

    /// Takes the response of PLAIN, if it is the name of a rule and one of its keys.
    pub(super) fn take_password(&mut self, response: &[u8]) -> bool {
        let mut parts = response.split(|&byte| byte == 0);
        let (_authorize_as, name, key) = (parts.next(), parts.next(), parts.next());
        let (Some(name), Some(key), None) = (name, key, parts.next()) else {
            return false;
        };
        let Ok(name) = std::str::from_utf8(name) else {
            return false;
        };
        let Some(grant) = self
            .shared
            .authority
            .grant_of_password(name, key, self.origin)
        else {
            // SASL has no words for why: the log has.
            if let Err(barred) = self.origin.public_key
                && is_public(name, key)
            {
                self.shared.observer.note_barred(&self.origin, barred, None);
            }
            return false;
        };
        let password = Password {
            name: name.into(),
            key: key.into(),
        };
        let shown = Shown {
            audience: None,
            credential: Credential::Password(Arc::new(password)),
            grant,
        };
        self.take(shown).is_ok()
    }

    /// A rule was changed: what was taken may no longer hold.
    pub(crate) fn judge_again(&mut self) {
        let changes = *self.rule_changes.borrow_and_update();
        self.judged_changes = changes;
        self.steps.charge(self.grants.len());
        let all: Vec<Shown> = self.grants.iter().cloned().collect();
        for shown in all {
            let Shown {
                audience,
                credential,
                ..
            } = shown;
            let token = match &credential {
                Credential::Password(password) => {
                    let Password { name, key } = &**password;
                    let grant = self
                        .shared
                        .authority
                        .grant_of_password(name, key, self.origin);
                    self.on_judged_again(&JudgedAgain {
                        credential,
                        grant,
                        changes,
                    });
                    continue;
                }
                Credential::Signature(token) => Arc::clone(token),
                Credential::Bearer => continue,
            };
            let (shared, origin) = (Arc::clone(&self.shared), self.origin);
            self.tasks.spawn(async move {
                let audience = audience.unwrap_or_default();
                Done::JudgedAgain(JudgedAgain {
                    credential,
                    grant: judged_patiently(&shared, &token, &audience, origin).await,
                    changes,
                })
            });
        }
    }

    pub(super) fn on_judged_again(&mut self, judged: &JudgedAgain) {
        // Rules were changed since: another judgement is under way.
        if judged.changes == self.judged_changes {
            let grant = judged.grant.clone();
            if self.grants.judged_again(&judged.credential, grant) {
                self.detach_what_is_not_allowed();
            }
        }
    }
}

/// A credential that was judged after rules were changed.
pub(crate) struct JudgedAgain {
    credential: Credential,
    /// Nothing if it holds no more.
    grant: Option<Grant>,
    /// How often rules had been changed before.
    changes: u64,
}

/// That the broker is busy says nothing about a token.
async fn judged_patiently(
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
