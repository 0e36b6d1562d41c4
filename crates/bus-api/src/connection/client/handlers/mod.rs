//! The operations of a client that need more than one of its parts.

mod attach;
mod changes;
mod coordinator;
mod detach;
mod due;
mod events;
mod hostname;
mod node;
mod receive;
mod send;
mod settle;
mod submit;
mod tokens;
mod turn;
