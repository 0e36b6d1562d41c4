//! Counts by condition, which are a closed set.

use kew_amqp::error::condition as amqp;
use kew_metrics::Counter;

use super::labels::{Lock, OPERATIONS};
use crate::ground::refusal::bus_condition as bus;

/// The known conditions. Any other is counted as `other`.
pub(super) const CODES: [&str; 32] = [
    amqp::INTERNAL_ERROR,
    amqp::NOT_FOUND,
    amqp::UNAUTHORIZED_ACCESS,
    amqp::DECODE_ERROR,
    amqp::RESOURCE_LIMIT_EXCEEDED,
    amqp::NOT_ALLOWED,
    amqp::INVALID_FIELD,
    amqp::NOT_IMPLEMENTED,
    amqp::RESOURCE_DELETED,
    amqp::FRAME_SIZE_TOO_SMALL,
    amqp::CONNECTION_FORCED,
    amqp::FRAMING_ERROR,
    amqp::WINDOW_VIOLATION,
    amqp::HANDLE_IN_USE,
    amqp::UNATTACHED_HANDLE,
    amqp::DETACH_FORCED,
    amqp::TRANSFER_LIMIT_EXCEEDED,
    amqp::MESSAGE_SIZE_EXCEEDED,
    amqp::STOLEN,
    amqp::TRANSACTION_UNKNOWN_ID,
    amqp::TRANSACTION_ROLLBACK,
    amqp::TRANSACTION_TIMEOUT,
    bus::SERVER_BUSY,
    bus::TIMEOUT,
    bus::LOCK_LOST,
    bus::SESSION_LOCK_LOST,
    bus::SESSION_CANNOT_BE_LOCKED,
    bus::MESSAGE_NOT_FOUND,
    bus::ENTITY_DISABLED,
    bus::ARGUMENT_ERROR,
    bus::ARGUMENT_OUT_OF_RANGE,
    bus::NO_MATCHING_SUBSCRIPTION,
];

/// Which kind of lock was lost, if a condition reports that.
pub(super) fn lock_lost(code: &str) -> Option<Lock> {
    match code {
        bus::LOCK_LOST => Some(Lock::Message),
        bus::SESSION_LOCK_LOST => Some(Lock::Session),
        _ => None,
    }
}

/// Success, the conditions, and others.
const PLACES: usize = CODES.len() + 2;

fn place_of(code: Option<&str>) -> usize {
    match code {
        None => 0,
        Some(code) => {
            let known = CODES.iter().position(|known| *known == code);
            1 + known.unwrap_or(CODES.len())
        }
    }
}

/// The code of a place: empty for success.
fn code_at(place: usize) -> &'static str {
    match place {
        0 => "",
        _ => CODES.get(place - 1).copied().unwrap_or("other"),
    }
}

/// Counts by condition.
#[derive(Debug)]
pub(crate) struct ByCode([Counter; PLACES]);

impl Default for ByCode {
    fn default() -> Self {
        Self([const { Counter::new() }; PLACES])
    }
}

impl ByCode {
    pub(crate) fn note(&self, code: Option<&str>) {
        if let Some(counter) = self.0.get(place_of(code)) {
            counter.increment();
        }
    }

    /// The counts by code, with an empty code for success: that comes first, and always.
    pub(super) fn counted(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.0.iter().map(Counter::value).enumerate();
        counts
            .filter(|(place, count)| *place == 0 || *count > 0)
            .map(|(place, count)| (code_at(place), count))
    }
}

/// The known statuses of answers; 0 is any other.
pub(super) const STATUSES: [i32; 13] = [
    0, 200, 202, 204, 400, 401, 403, 404, 408, 410, 500, 501, 503,
];

/// Requests by operation, status and condition.
#[derive(Debug)]
pub(super) struct Requests([[ByCode; STATUSES.len()]; OPERATIONS.len()]);

impl Default for Requests {
    fn default() -> Self {
        Self(std::array::from_fn(|_| {
            std::array::from_fn(|_| ByCode::default())
        }))
    }
}

impl Requests {
    pub(super) fn note(&self, operation: usize, status: i32, code: Option<&str>) {
        let known = STATUSES.iter().position(|known| *known == status);
        let of_operation = self.0.get(operation);
        if let Some(by_code) = of_operation.and_then(|it| it.get(known.unwrap_or(0))) {
            by_code.note(code);
        }
    }

    /// Operation, status and code with their counts.
    pub(super) fn counted(&self) -> impl Iterator<Item = (&'static str, i32, &'static str, u64)> {
        let operations = OPERATIONS.iter().zip(&self.0);
        operations.flat_map(|(operation, by_status)| {
            STATUSES
                .iter()
                .zip(by_status)
                .flat_map(|(status, by_code)| {
                    let counted = by_code.counted().filter(|(_, count)| *count > 0);
                    counted.map(|(code, count)| (*operation, *status, code, count))
                })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_codes_are_added_up() {
        let by_code = ByCode::default();
        for code in [None, Some(amqp::NOT_FOUND), Some("a:b"), Some("c:d")] {
            by_code.note(code);
        }
        let counted: Vec<_> = by_code.counted().collect();
        assert_eq!(counted, [("", 1), (amqp::NOT_FOUND, 1), ("other", 2)]);
        let requests = Requests::default();
        requests.note(1, 202, None);
        requests.note(0, 999, Some("a:b"));
        let counted: Vec<_> = requests.counted().collect();
        let expected = [("unknown", 0, "other", 1), ("put-token", 202, "", 1)];
        assert_eq!(counted, expected);
    }
}
