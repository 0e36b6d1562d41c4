//! Queue Storage over HTTP and HTTPS.

mod answers;
mod client;
mod model;
mod request;

pub use client::{PutOptions, QueueClient, QueueOptions};
pub use model::{ListedQueue, PutMessage, QueueMessage, QueueProperties, Receipt, ServiceStats};
