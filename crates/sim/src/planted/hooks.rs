//! Bugs as functions on the values of one type, at one seam.

use std::any::Any;
use std::collections::BTreeMap;

use kew_engine::bus::{BusFact, BusMessageState, Effect, OwnEffect};
use kew_engine::storage::{self, StorageFact};
use kew_engine::{
    Arrival, Command, Effects, Event, Fact, Lease, Place, SequenceNumber, Standing, Timestamp,
};
use kew_planted::{Hook, Seam};

/// A bug on every value of a type at a seam.
pub(super) fn on<T: Any>(seam: Seam, mut bug: impl FnMut(&mut T) + 'static) -> Hook {
    Box::new(move |at, value| {
        if at == seam
            && let Some(value) = value.downcast_mut()
        {
            bug(value);
        }
    })
}

/// A bug on the effects on messages of storage queues, and the command that they come from.
pub(super) fn storage_effects(
    mut bug: impl FnMut(&mut storage::Effect, Option<&Command>) + 'static,
) -> Hook {
    let mut command = None;
    Box::new(move |seam, value| {
        note_command(seam, value, &mut command);
        if seam == Seam::Decided
            && let Some(events) = value.downcast_mut::<Vec<Event>>()
        {
            for event in events {
                if let Fact::Storage(StorageFact::Messages { effects }) = &mut event.fact {
                    changed(effects, |effects| {
                        let effects = effects.iter_mut();
                        effects.for_each(|effect| bug(effect, command.as_ref()));
                    });
                }
            }
        }
    })
}

/// Changes the effects of an event.
pub(super) fn changed<O>(
    effects: &mut Effects<O>,
    change: impl FnOnce(&mut Vec<kew_engine::Effect<O>>),
) {
    let mut all = Vec::from(std::mem::take(effects));
    change(&mut all);
    *effects = all.into();
}

/// Effects of bus queues that were decided before, as far as bugs need them.
#[derive(Default)]
pub(super) struct Known {
    command: Option<Command>,
    messages: BTreeMap<Place, Stored>,
    arrived: Option<Arrived>,
    /// The number that a topic has given to the message that the command copies.
    passed: Option<SequenceNumber>,
}

/// A message of a bus queue.
#[derive(Clone, Copy)]
pub(super) struct Stored {
    pub(super) lease: Lease,
    pub(super) expires_at: Timestamp,
    pub(super) session: u32,
}

/// A message that the effect before this one brought.
#[derive(Clone, Copy)]
pub(super) struct Arrived {
    pub(super) to: Place,
    /// Whether it was elsewhere before, and keeps its first number.
    pub(super) is_moved: bool,
}

impl Arrived {
    pub(super) fn of(to: Place, message: &Arrival) -> Self {
        let is_moved = message.first_number().is_some();
        Self { to, is_moved }
    }
}

impl Known {
    /// The command that is being decided, if it is not due work of a turn.
    pub(super) fn command(&self) -> Option<&Command> {
        self.command.as_ref()
    }

    pub(super) fn message(&self, at: Place) -> Option<&Stored> {
        self.messages.get(&at)
    }

    /// The message with the next higher number in the same entity.
    pub(super) fn next(&self, at: Place) -> Option<(Place, &Stored)> {
        let after = (std::ops::Bound::Excluded(at), std::ops::Bound::Unbounded);
        let next = self.messages.range(after).next();
        let next = next.filter(|(place, _)| place.entity == at.entity);
        next.map(|(place, stored)| (*place, stored))
    }

    pub(super) fn arrived(&self) -> Option<Arrived> {
        self.arrived
    }

    /// Whether a message comes as a copy of one that the command sends to a topic.
    pub(super) fn is_copy(&self, message: &Arrival) -> bool {
        self.passed.is_some() && message.first_number() == self.passed
    }

    /// When a message expires, if a lock has not hidden that from the beginning.
    pub(super) fn expires_at(&self, at: Place) -> Timestamp {
        let message = self.message(at);
        message.map_or(Timestamp::NEVER, |message| message.expires_at)
    }

