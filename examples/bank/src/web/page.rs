//! The page: balances, the depth of the queue, and work in progress.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{Html, Response};
use kew_idempotency::StoreError;
use serde::Serialize;
use tokio::time::timeout;

use super::{Bank, calls};
use crate::ledger::{Balance, WorkReport};

/// How old a state may be. However many pages are open, it is read so often.
const AGE_MAX: Duration = Duration::from_millis(500);

/// How long the page waits for the queue and for the store. It shows what has answered until then.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Accounts on the page.
const ACCOUNTS_MAX: u32 = 200;

/// A worker that said nothing for so long is not shown.
const SILENCE_MAX_S: i64 = 5;

const PAGE: &str = include_str!("page.html");

/// A state, and when it was read.
#[derive(Debug)]
pub(super) struct Seen {
    at: Instant,
    state: BankState,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BankState {
    queue: String,
    depth: Option<u64>,
    workers: Vec<WorkerState>,
    balances: Vec<AccountState>,
    /// What could not be read.
    trouble: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WorkerState {
    instance: String,
    in_flight: i64,
    completed: i64,
    failed: i64,
    buried: i64,
}

#[derive(Clone, Debug, Serialize)]
struct AccountState {
    account: String,
    balance: String,
}

pub(super) async fn page() -> Html<&'static str> {
    Html(PAGE)
}

pub(super) async fn state(State(bank): State<Arc<Bank>>) -> Response {
    let mut seen = bank.seen.lock().await;
    let state = match &*seen {
        Some(seen) if seen.at.elapsed() < AGE_MAX => seen.state.clone(),
        Some(_) | None => {
            // Boxed, because it holds three requests.
            let state = Box::pin(bank.state()).await;
            let at = Instant::now();
            *seen = Some(Seen {
                at,
                state: state.clone(),
            });
            state
        }
    };
    calls::json(StatusCode::OK, &state)
}

impl Bank {
    async fn state(&self) -> BankState {
        let mut trouble = Vec::new();
        let (depth, stored) = tokio::join!(
            timeout(WAIT_MAX, self.queue.depth()),
            timeout(WAIT_MAX, self.stored())
        );
        let silent = |_| Err(format!("no answer in {WAIT_MAX:?}"));
        let depth = depth.map_or_else(silent, |it| it.map_err(|error| error.to_string()));
        let depth = depth.unwrap_or_else(|error| {
            trouble.push(format!("the queue: {error}"));
            None
        });
        let silent = |_| Err(format!("no answer in {WAIT_MAX:?}"));
        let stored = stored.map_or_else(silent, |it| it.map_err(|error| error.to_string()));
        let (balances, reports) = stored.unwrap_or_else(|error| {
            trouble.push(format!("the store: {error}"));
            Default::default()
        });
        let balances = balances.into_iter().map(|it| AccountState {
            account: it.key,
            balance: it.balance.to_string(),
        });
        let workers = reports.into_iter().map(|it| WorkerState {
            instance: it.instance,
            in_flight: it.in_flight,
            completed: it.completed,
            failed: it.failed,
            buried: it.buried,
        });
        BankState {
            queue: self.queue.name().to_owned(),
            depth,
            workers: workers.collect(),
            balances: balances.collect(),
            trouble,
        }
    }
    async fn stored(&self) -> Result<(Vec<Balance>, Vec<WorkReport>), StoreError> {
        let ledger = self.ledger()?;
        tokio::try_join!(ledger.balances(ACCOUNTS_MAX), ledger.reports(SILENCE_MAX_S))
    }
}
