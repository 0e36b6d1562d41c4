//! Runs the Rust SDK against the real binary. The argument, if any, selects scenarios by their names.

mod front;
mod kew;
mod messages;
mod queues;
mod service;
mod signatures;
mod transport;

use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use kew::{Door, Server};

const LIMIT: Duration = Duration::from_secs(120);

type Scenario = fn(Door) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! scenarios {
    ($($module:ident: $($name:ident),+;)+) => {
        &[$($((
            concat!(stringify!($module), "::", stringify!($name)),
            |door| Box::pin($module::$name(door)),
        )),+),+]
    };
}

const SCENARIOS: &[(&str, Scenario)] = scenarios! {
    queues: create_and_delete, create_again, exists, names_that_are_not_allowed, metadata, list_in_pages;
    messages: send_and_receive_answer_with_everything, texts, texts_that_do_not_fit, time_to_live,
        a_delay, receive_from_one_to_thirty_two, peek_changes_nothing, stale_receipts, update,
        receipts_and_ids_that_are_none, clear, every_operation_on_an_absent_queue;
    signatures: of_a_queue, of_an_account, when_where_and_how_they_are_good;
    service: properties, statistics, the_secondary_reads_and_does_not_write;
    transport: many_requests_share_one_connection, a_busy_server_is_asked_again, no_credential;
};

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .expect("nothing was installed before");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let server = Server::start();
    let (mut passed, mut failed) = (0, 0);
    for (name, scenario) in SCENARIOS {
        for door in server.doors() {
            let title = format!("{name} ({door})");
            if !title.contains(&wanted) {
                continue;
            }
            // A separate task, so that a panic ends only this scenario.
            let ended = runtime.block_on(async {
                tokio::time::timeout(LIMIT, tokio::spawn(scenario(door))).await
            });
            match ended {
                Ok(Ok(())) => passed += 1,
                Ok(Err(_)) => {
                    println!("FAILED {title}");
                    failed += 1;
                }
                Err(_) => {
                    println!("FAILED {title}: not within {LIMIT:?}");
                    failed += 1;
                }
            }
        }
    }
    drop(server);
    println!("{passed} passed, {failed} failed");
    if failed == 0 && passed > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