    fn note(&mut self, effect: &Effect) {
        self.arrived = None;
        match effect {
            Effect::Arrived { to, message } => {
                let arrived = Arrived::of(*to, message);
                let is_moved = arrived.is_moved && !self.is_copy(message);
                self.arrived = Some(Arrived {
                    is_moved,
                    ..arrived
                });
                let stored = Stored {
                    lease: Lease {
                        generation: message.record.generation,
                        deliveries: message.record.deliveries,
                        standing: arrived_standing(message),
                    },
                    expires_at: message.record.expires_at,
                    session: message.record.session,
                };
                self.messages.insert(*to, stored);
            }
            Effect::Leased { at, lease, .. } => {
                if let Some(stored) = self.messages.get_mut(at) {
                    stored.lease = *lease;
                }
            }
            Effect::Ended { at, .. } => {
                self.messages.remove(at);
            }
            Effect::Own(OwnEffect::Passed { topic, .. }) => self.passed = Some(topic.number),
            Effect::Own(
                OwnEffect::SessionReleasing { .. }
                | OwnEffect::SessionFreed { .. }
                | OwnEffect::FannedOut { .. },
            ) => {}
        }
    }
}

fn arrived_standing(message: &Arrival) -> Standing {
    match message.record.state {
        state @ BusMessageState::Scheduled => Standing {
            state,
            until: message.record.due_at,
        },
        _ => ready(message.record.expires_at),
    }
}

/// A message that can be received until it expires.
pub(super) fn ready(until: Timestamp) -> Standing {
    Standing {
        state: BusMessageState::Ready,
        until,
    }
}

pub(super) fn is_locked(standing: Standing) -> bool {
    matches!(standing.state, BusMessageState::Locked { .. })
}

/// A bug on the effects on messages of bus queues. They come one at a time.
pub(super) fn bus_effects(mut bug: impl FnMut(&Known, &mut Vec<Effect>) + 'static) -> Hook {
    let mut known = Known::default();
    Box::new(move |seam, value| {
        note_command(seam, value, &mut known.command);
        if seam == Seam::Taken {
            known.passed = None;
        }
        if seam == Seam::Decided
            && let Some(effects) = value.downcast_mut::<Vec<Effect>>()
        {
            bug(&known, effects);
            effects.iter().for_each(|effect| known.note(effect));
        }
    })
}

/// A bug that alters such effects.
pub(super) fn altered(mut bug: impl FnMut(&Known, &mut Effect) + 'static) -> Hook {
    bus_effects(move |known, effects| effects.iter_mut().for_each(|effect| bug(known, effect)))
}

/// A bug that drops such effects.
pub(super) fn dropped(mut bug: impl FnMut(&Known, &Effect) -> bool + 'static) -> Hook {
    bus_effects(move |known, effects| effects.retain(|effect| !bug(known, effect)))
}

/// A bug on what the log gets of the effects on bus queues, and the command that they come from. The state has all
/// of them.
pub(super) fn recorded(mut bug: impl FnMut(Option<&Command>, &mut Vec<Effect>) + 'static) -> Hook {
    let mut command = None;
    Box::new(move |seam, value| {
        note_command(seam, value, &mut command);
        if seam == Seam::Recorded
            && let Some(events) = value.downcast_mut::<Vec<Event>>()
        {
            events.retain_mut(|event| match &mut event.fact {
                Fact::Bus(BusFact::Messages { effects }) => {
                    changed(effects, |effects| bug(command.as_ref(), effects));
                    !effects.is_empty()
                }
                _ => true,
            });
        }
    })
}

fn note_command(seam: Seam, value: &mut dyn Any, command: &mut Option<Command>) {
    if seam == Seam::Taken
        && let Some(taken) = value.downcast_ref::<Option<Command>>()
    {
        command.clone_from(taken);
    }
}
