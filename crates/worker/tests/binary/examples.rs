//! The examples run, each in a process of its own: they read their settings from the environment.

use std::process::Command;

use crate::processes::kew;

#[path = "../../examples/orders.rs"]
mod orders;
#[expect(dead_code, reason = "its main reads the command line")]
#[path = "../../../client/examples/pipelining/main.rs"]
mod pipelining;

const CHILD: &str = "KEW_TEST_EXAMPLE";

/// Runs a test of this file again, as the process that this variable is for; returns what it printed.
fn run_apart(test: &str, variable: &str, value: String) -> String {
    let ran = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(variable, value)
        .env(CHILD, test)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{text}{ran:?}");
    text
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[test]
fn orders_are_booked() {
    if is_child() {
        return orders::main().unwrap();
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let kew = runtime.block_on(kew());
    let string = kew.fact("KEW_QUEUE_CONNECTION_STRING").unwrap();
    let name = "AZURE_STORAGE_CONNECTION_STRING";
    let printed = run_apart("examples::orders_are_booked", name, string);
    for (metric, count) in [("completed", 199), ("buried", 1)] {
        let line = printed
            .lines()
            .find(|line| line.contains(metric) && line.ends_with(&format!(" {count}")));
        assert!(line.is_some(), "{metric}: {printed}");
    }
}

#[test]
fn sends_are_measured() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if is_child() {
        return runtime.block_on(pipelining::run(None)).unwrap();
    }
    let kew = runtime.block_on(kew());
    let string = kew.fact("KEW_BUS_CONNECTION_STRING").unwrap();
    let name = "SERVICEBUS_CONNECTION_STRING";
    let printed = run_apart("examples::sends_are_measured", name, string);
    assert!(printed.contains("100 sends, 10 in flight"), "{printed}");
}
