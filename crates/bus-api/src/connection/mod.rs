//! A connection over AMQP: what is read and written when, and what its client does.

mod client;
mod driver;
mod farewell;

pub(crate) use driver::Driver;
pub(crate) use farewell::close;
