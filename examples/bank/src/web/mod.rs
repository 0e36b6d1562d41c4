//! The web service: confirms transactions when they are queued, and answers card payments at once.

mod calls;
mod leases;
mod page;
mod serve;

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn;
use axum::routing::{get, post};
use kew_idempotency::StoreError;
use tokio::sync::Mutex;

use crate::ledger::Ledger;
use crate::queue::Queue;

pub use serve::{Limits, serve};

/// The largest body of a request, in bytes: more than fits in a message.
const BODY_SIZE_MAX: usize = 16 << 10;

/// What all requests share.
#[derive(Debug)]
pub struct Bank {
    ledger: OnceLock<Ledger>,
    queue: Queue,
    /// The last state that the page got.
    seen: Mutex<Option<page::Seen>>,
}

impl Bank {
    /// A bank with these stores and this queue.
    pub fn new(ledger: Ledger, queue: Queue) -> Self {
        let bank = Self::without_stores(queue);
        bank.open(ledger);
        bank
    }

    /// A bank whose stores are not open yet: it shows its page, and confirms nothing.
    pub fn without_stores(queue: Queue) -> Self {
        Self {
            ledger: OnceLock::new(),
            queue,
            seen: Mutex::new(None),
        }
    }

    /// Gives it its stores. They stay the same from then on.
    pub fn open(&self, ledger: Ledger) {
        self.ledger.get_or_init(|| ledger);
    }

    fn ledger(&self) -> Result<&Ledger, StoreError> {
        let not_open = || StoreError::later("the store is not open yet");
        self.ledger.get().ok_or_else(not_open)
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
        .layer(from_fn(serve::within_time))
        .with_state(bank)
}
