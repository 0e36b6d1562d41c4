//! The audit log: one record of every act of administration, done or refused.
//!
//! It is logged under the target `audit`, as what is done with accounts is, with who did it and from
//! where. What only looks leaves none, nor does a dry run.

use hyper::Method;

use super::answer::{Answer, HttpError};
use super::call::Call;

/// Who acts, and from where.
#[derive(Clone, Debug)]
pub(super) struct Actor {
    by: Box<str>,
    peer: String,
}

impl Actor {
    pub(super) fn of(call: &Call) -> Self {
        Self {
            by: call.grant.holder.clone(),
            peer: call.head.origin.peer.to_string(),
        }
    }

    /// Records an act that was carried out. A name may be anything: it is shown quoted.
    pub(super) fn did(&self, act: &str, entity: &str, detail: &str) {
        let Self { by, peer } = self;
        tracing::info!(target: "audit", ?entity, ?by, peer, detail, "audit: {act}");
    }

    /// Records one that was refused.
    pub(super) fn was_refused(&self, act: &str, entity: &str, error: &HttpError) {
        let Self { by, peer } = self;
        let (status, refused) = (error.status.as_u16(), error.detail());
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
}
