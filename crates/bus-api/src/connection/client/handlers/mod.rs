//! What a client does, and what happens to it: all that takes more than one of its parts.

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
