//! How much room the answer to a request takes: what it may come to is reserved before anything is asked of the
//! broker, and what it does not need is given back when it is there.

use kew_amqp::codec::Map;
use kew_engine::bus::SESSION_ID_SIZE_BYTES_MAX;

use super::fields;
use super::sessions::top_of;

/// The most bytes that one message takes: its body, what settlements have changed, and what is told of it.
const MESSAGE_SIZE_BYTES_MAX: usize = (1 << 20) + (128 << 10);

/// The most bytes that one session takes in a list.
const SESSION_SIZE_BYTES_MAX: usize = SESSION_ID_SIZE_BYTES_MAX + 16;

/// The most bytes that the answer to an operation may have of messages, states or names; 0 for one that is small
/// whatever is asked. More than one answer ever has means as much as that.
pub(super) fn size_bytes_max(operation: &str, body: &Map) -> usize {
    let of_messages = |count: usize| count.max(1).saturating_mul(MESSAGE_SIZE_BYTES_MAX);
    match operation {
        "peek-message" => of_messages(count_of(body)),
        "receive-by-sequence-number" => {
            // What is refused is small.
            let numbers = fields::elements(body, "sequence-numbers");
            of_messages(numbers.map_or(1, |numbers| numbers.len()))
        }
        "get-session-state" => of_messages(1),
        "get-message-sessions" => {
            let top = top_of(body).unwrap_or(1);
            usize::try_from(top).map_or(usize::MAX, |top| top * SESSION_SIZE_BYTES_MAX)
        }
        "renew-lock"
        | "schedule-message"
        | "cancel-scheduled-message"
        | "update-disposition"
        | "batch-delete-messages"
        | "renew-session-lock"
        | "set-session-state" => 0,
        // Whatever comes next is taken for large until somebody says how large it is.
        _ => usize::MAX,
    }
}

fn count_of(body: &Map) -> usize {
    let count = fields::count(body, "message-count").unwrap_or(1);
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(operation: &str, field: &str, value: i32) -> usize {
        size_bytes_max(operation, &Map::build(|map| map.entry(field, &value)))
    }

    #[test]
    fn what_may_be_answered_is_reserved() {
        let one = asked("peek-message", "message-count", 1);
        assert!(one as u64 > kew_engine::bus::BODIES_SIZE_BYTES_MAX);
        assert_eq!(asked("peek-message", "message-count", 7), 7 * one);
        assert!(asked("peek-message", "message-count", i32::MAX) > 8 << 20);
        let listed = asked("get-message-sessions", "top", i32::MAX);
        assert_eq!(listed, 1000 * SESSION_SIZE_BYTES_MAX);
        assert_eq!(asked("renew-lock", "lock-tokens", 1), 0);
        assert_eq!(asked("something-else", "x", 1), usize::MAX);
    }
}
