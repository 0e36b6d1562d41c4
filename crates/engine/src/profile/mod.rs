//! Where the services differ. One message and one lease serve them all.

pub(crate) mod storage_queue;
