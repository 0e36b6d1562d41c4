//! Messages: as they come in and go out, as they are shown, and the requests and answers that are messages too.

pub(crate) mod batch;
pub(crate) mod claims;
pub(crate) mod inbound;
pub(crate) mod outbound;
pub(crate) mod overlay;
pub(crate) mod request;
pub(crate) mod view;
