//! Messages: incoming and outgoing, as shown to operators, and the requests and answers that are
//! messages too.

pub(crate) mod batch;
pub(crate) mod claims;
pub(crate) mod inbound;
pub(crate) mod outbound;
pub(crate) mod request;
pub(crate) mod view;
