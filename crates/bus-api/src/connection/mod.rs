//! A connection over AMQP: reading, writing, and the operations of its client.

mod client;
mod driver;
mod farewell;

pub(crate) use driver::Driver;
pub(crate) use farewell::close;
