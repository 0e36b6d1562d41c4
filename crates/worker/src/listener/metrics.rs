//! Metrics of listeners, as a page for Prometheus.

use kew_metrics::{Family, Format, Labels, Unit, page_in, process_cpu};

use super::Listener;
use super::counters::Counters;
use crate::source::{Source, SourceName};

/// What a counter shows, and where its value is.
type CounterRow = (&'static str, &'static str, fn(&Counters) -> u64);

const COUNTERS: [CounterRow; 15] = [
    ("kew_worker_requests", "Requests to the service", |it| {
        it.requests.value()
    }),
    ("kew_worker_failed_requests", "Requests that failed", |it| {
        it.failed_requests.value()
    }),
    (
        "kew_worker_empty_polls",
        "Receives that returned nothing",
        |it| it.empty_polls.value(),
    ),
    ("kew_worker_received", "Messages received", |it| {
        it.received.value()
    }),
    (
        "kew_worker_completed",
        "Messages deleted after their work",
        |it| it.completed.value(),
    ),
    ("kew_worker_failed", "Attempts that failed", |it| {
        it.failed.value()
    }),
    (
        "kew_worker_buried",
        "Messages moved to the dead-letter or poison queue",
        |it| it.buried.value(),
    ),
    ("kew_worker_returned", "Messages returned by a stop", |it| {
        it.returned.value()
    }),
    (
        "kew_worker_stopped_handlers",
        "Handlers stopped before their end",
        |it| it.stopped_handlers.value(),
    ),
    (
        "kew_worker_lost_leases",
        "Leases that ended before the delete",
        |it| it.lost_leases.value(),
    ),
    (
        "kew_worker_unsettled",
        "Messages done and not deleted",
        |it| it.unsettled.value(),
    ),
    ("kew_worker_renewals", "Renewals of leases", |it| {
        it.renewals.value()
    }),
    ("kew_worker_failed_renewals", "Renewals that failed", |it| {
        it.failed_renewals.value()
    }),
    (
        "kew_worker_wake_ups",
        "Times that work came to an idle queue",
        |it| it.wake_ups.value(),
    ),
    ("kew_worker_announcements", "Announcements of work", |it| {
        it.announcements.value()
    }),
];

fn labels(name: &SourceName) -> Labels {
    vec![
        ("account", name.account.to_string()),
        ("queue", name.queue.to_string()),
    ]
}

impl<T: Send + Sync + 'static, S: Source> Listener<T, S> {
    /// The metrics of this listener, with the labels `account` and `queue`. [`metrics_page`] writes those of several.
    pub fn metrics(&self) -> Vec<Family> {
        let (shared, state) = (&self.shared, self.state());
        let of = || labels(shared.source.name());
        let mut families: Vec<Family> = COUNTERS
            .iter()
            .map(|(name, help, value)| {
                Family::counter(name, Unit::None, help).count(of(), value(&shared.counters))
            })
            .collect();
        let gauges = [
            (
                "kew_worker_active_tasks",
                "Dequeue tasks",
                u64::from(state.active_tasks),
            ),
            (
                "kew_worker_in_flight",
                "Messages under lease",
                state.in_flight,
            ),
            (
                "kew_worker_delayed",
                "Messages that wait under lease",
                state.delayed,
            ),
            (
                "kew_worker_deleting",
                "Messages that were handled and gave their place to others",
                state.deleting,
            ),
        ];
        families.extend(
            gauges.map(|(name, help, value)| {
                Family::gauge(name, Unit::None, help).count(of(), value)
            }),
        );
        if let Some(depth) = state.depth {
            let family = Family::gauge("kew_worker_depth", Unit::None, "Messages when last asked");
            families.push(family.count(of(), depth));
        }
        for (name, help, value) in [
            ("kew_worker_lease", "How long new leases are", state.lease),
            (
                "kew_worker_pause",
                "Pause between slow requests",
                state.pause,
            ),
        ] {
            let family = Family::gauge(name, Unit::Seconds, help);
            families.push(family.amount(of(), value.as_secs_f64()));
        }
        let handled = Family::histogram("kew_worker_handling", Unit::Seconds, "Time in handlers");
        families.push(handled.observed(of(), shared.counters.handled_for.observed()));
        families
    }
}

/// A page in the text format of Prometheus (0.0.4) with the metrics of several listeners and of the application.
///
/// It has the processor time of the process, too, unless the application adds that itself, and its processors.
pub fn metrics_page(families: impl IntoIterator<Item = Vec<Family>>) -> String {
    let mut families: Vec<Family> = families.into_iter().flatten().collect();
    for family in [process_cpu(), processors()] {
        if !families.iter().any(|it| it.is_like(&family)) {
            families.push(family);
        }
    }
    page_in(families, Format::Prometheus)
}

/// Limits of a container count, also those to a part of a processor.
fn processors() -> Family {
    let help = "Processors that the process may use";
    let family = Family::gauge("kew_worker_processors", Unit::None, help);
    match kew_metrics::processors() {
        Some(count) => family.amount(Vec::new(), count),
        None => family,
    }
}
