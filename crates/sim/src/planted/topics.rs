//! What is wrong with topics: copies of messages, their bodies, and subscriptions.

use std::collections::{BTreeMap, BTreeSet};

use kew_engine::bus::{BusCommand, BusFact, BusMessage, BusOutcome, Effect, Moved, OwnEffect};
use kew_engine::{Arrival, BodyLocation, Command, Event, Fact, Hold, Incarnation, Outcome, Place};
use kew_log::JobKind;
use kew_planted::{Hook, Seam};

use super::door::answers;
use super::hooks::{Known, bus_effects, on, recorded};
use crate::bus::rules::Rule;
use crate::bus::topics::{Kind, kind, named};

/// The messages that a command publishes, if it does.
fn published(command: Option<&Command>) -> Option<&[BusMessage]> {
    match command {
        Some(Command::Bus(BusCommand::Send { queue, messages })) => {
            let is_topic = named(&queue.name).is_some_and(|it| kind(it) == Kind::Topic);
            is_topic.then_some(messages)
        }
        _ => None,
    }
}

/// A body, whatever counts it.
fn place(body: BodyLocation) -> BodyLocation {
    body.with(Hold::Alone)
}

/// The copies that the commands so far have made of one body.
#[derive(Default)]
struct Copies {
    body: Option<BodyLocation>,
    count: usize,
}

impl Copies {
    /// Which copy of its message an effect makes, from one on. Zero for any other effect.
    fn nth(&mut self, known: &Known, effect: &Effect) -> usize {
        let Effect::Arrived { message, .. } = effect else {
            return 0;
        };
        if published(known.command()).is_none() || !known.is_copy(message) {
            return 0;
        }
        let body = place(message.record.body);
        if self.body != Some(body) {
            self.body = Some(body);
            self.count = 0;
        }
        self.count += 1;
        self.count
    }
}

/// The third subscription gets no copies.
pub(super) fn copy_missing() -> Hook {
    let mut copies = Copies::default();
    bus_effects(move |known, effects| {
        effects.retain(|effect| copies.nth(known, effect) != 3);
    })
}

/// The second subscription gets each copy twice.
pub(super) fn copy_doubled() -> Hook {
    let mut copies = Copies::default();
    bus_effects(move |known, effects| {
        let first = effects.first();
        if first.is_some_and(|effect| copies.nth(known, effect) == 2)
            && let Some(Effect::Arrived { to, message }) = first.cloned()
        {
            let to = after(to);
            effects.push(Effect::Arrived { to, message });
        }
    })
}

fn after(mut place: Place) -> Place {
    place.number = kew_engine::SequenceNumber::named(place.number.as_u64() + 1);
    place
}

/// Two messages that are published together come in the other order in the second subscription.
pub(super) fn order_differs() -> Hook {
    let mut copies = Copies::default();
    let mut held: Option<(Place, Arrival)> = None;
    bus_effects(move |known, effects| {
        let Some(Effect::Arrived { to, message }) = effects.first().cloned() else {
            return;
        };
        let nth = copies.nth(known, &effects[0]);
        // Both go to the subscription itself, and neither to its dead letters.
        let is_pair = published(known.command())
            .is_some_and(|all| all.len() == 2 && all.iter().all(|it| it.session.is_some()));
        if nth != 2 || !is_pair {
            return;
        }
        match held.take_if(|(place, _)| place.entity == to.entity) {
            Some((place, earlier)) => {
                let arrived = |to, message| Effect::Arrived { to, message };
                *effects = vec![arrived(place, message), arrived(after(place), earlier)];
            }
            None => {
                held = Some((to, message));
                effects.clear();
            }
        }
    })
}

/// The last copies of a command are not logged with the others: a crash loses them.
pub(super) fn copy_not_logged() -> Hook {
    recorded(|command, effects| {
        if published(command).is_some() && effects.len() > 1 {
            effects.pop();
        }
    })
}

/// The ids of messages that are sent to topics are not logged: after a restart, duplicates are copied.
pub(super) fn ids_not_logged() -> Hook {
    recorded(|_, effects| {
        for effect in effects {
            if let Effect::Own(OwnEffect::Passed { id_hash, .. }) = effect {
                *id_hash = None;
            }
        }
    })
}

/// A topic gives out its last number again after a restart.
pub(super) fn number_not_logged() -> Hook {
    recorded(|_, effects| {
        effects.retain(|effect| !matches!(effect, Effect::Own(OwnEffect::Passed { .. })));
    })
}

/// After messages were read from pages, the second subscription gets no copies in that turn.
pub(super) fn copy_lost_while_cold() -> Hook {
    let mut copies = Copies::default();
    let (mut was_read, mut is_cold) = (false, false);
    let cold = std::rc::Rc::new(std::cell::Cell::new(false));
    let seen = std::rc::Rc::clone(&cold);
    let mut inner = bus_effects(move |known, effects| {
        effects.retain(|effect| copies.nth(known, effect) != 2 || !seen.get());
    });
    Box::new(move |seam, value| {
        if seam == Seam::Job
            && let Some(kind) = value.downcast_ref::<Option<JobKind>>()
        {
            was_read |= *kind == Some(JobKind::Load);
        }
        if seam == Seam::Taken
            && let Some(None) = value.downcast_ref::<Option<Command>>()
        {
            is_cold = std::mem::take(&mut was_read);
        }
        cold.set(is_cold);
        inner(seam, value);
    })
}

