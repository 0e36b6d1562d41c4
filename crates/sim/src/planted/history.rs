//! A snapshot forgets, or confuses, what the log had.
//!
//! Such a snapshot is one of another state: of the state that this process found when it started, and of the
//! events since then with some of them altered. So a bug is a function on events, and knows no bytes of a part.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kew_engine::bus::{self, BusFact};
use kew_engine::storage::{self, StorageFact};
use kew_engine::{
    BodyCursor, Effect, Effects, Event, Fact, Hold, Incarnation, MessageState, Moved, MovedBodies,
    State,
};
use kew_log::SnapshotContent;
use kew_planted::{Hook, Overlooked, Seam};

use super::bus::change;
use super::hooks::{changed, is_locked, on, ready};
use super::lost::is_move;

/// What a partition found when it was opened, and the events that it has recorded since.
#[derive(Default)]
struct History {
    found: Vec<Bytes>,
    since: Vec<Event>,
}

impl History {
    fn note(&mut self, seam: Seam, value: &dyn Any) {
        if seam == Seam::Opened
            && let Some(parts) = value.downcast_ref::<Vec<Bytes>>()
        {
            self.found.clone_from(parts);
            self.since.clear();
        }
        if seam == Seam::Recorded
            && let Some(events) = value.downcast_ref::<Vec<Event>>()
        {
            self.since.extend_from_slice(events);
        }
    }

    /// A snapshot of the state that these events would have made.
    fn snapshot_of(&self, events: Vec<Event>) -> Option<Vec<Bytes>> {
        made_of(&self.found, events).map(|state| parts_of(&state))
    }
}

/// A snapshot of the state that the events before it would have made, if they had been others.
fn snapshot_of(forget: fn(&mut Vec<Event>)) -> Hook {
    snapshot_at(move |history, begun| {
        let mut events = history.since[..begun].to_vec();
        forget(&mut events);
        events
    })
}

/// A snapshot of the state that these events would have made, given how many there were when it was begun.
fn snapshot_at(events: impl Fn(&History, usize) -> Vec<Event> + 'static) -> Hook {
    let mut history = History::default();
    let mut begun = 0;
    Box::new(move |seam, value| {
        history.note(seam, value);
        if seam == Seam::Opened {
            begun = 0;
        }
        if seam == Seam::SnapshotBegun {
            begun = history.since.len();
        }
        if seam == Seam::Snapshot
            && let Some(content) = value.downcast_mut::<Box<dyn SnapshotContent>>()
            && can_be_whole(&mut **content)
            && let Some(parts) = history.snapshot_of(events(&history, begun))
        {
            *content = Box::new(parts);
        }
    })
}

/// Whether a snapshot can be one without pages: otherwise that would lose what is on pages alone.
fn can_be_whole(content: &mut dyn SnapshotContent) -> bool {
    let planned = content.plan();
    (0..planned.pages).all(|index| content.can_make(index))
}

/// A storage queue that changes before a snapshot has gathered it is missing there.
pub(super) fn changed_before_gathered() -> Hook {
    snapshot_at(|history, begun| {
        let (before, after) = history.since.split_at(begun);
        let mut events = before.to_vec();
        for event in after {
            if let Some(queue) = changed_queue(&event.fact) {
                let fact = Fact::Storage(StorageFact::QueueDeleted { queue });
                events.push(Event { at: event.at, fact });
            }
        }
        events
    })
}

fn changed_queue(fact: &Fact) -> Option<Incarnation> {
    match fact {
        Fact::Storage(StorageFact::Messages { effects }) => {
            effects.iter().next().map(Effect::entity)
        }
        Fact::Storage(StorageFact::BodiesMoved { moves }) => moves.first().map(Moved::entity),
        Fact::Storage(
            StorageFact::QueueMetadataSet { queue, .. }
            | StorageFact::QueuePoliciesSet { queue, .. },
        ) => Some(*queue),
        Fact::Storage(StorageFact::QueueCreated { .. } | StorageFact::QueueDeleted { .. })
        | Fact::PartitionInitialized { .. }
        | Fact::ServicePropertiesSet { .. }
        | Fact::AccountPut { .. }
        | Fact::AccountRemoved { .. }
        | Fact::Quarantined { .. }
        | Fact::RunLost { .. }
        | Fact::Bus(_) => None,
    }
}

