//! Raw bytes against the front end, with a real broker in memory behind it.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod accounts;
mod acl;
mod auth;
mod behind_nginx;
mod checklist;
mod client;
mod cold;
mod cors;
mod crowds;
mod dialect_2008;
mod documents;
#[path = "../../../http-front/tests/it/forms.rs"]
mod forms;
mod heads;
mod http;
mod messages;
mod metrics;
mod names;
#[path = "../../../http-front/tests/it/nginx.rs"]
mod nginx;
mod overload;
mod owners;
mod panics;
mod properties;
mod queues;
mod rebinding;
#[path = "../../../kew/tests/it/skip.rs"]
mod skip;
mod smuggling;
mod turns;
mod versions;

/// A node of a cluster reaches a partition over a connection: nothing that clients see may depend on where it is.
#[test]
fn everything_holds_over_a_connection() {
    kew_loopback::run_again(&["everything_holds_over_a_connection"], 150);
}
