//! What is wrong with damaged messages of topics, and with messages that are set aside.

use std::collections::BTreeSet;

use kew_broker::ScrubReport;
use kew_engine::bus::{DeadLetterCause, Effect};
use kew_engine::{Event, Fact};
use kew_planted::{Hook, Seam};

use super::hooks::{dropped, on};

/// A scrub lists one of the copies that have a damaged body.
pub(super) fn one_copy_listed() -> Hook {
    on(Seam::Scrubbed, |report: &mut ScrubReport| {
        let mut places = BTreeSet::new();
        (report.bodies).retain(|body| places.insert((body.file.clone(), body.offset)));
    })
}

/// Messages are set aside, and that is not logged: after a start they are not listed.
pub(super) fn quarantine_not_logged() -> Hook {
    on(Seam::Recorded, |events: &mut Vec<Event>| {
        events.retain(|event| !matches!(event.fact, Fact::Quarantined { .. }));
    })
}

/// Messages of the next run, whose page is whole, are set aside too.
pub(super) fn others_quarantined() -> Hook {
    on(Seam::Decided, |events: &mut Vec<Event>| {
        for event in events {
            if let Fact::Quarantined { messages, .. } = &mut event.fact {
                *messages |= *messages << 4;
            }
        }
    })
}

/// What is set aside ends too early: as soon as nothing else is left of its run. Nothing lists it, and nothing counts it.
pub(super) fn lost_ends_at_once() -> Hook {
    on(Seam::Decided, |events: &mut Vec<Event>| {
        let ends = events.iter().filter_map(|event| match event.fact {
            Fact::Quarantined { entity, first, .. } => Some(Event {
                at: event.at,
                fact: Fact::RunLost {
                    entity,
                    number: first,
                },
            }),
            _ => None,
        });
        let ends: Vec<Event> = ends.collect();
        events.extend(ends);
    })
}

/// A run ends in which nothing else is left, and that is not logged: after a start its messages are listed again.
pub(super) fn end_of_lost_not_logged() -> Hook {
    on(Seam::Recorded, |events: &mut Vec<Event>| {
        events.retain(|event| !matches!(event.fact, Fact::RunLost { .. }));
    })
}

/// What a rule cannot look at ends in its topic: nobody finds it among the failed transfers.
pub(super) fn waiting_lost() -> Hook {
    dropped(|_, effect| match effect {
        Effect::Arrived { message, .. } => {
            message.record.cause == Some(DeadLetterCause::BodyDamaged)
        }
        _ => false,
    })
}
