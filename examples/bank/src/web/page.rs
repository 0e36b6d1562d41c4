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
use crate::queue::Service;

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
    /// How long new messages are leased, if workers lost leases.
    lease_hint_s: Option<u64>,
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
        trouble.extend(self.locks_too_short());
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
            lease_hint_s: self.queue.lease_hint().get().map(|it| it.as_secs()),
            workers: workers.collect(),
            balances: balances.collect(),
            trouble,
        }
    }

    /// What to do where no message can ask for a longer lease.
    fn locks_too_short(&self) -> Option<String> {
        self.queue.lease_hint().get()?;
        match self.queue.service() {
            Service::Storage(_) => None,
            Service::Bus { .. } => Some(format!(
                "workers lose locks: raise BANK_WORKER_TIMEOUT_S of all programs, and the lock duration of {}",
                self.queue.name()
            )),
        }
    }

    async fn stored(&self) -> Result<(Vec<Balance>, Vec<WorkReport>), StoreError> {
        let ledger = self.ledger()?;
        tokio::try_join!(ledger.balances(ACCOUNTS_MAX), ledger.reports(SILENCE_MAX_S))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Map, Value};

    use super::*;

    /// The names that the page's script reads after a prefix.
    fn read_after<'a>(script: &'a str, prefix: &str) -> BTreeSet<&'a str> {
        let uses = script.split(prefix).skip(1);
        uses.map(|it| {
            let end = it.find(|it: char| !it.is_ascii_alphanumeric());
            &it[..end.unwrap_or(it.len())]
        })
        .collect()
    }

    /// What the page does with the rows of a list.
    fn rows_of<'a>(script: &'a str, list: &str) -> &'a str {
        let begin = format!("state.{list}.map(");
        let (_, rest) = script.split_once(&begin).unwrap();
        rest.split_once(')').unwrap().0
    }

    fn names(json: &Map<String, Value>) -> BTreeSet<&str> {
        json.keys().map(String::as_str).collect()
    }

    #[test]
    fn the_page_reads_what_the_state_has() {
        let state = BankState {
            queue: String::new(),
            depth: None,
            lease_hint_s: None,
            workers: vec![WorkerState {
                instance: String::new(),
                in_flight: 0,
                completed: 0,
                failed: 0,
                buried: 0,
            }],
            balances: vec![AccountState {
                account: String::new(),
                balance: String::new(),
            }],
            trouble: Vec::new(),
        };
        let state = serde_json::to_value(state).unwrap();
        let script = PAGE.split_once("<script>").unwrap().1;
        // All of it is shown, and nothing else is read.
        assert_eq!(
            read_after(script, "state."),
            names(state.as_object().unwrap())
        );
        for list in ["workers", "balances"] {
            let row = state[list][0].as_object().unwrap();
            assert_eq!(
                read_after(rows_of(script, list), "it."),
                names(row),
                "{list}"
            );
        }
        let sums = read_after(script, "sum(\"");
        assert!(
            sums.is_subset(&names(state["workers"][0].as_object().unwrap())),
            "{sums:?}"
        );
        assert_eq!(sums.len(), 2);
        // Whatever it fills is on it.
        for id in read_after(script, "$(\"") {
            assert!(PAGE.contains(&format!("id=\"{id}\"")), "{id}");
        }
    }
}
