//! Tests of the binary from outside: as a process, with signals, over sockets.
//!
//! Every wait has a limit, every port is chosen by the system, and every server that a test starts
//! dies with the test.

mod accounts;
mod backup;
mod bus;
mod bus_deleting;
mod bus_door;
mod bus_errors;
mod bus_import;
mod bus_load;
mod bus_messages;
mod bus_queues;
mod bus_receive;
mod bus_repair;
mod bus_resubmit;
mod bus_rules;
mod bus_test_rule;
mod bus_tools;
mod client;
mod clock_jump;
mod command_line;
mod connections;
mod frozen;
mod full_disk;
mod full_disk_drained;
mod hostile;
mod kill;
mod kill_cold;
mod lifecycle;
mod limits_page;
mod load;
mod many;
mod memory_limit;
mod migration;
mod names;
mod observe;
mod open_files;
mod operate;
mod plain_english;
mod power_cut;
mod preload;
mod queue_command;
mod queue_command_errors;
mod queue_portable;
mod repair;
mod requirements_page;
mod scrub;
mod server;
mod skip;
mod small_disk;
mod soak;
mod start_errors;
mod tls;
mod transfer;
mod verdict;
