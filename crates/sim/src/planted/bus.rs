//! What is decided about bus queues is wrong in the state and in the log alike.

use kew_engine::bus::{BusCommand, BusMessageState, DeadLetterCause, Effect, ReceiveMode};
use kew_engine::{Arrival, BodyLocation, Command, Rest, SequenceNumber, Timestamp, Was};
use kew_planted::Hook;

use super::hooks::{Known, altered, bus_effects, dropped, is_locked, ready};

fn command(known: &Known) -> Option<&BusCommand> {
    match known.command() {
        Some(Command::Bus(command)) => Some(command),
        _ => None,
    }
}

fn is_transaction(known: &Known) -> bool {
    matches!(command(known), Some(BusCommand::Transact { .. }))
}

fn is_resubmission(known: &Known) -> bool {
    matches!(command(known), Some(BusCommand::Resubmit { .. }))
}

/// No bug: effects are as they were decided.
pub(super) fn nothing() -> Hook {
    altered(|_, _| ())
}

/// A lock that ends does not count as a failed delivery.
pub(super) fn failure_not_counted() -> Hook {
    altered(|known, effect| {
        if let Effect::Leased { at, lease, was, .. } = effect
            && is_locked(was.standing)
            && let Some(message) = known.message(*at)
        {
            lease.deliveries = lease.deliveries.min(message.lease.deliveries);
        }
    })
}

/// A session that is left in order counts as failed deliveries.
pub(super) fn release_counts() -> Hook {
    altered(|known, effect| {
        if let Effect::Leased { at, lease, was, .. } = effect
            && is_locked(was.standing)
            && lease.standing.state == BusMessageState::Ready
            && was.session != 0
            && let Some(message) = known.message(*at)
            && message.lease.deliveries == lease.deliveries
        {
            lease.deliveries += 1;
        }
    })
}

/// A lock outlasts the end that its holder was told.
pub(super) fn ended_lock_settles() -> Hook {
    altered(|_, effect| {
        if let Effect::Leased { lease, .. } = effect
            && is_locked(lease.standing)
        {
            lease.standing.until = lease.standing.until.plus_ms(60_000);
        }
    })
}

/// A deferred message is given to any receiver.
pub(super) fn deferred_delivered() -> Hook {
    not_deferred(BusMessageState::Locked { deferred: false })
}

/// A deferred message that was locked comes back as an ordinary one.
pub(super) fn deferral_forgotten() -> Hook {
    not_deferred(BusMessageState::Locked { deferred: true })
}

fn not_deferred(from: BusMessageState) -> Hook {
    altered(move |known, effect| {
        if let Effect::Leased { at, lease, was, .. } = effect
            && was.standing.state == from
            && lease.standing.state == BusMessageState::Deferred
        {
            lease.standing = ready(known.expires_at(*at));
        }
    })
}

/// A message that returns never expires.
pub(super) fn expiry_forgotten() -> Hook {
    altered(|_, effect| {
        if let Effect::Leased { lease, was, .. } = effect
            && is_locked(was.standing)
            && lease.standing.state == BusMessageState::Ready
        {
            lease.standing.until = Timestamp::NEVER;
        }
    })
}

/// A dead letter stays in its queue, too.
pub(super) fn moved_twice() -> Hook {
    dropped(|known, effect| {
        let is_moved = known.arrived().is_some_and(|it| it.is_moved);
        is_moved && matches!(effect, Effect::Ended { .. })
    })
}

/// A message that was delivered too often becomes two dead letters.
pub(super) fn dead_letter_doubled() -> Hook {
    bus_effects(|known, effects| {
        if let [Effect::Arrived { to, message }] = &effects[..]
            && message.record.cause == Some(DeadLetterCause::MaxDeliveryCountExceeded)
            // A forwarded dead letter has none.
            && message.record.deliveries > 0
            && known.message(*to).is_none()
        {
            let mut second = *to;
            second.number = after(to.number);
            let message = message.clone();
            effects.push(Effect::Arrived {
                to: second,
                message,
            });
        }
    })
}

/// Changes what few messages have.
pub(super) fn change(message: &mut Arrival, change: impl FnOnce(&mut Rest)) {
    *message = message.clone().with(change);
}

