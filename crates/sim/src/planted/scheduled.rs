//! What is wrong with messages that are scheduled in a topic.

use std::collections::{BTreeMap, BTreeSet};

use kew_engine::bus::{BusCommand, BusFact, BusMessageState, Effect};
use kew_engine::{Command, Event, Fact, Incarnation, Place, SequenceNumber};
use kew_planted::{Hook, Seam};

use super::hooks::{changed, dropped, on};
use crate::bus::topics::{Kind, kind, named};

fn is_of_schedule(effect: &Effect) -> bool {
    matches!(effect, Effect::Ended { was, .. } if was.standing.state == BusMessageState::Scheduled)
}

fn cancels_in_topic(command: Option<&Command>) -> bool {
    match command {
        Some(Command::Bus(BusCommand::CancelScheduled { queue, .. })) => {
            named(&queue.name).is_some_and(|it| kind(it) == Kind::Topic)
        }
        _ => false,
    }
}

/// What happened to the messages that are scheduled.
#[derive(Default)]
struct Schedules {
    topics: BTreeSet<Incarnation>,
    /// The subscriptions whose rules changed while the message was scheduled.
    changed: BTreeMap<Place, BTreeSet<Incarnation>>,
    /// The same by the number that it took when it became active.
    active: BTreeSet<(Incarnation, SequenceNumber)>,
    arrived: Option<Place>,
}

impl Schedules {
    fn note_rules(&mut self, topic: Incarnation, subscription: Incarnation) {
        for (place, changed) in &mut self.changed {
            if place.entity == topic {
                changed.insert(subscription);
            }
        }
    }

    /// Whether it is the copy of a message that was scheduled when the rules of the subscription changed.
    fn is_late(&mut self, effect: &Effect) -> bool {
        match effect {
            Effect::Arrived { to, message } => {
                let is_scheduled = message.record.state == BusMessageState::Scheduled;
                if is_scheduled && self.topics.contains(&to.entity) {
                    self.changed.insert(*to, BTreeSet::new());
                }
                self.arrived = Some(*to);
                let number = message.first_number();
                number.is_some_and(|number| self.active.contains(&(to.entity, number)))
            }
            Effect::Ended { at, .. } => {
                let changed = self.changed.remove(at).unwrap_or_default();
                if let Some(to) = self.arrived.filter(|to| to.entity == at.entity) {
                    let active = changed.into_iter().map(|it| (it, to.number));
                    self.active.extend(active);
                }
                false
            }
            _ => false,
        }
    }
}

/// The rules of the send count, and not those of the time: where these are others, there is no copy.
pub(super) fn rules_of_the_send() -> Hook {
    let mut schedules = Schedules::default();
    Box::new(move |seam, value| {
        if seam != Seam::Decided {
            return;
        }
        if let Some(events) = value.downcast_ref::<Vec<Event>>() {
            for event in events {
                match &event.fact {
                    Fact::Bus(BusFact::TopicCreated { topic, .. }) => {
                        schedules.topics.insert(*topic);
                    }
                    Fact::Bus(BusFact::RulesChanged {
                        topic,
                        subscription,
                        ..
                    }) => schedules.note_rules(*topic, *subscription),
                    _ => {}
                }
            }
        } else if let Some(effects) = value.downcast_mut::<Vec<Effect>>() {
            effects.retain(|effect| !schedules.is_late(effect));
        }
    })
}

/// A message that was cancelled stays scheduled.
pub(super) fn cancel_ignored() -> Hook {
    dropped(|known, effect| cancels_in_topic(known.command()) && is_of_schedule(effect))
}

/// That a message has become active is not logged whole: after a crash, it becomes active again.
pub(super) fn activation_not_logged() -> Hook {
    let mut topics = BTreeSet::new();
    on(Seam::Recorded, move |events: &mut Vec<Event>| {
        events.retain_mut(|event| match &mut event.fact {
            Fact::Bus(BusFact::TopicCreated { topic, .. }) => {
                topics.insert(*topic);
                true
            }
            Fact::Bus(BusFact::Messages { effects }) => {
                changed(effects, |effects| {
                    let is_of_topic = |it: &Effect| topics.contains(&it.entity());
                    effects.retain(|it| !is_of_schedule(it) || !is_of_topic(it));
                });
                !effects.is_empty()
            }
            _ => true,
        });
    })
}
