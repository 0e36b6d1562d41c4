//! Differences between the services. One message and one lease serve both.

pub(crate) mod storage_queue;
