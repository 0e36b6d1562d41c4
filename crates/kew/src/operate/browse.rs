//! Messages of an entity in the order of their numbers, without receiving them: over AMQP.

use kew_client::Received;

use super::Doors;
use super::filter::Filter;
use super::view::view_of;
use crate::queue_command::Failure;

/// How many messages are asked for at once.
const PAGE_COUNT: u32 = 250;

/// How a look at messages goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    On,
    Enough,
}

/// Shows the messages that match to `each`, until it has enough.
pub(super) fn browse(
    doors: &Doors,
    entity: &str,
    filter: &Filter<'_>,
    each: impl FnMut(Received) -> Result<Look, Failure>,
) -> Result<(), Failure> {
    browse_some(doors, entity, filter, u64::MAX, each).map(drop)
}

/// The same for so many messages of the entity at most, whether they match or not. Returns the number of the first one
/// that was not looked at, if there is one.
pub(super) fn browse_some(
    doors: &Doors,
    entity: &str,
    filter: &Filter<'_>,
    count_max: u64,
    mut each: impl FnMut(Received) -> Result<Look, Failure>,
) -> Result<Option<u64>, Failure> {
    let mut from = filter.first();
    let mut count = 0;
    loop {
        let first = i64::try_from(from).unwrap_or(i64::MAX);
        let page = doors.over_amqp(doors.bus.peek(entity, first, PAGE_COUNT))?;
        if page.is_empty() {
            return Ok(None);
        }
        let before = from;
        for message in page {
            let number = message
                .sequence_number()
                .and_then(|it| u64::try_from(it).ok());
            let number = number.unwrap_or_default();
            if filter.is_beyond(number) {
                return Ok(None);
            }
            if count >= count_max {
                return Ok(Some(number));
            }
            count += 1;
            from = from.max(number.saturating_add(1));
            if filter.matches(&view_of(&message, None)) && each(message)? == Look::Enough {
                return Ok(None);
            }
        }
        if from == before {
            // The service does not number its messages: it would show the same ones again.
            return Ok(None);
        }
    }
}

/// The message with this number, in any state.
pub(super) fn message_numbered(
    doors: &Doors,
    entity: &str,
    number: u64,
) -> Result<Option<Received>, Failure> {
    let Ok(number) = i64::try_from(number) else {
        return Ok(None);
    };
    let found = doors.over_amqp(doors.bus.peek(entity, number, 1))?;
    let mut found = found.into_iter();
    Ok(found.find(|message| message.sequence_number() == Some(number)))
}
