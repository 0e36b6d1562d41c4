//! What the scrub of a running server has found, for its operator.

use kew_broker::{Broker, DamagedBody, QuarantinedRun, ScrubReport};
use kew_engine::{BodyOwner, Service};
use serde::{Deserialize, Serialize};

use super::Failure;

/// Everything that is known to be damaged.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Damage {
    /// Whether the server reads to find damage at all.
    pub(crate) scrub: bool,
    /// How often everything was read since the start of the server.
    pub(crate) passes: u64,
    pub(crate) read_bytes: u64,
    /// At most a thousand, and how many there are.
    pub(crate) places: Vec<Place>,
    pub(crate) places_count: u64,
    /// At most a thousand, and how many there are.
    pub(crate) messages: Vec<Message>,
    pub(crate) messages_count: u64,
    /// Pages of which both copies are damaged and that a start may need.
    #[serde(default)]
    pub(crate) unreadable_pages: u64,
    /// Messages that are set aside, because both copies of their records are damaged: of at most a thousand runs, and how
    /// many messages there are.
    #[serde(default)]
    pub(crate) quarantined: Vec<Quarantined>,
    #[serde(default)]
    pub(crate) quarantined_count: u64,
}

/// Messages of one queue that are set aside, among up to 1,024 numbers that follow each other.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Quarantined {
    /// `queue-storage` or `service-bus`.
    pub(crate) service: String,
    /// The account or the namespace.
    pub(crate) account: String,
    pub(crate) queue: String,
    pub(crate) first_sequence_number: u64,
    pub(crate) count: u64,
}

/// A damaged place in a file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) file: String,
    pub(crate) offset: u64,
    pub(crate) what: String,
}

/// A message, or the state of a session, whose bytes cannot be read.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Message {
    /// `queue-storage` or `service-bus`.
    pub(crate) service: String,
    /// The account or the namespace.
    pub(crate) account: String,
    pub(crate) queue: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sequence_number: Option<u64>,
    /// The id of the session whose state is damaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
    pub(crate) file: String,
    pub(crate) offset: u64,
}

pub(super) async fn list(broker: &Broker) -> Result<Damage, Failure> {
    let report = broker.scrub_report().await;
    let stopped = || Failure::new("stopped", "the server has stopped; start it again");
    report.map(Damage::from).ok_or_else(stopped)
}

impl From<ScrubReport> for Damage {
    fn from(report: ScrubReport) -> Self {
        let places = report.places.into_iter().map(|place| Place {
            file: place.file,
            offset: place.offset,
            what: place.what,
        });
        Self {
            scrub: report.is_on,
            passes: report.passes,
            read_bytes: report.read_bytes,
            places: places.collect(),
            places_count: report.places_count,
            messages: report.bodies.into_iter().map(Message::from).collect(),
            messages_count: report.bodies_count,
            unreadable_pages: report.unreadable_pages,
            quarantined: report
                .quarantined
                .into_iter()
                .map(Quarantined::from)
                .collect(),
            quarantined_count: report.quarantined_count,
        }
    }
}

fn name_of(service: Service) -> String {
    match service {
        Service::QueueStorage => "queue-storage".into(),
        Service::ServiceBus => "service-bus".into(),
    }
}

impl From<QuarantinedRun> for Quarantined {
    fn from(run: QuarantinedRun) -> Self {
        Self {
            service: name_of(run.queue.service),
            account: run.queue.account.to_string(),
            queue: run.queue.name.to_string(),
            first_sequence_number: run.first.as_u64(),
            count: run.count,
        }
    }
}

impl From<DamagedBody> for Message {
    fn from(damaged: DamagedBody) -> Self {
        let queue = damaged.needed.queue;
        let (sequence_number, session) = match damaged.needed.of {
            BodyOwner::Message(number) => (Some(number.as_u64()), None),
            BodyOwner::Session(id) => (None, Some(id)),
        };
        Self {
            service: name_of(queue.service),
            account: queue.account.to_string(),
            queue: queue.name.to_string(),
            sequence_number,
            session,
            file: damaged.file,
            offset: damaged.offset,
        }
    }
}
