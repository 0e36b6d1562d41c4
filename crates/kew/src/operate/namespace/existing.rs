//! Messages of an entity in the order of their numbers, a page at a time; and which lines of an import are there already.

use std::collections::VecDeque;

use kew_client::{MessageState, Received};

use super::{Place, entity_of};
use crate::operate::Doors;
use crate::operate::export::record;
use crate::portable::Record;
use crate::queue_command::Failure;

/// How many messages are asked for at once.
const PAGE_COUNT: u32 = 250;

/// The messages of one place, without receiving them.
pub(super) struct Browse<'a> {
    doors: &'a Doors,
    entity: String,
    place: Place,
    from: i64,
    page: VecDeque<Received>,
    is_done: bool,
}

impl<'a> Browse<'a> {
    pub(super) fn new(doors: &'a Doors, queue: &str, place: Place) -> Self {
        Self {
            doors,
            entity: entity_of(queue, place),
            place,
            from: 0,
            page: VecDeque::new(),
            is_done: false,
        }
    }

    pub(super) fn entity(&self) -> &str {
        &self.entity
    }

    /// The next message stays the next one. Once there is none, none follows.
    pub(super) fn front(&mut self) -> Result<Option<&Received>, Failure> {
        while self.page.is_empty() && !self.is_done {
            let peek = self.doors.bus.peek(&self.entity, self.from, PAGE_COUNT);
            let page = self.doors.over_amqp(peek)?;
            let last = page.iter().filter_map(Received::sequence_number).max();
            let next = last.and_then(|last| last.checked_add(1));
            // A service that does not number its messages would show the same ones again.
            self.is_done = next.is_none_or(|next| next <= self.from);
            self.from = next.unwrap_or(self.from);
            let place = self.place;
            self.page
                .extend(page.into_iter().filter(|it| is_of(place, it)));
        }
        Ok(self.page.front())
    }

    pub(super) fn next(&mut self) -> Result<Option<Received>, Failure> {
        self.front()?;
        Ok(self.page.pop_front())
    }
}

fn is_of(place: Place, message: &Received) -> bool {
    match (place, message.state()) {
        (Place::FailedTransfer | Place::DeadLetter, _)
        | (Place::Deferred, MessageState::Deferred)
        | (Place::Rest, MessageState::Active | MessageState::Scheduled) => true,
        (Place::Deferred, MessageState::Active | MessageState::Scheduled)
        | (Place::Rest, MessageState::Deferred) => false,
    }
}

/// What of a line is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// The message, and it has not been settled: an earlier import ended in between.
    Unsettled,
    Everything,
}

/// What a queue held before this import sent anything to it.
pub(super) struct Existing<'a> {
    dead_letters: Browse<'a>,
    deferred: Browse<'a>,
    rest: Browse<'a>,
}

impl<'a> Existing<'a> {
    pub(super) fn new(doors: &'a Doors, queue: &str) -> Self {
        Self {
            dead_letters: Browse::new(doors, queue, Place::DeadLetter),
            deferred: Browse::new(doors, queue, Place::Deferred),
            rest: Browse::new(doors, queue, Place::Rest),
        }
    }

    /// What is there of a message that belongs to a place. Messages are asked for in the order of the lines. One that is
    /// not of the file is an error: nothing tells then what an earlier import has sent.
    pub(super) fn find(&mut self, place: Place, wanted: &Record) -> Result<Found, Failure> {
        let browse = match place {
            Place::FailedTransfer | Place::DeadLetter => &mut self.dead_letters,
            Place::Deferred => &mut self.deferred,
            Place::Rest => &mut self.rest,
        };
        if take_copy(browse, place, wanted)? {
            return Ok(Found::Everything);
        }
        match place {
            Place::FailedTransfer | Place::DeadLetter | Place::Deferred => {
                match take_copy(&mut self.rest, place, wanted)? {
                    true => Ok(Found::Unsettled),
                    false => Ok(Found::Nothing),
                }
            }
            Place::Rest => Ok(Found::Nothing),
        }
    }
}

impl Existing<'_> {
    /// What is there of a message that is scheduled in a topic. If its time has passed, it may have been there when the
    /// topic was browsed, and need not be.
    pub(super) fn find_schedule(
        &mut self,
        wanted: &Record,
        has_passed: bool,
    ) -> Result<Found, Failure> {
        if has_passed {
            let next = compare(&mut self.rest, Place::Rest, wanted)?;
            if next.is_none_or(|(_, is_copy)| !is_copy) {
                return Ok(Found::Nothing);
            }
        }
        self.find(Place::Rest, wanted)
    }
}

/// Takes the next message if there is one, which must be the wanted one.
fn take_copy(browse: &mut Browse<'_>, place: Place, wanted: &Record) -> Result<bool, Failure> {
    let entity = browse.entity().to_owned();
    let Some((number, is_copy)) = compare(browse, place, wanted)? else {
        return Ok(false);
    };
    if !is_copy {
        return Err(Failure::Refused {
            message: format!(
                "message {number} of {entity} is not the one of this line: kew import fills a queue that is empty, or \
                 that it has begun to fill from the same file; purge the queue, or use --append to add the messages"
            ),
            code: None,
        });
    }
    browse.next()?;
    Ok(true)
}

/// The number of the next message, and whether it is the wanted one.
fn compare(
    browse: &mut Browse<'_>,
    place: Place,
    wanted: &Record,
) -> Result<Option<(i64, bool)>, Failure> {
    let entity = browse.entity().to_owned();
    let Some(next) = browse.front()? else {
        return Ok(None);
    };
    let number = next.sequence_number().unwrap_or_default();
    let found = record(&entity, next)?;
    let is_copy = as_settled(place, &found).is_copy_of(&as_settled(place, wanted));
    Ok(Some((number, is_copy)))
}

/// The message as it was before it was settled.
pub(super) fn as_settled(place: Place, record: &Record) -> Record {
    let mut record = record.clone();
    match place {
        Place::FailedTransfer | Place::DeadLetter => record.clear_dead_letter_properties(),
        Place::Deferred | Place::Rest => {}
    }
    record
}
