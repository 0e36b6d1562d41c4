//! Requests that are part of a transaction.

use bytes::Bytes;
use kew_engine::SequenceNumber;
use tokio::time::Instant;

use crate::connection::client::links::requests::Asker;
use crate::management;
use crate::memory::account::Part;
use crate::messages::request::Request;

/// A request that will be part of a transaction.
pub(crate) struct Asked {
    pub(crate) asker: Asker,
    pub(crate) transaction: Bytes,
    pub(crate) context: management::Context,
    pub(crate) request: Request,
    pub(crate) began: Instant,
}

/// A request to cancel scheduled messages, whose queue is being looked up.
pub(crate) struct Cancelling {
    pub(crate) asked: Asked,
    pub(crate) numbers: Vec<SequenceNumber>,
    /// The memory that it takes until it is part of its transaction.
    pub(crate) _size: Part,
}
