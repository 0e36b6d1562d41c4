//! What all interfaces over HTTP share: connections, bearer tokens, and the XML of answers.

pub(crate) mod pool;
pub(crate) mod tokens;
pub(crate) mod xml;