fn after(number: SequenceNumber) -> SequenceNumber {
    SequenceNumber::named(number.as_u64() + 1)
}

/// A message that is forwarded does not count that.
pub(super) fn hops_not_counted() -> Hook {
    altered(|_, effect| {
        if let Effect::Arrived { message, .. } = effect {
            message.record.hops = 0;
        }
    })
}

/// A change to a message's properties is lost when it becomes a dead letter.
pub(super) fn change_dropped() -> Hook {
    altered(|_, effect| {
        if let Effect::Arrived { message, .. } = effect
            && message.record.cause == Some(DeadLetterCause::ByReceiver)
        {
            let kept = message.overlays().len().saturating_sub(1);
            change(message, |rest| rest.side.overlays.truncate(kept));
        }
    })
}

/// The bytes of a deleted message still count in its queue.
pub(super) fn size_not_given_back() -> Hook {
    altered(|_, effect| {
        if let Effect::Ended { bodies, .. } = effect {
            let overlays = bodies.overlays.iter_mut();
            overlays.for_each(empty);
            empty(&mut bodies.sent);
        }
    })
}

fn empty(body: &mut BodyLocation) {
    body.length = 0;
}

/// A message that is sent again stays where it was, too.
pub(super) fn resubmitted_twice() -> Hook {
    dropped(|known, effect| {
        let is_new = known.arrived().is_some_and(|it| !it.is_moved);
        is_resubmission(known) && is_new && matches!(effect, Effect::Ended { .. })
    })
}

/// A message that is sent again brings a failed delivery with it.
pub(super) fn resubmitted_keeps_count() -> Hook {
    altered(|known, effect| {
        if let Effect::Arrived { message, .. } = effect
            && is_resubmission(known)
            && message.first_number().is_none()
        {
            message.record.deliveries = 1;
        }
    })
}

/// A purge leaves deferred messages out, and counts them.
pub(super) fn purge_forgets_deferred() -> Hook {
    dropped(|known, effect| {
        let is_purge = matches!(command(known), Some(BusCommand::Purge { .. }));
        let is_deferred = matches!(effect, Effect::Ended { was, .. }
            if was.standing.state == BusMessageState::Deferred);
        is_purge && is_deferred
    })
}

/// Deleting a message by its number counts as a failed delivery of the next one.
pub(super) fn delete_counts() -> Hook {
    bus_effects(|known, effects| {
        if let [Effect::Ended { at, .. }] = effects[..]
            && matches!(command(known), Some(BusCommand::DeleteMessage { .. }))
            && let Some((next, message)) = known.next(at)
        {
            let mut lease = message.lease;
            lease.deliveries += 1;
            let was = Was {
                standing: message.lease.standing,
                session: message.session,
            };
            effects.push(Effect::Leased {
                at: next,
                lease,
                body: None,
                was,
            });
        }
    })
}

/// A message that is taken by its number keeps the lock of its previous holder.
pub(super) fn taken_under_old_lock() -> Hook {
    altered(|known, effect| {
        let mode = match command(known) {
            Some(BusCommand::TakeMessage { mode, .. }) => Some(*mode),
            _ => None,
        };
        if let Effect::Leased { at, lease, .. } = effect
            && mode.is_some_and(|mode| mode != ReceiveMode::ReceiveAndDelete)
            && is_locked(lease.standing)
            && let Some(message) = known.message(*at)
        {
            lease.generation = message.lease.generation;
        }
    })
}

/// A message that is released in a transaction stays locked.
pub(super) fn transaction_lock_kept() -> Hook {
    dropped(|known, effect| {
        let is_released = matches!(effect, Effect::Leased { lease, was, .. }
            if is_locked(was.standing) && lease.standing.state == BusMessageState::Ready);
        is_transaction(known) && is_released
    })
}

/// The ids of messages sent in transactions are not remembered.
pub(super) fn transaction_ids_forgotten() -> Hook {
    altered(|known, effect| {
        if let Effect::Arrived { message, .. } = effect
            && is_transaction(known)
        {
            change(message, |rest| rest.id_hash = None);
        }
    })
}
