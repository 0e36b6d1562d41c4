//! Tokens that a client puts, and how they are judged again when rules change.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use kew_amqp::sasl::SaslCode;
use tokio::time::Instant;

use crate::authorization::authority::is_public;
use crate::authorization::bad_token::BadToken;
use crate::authorization::credential::{Credential, Password, Refused, Shown};
use crate::authorization::put_token::{self, PutToken};
use crate::connection::client::Client;
use crate::connection::client::links::requests::{Asker, Reply};
use crate::connection::client::parts::credentials::{Judged, JudgedAgain, Put, judged_patiently};
use crate::connection::client::parts::done::Done;
use crate::connection::client::parts::turn::TOKEN_STEPS;
use crate::memory::account::Sum;
use crate::messages::request::Request;

impl Client {
    /// Takes a token. It is judged after the tokens before it, so that answers come in order.
    pub(super) fn put_token(&mut self, asker: Asker, request: &Request, size_bytes: usize) {
        self.load.begin_request();
        self.turn.steps.charge(TOKEN_STEPS);
        let put = Put {
            asker,
            asked: request.asked.clone(),
            operation: request.operation.clone(),
            token: Some(PutToken::read(request)),
            began: Instant::now(),
            _part: self.load.account.fixed(Sum::RequestBytes, size_bytes),
        };
        if self.credentials.put(put) {
            self.judge_next();
        }
    }

    pub(super) fn on_judged(&mut self, judged: Judged) {
        self.take_judged(judged);
        self.judge_next();
    }

    /// Judges tokens until one needs the broker.
    fn judge_next(&mut self) {
        while let Some(token) = self.credentials.next_put() {
            let mut judging = match token {
                Ok(put) => self.credentials.judge(&self.shared, self.peer.origin, put),
                Err(refused) => {
                    self.answer_put(Err(refused));
                    continue;
                }
            };
            // Most tokens are signed by a rule in memory.
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

    fn take_judged(&mut self, judged: Judged) {
        let Judged {
            put,
            result,
            changes,
        } = judged;
        if let Err(BadToken::PublicKey(barred)) = &result {
            self.shared
                .observer
                .note_barred(&self.peer.origin, *barred, None);
        }
        let taken = put.shown(result).and_then(|shown| self.take(shown));
        self.answer_put(taken);
        if self.credentials.are_rules_changed_since(changes) {
            self.judge_again();
        }
    }

    fn take(&mut self, shown: Shown) -> Result<(), Refused> {
        let tokens_max = self.shared.limits.tokens_max;
        if self.credentials.grants.add(shown, tokens_max)? {
            // It may grant less than the token that it replaced.
            self.turn.backlog.check_all();
        }
        self.trust();
        Ok(())
    }

    fn answer_put(&mut self, result: Result<(), Refused>) {
        let Some(put) = self.credentials.take_put() else {
            return;
        };
        let status = result
            .as_ref()
            .map_or_else(|(status, _)| *status, |()| put_token::TAKEN);
        self.note_token(&put.operation, status, put.began.elapsed());
        self.load.end_request();
        let reply = Reply {
            answer: put_token::answer(&put.asked, result),
            reply_to: put.asked.reply_to,
            renewed: None,
            room: None,
        };
        self.reply(&put.asker, reply);
    }

    /// Checks the response of PLAIN: the name of a rule and one of its keys.
    pub(super) fn take_password(&mut self, response: &[u8]) -> SaslCode {
        let mut parts = response.split(|&byte| byte == 0);
        let (_authorize_as, name, key) = (parts.next(), parts.next(), parts.next());
        let (Some(name), Some(key), None) = (name, key, parts.next()) else {
            return SaslCode::Auth;
        };
        let Ok(name) = std::str::from_utf8(name) else {
            return SaslCode::Auth;
        };
        let password = Password {
            name: name.into(),
            key: key.into(),
        };
        let origin = self.peer.origin;
        let judged = self
            .shared
            .authority
            .grant_of_password_now(&password, origin);
        let Ok(grant) = judged else {
            return SaslCode::SystemTemporary;
        };
        let Some(grant) = grant else {
            // SASL has no words for why: the log has.
            if let Err(barred) = origin.public_key
                && is_public(name, key)
            {
                self.shared.observer.note_barred(&origin, barred, None);
            }
            return SaslCode::Auth;
        };
        let shown = Shown {
            audience: None,
            credential: Credential::Password(Arc::new(password)),
            grant,
        };
        match self.take(shown) {
            Ok(()) => SaslCode::Ok,
            Err(_) => SaslCode::Auth,
        }
    }

    /// A rule was changed, here or perhaps by another owner: accepted tokens may no longer be valid.
    pub(crate) fn judge_again(&mut self) {
        let changes = self.credentials.begin_to_judge_again();
        self.turn.steps.charge(self.credentials.grants.len());
        let all: Vec<Shown> = self.credentials.grants.iter().cloned().collect();
        for shown in all {
            let credential = shown.credential.clone();
            if credential == Credential::Bearer {
                continue;
            }
            let (shared, origin) = (Arc::clone(&self.shared), self.peer.origin);
            let mut judging = Box::pin(async move {
                JudgedAgain {
                    credential,
                    grant: judged_patiently(&shared, &shown, origin).await,
                    changes,
                }
            });
            // Most were granted by a rule in memory.
            let mut context = Context::from_waker(Waker::noop());
            match judging.as_mut().poll(&mut context) {
                Poll::Ready(judged) => self.on_judged_again(&judged),
                Poll::Pending => {
                    self.tasks
                        .spawn(async move { Done::JudgedAgain(judging.await) });
                }
            }
        }
    }

    pub(super) fn on_judged_again(&mut self, judged: &JudgedAgain) {
        if self.credentials.take_judged_again(judged) {
            self.turn.backlog.check_all();
        }
    }
}
