//! The promises, each with the functions that check it. They compare the known facts about a
//! message with an observation, and change nothing.

use kew_engine::storage::StorageRefusal;
use kew_engine::{Refusal, Timestamp, Token};

use super::message::{Certainty, Message, Shown};
use super::{Operation, Violation, violated};

pub(crate) const NO_LOSS: &str = "I1 no loss";
pub(crate) const NO_PHANTOM: &str = "I2 no phantom";
pub(crate) const NO_CHANGE: &str = "I2 no change";
pub(crate) const NO_RESURRECTION: &str = "I3 no resurrection";
pub(crate) const LEASE_EXCLUSIVITY: &str = "I4 lease exclusivity";
pub(crate) const STALE_RECEIPTS_REFUSED: &str = "I4 stale receipts refused";
pub(crate) const COUNTS_CONSERVED: &str = "I7 counts conserved";
pub(crate) const DELIVERY_COUNT: &str = "I8 delivery count";
pub(crate) const UNIQUE_IDS: &str = "I9 unique ids";
pub(crate) const TIME: &str = "I10 time";
pub(crate) const FAIR_TURNS: &str = "F1 fair turns";
pub(crate) const ORDER: &str = "F2 order within a queue";
pub(crate) const LIVENESS: &str = "L1 liveness";
pub(crate) const SPACE: &str = "L2 space follows live data";
pub(crate) const RECOVERY: &str = "recovery";
pub(crate) const BACKUP: &str = "a backup is whole, and has all that was acknowledged before it";
pub(crate) const NO_DAMAGE: &str = "no damage without a cause";
pub(crate) const STOPS: &str = "stops";
pub(crate) const OWNERS: &str = "an answer shows all that was acknowledged before";
pub(crate) const NO_PANIC: &str = "no panic";
/// Not a promise of the broker: an answer of another kind than the question.
pub(crate) const ANSWERS_FIT: &str = "answers fit";

/// I1: a message that must exist was not shown, although the client asked for more than were shown.
pub(crate) fn no_loss_in_listing(
    operation: &Operation,
    missing: Option<&Message>,
) -> Result<(), Violation> {
    match missing {
        Some(message) => violated!(NO_LOSS, "{operation:?} does not show {message:?}"),
        None => Ok(()),
    }
}

/// I1: the latest receipt of a message that must exist is not refused.
pub(crate) fn no_loss_on_refusal(
    message: &Message,
    receipt: Token,
    until: Timestamp,
    refusal: &Refusal,
) -> Result<(), Violation> {
    if message.is_certain(until) && message.is_latest(receipt) {
        return violated!(NO_LOSS, "{refusal} for {message:?}");
    }
    Ok(())
}

/// I2: body and times are those of an attempted send, or of an update.
pub(crate) fn no_change(message: &Message, shown: &Shown<'_>) -> Result<(), Violation> {
    if !message.bodies.contains(shown.body) {
        return violated!(NO_CHANGE, "{shown:?} has another body than {message:?}");
    }
    let inserted_otherwise = message
        .inserted_at
        .is_some_and(|at| at != shown.inserted_at);
    if inserted_otherwise
        || shown.expires_at < message.expires_at_min
        || shown.expires_at > message.expires_at_max
    {
        return violated!(NO_CHANGE, "{shown:?} has other times than {message:?}");
    }
    Ok(())
}

/// I3: a deleted message is never shown again.
pub(crate) fn no_resurrection(message: &Message, shown: &Shown<'_>) -> Result<(), Violation> {
    if message.gone == Certainty::Yes {
        return violated!(NO_RESURRECTION, "{shown:?} was deleted: {message:?}");
    }
    Ok(())
}

/// I4: no client sees a message while another holds it, or before its delay is over.
pub(crate) fn lease_exclusivity(message: &Message, shown: &Shown<'_>) -> Result<(), Violation> {
    if !message.visible_at_min.has_passed(shown.at) {
        return violated!(
            LEASE_EXCLUSIVITY,
            "{shown:?} shown while hidden: {message:?}"
        );
    }
    Ok(())
}

/// I3 and I4: only the latest receipt settles, and only an existing message.
pub(crate) fn only_latest_settles(
    message: &Message,
    receipt: Token,
    from: Timestamp,
) -> Result<(), Violation> {
    if message.gone == Certainty::Yes || message.expires_at_max.has_passed(from) {
        return violated!(
            NO_RESURRECTION,
            "settled a message that is gone: {message:?}"
        );
    }
    // A receipt that no client has seen cannot be used, so the last one seen is the only candidate.
    if message.receipt != Some(receipt) {
        return violated!(STALE_RECEIPTS_REFUSED, "{receipt:?} settled {message:?}");
    }
    Ok(())
}

/// I4: a refusal has the right reason: the receipt is stale, or the message does not exist.
pub(crate) fn exact_refusal(
    message: &Message,
    operation: &Operation,
    refusal: &Refusal,
) -> Result<(), Violation> {
    let is_gone =
        message.gone == Certainty::Yes || message.expires_at_max.has_passed(operation.from);
    let fits = match refusal {
        Refusal::Storage(StorageRefusal::MessageNotFound) => !message.is_certain(operation.until),
        _ => !is_gone,
    };
    if !fits {
        return violated!(STALE_RECEIPTS_REFUSED, "{refusal} for {message:?}");
    }
    Ok(())
}

/// I7: a count is neither lower than the certain messages, nor higher than the possible ones.
pub(crate) fn counts_conserved(
    count: u64,
    at_least: usize,
    at_most: usize,
) -> Result<(), Violation> {
    if !(at_least as u64..=at_most as u64).contains(&count) {
        return violated!(
            COUNTS_CONSERVED,
            "{count} messages, not {at_least} to {at_most}"
        );
    }
    Ok(())
}

/// I8: one more for each delivery, and none for anything else.
pub(crate) fn delivery_count(message: &Message, shown: &Shown<'_>) -> Result<(), Violation> {
    if !(message.deliveries_min..=message.deliveries_max).contains(&shown.deliveries_before) {
        return violated!(
            DELIVERY_COUNT,
            "{shown:?} was delivered otherwise: {message:?}"
        );
    }
    Ok(())
}

/// I9: a message keeps its id.
pub(crate) fn same_id(message: &Message, shown: &Shown<'_>) -> Result<(), Violation> {
    if message.id.is_some_and(|id| id != shown.id) {
        return violated!(UNIQUE_IDS, "{shown:?} has another id than {message:?}");
    }
    Ok(())
}

/// I10: an expired message is not shown.
pub(crate) fn not_after_expiry(message: &Message, shown: &Shown<'_>) -> Result<(), Violation> {
    if message.expires_at_max.has_passed(shown.at) {
        return violated!(TIME, "{shown:?} shown after its expiry: {message:?}");
    }
    Ok(())
}
