//! What the scrub of a running server has found, for its operator.

use kew_broker::{Broker, DamagedBody, ScrubReport};
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
        let service = match queue.service {
            Service::QueueStorage => "queue-storage",
            Service::ServiceBus => "service-bus",
        };
        Self {
            service: service.into(),
            account: queue.account.to_string(),
            queue: queue.name.to_string(),
            sequence_number,
            session,
            file: damaged.file,
            offset: damaged.offset,
        }
    }
}