/// A snapshot forgets that a subscription has a topic.
pub(super) fn topic_of_subscription_forgotten() -> Hook {
    snapshot_of(|events| {
        for event in events {
            if let Fact::Bus(BusFact::SubscriptionCreated {
                subscription,
                name,
                options,
                ..
            }) = &event.fact
            {
                event.fact = Fact::Bus(BusFact::QueueCreated {
                    queue: *subscription,
                    name: name.clone(),
                    options: options.clone(),
                });
            }
        }
    })
}

fn parts_of(state: &State) -> Vec<Bytes> {
    let mut parts = Vec::new();
    state.snapshot(|part| parts.push(Bytes::copy_from_slice(part)));
    parts
}

fn made_of(found: &[Bytes], events: Vec<Event>) -> Option<State> {
    let mut state = State::new();
    for part in found {
        state.restore(part).ok()?;
    }
    events.into_iter().for_each(|event| state.apply(event));
    Some(state)
}

fn each_effect(events: &mut Vec<Event>, mut alter: impl FnMut(&Event, &mut storage::Effect)) {
    for event in events {
        let whole = event.clone();
        if let Fact::Storage(StorageFact::Messages { effects }) = &mut event.fact {
            changed(effects, |effects| {
                effects.iter_mut().for_each(|effect| alter(&whole, effect));
            });
        }
    }
}

fn each_bus_effect(events: &mut Vec<Event>, mut alter: impl FnMut(&mut bus::Effect)) {
    for event in events {
        if let Fact::Bus(BusFact::Messages { effects }) = &mut event.fact {
            changed(effects, |effects| effects.iter_mut().for_each(&mut alter));
        }
    }
}

/// No bug: a snapshot of the state that the events made.
pub(super) fn nothing() -> Hook {
    snapshot_of(|_| ())
}

/// A segment is retired although it holds bodies that are still needed.
pub(super) fn live_segment_retired() -> Hook {
    on(Seam::SnapshotBegun, |overlooked: &mut Overlooked| {
        *overlooked = Some(Box::new(|_| true));
    })
}

/// A segment is retired although messages borrow bodies in it, which other messages counted.
pub(super) fn borrowed_segment_retired() -> Hook {
    let mut history = History::default();
    Box::new(move |seam, value| {
        history.note(seam, value);
        if seam == Seam::SnapshotBegun
            && let Some(overlooked) = value.downcast_mut::<Overlooked>()
            && let Some(state) = made_of(&history.found, history.since.clone())
        {
            let (all, none) = (0..u64::MAX, MovedBodies::default());
            let size = (u32::MAX, u64::MAX);
            let found = state.bodies_in(&all, BodyCursor::default(), size, &none);
            let (mut borrowed, mut counted) = (BTreeSet::new(), BTreeSet::new());
            for body in found.bodies {
                match body.at.hold() {
                    Hold::Borrows => borrowed.insert(body.at.record),
                    Hold::Alone | Hold::Lends => counted.insert(body.at.record),
                };
            }
            let is_any = |of: &BTreeSet<u64>, positions| of.range(positions).next().is_some();
            *overlooked = Some(Box::new(move |positions| {
                is_any(&borrowed, positions.clone()) && !is_any(&counted, positions)
            }));
        }
    })
}

/// A snapshot gives a message the body of the one before it.
pub(super) fn body_of_another_message() -> Hook {
    snapshot_of(|events| {
        let mut before = None;
        each_effect(events, |_, effect| {
            if let Effect::Arrived { message, .. } = effect {
                let own = message.record.body;
                message.record.body = before.replace(own).unwrap_or(own);
            }
        });
    })
}

/// A snapshot has the old places of bodies that have moved.
pub(super) fn moves_forgotten() -> Hook {
    snapshot_of(|events| events.retain(|event| !is_move(&event.fact)))
}

/// A snapshot forgets which messages are leased or delayed.
pub(super) fn leases_forgotten() -> Hook {
    snapshot_of(|events| {
        each_effect(events, |event, effect| match effect {
            Effect::Arrived { message, .. } => {
                message.record.state = MessageState::Ready;
                message.record.due_at = event.at;
            }
            Effect::Leased { lease, .. } => lease.standing.until = event.at,
            _ => {}
        });
    })
}

/// A snapshot forgets how often messages were delivered.
pub(super) fn delivery_counts_forgotten() -> Hook {
    snapshot_of(|events| {
        each_effect(events, |_, effect| {
            if let Effect::Leased { lease, .. } = effect {
                lease.deliveries = 0;
            }
        });
    })
}

