//! The entity that an import sends messages to: a queue, a topic for the messages that are scheduled there, or a
//! subscription, into which Kew alone puts messages.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant, SystemTime};

use kew_client::{EntityDescription, QueueSettings, SubscriptionSettings, TopicSettings};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Place;
use super::entities::{Entities, Use};
use super::existing::{Existing, Found};
use super::restore::Restorer;
use crate::operate::Doors;
use crate::operate::entity::entity_named;
use crate::operate::import::{Bundle, Content};
use crate::operate::own::{Access, in_path};
use crate::portable::Record;
use crate::queue_command::{Failure, note};
use crate::transfer::{Lost, Report};

/// How many messages are sent, received and settled at once.
const RESTORE_COUNT_MAX: usize = 50;

/// The longest lock of a queue.
const LOCK_MAX: Duration = Duration::from_mins(5);

/// What services answer if an operation is none of this kind of entity, or they do not have it.
const UNSUPPORTED: [&str; 2] = ["amqp:not-allowed", "amqp:not-implemented"];

/// How often to look whether locks have ended.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Where the messages of the lines belong.
pub(super) enum Destination<'a> {
    Filled(Box<Current<'a>>),
    /// No command of a service that is not Kew puts a message into a subscription.
    Subscription(String),
}

impl<'a> Destination<'a> {
    pub(super) fn open(
        doors: &'a Doors,
        name: &str,
        append: bool,
        entities: &Entities<'_>,
    ) -> Result<Self, Failure> {
        let current = match entity_named(doors, name)? {
            Some(EntityDescription::Queue(queue)) => {
                Current::of_queue(doors, name, &queue.settings, append)
            }
            Some(EntityDescription::Topic(topic)) => {
                Current::of_topic(doors, name, &topic.settings, append, entities)
            }
            Some(EntityDescription::Subscription(it)) => match doors.own().access()? {
                Access::Open => Current::of_subscription(doors, name, &it.settings, append),
                Access::NotKew => return Ok(Self::Subscription(name.to_owned())),
                Access::Closed => {
                    return Err(Failure::Refused {
                        message: format!(
                            "the rule of the connection string may not put messages into {name}: Kew allows that with \
                             Manage of the whole namespace"
                        ),
                        code: None,
                    });
                }
            },
            Some(_) | None => {
                return Err(Failure::Refused {
                    message: format!(
                        "the queue {name} does not exist, and no line before defines it: create it with kew bus create"
                    ),
                    code: None,
                });
            }
        };
        Ok(Self::Filled(Box::new(current)))
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

/// The queue or topic that messages are sent to, or the subscription that they are put into.
pub(super) struct Current<'a> {
    doors: &'a Doors,
    name: String,
    has_sessions: bool,
    detects_duplicates: bool,
    lock_duration: Duration,
    forwards_to: Option<String>,
    is_topic: bool,
    is_subscription: bool,
    /// An import has sent everything to this topic, and closed it.
    is_complete: bool,
    /// Messages whose time has passed, sent to a topic that this import has not created.
    published_count: u64,
    pub(super) place: Place,
    /// `None`: what is there does not matter.
    existing: Option<Existing<'a>>,
    /// `None`: nothing was sent so far. An entity to which nothing is missing may be closed.
    bundle: Option<Bundle<'a>>,
    /// Those of the bundle, if they are to be settled.
    records: Vec<Record>,
    /// Those that an earlier import has sent and not settled.
    pub(super) unsettled: Vec<Record>,
    pub(super) restorer: Restorer<'a>,
}

impl<'a> Current<'a> {
    fn of_queue(doors: &'a Doors, name: &str, settings: &QueueSettings, append: bool) -> Self {
        Self {
            has_sessions: settings.requires_session == Some(true),
            detects_duplicates: settings.requires_duplicate_detection == Some(true),
            lock_duration: settings.lock_duration.unwrap_or(LOCK_MAX),
            forwards_to: settings.forward_to.clone().filter(|to| !to.is_empty()),
            ..Self::new(doors, name, append)
        }
    }

    fn of_subscription(
        doors: &'a Doors,
        name: &str,
        settings: &SubscriptionSettings,
        append: bool,
    ) -> Self {
        Self {
            has_sessions: settings.requires_session == Some(true),
            lock_duration: settings.lock_duration.unwrap_or(LOCK_MAX),
            forwards_to: settings.forward_to.clone().filter(|to| !to.is_empty()),
            is_subscription: true,
            ..Self::new(doors, name, append)
        }
    }

