//! Each effect stands for itself: what it does follows from it alone, and from whether its message is there.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::effect::{Bodies, Lease, NewBody, Was};
use crate::event::Event;
use crate::event::Fact;
use crate::state::State;
use crate::storage::message::Message;
use crate::storage::message::until;
use crate::storage::{Effect, Effects};
use crate::table::Placed;
use crate::table::RunLength;
use crate::vocabulary::Incarnation;
use crate::vocabulary::LeaseGeneration;
use crate::vocabulary::SequenceNumber;

/// A run of an entity.
type Piece = (Incarnation, u64);

/// What an event does, one effect at a time.
fn singles(event: &Event) -> Vec<Event> {
    let Fact::Storage(StorageFact::Messages { effects }) = &event.fact else {
        return vec![event.clone()];
    };
    let at = event.at;
    let single = |effect: &Effect| Event {
        at,
        fact: Fact::Storage(StorageFact::Messages {
            effects: Effects::from(effect.clone()),
        }),
    };
    effects.iter().map(single).collect()
}

/// The run that a single effect concerns; `None` for any other event, and for a range.
fn piece_of(event: &Event) -> Option<Piece> {
    let Fact::Storage(StorageFact::Messages { effects }) = &event.fact else {
        return None;
    };
    let at = effects.first()?.message()?;
    Some((at.entity, at.number.as_u64() / RunLength::TINY.as_u64()))
}

fn replay<'a>(events: impl IntoIterator<Item = &'a Event>) -> State {
    let mut state = State::new();
    for event in events {
        state.apply(event.clone());
    }
    state
}

/// The messages of each run.
fn pieces(state: &State) -> BTreeMap<Piece, Vec<(u64, Message)>> {
    let mut pieces: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (incarnation, entity) in state.storage.iter() {
        for (number, message) in entity.backlog.messages() {
            let number = number.as_u64();
            let piece = pieces.entry((*incarnation, number / RunLength::TINY.as_u64()));
            piece.or_default().push((number, message));
        }
    }
    pieces
}

impl Partition {
    fn events(&self) -> Vec<Event> {
        let events = self.log.events.iter();
        events.map(|bytes| Event::decode(bytes).unwrap()).collect()
    }

    fn check_effects(&self) {
        let events = self.events();
        // One by one, and the last effect of an event first.
        let reversed: Vec<_> = events
            .iter()
            .flat_map(|event| singles(event).into_iter().rev())
            .collect();
        assert!(replay(&reversed) == self.state);

        // Each run from its own effects.
        let expected = pieces(&self.state);
        let all: BTreeSet<_> = reversed.iter().filter_map(piece_of).collect();
        for piece in all {
            let own = |event: &&Event| piece_of(event).is_none_or(|of| of == piece);
            let alone = pieces(&replay(reversed.iter().filter(own)));
            assert_eq!(alone.get(&piece), expected.get(&piece));
        }
    }
}

/// Steps that fill more than a run, of which some are taken out again.
fn long_history() -> impl Strategy<Value = Vec<Step>> {
    let fill = (20_usize..60, prop::option::of(1_u32..60)).prop_map(|(count, ttl)| {
        let send = Step::Send { ttl, hidden: 0 };
        vec![send; count]
    });
    let some = || prop::collection::vec(step(), 1..60);
    (fill, some(), some()).prop_map(|(fill, mut steps, rest)| {
        steps.extend(fill);
        steps.extend(rest);
        steps
    })
}

proptest! {
    #[test]
    fn each_effect_alone_gives_what_all_give(
        steps in prop_oneof![prop::collection::vec(step(), 1..100), long_history()],
    ) {
        run(steps).check_effects();
    }

    /// The kept snapshots differ in age. Whichever a start takes, later events mean the same.
    #[test]
    fn a_restart_changes_nothing_that_later_events_need(
        before in long_history(),
        after in long_history(),
    ) {
        let mut p = Partition::with_queue();
        let mut held = Vec::new();
        p.carry_out(before, &mut held);
        let mut restored = State::new();
        p.state.snapshot(|part| restored.restore(part).unwrap());
        p.state = restored;
        // The bounds of its runs are others now.
        p.cold = None;
        p.carry_out(after, &mut held);
        let replayed = replay(&p.events());
        prop_assert_eq!(pieces(&replayed), pieces(&p.state));
        prop_assert_eq!(replayed.counts(), p.state.counts());
        prop_assert_eq!(&replayed.catalogue.usage, &p.state.catalogue.usage);
    }
}

/// In a replay from pieces of different age, the counters may be newer than a queue and its runs.
#[test]
fn counters_that_are_newer_hide_no_queue_and_no_message() {
    let mut p = Partition::with_queue();
    for _ in 0..3 {
        p.send("x");
    }
    let events = p.events();
    let mut newer = State::new();
    newer.catalogue.next_incarnation = Incarnation::new(1000);
    for event in &events {
        newer.apply(event.clone());
        for (_, entity) in newer.storage.iter_mut() {
            entity.backlog.set_next(SequenceNumber::new(500));
        }
    }
    assert_eq!(pieces(&newer), pieces(&p.state));
    assert_eq!(newer.catalogue.next_incarnation, Incarnation::new(1000));
    // A queue that is there is not created again.
    let again = events.iter().find(|event| event.shows_in_catalogue());
    assert!(again.is_some());
    for event in events.iter().filter(|event| event.shows_in_catalogue()) {
        newer.apply(event.clone());
    }
    assert_eq!(pieces(&newer), pieces(&p.state));
}

/// A receipt of a message that was received often and has another body: all of it is in the event.
#[test]
fn an_event_says_what_the_old_message_counted_for() {
    let mut p = Partition::with_queue();
    p.send("long body");
    let first = p.receive(1, 30)[0];
    let receipt = p
        .update(first.message, first.receipt, 40, Some("y"))
        .unwrap();
    p.delete(first.message, receipt).unwrap();
    let effects: Vec<_> = p
        .events()
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::Storage(StorageFact::Messages { effects }) => effects.first().cloned(),
            _ => None,
        })
        .collect();
    let [_, received, updated, deleted] = &effects[..] else {
        panic!("{effects:?}");
    };
    let Effect::Arrived { to: at, message } = &effects[0] else {
        panic!("{effects:?}");
    };
    let at = *at;
    let due_at = |seconds| until(p.now.plus_seconds(seconds));
    let was = |seconds| Was {
        standing: due_at(seconds),
        session: 0,
    };
    let lease = |generation, seconds| Lease {
        generation: LeaseGeneration::new(generation),
        deliveries: 1,
        standing: due_at(seconds),
    };
    let fresh = Effect::Leased {
        at,
        lease: lease(2, 30),
        body: None,
        was: Was::default(),
    };
    assert_eq!(*received, fresh);
    let new = BodyLocation::new(1, 0, 1);
    let replaced = Effect::Leased {
        at,
        lease: lease(3, 40),
        body: Some(Box::new(NewBody::Other {
            body: Placed {
                encoding: BodyEncoding::Text,
                location: new,
            },
            was: message.record.body,
        })),
        was: was(30),
    };
    assert_eq!(*updated, replaced);
    let ended = Effect::Ended {
        at,
        was: was(40),
        bodies: Bodies {
            sent: new,
            overlays: Vec::new(),
        },
        source_length: None,
    };
    assert_eq!(*deleted, ended);
}
