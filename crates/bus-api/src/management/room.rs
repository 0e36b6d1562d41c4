//! Room for the answer to a request: the largest possible size is reserved before the broker is
//! asked, and the unused part is freed when the answer is known.

#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

use kew_amqp::codec::Map;
use kew_engine::bus::SESSION_ID_SIZE_BYTES_MAX;
use kew_filter::limits::DEFINITION_BYTES_MAX;

use super::fields;
use super::sessions::top_of;
use crate::authorization::operation::ManagementOperation;
use crate::ground::lookup::RULES_SIZE_BYTES_MAX;

/// The most bytes of one message: its body, changes by settlements, and its metadata.
const MESSAGE_SIZE_BYTES_MAX: usize = (1 << 20) + (128 << 10);

/// The most bytes of one session in a list.
const SESSION_SIZE_BYTES_MAX: usize = SESSION_ID_SIZE_BYTES_MAX + 16;

/// The most bytes of one rule in a list, with what its form adds.
const RULE_SIZE_BYTES_MAX: usize = DEFINITION_BYTES_MAX + (1 << 10);

/// The most bytes of rules in a list. The broker's last part of it may exceed what is asked for.
const LISTED_SIZE_BYTES_MAX: usize = RULES_SIZE_BYTES_MAX + (1 << 20);

/// The most bytes of messages, states or names in the answer to an operation; 0 if the answer is
/// always small. Requests for more than an answer ever has get the largest size.
pub(super) fn size_bytes_max(operation: ManagementOperation, body: &Map) -> usize {
    use ManagementOperation as Asked;
    let of_messages = |count: usize| count.max(1).saturating_mul(MESSAGE_SIZE_BYTES_MAX);
    match operation {
        Asked::PeekMessage => of_messages(count_of(body)),
        Asked::ReceiveBySequenceNumber => {
            // A refusal is small.
            let numbers = fields::elements(body, "sequence-numbers");
            of_messages(numbers.map_or(1, |numbers| numbers.len()))
        }
        Asked::GetSessionState => of_messages(1),
        Asked::GetMessageSessions => {
            let top = top_of(body).unwrap_or(1);
            usize::try_from(top).map_or(usize::MAX, |top| top * SESSION_SIZE_BYTES_MAX)
        }
        Asked::EnumerateRules => {
            let top = fields::count(body, "top").unwrap_or(1);
            let top = usize::try_from(top).unwrap_or(usize::MAX);
            top.saturating_mul(RULE_SIZE_BYTES_MAX)
                .min(LISTED_SIZE_BYTES_MAX)
        }
        Asked::AddRule
        | Asked::RemoveRule
        | Asked::RenewLock
        | Asked::ScheduleMessage
        | Asked::CancelScheduledMessage
        | Asked::UpdateDisposition
        | Asked::BatchDeleteMessages
        | Asked::RenewSessionLock
        | Asked::SetSessionState => 0,
    }
}

fn count_of(body: &Map) -> usize {
    let count = fields::count(body, "message-count").unwrap_or(1);
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(operation: ManagementOperation, field: &str, value: i32) -> usize {
        size_bytes_max(operation, &Map::build(|map| map.entry(field, &value)))
    }

    #[test]
    fn room_for_the_largest_answer_is_reserved() {
        use ManagementOperation::{EnumerateRules, GetMessageSessions, PeekMessage, RenewLock};
        let one = asked(PeekMessage, "message-count", 1);
        assert!(one as u64 > kew_engine::bus::BODIES_SIZE_BYTES_MAX);
        assert_eq!(asked(PeekMessage, "message-count", 7), 7 * one);
        assert!(asked(PeekMessage, "message-count", i32::MAX) > 8 << 20);
        let listed = asked(GetMessageSessions, "top", i32::MAX);
        assert_eq!(listed, 1000 * SESSION_SIZE_BYTES_MAX);
        assert_eq!(asked(RenewLock, "lock-tokens", 1), 0);
        let rules = |top| asked(EnumerateRules, "top", top);
        assert_eq!(rules(2), 2 * RULE_SIZE_BYTES_MAX);
        assert_eq!(rules(i32::MAX), LISTED_SIZE_BYTES_MAX);
    }
}
