//! What is decided about storage queues is wrong in the state and in the log alike.

use std::collections::BTreeMap;

use kew_engine::storage::{Effect, StorageCommand, StorageFact, StorageOutcome};
use kew_engine::{
    BodyLocation, Command, Event, Fact, LeaseGeneration, MessageState, NewBody, Outcome, Place,
    Standing, Timestamp,
};
use kew_planted::{Hook, Seam};

use super::hooks::{on, storage_effects};
use crate::seam::Replies;

fn is_update(command: Option<&Command>) -> bool {
    matches!(
        command,
        Some(Command::Storage(StorageCommand::Update { .. }))
    )
}

/// No bug: effects are as they were decided.
pub(super) fn nothing() -> Hook {
    storage_effects(|_, _| ())
}

/// An update hands out a receipt that it does not renew: the old one works on.
pub(super) fn receipt_not_renewed() -> Hook {
    let mut known: BTreeMap<Place, LeaseGeneration> = BTreeMap::new();
    storage_effects(move |effect, command| {
        if let Effect::Leased { at, lease, .. } = effect {
            let before = known.get(at).copied();
            if is_update(command) {
                lease.generation = before.unwrap_or(lease.generation);
            }
            known.insert(*at, lease.generation);
        }
    })
}

/// An update keeps the old body.
pub(super) fn updated_body_dropped() -> Hook {
    storage_effects(|effect, _| {
        if let Effect::Leased { body, .. } = effect {
            *body = None;
        }
    })
}

/// A lease or a delay ends two seconds before its time.
pub(super) fn lease_ends_early() -> Hook {
    let early = |at: &mut Timestamp| *at = Timestamp::from_ms(at.as_ms().saturating_sub(2000));
    storage_effects(move |effect, _| match effect {
        Effect::Leased { lease, .. } => early(&mut lease.standing.until),
        Effect::Arrived { message, .. } if message.record.state != MessageState::Ready => {
            early(&mut message.record.due_at);
        }
        _ => {}
    })
}

/// A message expires a second before the time that clients see.
pub(super) fn expires_early() -> Hook {
    let mut in_state = storage_effects(|effect, _| {
        if let Effect::Arrived { message, .. } = effect {
            move_expiry(&mut message.record.expires_at, -1000);
        }
    });
    let mut shown = on(Seam::Replies, |(replies, _): &mut Replies| {
        let answered = replies.iter_mut().filter_map(|(_, it)| it.as_mut().ok());
        for answered in answered {
            let Outcome::Storage(outcome) = &mut answered.outcome else {
                continue;
            };
            for at in expiries(outcome) {
                move_expiry(at, 1000);
            }
        }
    });
    Box::new(move |seam, value| {
        in_state(seam, value);
        shown(seam, value);
    })
}

/// The times of messages that were there before their answer.
fn expiries(outcome: &mut StorageOutcome) -> Vec<&mut Timestamp> {
    match outcome {
        StorageOutcome::Received(all) => all.iter_mut().map(|it| &mut it.expires_at).collect(),
        StorageOutcome::Peeked(all) => all.iter_mut().map(|it| &mut it.expires_at).collect(),
        _ => Vec::new(),
    }
}

fn move_expiry(at: &mut Timestamp, by_ms: i64) {
    if *at != Timestamp::NEVER {
        *at = Timestamp::from_ms(at.as_ms().saturating_add_signed(by_ms));
    }
}

/// The body of a message that is deleted still counts in the bytes of its account.
pub(super) fn size_not_given_back() -> Hook {
    storage_effects(|effect, _| {
        if let Effect::Ended { bodies, .. } = effect {
            empty(&mut bodies.sent);
        }
    })
}

/// A body that is replaced still counts in the bytes of its account.
pub(super) fn replaced_size_kept() -> Hook {
    storage_effects(|effect, _| {
        if let Effect::Leased { body, .. } = effect
            && let Some(NewBody::Other { was, .. }) = body.as_deref_mut()
        {
            empty(was);
        }
    })
}

fn empty(body: &mut BodyLocation) {
    body.length = 0;
}

/// Bodies that move are given to other messages.
pub(super) fn moved_to_another() -> Hook {
    on(Seam::Decided, |events: &mut Vec<Event>| {
        for event in events {
            if let Fact::Storage(StorageFact::BodiesMoved { moves }) = &mut event.fact {
                let mut places: Vec<_> = moves.iter().map(|moved| moved.body.to).collect();
                places.rotate_left(1);
                for (moved, to) in moves.iter_mut().zip(places) {
                    moved.body.to = to;
                }
            }
        }
    })
}

/// The event of a lease says of the message what was true before its first lease.
pub(super) fn stale_was() -> Hook {
    storage_effects(|effect, _| {
        if let Effect::Leased { was, .. } = effect {
            was.standing = Standing::default();
        }
    })
}

/// An account that is removed is still there, without its queues.
pub(super) fn account_not_forgotten() -> Hook {
    let mut known = BTreeMap::new();
    on(Seam::Decided, move |events: &mut Vec<Event>| {
        let restored = events.iter().filter_map(|event| match &event.fact {
            Fact::AccountPut { account } => {
                known.insert(account.name.clone(), account.clone());
                None
            }
            Fact::AccountRemoved { account } => {
                let account = known.get(account)?.clone();
                let fact = Fact::AccountPut { account };
                Some(Event { at: event.at, fact })
            }
            _ => None,
        });
        let restored: Vec<_> = restored.collect();
        events.extend(restored);
    })
}
