//! Tests of the binary through its door: as a process, with signals, over sockets.
//!
//! Every wait has a limit, every port is chosen by the system, and every server that a test starts
//! dies with the test.

mod command_line;
mod kill;
mod lifecycle;
mod server;
