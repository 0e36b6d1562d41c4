//! Events about bus queues, before they carried their results.

use crate::bus::event::codec::options;
use crate::bus::{BusFact, BusQueueOptions};
use crate::codec::{DecodeError, Reader};
use crate::event::codec::incarnation;
use crate::{Incarnation, State, Timestamp};

pub(super) mod kind {
    pub(in crate::migrate) const QUEUE_UPDATED: u8 = 65;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OldFact {
    /// Ids beyond the window before were dropped.
    QueueUpdated {
        queue: Incarnation,
        options: BusQueueOptions,
    },
}

impl OldFact {
    /// Whether an event of this kind is one of these.
    pub(super) fn is_kind(kind: u8) -> bool {
        matches!(kind, kind::QUEUE_UPDATED)
    }

    /// Reads the rest of an event.
    pub(super) fn decode(kind: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let queue = incarnation(r)?;
        Ok(match kind {
            kind::QUEUE_UPDATED => Self::QueueUpdated {
                queue,
                options: options(r)?,
            },
            _ => return Err(r.error("event kind that is not known")),
        })
    }

    pub(super) fn upgrade(self, at: Timestamp, state: &State) -> BusFact {
        match self {
            Self::QueueUpdated { queue, options } => {
                let entity = state.bus.get(&queue);
                let ids_from = entity.map(|entity| entity.ids_from(&options, at));
                BusFact::QueueUpdated {
                    queue,
                    options,
                    ids_from: ids_from.unwrap_or_default(),
                }
            }
        }
    }
}
