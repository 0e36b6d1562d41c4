//! What is wrong with damaged messages of topics, and with messages that are set aside.

use std::collections::{BTreeMap, BTreeSet};

use kew_broker::ScrubReport;
use kew_engine::bus::{BusMessageState, DeadLetterCause, Effect};
use kew_engine::{Event, Fact, Place, RunLength, SequenceNumber, Slots, Timestamp};
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

/// The same of runs that have lost scheduled messages alone, and after a commit, when clients know that these are set
/// aside. Those end long before they expire.
pub(super) fn lost_schedules_end_early() -> Hook {
    let mut messages = BTreeMap::new();
    Box::new(move |seam, value| match seam {
        Seam::Job => {
            let lost = messages.values_mut();
            lost.for_each(|it: &mut Known| it.is_known_as_lost |= it.is_lost);
        }
        Seam::Decided => {
            if let Some(effects) = value.downcast_ref::<Vec<Effect>>() {
                effects.iter().for_each(|it| note(it, &mut messages));
            }
            if let Some(events) = value.downcast_mut::<Vec<Event>>() {
                let at = events.last().map(|event| event.at);
                let ended = at.and_then(|at| end_of_scheduled(at, &mut messages));
                events.iter().for_each(|it| note_lost(it, &mut messages));
                events.extend(ended);
            }
        }
        _ => {}
    })
}

/// What is known of a message in its place.
#[derive(Clone, Copy, Default)]
struct Known {
    is_scheduled: bool,
    is_lost: bool,
    is_known_as_lost: bool,
}

fn note(effect: &Effect, messages: &mut BTreeMap<Place, Known>) {
    match effect {
        Effect::Arrived { to, message } => {
            let known = Known {
                is_scheduled: message.record.state == BusMessageState::Scheduled,
                ..Known::default()
            };
            messages.insert(*to, known);
        }
        Effect::Ended { at, .. } => {
            messages.remove(at);
        }
        Effect::Leased { .. } | Effect::Own(_) => {}
    }
}

fn note_lost(event: &Event, messages: &mut BTreeMap<Place, Known>) {
    if let Fact::Quarantined {
        entity,
        first,
        messages: lost,
    } = event.fact
    {
        let own = messages.iter_mut().filter(|(at, _)| at.entity == entity);
        for (at, known) in own {
            let place = at.number.as_u64().checked_sub(first.as_u64());
            let place = place.filter(|place| *place < u64::from(Slots::BITS));
            known.is_lost |= place.is_some_and(|place| lost & 1 << place != 0);
        }
    }
}

/// The end of a run in which nothing is left but scheduled messages that are known as lost.
fn end_of_scheduled(at: Timestamp, messages: &mut BTreeMap<Place, Known>) -> Option<Event> {
    let run_of = |place: &Place| {
        let length = RunLength::TINY.as_u64();
        (place.entity, place.number.as_u64() / length * length)
    };
    let mut ends: BTreeMap<_, bool> = BTreeMap::new();
    for (place, known) in &*messages {
        *ends.entry(run_of(place)).or_insert(true) &= known.is_known_as_lost && known.is_scheduled;
    }
    let (run, _) = ends.into_iter().find(|(_, ends)| *ends)?;
    messages.retain(|place, _| run_of(place) != run);
    let (entity, number) = (run.0, SequenceNumber::named(run.1));
    let fact = Fact::RunLost { entity, number };
    Some(Event { at, fact })
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
