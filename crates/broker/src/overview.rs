//! Counts of the partition for metrics: read a slice at a time, and put together.

use kew_engine::{
    BusQueueOverview, EntityName, Incarnation, Overview, QueueOverview, Resident, Timestamp,
    TopicOverview,
};
use kew_log::{LogFiles, LogSpace};
use tokio::sync::oneshot;

use crate::{Broker, Partition};

/// How many steps the runner takes for metrics between two turns: a few hundred microseconds.
const SLICE_STEPS: u32 = 256;

/// The name under which all queues are added up that have no value of their own.
const OTHER: &str = "(other)";

/// A request to the runner.
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
    /// Bytes of the log that are still needed.
    pub(crate) live_bytes: u64,
    /// Bytes that were moved since the open.
    pub(crate) moved_bytes: u64,
    /// What is in memory of messages.
    pub(crate) resident: Resident,
    /// Groups of messages that were read from pages since the open.
    pub(crate) loaded: u64,
    /// Messages that have expired since the log was opened, and during its replay.
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
        space: log.files().map(LogFiles::space).unwrap_or_default(),
        durable: log.durable().as_u64(),
        end: log.end().as_u64(),
        answers_waiting: partition.answers_waiting() as u64,
        live_bytes: partition.state().live_bytes(),
        moved_bytes: partition.moved_bytes(),
        resident: partition.state().resident(),
        loaded: partition.loaded_count(),
        expired: partition.state().expired_count(),
    };
    Slice { overview, status }
}

/// The counts of a queue.
pub(crate) trait Counted {
    /// The counts of one queue, or the sum of several.
    type Sum: Copy + Default;

    fn name(&self) -> &EntityName;

    /// The number of its messages. The queues with the most messages have values of their own, and the topics to which
    /// the most were sent.
    fn message_count(&self) -> u64;

    fn sum(&self) -> Self::Sum;

    fn plus(one: Self::Sum, other: Self::Sum) -> Self::Sum;
}

/// The older of two times.
fn older(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    [one, other].into_iter().flatten().min()
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
}

impl Counted for QueueOverview {
    type Sum = Sum;

    fn name(&self) -> &EntityName {
        &self.name
    }

    fn message_count(&self) -> u64 {
        self.total
    }

    fn sum(&self) -> Sum {
        Sum {
            hidden: self.hidden,
            total: self.total,
            oldest_at: self.oldest_at,
        }
    }

    fn plus(one: Sum, other: Sum) -> Sum {
        Sum {
            hidden: one.hidden + other.hidden,
            total: one.total + other.total,
            oldest_at: older(one.oldest_at, other.oldest_at),
        }
    }
}

/// The counts of one or several Service Bus queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BusSum {
    /// In the order of [`BUS_STATES`].
    pub(crate) messages: [u64; BUS_STATES.len()],
    pub(crate) size_bytes: u64,
    pub(crate) sessions_locked: u64,
    pub(crate) oldest_at: Option<Timestamp>,
}

/// The places where a message of a Service Bus queue can be.
pub(crate) const BUS_STATES: [&str; 6] = [
    "active",
    "locked",
    "deferred",
    "scheduled",
    "dead_letter",
    "failed_transfer",
];

impl Counted for BusQueueOverview {
    type Sum = BusSum;

    fn name(&self) -> &EntityName {
        &self.name
    }

    fn message_count(&self) -> u64 {
        self.sum().messages.iter().sum()
    }

    fn sum(&self) -> BusSum {
        BusSum {
            messages: [
                self.active,
                self.locked,
                self.deferred,
                self.scheduled,
                self.dead_letters,
                self.failed_transfers,
            ],
            size_bytes: self.size_bytes,
            sessions_locked: self.sessions_locked,
            oldest_at: self.oldest_at,
        }
    }

    fn plus(mut one: BusSum, other: BusSum) -> BusSum {
        for (count, more) in one.messages.iter_mut().zip(other.messages) {
            *count += more;
        }
        BusSum {
            messages: one.messages,
            size_bytes: one.size_bytes + other.size_bytes,
            sessions_locked: one.sessions_locked + other.sessions_locked,
            oldest_at: older(one.oldest_at, other.oldest_at),
        }
    }
}

/// The counts of one or several topics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicSum {
    pub(crate) pending: u64,
    pub(crate) scheduled: u64,
    pub(crate) failed_transfers: u64,
    pub(crate) size_bytes: u64,
    pub(crate) oldest_at: Option<Timestamp>,
    pub(crate) rules: u64,
}

