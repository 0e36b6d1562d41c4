//! Answers of a partition.

use bytes::Bytes;
use thiserror::Error;

use crate::bus::{BusOutcome, BusRefusal};
use crate::catalogue::AccountRecord;
use crate::moves::MovedBody;
use crate::storage::{StorageOutcome, StorageRefusal};
use crate::vocabulary::BodyLocation;

/// The answer to a command that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The partition has its secret.
    Initialized,
    /// The service has the new properties.
    ServicePropertiesSet,
    /// A service's properties, if they were ever set.
    ServiceProperties(Option<Bytes>),
    /// The account was stored.
    AccountPut,
    /// The account is gone, with its queues and its properties.
    AccountRemoved,
    /// Every account.
    Accounts(Vec<AccountRecord>),
    /// Bodies are in other places, except those that were gone.
    BodiesMoved(BodiesMoved),
    /// So many messages were set aside.
    Quarantined(u32),
    /// The answer about storage queues.
    Storage(StorageOutcome),
    /// The answer about bus queues.
    Bus(BusOutcome),
}

impl From<StorageOutcome> for Outcome {
    fn from(outcome: StorageOutcome) -> Self {
        Self::Storage(outcome)
    }
}

impl From<BusOutcome> for Outcome {
    fn from(outcome: BusOutcome) -> Self {
        Self::Bus(outcome)
    }
}

impl Outcome {
    /// The locations of the bodies of the messages in this answer, in the order of the messages. For a bus
    /// queue's messages, each body is followed by the changes to its properties.
    pub fn bodies(&self) -> Vec<BodyLocation> {
        match self {
            Self::Storage(outcome) => outcome.bodies(),
            Self::Bus(outcome) => outcome.bodies(),
            Self::Initialized
            | Self::ServicePropertiesSet
            | Self::ServiceProperties(_)
            | Self::AccountPut
            | Self::AccountRemoved
            | Self::Accounts(_)
            | Self::BodiesMoved(_)
            | Self::Quarantined(_) => Vec::new(),
        }
    }
}

/// What has become of bodies that were to move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodiesMoved {
    /// How many have moved.
    pub count: usize,
    /// How many bytes of bodies were stored for that.
    pub stored_bytes: u64,
    /// The messages that were the first to move with a body that others have, too, with the old place of that.
    pub first: Vec<(BodyLocation, MovedBody)>,
    /// Old places of bodies that did not move, because the message that moved first does not have them any more. They are
    /// to be read.
    pub gone: Vec<BodyLocation>,
}

impl BodiesMoved {
    /// Whether there is nothing to say but how many.
    pub(crate) fn is_count(&self) -> bool {
        let Self {
            stored_bytes,
            first,
            gone,
            ..
        } = self;
        *stored_bytes == 0 && first.is_empty() && gone.is_empty()
    }
}

/// Why a command was not carried out. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The partition has its secret already.
    #[error("the partition is initialized already")]
    AlreadyInitialized,
    /// There is an account of that name already.
    #[error("account {account} exists already")]
    AccountAlreadyExists {
        /// The name asked for.
        account: Box<str>,
    },
    /// There is no such account.
    #[error("account {account} does not exist")]
    AccountNotFound {
        /// The name asked for.
        account: Box<str>,
    },
    /// The account has queues, and they were not to be removed.
    #[error("account {account} has {queues} queues")]
    AccountNotEmpty {
        /// The account.
        account: Box<str>,
        /// How many queues it has.
        queues: u64,
    },
    /// The properties of a service are larger than allowed.
    #[error("properties of {size_bytes} bytes are above the maximum of {limit_bytes} bytes")]
    PropertiesTooLarge {
        /// Their size.
        size_bytes: usize,
        /// The largest allowed.
        limit_bytes: usize,
    },
    /// A command about storage queues was refused.
    #[error(transparent)]
    Storage(#[from] StorageRefusal),
    /// A command about bus queues was refused.
    #[error(transparent)]
    Bus(#[from] BusRefusal),
}
