//! The lines of a namespace, sent to a namespace. Repeating it sends nothing twice: what is there is compared with the
//! lines first (`existing`).
//!
//! A queue gets its status and the queues that it forwards to at the end: before, it would not take messages, or would
//! pass them on.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant, SystemTime};

use kew_client::{QueueSettings, SessionChoice};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::definition::{completed, differences, settings_of, while_it_is_filled};
use super::existing::{Existing, Found};
use super::order::Order;
use super::restore::Restorer;
use super::{Namespace, Place};
use crate::operate::Doors;
use crate::operate::failing::status_of_failure;
use crate::operate::import::{Bundle, Content};
use crate::operate::own::in_path;
use crate::portable::{BusDefinition, Record, SessionState};
use crate::queue_command::{Failure, note};
use crate::transfer::{Lost, Report};

/// How many messages are sent, received and settled at once.
const RESTORE_COUNT_MAX: usize = 50;

/// A dead letter with a shorter time to live could expire before it is a dead letter again.
const LIFE_MS_MIN: u64 = 60_000;

/// The longest lock of a queue.
const LOCK_MAX: Duration = Duration::from_mins(5);

/// How often to look whether locks have ended.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// An import into one namespace.
pub(crate) struct NamespaceImport<'a> {
    doors: &'a Doors,
    append: bool,
    order: Order,
    /// What queues get at the end.
    wanted: BTreeMap<String, QueueSettings>,
    current: Option<Current<'a>>,
}

/// The queue that messages are sent to.
struct Current<'a> {
    doors: &'a Doors,
    name: String,
    has_sessions: bool,
    detects_duplicates: bool,
    lock_duration: Duration,
    forwards_to: Option<String>,
    place: Place,
    /// `None`: what is there does not matter.
    existing: Option<Existing<'a>>,
    bundle: Bundle<'a>,
    /// Those of the bundle, if they are to be settled.
    records: Vec<Record>,
    /// Those that an earlier import has sent and not settled.
    unsettled: Vec<Record>,
    restorer: Restorer<'a>,
}

impl<'a> NamespaceImport<'a> {
    pub(crate) fn new(namespace: &'a Namespace, append: bool) -> Self {
        Self {
            doors: &namespace.0,
            append,
            order: Order::default(),
            wanted: BTreeMap::new(),
            current: None,
        }
    }

    /// Creates a queue, or finds it.
    pub(crate) fn define(
        &mut self,
        name: &str,
        definition: &BusDefinition,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let settings = settings_of(definition).map_err(Failure::Usage)?;
        let doors = self.doors;
        let first = while_it_is_filled(&settings);
        match doors.over_http(doors.admin.create_queue(name, &first)) {
            Ok(_) => {
                report.queues_created += 1;
                let rules = definition.authorization_rules.iter();
                rules
                    .filter(|rule| rule.primary_key.is_none())
                    .for_each(|_| report.lost(Lost::Key));
            }
            Err(failure) if status_of_failure(&failure) == Some(409) => {
                report.queues_already_there += 1;
                let now = doors.over_http(doors.admin.queue(name))?.settings;
                let others = differences(&now, definition);
                if !others.is_empty() {
                    let others = others.join(", ");
                    note(&format!(
                        "the queue {name} exists, and keeps its own settings: {others}"
                    ));
                }
            }
            Err(failure) => return Err(failure),
        }
        self.wanted.insert(name.to_owned(), settings);
        Ok(())
    }