impl Counted for TopicOverview {
    type Sum = TopicSum;

    fn name(&self) -> &EntityName {
        &self.name
    }

    fn message_count(&self) -> u64 {
        self.tally.published
    }

    fn sum(&self) -> TopicSum {
        TopicSum {
            pending: self.pending,
            scheduled: self.scheduled,
            failed_transfers: self.failed_transfers,
            size_bytes: self.size_bytes,
            oldest_at: self.oldest_at,
            rules: self.rules,
        }
    }

    fn plus(one: TopicSum, other: TopicSum) -> TopicSum {
        TopicSum {
            pending: one.pending + other.pending,
            scheduled: one.scheduled + other.scheduled,
            failed_transfers: one.failed_transfers + other.failed_transfers,
            size_bytes: one.size_bytes + other.size_bytes,
            oldest_at: older(one.oldest_at, other.oldest_at),
            rules: one.rules + other.rules,
        }
    }
}

impl TopicSum {
    /// The messages that are in topics themselves, in the order of [`BUS_STATES`].
    pub(crate) fn messages(&self) -> [u64; BUS_STATES.len()] {
        [self.pending, 0, 0, self.scheduled, 0, self.failed_transfers]
    }
}

/// All queues of a protocol, or all topics: the largest by name, the others added up.
#[derive(Debug)]
pub(crate) struct Queues<Q: Counted> {
    pub(crate) count: u64,
    largest: Vec<Q>,
    others: Option<Q::Sum>,
}

impl<Q: Counted> Queues<Q> {
    const fn new() -> Self {
        Self {
            count: 0,
            largest: Vec::new(),
            others: None,
        }
    }

    /// Adds queues, and keeps at most `named_max` of all by name.
    fn add(&mut self, queues: Vec<Q>, named_max: usize) {
        self.count += queues.len() as u64;
        self.largest.extend(queues);
        if self.largest.len() <= named_max {
            return;
        }
        self.largest.sort_unstable_by(|a, b| {
            (b.message_count(), a.name()).cmp(&(a.message_count(), b.name()))
        });
        for queue in self.largest.split_off(named_max) {
            let others = self.others.unwrap_or_default();
            self.others = Some(Q::plus(others, queue.sum()));
        }
    }

    pub(crate) fn total(&self) -> Q::Sum {
        let named = self.largest.iter().map(Q::sum);
        named.fold(self.others.unwrap_or_default(), Q::plus)
    }

    /// Account, name and counts of each named queue, and of the others together.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&str, &str, Q::Sum)> {
        let largest = self.largest.iter();
        let largest = largest.map(|queue| {
            let name = queue.name();
            (&*name.account, &*name.name, queue.sum())
        });
        largest.chain(self.others.map(|others| ("", OTHER, others)))
    }

    /// The named queues. Counters have no sum of the others: it would go back when a queue gets a name, or is deleted.
    pub(crate) fn largest(&self) -> &[Q] {
        &self.largest
    }
}

/// The counts of the whole partition.
#[derive(Debug)]
pub(crate) struct Picture {
    /// At the time of the last slice.
    pub(crate) status: Status,
    pub(crate) queues: Queues<QueueOverview>,
    pub(crate) bus_queues: Queues<BusQueueOverview>,
    pub(crate) topics: Queues<TopicOverview>,
}

impl Broker {
    /// Reads all queues, slice by slice, and names at most `named_max` of each protocol. Returns `None` if
    /// the partition has stopped.
    pub(crate) async fn read_queues(&self, named_max: usize) -> Option<Picture> {
        // Readers take turns. Otherwise each would get the others' slices.
        let _alone = self.reading.lock().await;
        let (mut queues, mut bus_queues) = (Queues::new(), Queues::new());
        let mut topics = Queues::new();
        let mut from = None;
        loop {
            let (answer, slice) = oneshot::channel();
            self.shared.request_slice(SliceRequest { from, answer });
            let Slice { overview, status } = slice.await.ok()?;
            queues.add(overview.queues, named_max);
            bus_queues.add(overview.bus_queues, named_max);
            topics.add(overview.topics, named_max);
            from = overview.next;
            if from.is_none() {
                return Some(Picture {
                    status,
                    queues,
                    bus_queues,
                    topics,
                });
            }
        }
    }
}
