//! The entity that an import sends messages to: a queue, or a topic for the messages that are scheduled there.

use std::time::{Duration, Instant, SystemTime};

use kew_client::{EntityDescription, QueueSettings, TopicSettings};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Place;
use super::existing::{Existing, Found};
use super::restore::Restorer;
use crate::operate::Doors;
use crate::operate::entity::entity_named;
use crate::operate::import::{Bundle, Content};
use crate::operate::own::in_path;
use crate::portable::Record;
use crate::queue_command::{Failure, note};
use crate::transfer::{Lost, Report};

/// How many messages are sent, received and settled at once.
const RESTORE_COUNT_MAX: usize = 50;

/// The longest lock of a queue.
const LOCK_MAX: Duration = Duration::from_mins(5);

/// How often to look whether locks have ended.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Where the messages of the lines belong.
pub(super) enum Destination<'a> {
    Filled(Box<Current<'a>>),
    /// No command of the service puts a message into a subscription.
    Subscription(String),
}

impl<'a> Destination<'a> {
    pub(super) fn open(doors: &'a Doors, name: &str, append: bool) -> Result<Self, Failure> {
        let current = match entity_named(doors, name)? {
            Some(EntityDescription::Queue(queue)) => {
                Current::of_queue(doors, name, &queue.settings, append)
            }
            Some(EntityDescription::Topic(topic)) => {
                Current::of_topic(doors, name, &topic.settings, append)
            }
            Some(EntityDescription::Subscription(_)) => {
                return Ok(Self::Subscription(name.to_owned()));
            }
            Some(_) | None => {
                return Err(Failure::Refused {
                    message: format!(
                        "the queue {name} does not exist, and no line before defines it: create it with kew bus create"
                    ),
                    code: None,
                });
            }
        };
        Ok(Self::Filled(Box::new(current?)))
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Filled(current) => &current.name,
            Self::Subscription(name) => name,
        }
    }

    /// Why a message of a place cannot be put back there.
    pub(super) fn refuses(&self, place: Place) -> Option<Lost> {
        match self {
            Self::Subscription(_) => Some(Lost::SubscriptionMessage),
            Self::Filled(current) if current.is_topic && place != Place::Rest => {
                Some(Lost::TopicDeadLetter)
            }
            Self::Filled(_) => None,
        }
    }
}

/// The queue or topic that messages are sent to.
pub(super) struct Current<'a> {
    doors: &'a Doors,
    name: String,
    has_sessions: bool,
    detects_duplicates: bool,
    lock_duration: Duration,
    forwards_to: Option<String>,
    is_topic: bool,
    pub(super) place: Place,
    /// `None`: what is there does not matter.
    existing: Option<Existing<'a>>,
    pub(super) bundle: Bundle<'a>,
    /// Those of the bundle, if they are to be settled.
    records: Vec<Record>,
    /// Those that an earlier import has sent and not settled.
    pub(super) unsettled: Vec<Record>,
    pub(super) restorer: Restorer<'a>,
}

impl<'a> Current<'a> {
    fn of_queue(
        doors: &'a Doors,
        name: &str,
        settings: &QueueSettings,
        append: bool,
    ) -> Result<Self, Failure> {
        Ok(Self {
            has_sessions: settings.requires_session == Some(true),
            detects_duplicates: settings.requires_duplicate_detection == Some(true),
            lock_duration: settings.lock_duration.unwrap_or(LOCK_MAX),
            forwards_to: settings.forward_to.clone().filter(|to| !to.is_empty()),
            ..Self::new(doors, name, append)?
        })
    }

    fn of_topic(
        doors: &'a Doors,
        name: &str,
        settings: &TopicSettings,
        append: bool,
    ) -> Result<Self, Failure> {
        Ok(Self {
            detects_duplicates: settings.requires_duplicate_detection == Some(true),
            is_topic: true,
            ..Self::new(doors, name, append)?
        })
    }

    fn new(doors: &'a Doors, name: &str, append: bool) -> Result<Self, Failure> {
        let sender = doors.over_amqp(doors.bus.sender(name))?;
        Ok(Self {
            doors,
            name: name.to_owned(),
            has_sessions: false,
            detects_duplicates: false,
            lock_duration: LOCK_MAX,
            forwards_to: None,
            is_topic: false,
            place: Place::FailedTransfer,
            existing: (!append).then(|| Existing::new(doors, name)),
            bundle: Bundle::new(doors, sender),
            records: Vec::new(),
            unsettled: Vec::new(),
            restorer: Restorer::new(doors, name),
        })
    }

    /// What is there of a message. A queue that forwards has nothing of what it got, and a topic keeps only what is
    /// scheduled.
    pub(super) fn find(&mut self, record: &Record) -> Result<Found, Failure> {
        let Some(existing) = &mut self.existing else {
            return Ok(Found::Nothing);
        };
        if self.is_topic && !record.is_scheduled(SystemTime::now()) {
            return Ok(Found::Nothing);
        }
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

    pub(super) fn send(
        &mut self,
        line: u64,
        mut record: Record,
        report: &mut Report,
    ) -> Result<(), Failure> {
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

    pub(super) fn flush(&mut self, report: &mut Report) -> Result<(), Failure> {
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
