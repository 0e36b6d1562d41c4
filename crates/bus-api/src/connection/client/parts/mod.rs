//! The parts of a client: each keeps one thing, and does not know the client.

pub(crate) mod asked;
pub(crate) mod blocked;
pub(crate) mod credentials;
pub(crate) mod done;
pub(crate) mod load;
pub(crate) mod orders;
pub(crate) mod peer;
pub(crate) mod settlements;
pub(crate) mod stirred;
pub(crate) mod transactions;
pub(crate) mod turn;
