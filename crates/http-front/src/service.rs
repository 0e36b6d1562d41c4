//! What a service adds to the front door.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use kew_listen::Place;

use crate::activity::{Activity, Overdue};
use crate::budget::Budget;
use crate::limits::Limits;
use crate::spelling::Spelling;

/// An answer, whole.
pub type Answer = Response<Full<Bytes>>;

/// What all connections of a service share.
#[derive(Debug)]
pub struct Front {
    /// The bounds of each connection.
    pub limits: Limits,
    /// The room for bodies, and for long heads on connections that have had an authentic request.
    pub budget: Arc<Budget>,
    /// The room for long heads on all other connections, so that unauthenticated clients take none from the others.
    pub(crate) unproven_heads: Arc<Budget>,
}

impl Front {
    /// With budgets of the sizes in the limits.
    pub fn new(limits: Limits) -> Self {
        Self {
            budget: Budget::new(limits.in_flight_size_bytes_max),
            unproven_heads: Budget::new(limits.unproven_heads_size_bytes_max),
            limits,
        }
    }
}

/// Why bytes are refused that did not become a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no room for the head of a request.
    Crowded,
    /// A head is not valid HTTP/1.1, or is too long. Holds the status, which distinguishes these.
    InvalidHead(StatusCode),
}

/// What happens on a connection, for metrics and logs.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A request waits until other connections have had their turn.
    TurnCut,
    /// This many requests were answered in a turn.
    Turn(u32),
    /// The connection ends because a deadline has passed.
    Overdue(Overdue),
    /// The connection broke, or the client did not speak HTTP.
    Failed(&'a hyper::Error),
}

/// A service, as one connection sees it.
pub trait Service: Sync {
    /// The spelling of names in heads, or `()` if it does not matter.
    type Spelling: Spelling;

    /// What the connections of the service share.
    fn front(&self) -> &Front;

    /// The connection's place among all connections.
    fn place(&self) -> &Place;

    /// Answers a request. `spelling` is that of its head. An answer with the status 101 ends HTTP on the
    /// connection: [`serve`](crate::serve()) then returns the socket. One with the header
    /// `Connection: close`, in lower case, is the last of the connection.
    ///
    /// The service tells `activity` when a request is authentic.
    fn answer(
        &self,
        request: Request<Incoming>,
        spelling: Self::Spelling,
        activity: &Activity<'_, Self::Spelling>,
    ) -> impl Future<Output = Answer> + Send;

    /// Refuses a request whose end is not certain. Its connection is closed.
    fn refuse_unsound(&self, request: Request<Incoming>) -> Answer;

    /// The bytes of an answer to something that is not a request. The connection is closed after it.
    fn refusal(&self, why: Refusal) -> Vec<u8>;

    /// Counts or logs an event.
    fn note(&self, event: Event<'_>);
}