/// A snapshot forgets the sequence numbers of messages that no longer exist.
pub(super) fn sequence_numbers_reused() -> Hook {
    snapshot_of(|events| {
        forget_gone(events, |fact| match fact {
            Fact::Storage(StorageFact::Messages { effects }) => Some(effects),
            _ => None,
        });
    })
}

/// Leaves out the effects on messages that came and are gone.
fn forget_gone<O>(events: &mut [Event], effects_of: fn(&mut Fact) -> Option<&mut Effects<O>>) {
    let (mut came, mut left) = (BTreeSet::new(), BTreeSet::new());
    let all = events
        .iter_mut()
        .filter_map(|event| effects_of(&mut event.fact));
    for effect in all.flat_map(|effects| effects.iter()) {
        match effect {
            Effect::Arrived { to, .. } => {
                came.insert(*to);
            }
            Effect::Ended { at, .. } => left.extend(came.contains(at).then_some(*at)),
            _ => {}
        }
    }
    for effects in events
        .iter_mut()
        .filter_map(|event| effects_of(&mut event.fact))
    {
        changed(effects, |effects| {
            effects.retain(|effect| effect.message().is_none_or(|at| !left.contains(&at)));
        });
    }
}

/// A snapshot forgets the incarnations of queues that no longer exist.
pub(super) fn incarnations_reused() -> Hook {
    snapshot_of(|events| {
        let deleted = |event: &Event| match &event.fact {
            Fact::Storage(StorageFact::QueueDeleted { queue }) => Some(*queue),
            _ => None,
        };
        let deleted: BTreeSet<Incarnation> = events.iter().filter_map(deleted).collect();
        events.retain(|event| match &event.fact {
            Fact::Storage(StorageFact::QueueCreated { queue, .. }) => !deleted.contains(queue),
            _ => true,
        });
    })
}

/// A snapshot forgets the access policies of queues.
pub(super) fn policies_forgotten() -> Hook {
    snapshot_of(|events| {
        let is_set = |fact: &Fact| {
            let policies =
                |fact: &StorageFact| matches!(fact, StorageFact::QueuePoliciesSet { .. });
            matches!(fact, Fact::Storage(fact) if policies(fact))
        };
        events.retain(|event| !is_set(&event.fact));
    })
}

/// A snapshot forgets which messages of bus queues are locked.
pub(super) fn bus_locks_forgotten() -> Hook {
    snapshot_of(|events| {
        let mut expires = BTreeMap::new();
        each_bus_effect(events, |effect| match effect {
            Effect::Arrived { to, message } => {
                expires.insert(*to, message.record.expires_at);
            }
            Effect::Leased { at, lease, .. } if is_locked(lease.standing) => {
                if let Some(until) = expires.get(at) {
                    lease.standing = ready(*until);
                }
            }
            _ => {}
        });
    })
}

/// A snapshot forgets how many deliveries of a bus queue's messages failed.
pub(super) fn bus_delivery_counts_forgotten() -> Hook {
    snapshot_of(|events| {
        each_bus_effect(events, |effect| match effect {
            Effect::Arrived { message, .. } => message.record.deliveries = 0,
            Effect::Leased { lease, .. } => lease.deliveries = 0,
            _ => {}
        });
    })
}

/// A snapshot forgets the ids by which duplicates are known.
pub(super) fn bus_duplicates_forgotten() -> Hook {
    snapshot_of(|events| {
        each_bus_effect(events, |effect| {
            if let Effect::Arrived { message, .. } = effect {
                change(message, |rest| rest.id_hash = None);
            }
        });
    })
}

/// A snapshot forgets the numbers of messages of bus queues that no longer exist.
pub(super) fn bus_number_reused() -> Hook {
    snapshot_of(|events| {
        forget_gone(events, |fact| match fact {
            Fact::Bus(BusFact::Messages { effects }) => Some(effects),
            _ => None,
        });
    })
}

/// A snapshot forgets the states of sessions.
pub(super) fn bus_session_state_forgotten() -> Hook {
    snapshot_of(|events| {
        let is_set = |fact: &Fact| {
            let state = |fact: &BusFact| matches!(fact, BusFact::SessionStateSet { .. });
            matches!(fact, Fact::Bus(fact) if state(fact))
        };
        events.retain(|event| !is_set(&event.fact));
    })
}