    /// Sets the state of a session.
    pub(crate) fn session_state(
        &mut self,
        state: &SessionState,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let bytes = state.state().map_err(Failure::Usage)?;
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
    pub(crate) fn message(
        &mut self,
        line: u64,
        mut record: Record,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let (name, place) = self.order.next(&record).map_err(Failure::Usage)?;
        let name = name.to_owned();
        let is_current = self.current.as_ref().is_some_and(|it| it.name == name);
        if !is_current {
            self.flush(report)?;
            self.current = Some(Current::open(self.doors, &name, self.append)?);
        }
        let current = self.current.as_mut().expect("it was opened just now");
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
    pub(crate) fn flush(&mut self, report: &mut Report) -> Result<(), Failure> {
        match &mut self.current {
            Some(current) => {
                current.flush(report)?;
                current.restorer.close()
            }
            None => Ok(()),
        }
    }

    /// The lines that wait to be sent.
    pub(crate) fn lines(&self) -> Option<RangeInclusive<u64>> {
        self.current.as_ref().and_then(|it| it.bundle.lines())
    }

    /// Gives queues the settings that they could not have while they were filled.
    pub(crate) fn finish(&mut self, report: &mut Report) -> Result<(), Failure> {
        self.flush(report)?;
        let doors = self.doors;
        for (name, wanted) in std::mem::take(&mut self.wanted) {
            let now = doors.over_http(doors.admin.queue(&name))?.settings;
            if let Some(settings) = completed(&now, &wanted) {
                doors.over_http(doors.admin.update_queue(&name, &settings))?;
            }
        }
        Ok(())
    }
}

impl<'a> Current<'a> {
    fn open(doors: &'a Doors, name: &str, append: bool) -> Result<Self, Failure> {
        let settings = match doors.over_http(doors.admin.queue(name)) {
            Ok(queue) => queue.settings,
            Err(failure) if status_of_failure(&failure) == Some(404) => {
                return Err(Failure::Refused {
                    message: format!(
                        "the queue {name} does not exist, and no line before defines it: create it with kew bus create"
                    ),
                    code: None,
                });
            }
            Err(failure) => return Err(failure),
        };
        let sender = doors.over_amqp(doors.bus.sender(name))?;
        Ok(Self {
            doors,
            name: name.to_owned(),
            has_sessions: settings.requires_session == Some(true),
            detects_duplicates: settings.requires_duplicate_detection == Some(true),
            lock_duration: settings.lock_duration.unwrap_or(LOCK_MAX),
            forwards_to: settings.forward_to.filter(|to| !to.is_empty()),
            place: Place::FailedTransfer,
            existing: (!append).then(|| Existing::new(doors, name)),
            bundle: Bundle::new(doors, sender),
            records: Vec::new(),
            unsettled: Vec::new(),
            restorer: Restorer::new(doors, name),
        })
    }

    /// What is there of a message. A queue that forwards has nothing of what it got.
    fn find(&mut self, record: &Record) -> Result<Found, Failure> {
        let Some(existing) = &mut self.existing else {
            return Ok(Found::Nothing);
        };
        let found = existing.find(self.place, record)?;
        match (&self.forwards_to, found) {
            (Some(to), Found::Nothing) => Err(Failure::Refused {
                message: format!(
                    "the queue {} forwards to {to}, so nothing tells whether its messages were imported before; use \
                     --append to send them",
                    self.name
                ),
                code: None,
            }),
            (Some(_) | None, found) => Ok(found),
        }
    }

    fn send(&mut self, line: u64, mut record: Record, report: &mut Report) -> Result<(), Failure> {
        let is_settled = self.place != Place::Rest;
        let with_reasons = record.clone();
        if matches!(self.place, Place::FailedTransfer | Place::DeadLetter) {
            record.clear_dead_letter_properties();
        }
        if is_settled {
            record.clear_schedule();
        }
        let content = Content::of(&record).map_err(Failure::Usage)?;
        let is_full = is_settled && self.records.len() >= RESTORE_COUNT_MAX;
        if is_full || !self.bundle.may_take(&content) {
            self.flush(report)?;
        }
        if let Some(content) = self.bundle.add(line, content) {
            self.flush(report)?;
            let left = self.bundle.add(line, content);
            assert!(left.is_none(), "an empty bundle takes any message");
        }
        if is_settled {
            self.records.push(with_reasons);
        }
        Ok(())
    }

    fn flush(&mut self, report: &mut Report) -> Result<(), Failure> {
        // They come before those that are sent now.
        let mut unsettled = std::mem::take(&mut self.unsettled);
        if !unsettled.is_empty() {
            wait_for_locks(self.doors, &self.name, self.lock_duration)?;
        }
        while let Some(first) = unsettled.first() {
            let session = first.session_id().map(str::to_owned);
            let is_of_it = |it: &mut Record| it.session_id() == session.as_deref();
            let together = match self.has_sessions {
                true => unsettled.extract_if(.., is_of_it).collect(),
                false => std::mem::take(&mut unsettled),
            };
            self.restore(together, report)?;
        }
        report.messages_sent += self.bundle.count();
        self.bundle.send()?;
        let records = std::mem::take(&mut self.records);
        self.restore(records, report)
    }

    fn restore(&mut self, records: Vec<Record>, report: &mut Report) -> Result<(), Failure> {
        let (place, has_sessions) = (self.place, self.has_sessions);
        let missing = self.restorer.restore(place, records, has_sessions)?;
        report.messages_missing += missing;
        match missing > 0 && !self.detects_duplicates {
            true => Err(Failure::Refused {
                message: format!(
                    "{missing} messages that were sent to {} did not come back: stop its receivers until the import has \
                     succeeded",
                    self.name
                ),
                code: None,
            }),
            false => Ok(()),
        }
    }
}

/// Waits until the locks of an earlier import have ended: others would come first, and change the order. Only Kew shows
/// whether there are any.
fn wait_for_locks(doors: &Doors, queue: &str, lock_duration: Duration) -> Result<(), Failure> {
    note(&format!(
        "an earlier import was interrupted: waiting until its locks in {queue} end, {} s at most",
        lock_duration.as_secs()
    ));
    let locked = format!(
        "messages/{}?state=locked&limit=1&bodies=false",
        in_path(queue)
    );
    let begun = Instant::now();
    while begun.elapsed() <= lock_duration {
        let look: Option<LockedMessages> = doors.own().look(&locked)?;
        if look.is_some_and(|look| look.messages.is_empty()) {
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// An answer of Kew's own interface.
#[derive(Deserialize)]
struct LockedMessages {
    messages: Vec<IgnoredAny>,
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
