//! Every credential against every operation, over a socket.

mod bytes;
mod door;
mod issuer;
mod keys;
mod matrix;
mod policies;
mod sizes;
mod vectors;
