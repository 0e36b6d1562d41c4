//! Queue Storage over HTTP and HTTPS.

mod answers;
mod attempts;
mod client;
mod model;
mod options;
mod policies;
mod request;
mod service;

pub use client::QueueClient;
pub use model::{ListedQueue, PutMessage, QueueMessage, QueueProperties, Receipt, ServiceStats};
pub use options::{PutOptions, QueueOptions};
pub use policies::AccessPolicy;
pub use service::{CorsRule, Logging, Metrics, ServiceProperties};
