//! Rejections as they travel.

use kew_broker::Rejection;
use kew_engine::wire::{Unserved, Value};

/// What a rejection is on the way.
pub(crate) fn value_of(rejection: Rejection) -> Value {
    Value::Unserved(match rejection {
        Rejection::Refused(refusal) => return Value::Refusal(refusal),
        Rejection::Busy => Unserved::Busy,
        Rejection::Full => Unserved::Full,
        Rejection::Stopped => Unserved::Stopped,
        Rejection::Unknown => Unserved::Unknown,
        Rejection::NotOwner => Unserved::NotOwner,
        Rejection::ReadFailed => Unserved::ReadFailed,
    })
}

/// The rejection that it is on the other side.
pub(crate) fn rejection_of(unserved: Unserved) -> Rejection {
    match unserved {
        Unserved::Busy => Rejection::Busy,
        Unserved::Full => Rejection::Full,
        Unserved::Stopped => Rejection::Stopped,
        Unserved::Unknown => Rejection::Unknown,
        Unserved::NotOwner => Rejection::NotOwner,
        Unserved::ReadFailed => Rejection::ReadFailed,
    }
}