/// A rule selects all messages, whatever it says.
pub(super) fn rule_ignored() -> Hook {
    on(Seam::Decided, |events: &mut Vec<Event>| {
        for event in events {
            if let Fact::Bus(BusFact::RulesChanged { added, .. }) = &mut event.fact {
                for rule in added {
                    rule.definition = Rule::All.as_new().definition.bytes().into();
                }
            }
        }
    })
}

/// A change of rules is not logged: the old rule counts again after a crash.
pub(super) fn rule_not_logged() -> Hook {
    on(Seam::Recorded, |events: &mut Vec<Event>| {
        events.retain(|event| !matches!(event.fact, Fact::Bus(BusFact::RulesChanged { .. })));
    })
}

/// The copies of an action are like any other.
pub(super) fn action_ignored() -> Hook {
    bus_effects(|known, effects| {
        for effect in effects {
            if published(known.command()).is_some()
                && let Effect::Arrived { message, .. } = effect
                && known.is_copy(message)
                && !message.overlays().is_empty()
            {
                let changed = message.clone();
                *message = changed.with(|rest| rest.side.overlays.clear());
            }
        }
    })
}

/// A subscription is left when its topic is deleted, without its messages.
pub(super) fn subscription_left() -> Hook {
    let mut created: BTreeMap<Incarnation, Event> = BTreeMap::new();
    on(Seam::Decided, move |events: &mut Vec<Event>| {
        let mut left = Vec::new();
        for event in events.iter() {
            match &event.fact {
                Fact::Bus(BusFact::SubscriptionCreated { of, .. }) => {
                    created.insert(*of, event.clone());
                }
                Fact::Bus(BusFact::QueueDeleted { queue }) => {
                    let at = event.at;
                    left.extend(created.remove(queue).map(|it| Event { at, ..it }));
                }
                _ => {}
            }
        }
        events.append(&mut left);
    })
}

/// When a copy ends, its body counts as ended for another copy, too.
pub(super) fn end_counts_twice() -> Hook {
    let mut copies = Copies::default();
    let mut bodies = BTreeSet::new();
    bus_effects(move |known, effects| {
        for effect in effects {
            if copies.nth(known, effect) == 2 {
                bodies.extend(copies.body);
            }
            if let Effect::Ended { bodies: ended, .. } = effect
                && bodies.remove(&place(ended.sent))
            {
                ended.sent.length *= 2;
            }
        }
    })
}

/// A copy that becomes a dead letter, or is forwarded, ends as if it had counted its body.
pub(super) fn hold_lost_by_move() -> Hook {
    bus_effects(|known, effects| {
        for effect in effects {
            if known.arrived().is_some_and(|arrived| arrived.is_moved)
                && let Effect::Ended { bodies, .. } = effect
            {
                bodies.sent = place(bodies.sent);
            }
        }
    })
}

/// A copy that is settled ends as if it had counted its body: what its subscription borrows stays.
pub(super) fn borrowed_not_lowered() -> Hook {
    bus_effects(|known, effects| {
        for effect in effects {
            if known.arrived().is_none()
                && let Effect::Ended { bodies, .. } = effect
            {
                bodies.sent = place(bodies.sent);
            }
        }
    })
}

/// A copy whose body has moved with another one is told a place that nobody may have any more.
pub(super) fn named_place_not_checked() -> Hook {
    let mut before = BTreeMap::new();
    on(Seam::Decided, move |events: &mut Vec<Event>| {
        for event in events {
            if let Fact::Bus(BusFact::BodiesMoved { moves }) = &mut event.fact {
                let moves = moves.iter_mut().map(|it| &mut it.body);
                for body in moves {
                    let (from, to) = (place(body.from), place(body.to));
                    if body.to.hold() == Hold::Borrows
                        && let Some(earlier) = before.get(&from)
                    {
                        body.to = BodyLocation::with(*earlier, Hold::Borrows);
                    }
                    before.insert(to, from);
                }
            }
        }
    })
}

/// A body moves with its first copy. That the others have it in the new place, too, is not logged.
pub(super) fn move_of_copy_not_logged() -> Hook {
    let mut moved = BTreeSet::new();
    on(Seam::Recorded, move |events: &mut Vec<Event>| {
        for event in events.iter_mut() {
            if let Fact::Bus(BusFact::BodiesMoved { moves }) = &mut event.fact {
                moves.retain(|Moved { body, .. }| moved.insert(place(body.from)));
            }
        }
        events.retain(|event| {
            !matches!(&event.fact, Fact::Bus(BusFact::BodiesMoved { moves }) if moves.is_empty())
        });
    })
}

/// Bodies that move are right for the first copy, and given to other messages for the others.
pub(super) fn moved_to_another() -> Hook {
    let mut moved = BTreeSet::new();
    on(Seam::Decided, move |events: &mut Vec<Event>| {
        for event in events {
            if let Fact::Bus(BusFact::BodiesMoved { moves }) = &mut event.fact {
                let others = moves.iter_mut().map(|it| &mut it.body);
                let mut others: Vec<_> =
                    others.filter(|it| !moved.insert(place(it.from))).collect();
                let mut places: Vec<_> = others.iter().map(|it| it.to).collect();
                places.rotate_left(others.len().min(1));
                for (body, to) in others.iter_mut().zip(places) {
                    body.to = to;
                }
            }
        }
    })
}

/// A list of subscriptions leaves out the last one.
pub(super) fn subscription_not_listed() -> Hook {
    answers(|command, reply, _| {
        if let Command::Bus(BusCommand::ListSubscriptions { .. }) = command
            && let Ok(answered) = reply
            && let Outcome::Bus(BusOutcome::Queues(views)) = &mut answered.outcome
        {
            views.pop();
        }
    })
}
