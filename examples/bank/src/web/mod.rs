//! The web service: confirms transactions when they are queued, and answers card payments at once.

mod calls;
mod page;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use tokio::sync::Mutex;

use crate::ledger::Ledger;
use crate::queue::Queue;

/// The largest body of a request, in bytes: more than fits in a message.
const BODY_SIZE_MAX: usize = 16 << 10;

/// What all requests share.
#[derive(Debug)]
pub struct Bank {
    ledger: Ledger,
    queue: Queue,
    /// The last state that the page got.
    seen: Mutex<Option<page::Seen>>,
}

impl Bank {
    /// A bank with these stores and this queue.
    pub fn new(ledger: Ledger, queue: Queue) -> Self {
        Self {
            ledger,
            queue,
            seen: Mutex::new(None),
        }
    }

    /// The queue.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }
}

/// All addresses of the service.
pub fn router(bank: Arc<Bank>) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/state", get(page::state))
        .route("/transactions/insert", post(calls::insert))
        .route("/transactions/withdraw", post(calls::withdraw))
        .route("/transactions/{user}/{account}", get(calls::look_up))
        .route("/cards/approve", post(calls::approve))
        .route("/partner/movements", post(calls::partner))
        .layer(DefaultBodyLimit::max(BODY_SIZE_MAX))
        .with_state(bank)
}
