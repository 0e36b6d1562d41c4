//! One connection that mixes message operations until it must stop or the server has ended.

use std::sync::Arc;
use std::time::Duration;

use kew_client::{Error, ErrorKind, PutOptions, QueueAccount, QueueClient};

use super::ledger::{Change, Held, Ledger, Visit};
use super::random::Random;
use super::{QUEUES, Until};
use crate::server::queue_client;

/// About how many messages are kept in the queues.
const LIVE_TARGET: usize = 300;

/// How many receipts a writer keeps at most.
const HELD_MAX: usize = 12;

/// A server that was busy so many times in a row is full.
const BUSY_MAX: u32 = 20;

/// How long a writer pauses after a busy answer.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Why a writer cannot continue.
enum End {
    /// The server has ended.
    Gone,
    /// A request was not answered.
    Unanswered,
}
type Answered = Result<(), End>;

/// What to note about a request with unknown outcome, once it cannot happen any more.
pub(super) type Note = Box<dyn FnOnce(&Ledger) + Send>;

/// The operations of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// All message operations, with about as many messages deleted as put.
    Everything,
    /// Only puts.
    Puts,
    /// Receives and deletes.
    Drain,
}

struct Writer {
    client: QueueClient,
    ledger: Arc<Ledger>,
    random: Random,
    mix: Mix,
    held: Vec<Held>,
    notes: Vec<Note>,
    busy_in_a_row: u32,
}

/// Writes until it must stop or cannot continue.
///
/// Returns the notes for unanswered requests: they may still happen as long as the server lives,
/// and count as in flight until then.
pub(super) async fn run(
    account: QueueAccount,
    ledger: Arc<Ledger>,
    random: Random,
    mix: Mix,
    until: Until,
) -> Vec<Note> {
    let mut writer = Writer {
        client: queue_client(account),
        ledger,
        random,
        mix,
        held: Vec::new(),
        notes: Vec::new(),
        busy_in_a_row: 0,
    };
    while !until.is_over() {
        let busy_before = writer.busy_in_a_row;
        match writer.step().await {
            Err(End::Gone) => break,
            Err(End::Unanswered) if until.ends_with_a_failure() => break,
            _ => {}
        }
        if writer.busy_in_a_row == busy_before {
            writer.busy_in_a_row = 0;
        } else if until.ends_when_full() && writer.busy_in_a_row >= BUSY_MAX {
            break;
        } else {
            tokio::time::sleep(BUSY_PAUSE).await;
        }
    }
    writer.notes
}

impl Writer {
    async fn step(&mut self) -> Answered {
        match self.mix {
            Mix::Everything => self.mixed_step().await,
            Mix::Puts => self.put().await,
            Mix::Drain => match self.held.pop() {
                Some(held) => self.delete(held).await,
                None => self.get().await,
            },
        }
    }

    async fn mixed_step(&mut self) -> Answered {
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
        let text = self.ledger.compose(visit.number, 0);
        let options = PutOptions {
            visibility_timeout: (delay > 0).then_some(delay),
            time_to_live: self.random.percent(50).then_some(-1),
        };
        match self.client.put(queue, &text, options).await {
            Ok(sent) => {
                let held = self.ledger.put_acknowledged(&visit, &sent);
                // Sometimes the receipt of a put is used as well.
                if self.mix == Mix::Everything && self.random.percent(10) {
                    self.held.push(held);
                }
                Ok(())
            }
            Err(error) => self.failed(error, move |ledger, fate, _| {
                ledger.put_failed(&visit, fate);
            }),
        }
    }

    async fn get(&mut self) -> Answered {
        let queue = self.random.pick(&QUEUES);
        let lease = self.random.pick(&[1, 2]);
        let count = u32::try_from(1 + self.random.below(4)).expect("small");
        let visit = self.ledger.begin_get(queue, lease);
        match self.client.get(queue, count, Some(lease)).await {
            Ok(messages) => {
                self.held.extend(self.ledger.delivered(&visit, &messages));
                Ok(())
            }
            Err(error) => self.failed(error, move |ledger, fate, _| {
                ledger.get_failed(&visit, fate);
            }),
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
            // Whether it was sent makes no difference to a look.
            Err(error) if error.status().is_none() => Err(End::Unanswered),
            Err(error) => self.failed(error, |_, _, _| ()),
        }
    }

    async fn delete(&mut self, held: Held) -> Answered {
        let change = self.ledger.begin_change(&held, Change::Delete);
        match self
            .client
            .delete_message(held.queue, &held.id, &held.receipt)
            .await
        {
            Ok(()) => {
                self.ledger.deleted(&change);
                Ok(())
            }
            Err(error) => self.failed(error, move |ledger, fate, error| {
                ledger.change_failed(&change, fate, error);
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
            .map(|version| self.ledger.compose(held.number, version));
        let result = self
            .client
            .update(held.queue, &held.id, &held.receipt, lease, text.as_deref())
            .await;
        match result {
            Ok(receipt) => {
                self.held.push(self.ledger.updated(&change, &receipt));
                Ok(())
            }
            Err(error) => self.failed(error, move |ledger, fate, error| {
                ledger.change_failed(&change, fate, error);
            }),
        }
    }

    /// Notes the possible results of a failed request, now or when that is certain.
    fn failed(
        &mut self,
        error: Error,
        note: impl FnOnce(&Ledger, Fate, &Error) + Send + 'static,
    ) -> Answered {
        match (error.kind(), error.status()) {
            (ErrorKind::TryAgainLater, None) => {
                note(&self.ledger, Fate::NeverHappened, &error);
                Err(End::Gone)
            }
            (ErrorKind::OutcomeUnknown, None) => {
                self.notes
                    .push(Box::new(move |ledger| note(ledger, Fate::Unknown, &error)));
                Err(End::Unanswered)
            }
            (ErrorKind::TryAgainLater, Some(503)) => {
                self.busy_in_a_row += 1;
                note(&self.ledger, Fate::NeverHappened, &error);
                Ok(())
            }
            (ErrorKind::Refused, Some(404)) if error.code() == Some("MessageNotFound") => {
                note(&self.ledger, Fate::ReceiptRefused, &error);
                Ok(())
            }
            (
                ErrorKind::Refused | ErrorKind::TryAgainLater | ErrorKind::OutcomeUnknown,
                Some(_),
            )
            | (ErrorKind::Refused, None) => {
                note(&self.ledger, Fate::Unknown, &error);
                self.ledger
                    .violation(format!("an answer that was not expected: {error}"));
                Err(End::Gone)
            }
        }
    }
}

/// The result of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It changed nothing.
    NeverHappened,
    /// It changed nothing, because the receipt is not the latest one.
    ReceiptRefused,
    /// It happened or did not.
    Unknown,
}
