//! Runs listeners of `kew-worker` against Queue Storage of kew and of Azurite, and against Service Bus of kew. The
//! argument, if any, selects scenarios by their names. The scaling agent observes queues of both.
//!
//! Most scenarios are those of the crate's own tests, which run them at Kew in memory.

#![expect(clippy::print_stdout, reason = "it prints what failed, and the total")]
#![expect(clippy::unwrap_used, reason = "a scenario fails by panicking")]

mod agent;
#[path = "../client/processes.rs"]
mod processes;
#[path = "../../crates/worker/tests/it/scenarios.rs"]
mod scenarios;
mod services;

use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use kew_worker::{Fixed, ListenerBuilder, QueueSource};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;

use scenarios::{
    Order, a_listener_that_dies_leaves_its_message_to_others, a_long_handler_keeps_its_message,
    a_message_that_fails_is_buried_with_its_history, a_stop_returns_what_is_not_finished,
    every_message_is_handled_once_and_deleted, progress_is_there_at_the_next_attempt,
    traces_and_ids_travel_with_messages,
};
use services::Services;

const LIMIT: Duration = Duration::from_secs(120);

/// The visibility timeout of long work, which outlives it.
const LEASE: Fixed = Fixed(Duration::from_secs(15));

/// That of a listener that dies: its message comes back soon.
const SHORT_LEASE: Fixed = Fixed(Duration::from_secs(2));

type Scenario = Pin<Box<dyn Future<Output = ()>>>;

/// Every scenario at a service, each with a queue of its own. `$build` makes the listener of long work, and `$brief` the
/// one that dies.
macro_rules! every_scenario {
    (@ $service:expr; $($name:ident($($more:expr)?);)+) => {
        vec![$({
            let service = $service.clone();
            let run: Scenario = Box::pin(async move {
                $name(service.door().await, $($more)?).await;
            });
            (format!("{} ({})", stringify!($name), $service.title()), run)
        }),+]
    };
    ($service:expr, $build:expr, $brief:expr) => {
        every_scenario!(@ $service;
            a_listener_that_dies_leaves_its_message_to_others($brief);
            every_message_is_handled_once_and_deleted();
            a_message_that_fails_is_buried_with_its_history();
            a_long_handler_keeps_its_message($build);
            a_stop_returns_what_is_not_finished();
            traces_and_ids_travel_with_messages();
        )
    };
}

fn all(services: &Services) -> Vec<(String, Scenario)> {
    type Builder = ListenerBuilder<Order, QueueSource>;
    let mut all = Vec::new();
    for storage in &services.storage {
        all.append(&mut every_scenario!(
            storage,
            |it: Builder| it.visibility(LEASE).build(),
            |it: Builder| it.visibility(SHORT_LEASE).build()
        ));
        all.append(&mut every_scenario!(@ storage; progress_is_there_at_the_next_attempt();));
        let name = "the_agent_scales_by_a_queue";
        let run = agent::the_agent_scales_by_a_queue(storage.clone());
        all.push((format!("{name} ({})", storage.title()), Box::pin(run)));
    }
    let bus = &services.bus;
    let build = ListenerBuilder::build;
    all.append(&mut every_scenario!(bus, build, build));
    all
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let services = Services::start();
    let (mut passed, mut failed) = (0, 0);
    let tasks = LocalSet::new();
    for (title, scenario) in all(&services) {
        if !title.contains(&wanted) {
            continue;
        }
        // A task of its own, so that a panic ends only this scenario.
        let ended = tasks.run_until(timeout(LIMIT, async { spawn_local(scenario).await }));
        match ended.await {
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
    drop(tasks);
    drop(services);
    println!("{passed} passed, {failed} failed");
    match failed == 0 && passed > 0 {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
