//! Commands for a partition.

use std::sync::Arc;

use bytes::Bytes;

use crate::bus::BusCommand;
use crate::catalogue::AccountRecord;
use crate::moves::BodyToMove;
use crate::storage::StorageCommand;
use crate::table::{Group, RunLength};
use crate::vocabulary::{PageNumber, Service};

/// A request to a partition. A front end builds it from checked values; the engine decides it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Gives a new partition the secret that its tokens are made with. Asked once, by the runner.
    Initialize {
        /// 128 random bits.
        secret: [u8; 16],
        /// How many sequence numbers share a run, in every entity.
        run_length: RunLength,
    },
    /// Replaces the properties of a service of an account. The engine does not read them.
    SetServiceProperties {
        /// The service.
        service: Service,
        /// The account. It need not be one that was put.
        account: Arc<str>,
        /// At most 64 KiB.
        properties: Bytes,
    },
    /// Reads the properties of a service of an account.
    ReadServiceProperties {
        /// The service.
        service: Service,
        /// The account.
        account: Arc<str>,
    },
    /// Adds an account, or replaces one.
    PutAccount {
        /// The new account.
        account: AccountRecord,
        /// Whether to add it. Otherwise it must exist.
        is_new: bool,
    },
    /// Removes an account with the properties of its services.
    RemoveAccount {
        /// Its name.
        account: Arc<str>,
        /// Whether to remove its queues too. Otherwise it must have none.
        with_queues: bool,
    },
    /// Lists all accounts in ascending order of their names' bytes.
    ListAccounts,
    /// Moves bodies to the log's end, as far as they are still where they were read. Only a partition asks itself.
    MoveBodies {
        /// The bodies.
        bodies: Vec<BodyToMove>,
    },
    /// Sets messages aside of which there is no record, because both copies of a page are damaged. Only a partition asks
    /// itself.
    Quarantine {
        /// The group of the page that is damaged.
        group: Group,
        /// The page.
        page: PageNumber,
    },
    /// A command about storage queues.
    Storage(StorageCommand),
    /// A command about bus queues.
    Bus(BusCommand),
}
