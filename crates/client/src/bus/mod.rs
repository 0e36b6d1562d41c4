//! Service Bus over AMQP.
//!
//! A [`BusClient`] has one connection. A task owns it, and everything else is a handle that asks the task for
//! something and waits for the answer. `ARCHITECTURE.md` says what a handle can rely on.

mod batch;
mod client;
mod connector;
mod core;
mod driver;
mod encoded;
mod entity;
mod held;
mod inbox;
mod job;
mod lock;
mod locked;
mod management;
mod message;
mod nudges;
mod received;
mod receiver;
mod room;
mod sender;
mod session;
mod shared;
mod tokens;
mod transaction;
mod verdict;
mod websocket;

pub use batch::Batch;
pub use client::{BusClient, BusOptions};
pub use encoded::Encoded;
pub use entity::Entity;
pub use held::HeldLock;
pub use job::Unseen;
pub use lock::Lock;
pub use locked::Locked;
pub use message::Message;
pub use received::{MessageState, Received};
pub use receiver::{DeletingReceiver, Receiver, ReceiverOptions};
pub use sender::Sender;
pub use session::{SessionChoice, SessionReceiver};
pub use transaction::Transaction;
pub use verdict::Changes;
