//! What the scrub has read and found.

use std::time::Duration;

use kew_metrics::{Family, Unit};

use super::{none, wall_ms};
use crate::ScrubReport;

/// Without a report, because the partition did not answer, they have no values.
pub(super) fn scrub_families(report: Option<&ScrubReport>) -> Vec<Family> {
    let read = Family::counter(
        "kew_scrub_read",
        Unit::Bytes,
        "Bytes that were read to find damage",
    );
    let passes = Family::counter(
        "kew_scrub_passes",
        Unit::None,
        "Times that everything durable was read to find damage",
    );
    let age = Family::gauge(
        "kew_scrub_age",
        Unit::Seconds,
        "Time since the last of these passes ended; nothing before the first since the start",
    );
    let places = Family::gauge(
        "kew_damaged_places",
        Unit::None,
        "Places in files that are damaged",
    );
    let messages = Family::gauge(
        "kew_damaged_messages",
        Unit::None,
        "Messages and session states whose bytes cannot be read",
    );
    let pages = Family::gauge(
        "kew_unreadable_pages",
        Unit::None,
        "Pages with messages or remembered ids that cannot be read: no backup can be made",
    );
    let Some(report) = report else {
        return vec![read, passes, age, places, messages, pages];
    };
    vec![
        read.count(none(), report.read_bytes),
        passes.count(none(), report.passes),
        match report.ended_at {
            Some(ended_at) => {
                let since = Duration::from_millis(wall_ms().saturating_sub(ended_at.as_ms()));
                age.amount(none(), since.as_secs_f64())
            }
            None => age,
        },
        places.count(none(), report.places_count),
        messages.count(none(), report.bodies_count),
        pages.count(none(), report.unreadable_pages),
    ]
}
