//! Clients of Service Bus, over a socket pair and with the client side of `kew-amqp`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod atom;
mod attach;
mod audit;
mod audit_flood;
mod behind_nginx;
mod client;
mod cold;
mod crowds;
mod data;
#[path = "../../../http-front/tests/it/forms.rs"]
mod forms;
mod greetings;
mod hostile;
mod http;
mod http_limits;
mod idle;
mod management;
mod management_rules;
mod messages;
mod metrics;
mod names;
#[path = "../../../http-front/tests/it/nginx.rs"]
mod nginx;
mod operator;
mod operator_topics;
mod oversized;
mod owned_rules;
mod owners;
#[path = "../../../queue-api/tests/it/panics.rs"]
mod panics;
mod resend;
mod rest;
mod rights;
mod rules;
mod sasl;
mod sessions;
#[path = "../../../kew/tests/it/skip.rs"]
mod skip;
mod slow_disk;
mod smuggling;
mod tokens;
mod topics;
mod transactions;
mod turned_away;
mod turns;
mod unmatched;
mod wakes;
mod websocket;
mod windows;

/// A node of a cluster reaches a partition over a connection: nothing that clients see may depend on where it is.
#[test]
fn everything_holds_over_a_connection() {
    let but = [
        "everything_holds_over_a_connection",
        // It takes it that all links have their messages before the first one is sent, and answers come one by one here.
        "links_that_wait_for_room_in_their_session_take_turns",
    ];
    kew_loopback::run_again(&but, 280);
}
