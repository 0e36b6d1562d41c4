//! What all interfaces over HTTP share: requests, answers, connections, bearer tokens, and the XML of answers.

pub(crate) mod answer;
mod exchange;
pub(crate) mod pool;
pub(crate) mod records;
pub(crate) mod request;
pub(crate) mod tokens;
pub(crate) mod xml;
