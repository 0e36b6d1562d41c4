//! The audit log: one record of every act of administration. Refused acts are recorded too, the
//! first few a second.
//!
//! Records have the target `audit`, like those for accounts, with the caller and its address. Reads
//! and dry runs leave no record. A client with any token can cause refused acts at any rate: beyond
//! [`REFUSALS_MAX`] a second they are counted, and the count is logged. Text from a client is cut
//! to [`LOGGED_LENGTH_MAX`], which is longer than any existing name.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::Method;
use kew_metrics::{FewASecond, Line};

use super::answers::{Answer, HttpError};
use super::call::Call;

/// Refused acts that are logged each second.
const REFUSALS_MAX: u32 = 10;
/// When the count of the others is logged.
const UNTOLD_AFTER: Duration = Duration::from_secs(1);
/// How many characters of a client's text are logged: more than a name of 260 and the part of the
/// entity.
const LOGGED_LENGTH_MAX: usize = 320;

/// Keeps refused acts from flooding the log. Dropping it logs how many were counted and not logged yet: so that comes
/// before the server says that it has stopped.
#[derive(Debug)]
pub(crate) struct RefusedActs(FewASecond);

impl Default for RefusedActs {
    fn default() -> Self {
        Self(FewASecond::new(REFUSALS_MAX))
    }
}

impl RefusedActs {
    /// Logs how many refusals were counted and not logged yet.
    fn tell(&self) {
        let count = self.0.take_untold();
        if count > 0 {
            tracing::warn!(target: "audit", count, "audit: refusals that have no line of their own");
        }
    }
}

impl Drop for RefusedActs {
    fn drop(&mut self) {
        self.tell();
    }
}

/// The caller and its address.
#[derive(Clone)]
pub(super) struct Actor {
    refused_acts: Arc<RefusedActs>,
    by: Box<str>,
    peer: String,
}

impl Actor {
    pub(super) fn of(refused_acts: &Arc<RefusedActs>, call: &Call) -> Self {
        Self {
            refused_acts: Arc::clone(refused_acts),
            by: cut(&call.grant.holder).into(),
            peer: call.head.origin.peer.to_string(),
        }
    }

    /// Records an act that was carried out. A name may be anything: it is shown quoted.
    pub(super) fn did(&self, act: &str, entity: &str, detail: &str) {
        let Self { by, peer, .. } = self;
        let (entity, detail) = (cut(entity), cut(detail));
        tracing::info!(target: "audit", ?entity, ?by, peer, detail, "audit: {act}");
    }

    /// Records a refused act, unless there are too many.
    pub(super) fn was_refused(&self, act: &str, entity: &str, error: &HttpError) {
        if !self.may_tell_refusal() {
            return;
        }
        let Self { by, peer, .. } = self;
        let (entity, refused) = (cut(entity), cut(error.detail()));
        let status = error.status.as_u16();
        tracing::warn!(target: "audit", ?entity, ?by, peer, status, ?refused, "audit: {act}");
    }

    /// Records an act of management, which is known by its method and path.
    pub(super) fn managed(&self, method: &Method, path: &str, result: &Result<Answer, HttpError>) {
        let act = match *method {
            Method::PUT => "create or update",
            Method::DELETE => "delete",
            Method::POST => "post",
            _ => return,
        };
        match result {
            Ok(answer) => self.did(act, path, answer.status().as_str()),
            Err(error) => self.was_refused(act, path, error),
        }
    }

    /// Whether one more refusal may be logged. The first one that may not causes the count to be
    /// logged a second later.
    fn may_tell_refusal(&self) -> bool {
        match self.refused_acts.0.note(SystemTime::now()) {
            Line::Told => true,
            Line::Untold => false,
            Line::FirstUntold => {
                let acts = Arc::downgrade(&self.refused_acts);
                tokio::spawn(async move {
                    tokio::time::sleep(UNTOLD_AFTER).await;
                    if let Some(acts) = acts.upgrade() {
                        acts.tell();
                    }
                });
                false
            }
        }
    }
}

/// The beginning of a client's text, and a mark if it continues.
fn cut(text: &str) -> String {
    match text.char_indices().nth(LOGGED_LENGTH_MAX) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
