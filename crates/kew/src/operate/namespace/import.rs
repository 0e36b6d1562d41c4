//! The lines of a namespace, sent to a namespace. Repeating it sends nothing twice to queues and subscriptions: what is
//! there is compared with the lines first (`existing`). Messages of topics leave them when their time has come, and can be
//! sent twice.
//!
//! An entity gets its status, its size and what it forwards to at the end: before, it would not take messages, or would
//! pass them on (`finish`). `current` brings messages to one queue, topic or subscription.

use std::ops::RangeInclusive;
use std::time::SystemTime;

use kew_client::SessionChoice;

use super::current::Destination;
use super::entities::{Entities, Use};
use super::existing::Found;
use super::order::Order;
use super::{Namespace, Place};
use crate::operate::Doors;
use crate::operate::import::Content;
use crate::portable::{Line, Record, SessionState};
use crate::queue_command::Failure;
use crate::transfer::{Lost, Report};

/// A dead letter with a shorter time to live could expire before it is a dead letter again.
const LIFE_MS_MIN: u64 = 60_000;

/// An import into one namespace.
pub(crate) struct NamespaceImport<'a> {
    doors: &'a Doors,
    append: bool,
    order: Order,
    entities: Entities<'a>,
    current: Option<Destination<'a>>,
}

impl<'a> NamespaceImport<'a> {
    pub(crate) fn new(namespace: &'a Namespace, append: bool) -> Self {
        Self {
            doors: &namespace.0,
            append,
            order: Order::default(),
            entities: Entities::new(&namespace.0),
            current: None,
        }
    }

    /// Takes a line of Service Bus.
    pub(crate) fn take(
        &mut self,
        number: u64,
        line: Line,
        report: &mut Report,
    ) -> Result<(), Failure> {
        self.order.entity(&line).map_err(Failure::Usage)?;
        if !matches!(line, Line::Rule(_)) {
            self.entities.end_rules();
        }
        match line {
            Line::BusQueue(it) => self.entities.queue(&it.queue, &it.definition, report),
            Line::Topic(it) => self.entities.topic(&it, report),
            Line::Subscription(it) => self.entities.subscription(&it, report),
            Line::Rule(it) => self.entities.rule(&it, report),
            Line::SessionState(it) => self.session_state(&it, report),
            Line::Message(record) => self.message(number, *record, report),
            Line::StorageQueue(_) | Line::End(_) => Ok(()),
        }
    }

    /// Sets the state of a session.
    fn session_state(&mut self, state: &SessionState, report: &mut Report) -> Result<(), Failure> {
        let bytes = state.state().map_err(Failure::Usage)?;
        if self.entities.is_complete(&state.queue, Use::Receive) {
            report.session_states_already_there += 1;
            return Ok(());
        }
        let doors = self.doors;
        let choice = SessionChoice::named(&state.session_id);
        let options = kew_client::ReceiverOptions { prefetch: 0 };
        let session = doors.over_amqp(doors.bus.session(&state.queue, choice, options))?;
        let set = doors.over_amqp(session.set_state(Some(bytes)));
        doors.over_amqp(session.close())?;
        set?;
        report.session_states += 1;
        Ok(())
    }

    /// Takes a message: it may be sent later, together with others.
    fn message(
        &mut self,
        line: u64,
        mut record: Record,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let (name, place) = self.order.next(&record).map_err(Failure::Usage)?;
        let name = name.to_owned();
        let is_current = self.current.as_ref().is_some_and(|it| it.name() == name);
        if !is_current {
            self.flush(report)?;
            let opened = Destination::open(self.doors, &name, self.append, &self.entities)?;
            self.current = Some(opened);
        }
        let destination = self.current.as_mut().expect("it was opened just now");
        if let Some(lost) = destination.refuses(place) {
            Content::of(&record).map_err(Failure::Usage)?;
            report.lost(lost);
            return Ok(());
        }
        let Destination::Filled(current) = destination else {
            return Ok(());
        };
        if current.place != place {
            current.flush(report)?;
            current.restorer.close()?;
            current.place = place;
        }
        match current.find(&record)? {
            Found::Everything => {
                report.messages_already_there += 1;
                Ok(())
            }
            Found::Unsettled => {
                report.messages_already_there += 1;
                current.unsettled.push(record);
                Ok(())
            }
            Found::Nothing => {
                count(&mut record, place, report);
                current.send(line, record, report)
            }
        }
    }

    /// Sends what waits. An error is one of these lines.
    fn flush(&mut self, report: &mut Report) -> Result<(), Failure> {
        match &mut self.current {
            Some(Destination::Filled(current)) => current.end(report),
            Some(Destination::Subscription(_)) | None => Ok(()),
        }
    }

    /// The lines that wait to be sent.
    pub(crate) fn lines(&self) -> Option<RangeInclusive<u64>> {
        match &self.current {
            Some(Destination::Filled(current)) => current.lines(),
            Some(Destination::Subscription(_)) | None => None,
        }
    }

    /// Gives entities the settings that they could not have while they were filled, unless lines may be missing.
    pub(crate) fn finish(&mut self, is_whole: bool, report: &mut Report) -> Result<(), Failure> {
        self.entities.end_rules();
        self.flush(report)?;
        match is_whole {
            true => self.entities.finish(),
            false => self.entities.leave(),
        }
    }
}

/// Counts what becomes of a message that is sent, and what is lost of it.
fn count(record: &mut Record, place: Place, report: &mut Report) {
    let has = |name: &str| record.facts().contains_key(name);
    let is = |name: &str, value: &str| record.facts().get(name).is_some_and(|it| it == value);
    let mut lost = vec![];
    for (fact, what) in [
        ("sequence_number", Lost::SequenceNumber),
        ("enqueued_sequence_number", Lost::EnqueuedSequenceNumber),
        ("enqueued_at", Lost::EnqueuedAt),
        ("expires_at", Lost::ExpiresAt),
        ("dead_letter_source", Lost::DeadLetterSource),
    ] {
        if has(fact) {
            lost.push(what);
        }
    }
    let deliveries = record
        .facts()
        .get("delivery_count")
        .and_then(|it| it.as_u64());
    if deliveries.is_some_and(|count| count > 0) {
        lost.push(Lost::DeliveryCount);
    }
    let is_scheduled = record.is_scheduled(SystemTime::now());
    match place {
        Place::FailedTransfer => lost.push(Lost::FailedTransfer),
        Place::DeadLetter if is("state", "deferred") => lost.push(Lost::DeferredDeadLetter),
        Place::Rest if is("state", "scheduled") && !is_scheduled => lost.push(Lost::ScheduledAt),
        Place::DeadLetter | Place::Deferred | Place::Rest => {}
    }
    match place {
        Place::FailedTransfer | Place::DeadLetter => {
            report.dead_letters += 1;
            if record.time_to_live_ms().is_some_and(|ms| ms < LIFE_MS_MIN) {
                record.clear_time_to_live();
                lost.push(Lost::TimeToLive);
            }
        }
        Place::Deferred => report.deferred += 1,
        Place::Rest => report.scheduled += u64::from(is_scheduled),
    }
    lost.into_iter().for_each(|what| report.lost(what));
}
