//! What the partition tells metrics, a slice at a time, and how slices become one picture.

use kew_engine::{Incarnation, Overview, QueueOverview, Timestamp};
use kew_log::LogSpace;
use tokio::sync::oneshot;

use crate::{Broker, Partition};

/// How many steps the runner takes for metrics between two turns: some hundred microseconds.
const SLICE_STEPS: u32 = 256;

/// The name of what is left when the queues with the most messages have names of their own.
const OTHER: &str = "(other)";

/// What the runner is asked.
#[derive(Debug)]
pub(crate) struct SliceRequest {
    pub(crate) from: Option<Incarnation>,
    pub(crate) answer: oneshot::Sender<Slice>,
}

#[derive(Debug)]
pub(crate) struct Slice {
    overview: Overview,
    status: Status,
}

/// The partition at the time of the last slice.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) now: Timestamp,
    pub(crate) space: LogSpace,
    pub(crate) durable: u64,
    pub(crate) end: u64,
    pub(crate) answers_waiting: u64,
    /// Messages that have expired since the log was opened, and while it was replayed.
    pub(crate) expired: u64,
}

pub(crate) fn slice_of<T>(
    partition: &mut Partition<T>,
    from: Option<Incarnation>,
    now: Timestamp,
) -> Slice {
    let overview = partition.overview(from, now, SLICE_STEPS);
    let log = partition.log();
    let status = Status {
        now,
        space: log.space(),
        durable: log.durable().as_u64(),
        end: log.end().as_u64(),
        answers_waiting: partition.answers_waiting() as u64,
        expired: partition.state().expired_count(),
    };
    Slice { overview, status }
}

/// Messages of one queue or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) hidden: u64,
    total: u64,
    pub(crate) oldest_at: Option<Timestamp>,
}

impl Sum {
    pub(crate) fn visible(&self) -> u64 {
        self.total.saturating_sub(self.hidden)
    }

    fn of(queue: &QueueOverview) -> Self {
        Self {
            hidden: queue.hidden,
            total: queue.total,
            oldest_at: queue.oldest_at,
        }
    }

    fn plus(self, other: Self) -> Self {
        let both = [self.oldest_at, other.oldest_at];
        Self {
            hidden: self.hidden + other.hidden,
            total: self.total + other.total,
            oldest_at: both.into_iter().flatten().min(),
        }
    }
}

/// All queues: the largest by name, the others added up.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) count: u64,
    pub(crate) status: Status,
    largest: Vec<QueueOverview>,
    others: Option<Sum>,
}

impl Queues {
    /// Takes more queues, and keeps at most `named_max` of all by name.
    fn add(&mut self, queues: Vec<QueueOverview>, named_max: usize) {
        self.count += queues.len() as u64;
        self.largest.extend(queues);
        if self.largest.len() <= named_max {
            return;
        }
        self.largest
            .sort_unstable_by(|a, b| (b.total, &a.name).cmp(&(a.total, &b.name)));
        for queue in self.largest.split_off(named_max) {
            let others = self.others.unwrap_or_default();
            self.others = Some(others.plus(Sum::of(&queue)));
        }
    }

    pub(crate) fn total(&self) -> Sum {
        let named = self.largest.iter().map(Sum::of);
        named.fold(self.others.unwrap_or_default(), Sum::plus)
    }

    /// Account, name and messages of each queue that has a name here, and of the others.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&str, &str, Sum)> {
        let largest = self.largest.iter();
        let largest =
            largest.map(|queue| (&*queue.name.account, &*queue.name.name, Sum::of(queue)));
        largest.chain(self.others.map(|others| ("", OTHER, others)))
    }
}

impl Broker {
    /// Reads all queues, slice by slice; nothing if the partition has stopped.
    pub(crate) async fn read_queues(&self, named_max: usize) -> Option<Queues> {
        // Readers take turns: each would have the others' slices.
        let _alone = self.reading.lock().await;
        let mut read: Option<Queues> = None;
        let mut from = None;
        loop {
            let (answer, slice) = oneshot::channel();
            self.shared.request_slice(SliceRequest { from, answer });
            let Slice { overview, status } = slice.await.ok()?;
            from = overview.next;
            let (count, largest, others) = match read.take() {
                Some(read) => (read.count, read.largest, read.others),
                None => (0, Vec::new(), None),
            };
            let mut queues = Queues {
                count,
                status,
                largest,
                others,
            };
            queues.add(overview.queues, named_max);
            if from.is_none() {
                return Some(queues);
            }
            read = Some(queues);
        }
    }
}
