//! What a listener counts, and its state as applications see it.

use std::time::Duration;

use kew_metrics::{Counter, Gauge, Histogram, Scale};

/// Upper bounds of handling times in microseconds: from 1 ms to 1 h.
const HANDLING_US: [u64; 16] = [
    1_000,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    1_800_000_000,
    3_600_000_000,
];

/// Counts of a listener. All but the gauges only rise.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) requests: Counter,
    pub(crate) failed_requests: Counter,
    pub(crate) empty_polls: Counter,
    pub(crate) received: Counter,
    pub(crate) completed: Counter,
    pub(crate) failed: Counter,
    pub(crate) buried: Counter,
    pub(crate) returned: Counter,
    pub(crate) stopped_handlers: Counter,
    pub(crate) lost_leases: Counter,
    pub(crate) unsettled: Counter,
    pub(crate) renewals: Counter,
    pub(crate) failed_renewals: Counter,
    pub(crate) wake_ups: Counter,
    pub(crate) announcements: Counter,
    pub(crate) in_flight: Gauge,
    pub(crate) delayed: Gauge,
    pub(crate) handled_for: Histogram,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            requests: Counter::new(),
            failed_requests: Counter::new(),
            empty_polls: Counter::new(),
            received: Counter::new(),
            completed: Counter::new(),
            failed: Counter::new(),
            buried: Counter::new(),
            returned: Counter::new(),
            stopped_handlers: Counter::new(),
            lost_leases: Counter::new(),
            unsettled: Counter::new(),
            renewals: Counter::new(),
            failed_renewals: Counter::new(),
            wake_ups: Counter::new(),
            announcements: Counter::new(),
            in_flight: Gauge::new(),
            delayed: Gauge::new(),
            handled_for: Histogram::new(&HANDLING_US, Scale::Seconds),
        }
    }
}

impl Counters {
    pub(crate) fn renewed(&self, is_renewed: bool) {
        self.requests.increment();
        match is_renewed {
            true => self.renewals.increment(),
            false => self.failed_renewals.increment(),
        }
    }
}

/// One more in a gauge, until it is dropped.
#[derive(Debug)]
pub(crate) struct Present<'a>(&'a Gauge);

impl<'a> Present<'a> {
    pub(crate) fn new(gauge: &'a Gauge) -> Self {
        gauge.change(0, 1);
        Self(gauge)
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.change(1, 0);
    }
}

/// What a listener does at one time. Counts begin with the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// About how many messages the queue held when a wake-up or [`depth`](crate::Listener::depth) last asked.
    pub depth: Option<u64>,
    /// Dequeue tasks that run.
    pub active_tasks: u32,
    /// Dequeue tasks that were started.
    pub total_tasks: u64,
    /// Messages under lease, those that wait out their back-off or are being deleted included.
    pub in_flight: u64,
    /// Messages that wait out their back-off under lease.
    pub delayed: u64,
    /// Messages that were handled and have given their place to others, while the service deletes them.
    pub deleting: u64,
    /// Requests to the service, as far as listeners see them: retries of the client are not counted.
    pub requests: u64,
    /// Those that failed.
    pub failed_requests: u64,
    /// Receives that returned nothing, of a service that does not wait for messages.
    pub empty_polls: u64,
    /// Messages received.
    pub received: u64,
    /// Messages deleted after their work was done.
    pub completed: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Messages moved to the dead-letter or poison queue.
    pub buried: u64,
    /// Messages returned unfinished because the listener stopped.
    pub returned: u64,
    /// Handlers stopped before they ended.
    pub stopped_handlers: u64,
    /// Leases that ended before their message was deleted.
    pub lost_leases: u64,
    /// Messages whose work was done and which could not be deleted.
    pub unsettled: u64,
    /// Renewals of leases.
    pub renewals: u64,
    /// How often work came to an idle queue.
    pub wake_ups: u64,
    /// Announcements of work for this queue.
    pub announcements: u64,
    /// How long new leases are.
    pub lease: Duration,
    /// The pause between requests, because the service became slow.
    pub pause: Duration,
}
