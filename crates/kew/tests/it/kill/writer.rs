//! One connection that mixes all message operations until the server is gone.

use std::sync::Arc;

use queue_load::{Client, Endpoint, Error, PutOptions};

use super::QUEUES;
use super::ledger::{Change, Held, Ledger, Visit};
use super::random::Random;
use super::text;

/// About as many messages are kept in the queues.
const LIVE_TARGET: usize = 300;

/// Receipts that a writer holds on to at most.
const HELD_MAX: usize = 12;

/// A writer ends with the first request that was not answered.
type Answered = Result<(), ServerGone>;
struct ServerGone;

struct Writer {
    client: Client,
    ledger: Arc<Ledger>,
    random: Random,
    held: Vec<Held>,
}

/// Writes until the server is gone.
pub(super) async fn run(endpoint: Arc<Endpoint>, ledger: Arc<Ledger>, random: Random) {
    let mut writer = Writer {
        client: Client::new(endpoint),
        ledger,
        random,
        held: Vec::new(),
    };
    while writer.step().await.is_ok() {}
}

impl Writer {
    async fn step(&mut self) -> Answered {
        let put_share = if self.ledger.live_count() < LIVE_TARGET {
            45
        } else {
            12
        };
        let choice = self.random.below(100);
        if choice < put_share {
            self.put().await
        } else if choice < 60 && self.held.len() < HELD_MAX {
            self.get().await
        } else if choice < 64 {
            self.peek().await
        } else if let Some(held) = self.random.take(&mut self.held) {
            if self.random.percent(60) {
                self.delete(held).await
            } else {
                self.update(held).await
            }
        } else {
            self.get().await
        }
    }

    async fn put(&mut self) -> Answered {
        let queue = self.random.pick(&QUEUES);
        let delay = self.random.pick(&[0, 0, 0, 1]);
        let visit = self.ledger.begin_put(queue, delay);
        let text = text::compose(visit.number, 0);
        let options = PutOptions {
            visibility_timeout: (delay > 0).then_some(delay),
            time_to_live: self.random.percent(50).then_some(-1),
        };
        match self.client.put(queue, &text, options).await {
            Ok(sent) => {
                let held = self.ledger.put_acknowledged(&visit, &sent);
                // Now and then the receipt of a put is used as well.
                if self.random.percent(10) {
                    self.held.push(held);
                }
                Ok(())
            }
            Err(error) => self.failed(&error, |ledger, fate| ledger.put_failed(&visit, fate)),
        }
    }

    async fn get(&mut self) -> Answered {
        let queue = self.random.pick(&QUEUES);
        let lease = self.random.pick(&[1, 2]);
        let count = u32::try_from(1 + self.random.below(4)).expect("small");
        let visit = self.ledger.begin_get(queue, lease);
        match self.client.get(queue, count, lease).await {
            Ok(messages) => {
                self.held.extend(self.ledger.delivered(&visit, &messages));
                Ok(())
            }
            Err(error) => self.failed(&error, |ledger, fate| ledger.get_failed(&visit, fate)),
        }
    }

    async fn peek(&mut self) -> Answered {
        let queue = self.random.pick(&QUEUES);
        let visit = Visit::new(queue);
        match self.client.peek(queue, 32).await {
            Ok(messages) => {
                self.ledger.peeked(&visit, &messages);
                Ok(())
            }
            Err(error) => self.failed(&error, |_, _| ()),
        }
    }

    async fn delete(&mut self, held: Held) -> Answered {
        let change = self.ledger.begin_change(&held, Change::Delete);
        match self
            .client
            .delete(held.queue, &held.id, &held.receipt)
            .await
        {
            Ok(()) => {
                self.ledger.deleted(&change);
                Ok(())
            }
            Err(error) => self.failed(&error, |ledger, fate| {
                ledger.change_failed(&change, fate, &error)
            }),
        }
    }

    async fn update(&mut self, held: Held) -> Answered {
        let lease = self.random.pick(&[0, 1, 2]);
        let replace = self.random.percent(60);
        let change = self
            .ledger
            .begin_change(&held, Change::Update { lease, replace });
        let text = change
            .version
            .map(|version| text::compose(held.number, version));
        let result = self
            .client
            .update(held.queue, &held.id, &held.receipt, lease, text.as_deref())
            .await;
        match result {
            Ok(receipt) => {
                self.held.push(self.ledger.updated(&change, &receipt));
                Ok(())
            }
            Err(error) => self.failed(&error, |ledger, fate| {
                ledger.change_failed(&change, fate, &error)
            }),
        }
    }

    /// Notes what may have become of a request that failed.
    fn failed(&self, error: &Error, note: impl FnOnce(&Ledger, Fate)) -> Answered {
        match error {
            Error::NotSent(_) => {
                note(&self.ledger, Fate::NeverHappened);
                Err(ServerGone)
            }
            Error::Unknown(_) => {
                note(&self.ledger, Fate::Unknown);
                Err(ServerGone)
            }
            Error::Refused { status: 503, .. } => {
                note(&self.ledger, Fate::NeverHappened);
                Ok(())
            }
            Error::Refused {
                status: 404, code, ..
            } if code == "MessageNotFound" => {
                note(&self.ledger, Fate::ReceiptRefused);
                Ok(())
            }
            Error::Refused { .. } => {
                note(&self.ledger, Fate::Unknown);
                self.ledger
                    .violation(format!("an answer that was not expected: {error}"));
                Err(ServerGone)
            }
        }
    }
}

/// What became of a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It changed nothing.
    NeverHappened,
    /// It changed nothing, because the receipt is not the latest one.
    ReceiptRefused,
    /// It happened or did not.
    Unknown,
}
