//! Bugs as functions on the values of one type, at one seam.

use std::any::Any;
use std::collections::BTreeMap;

use kew_engine::bus::{BusArrival, BusEffect, BusFact, BusLease, BusMessageState, Standing};
use kew_engine::storage::{Effect, StorageFact};
use kew_engine::{Command, Event, Fact, Place, Timestamp};
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
    mut bug: impl FnMut(&mut Effect, Option<&Command>) + 'static,
) -> Hook {
    let mut command = None;
    Box::new(move |seam, value| {
        note_command(seam, value, &mut command);
        if seam == Seam::Decided
            && let Some(events) = value.downcast_mut::<Vec<Event>>()
        {
            for event in events {
                if let Fact::Storage(StorageFact::Messages { effects }) = &mut event.fact {
                    let altered = effects.iter().map(|effect| {
                        let mut effect = *effect;
                        bug(&mut effect, command.as_ref());
                        effect
                    });
                    *effects = altered.collect();
                }
            }
        }
    })
}

/// Effects of bus queues that were decided before, as far as bugs need them.
#[derive(Default)]
pub(super) struct Known {
    command: Option<Command>,
    messages: BTreeMap<Place, Stored>,
    arrived: Option<Arrived>,
}

/// A message of a bus queue.
#[derive(Clone, Copy)]
pub(super) struct Stored {
    pub(super) lease: BusLease,
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
    pub(super) fn of(to: Place, message: &BusArrival) -> Self {
        let is_moved = message.first_number.is_some();
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

    /// When a message expires, if a lock has not hidden that from the beginning.
    pub(super) fn expires_at(&self, at: Place) -> Timestamp {
        let message = self.message(at);
        message.map_or(Timestamp::NEVER, |message| message.expires_at)
    }

    fn note(&mut self, effect: &BusEffect) {
        self.arrived = None;
        match effect {
            BusEffect::Arrived { to, message } => {
                self.arrived = Some(Arrived::of(*to, message));
                let stored = Stored {
                    lease: BusLease {
                        generation: message.generation,
                        deliveries: message.deliveries,
                        standing: arrived_standing(message),
                    },
                    expires_at: message.expires_at,
                    session: message.session.as_ref().map_or(0, |it| it.number),
                };
                self.messages.insert(*to, stored);
            }
            BusEffect::Leased { at, lease, .. } => {
                if let Some(stored) = self.messages.get_mut(at) {
                    stored.lease = *lease;
                }
            }
            BusEffect::Ended { at, .. } => {
                self.messages.remove(at);
            }
            BusEffect::SessionReleasing { .. } | BusEffect::SessionFreed { .. } => {}
        }
    }
}

fn arrived_standing(message: &BusArrival) -> Standing {
    match message.scheduled_at {
        Some(until) => Standing {
            state: BusMessageState::Scheduled,
            until,
        },
        None => ready(message.expires_at),
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
pub(super) fn bus_effects(mut bug: impl FnMut(&Known, &mut Vec<BusEffect>) + 'static) -> Hook {
    let mut known = Known::default();
    Box::new(move |seam, value| {
        note_command(seam, value, &mut known.command);
        if seam == Seam::Decided
            && let Some(effects) = value.downcast_mut::<Vec<BusEffect>>()
        {
            bug(&known, effects);
            effects.iter().for_each(|effect| known.note(effect));
        }
    })
}

/// A bug that alters such effects.
pub(super) fn altered(mut bug: impl FnMut(&Known, &mut BusEffect) + 'static) -> Hook {
    bus_effects(move |known, effects| effects.iter_mut().for_each(|effect| bug(known, effect)))
}

/// A bug that drops such effects.
pub(super) fn dropped(mut bug: impl FnMut(&Known, &BusEffect) -> bool + 'static) -> Hook {
    bus_effects(move |known, effects| effects.retain(|effect| !bug(known, effect)))
}

/// A bug on what the log gets of the effects on bus queues, and the command that they come from. The state has all
/// of them.
pub(super) fn recorded(
    mut bug: impl FnMut(Option<&Command>, &mut Vec<BusEffect>) + 'static,
) -> Hook {
    let mut command = None;
    Box::new(move |seam, value| {
        note_command(seam, value, &mut command);
        if seam == Seam::Recorded
            && let Some(events) = value.downcast_mut::<Vec<Event>>()
        {
            events.retain_mut(|event| match &mut event.fact {
                Fact::Bus(BusFact::Messages { effects }) => {
                    bug(command.as_ref(), effects);
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
