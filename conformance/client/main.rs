//! Runs `kew-client` against Queue Storage of kew and of Azurite. The argument, if any, selects scenarios by their names.
//!
//! Every scenario runs against both services, over HTTP and HTTPS. A service that a scenario needs to treat in another
//! way is named there, with the reason.

#![expect(clippy::print_stdout, reason = "it prints what failed, and the total")]
#![expect(clippy::unwrap_used, reason = "a scenario fails by panicking")]

mod account;
mod messages;
mod processes;
mod queues;
mod services;
mod signatures;

use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use services::{Door, Services};

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
    queues: create_and_delete, metadata, lists_with_metadata, lists_in_pages;
    messages: put_get_and_delete, texts, a_text_that_is_too_large, delays_and_lives, from_one_to_thirty_two, peek_changes_nothing,
        update, stale_receipts, clear, every_operation_on_an_absent_queue, side_by_side_on_few_connections;
    signatures: of_an_account, of_a_queue, of_a_stored_policy, a_key_that_is_wrong;
    account: policies, properties, statistics;
};

#[tokio::main]
async fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let services = Services::start();
    let (mut passed, mut failed) = (0, 0);
    for (name, scenario) in SCENARIOS {
        for door in services.doors() {
            let title = format!("{name} ({door})");
            if !title.contains(&wanted) {
                continue;
            }
            // A task of its own, so that a panic ends only this scenario.
            let ended = tokio::time::timeout(LIMIT, tokio::spawn(scenario(door))).await;
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
    drop(services);
    println!("{passed} passed, {failed} failed");
    match failed == 0 && passed > 0 {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