    fn of_topic(
        doors: &'a Doors,
        name: &str,
        settings: &TopicSettings,
        append: bool,
        entities: &Entities<'_>,
    ) -> Self {
        Self {
            detects_duplicates: settings.requires_duplicate_detection == Some(true),
            is_topic: true,
            is_complete: entities.is_complete(name, Use::Send),
            ..Self::new(doors, name, append || entities.is_new_topic(name))
        }
    }

    fn new(doors: &'a Doors, name: &str, append: bool) -> Self {
        Self {
            doors,
            name: name.to_owned(),
            has_sessions: false,
            detects_duplicates: false,
            lock_duration: LOCK_MAX,
            forwards_to: None,
            is_topic: false,
            is_subscription: false,
            is_complete: false,
            published_count: 0,
            place: Place::FailedTransfer,
            existing: (!append).then(|| Existing::new(doors, name)),
            bundle: None,
            records: Vec::new(),
            unsettled: Vec::new(),
            restorer: Restorer::new(doors, name),
        }
    }

    /// What is there of a message. A queue that forwards has nothing of what it got, and a topic keeps only what is
    /// scheduled.
    pub(super) fn find(&mut self, record: &Record) -> Result<Found, Failure> {
        let Some(existing) = &mut self.existing else {
            return Ok(Found::Nothing);
        };
        if self.is_topic {
            let has_passed = !record.is_scheduled(SystemTime::now());
            return match existing.find_schedule(record, has_passed) {
                Ok(Found::Nothing) if has_passed && self.is_complete => Ok(Found::Everything),
                Ok(Found::Nothing) if has_passed => {
                    self.published_count += 1;
                    Ok(Found::Nothing)
                }
                Err(failure) if is_unsupported(&failure) => Err(Failure::Refused {
                    message: format!(
                        "the service does not show what is scheduled in the topic {}, so nothing tells whether it was \
                         imported before; use --append to send it: {}",
                        self.name,
                        failure.message()
                    ),
                    code: None,
                }),
                found => found,
            };
        }
        let found = existing.find(self.place, record)?;
        match (&self.forwards_to, found) {
            (Some(to), Found::Nothing) => Err(Failure::Refused {
                message: format!(
                    "{} forwards to {to}, so nothing tells whether its messages were imported before; use \
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
        // One without a session cannot be in a subscription with sessions, and becomes a dead letter there by itself.
        let is_settled = is_settled
            && !(self.is_subscription && self.has_sessions && with_reasons.session_id().is_none());
        let is_full = is_settled && self.records.len() >= RESTORE_COUNT_MAX;
        if is_full || !self.bundle()?.may_take(&content) {
            self.flush(report)?;
        }
        if let Some(content) = self.bundle()?.add(line, content) {
            self.flush(report)?;
            let left = self.bundle()?.add(line, content);
            assert!(left.is_none(), "an empty bundle takes any message");
        }
        if is_settled {
            self.records.push(with_reasons);
        }
        Ok(())
    }

    fn bundle(&mut self) -> Result<&mut Bundle<'a>, Failure> {
        if self.bundle.is_none() {
            self.bundle = Some(match self.is_subscription {
                true => Bundle::deposited(self.doors, &self.name),
                false => {
                    let sender = self.doors.over_amqp(self.doors.bus.sender(&self.name))?;
                    Bundle::new(self.doors, sender)
                }
            });
        }
        Ok(self.bundle.as_mut().expect("it was made just now"))
    }

    /// The lines that wait to be sent.
    pub(super) fn lines(&self) -> Option<RangeInclusive<u64>> {
        self.bundle.as_ref().and_then(Bundle::lines)
    }

    /// No more lines come. A repeat may have published messages a second time.
    pub(super) fn end(&mut self, report: &mut Report) -> Result<(), Failure> {
        self.flush(report)?;
        match std::mem::take(&mut self.published_count) {
            0 => {}
            count => note(&format!(
                "the topic {} was there before, and {count} messages whose time has passed were published: if an \
                 earlier import has sent them, they came twice",
                self.name
            )),
        }
        self.restorer.close()
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
        if let Some(bundle) = &mut self.bundle {
            report.messages_sent += bundle.count();
            bundle.send()?;
        }
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

fn is_unsupported(failure: &Failure) -> bool {
    match failure {
        Failure::Bus(error) => UNSUPPORTED
            .iter()
            .any(|code| error.code.as_deref() == Some(code)),
        _ => false,
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
