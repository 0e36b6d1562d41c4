//! One command starts a bank with its own Kew, replays the peaks, and checks.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use kew_bank::ledger::Ledger;
use kew_bank::start::find_kew;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio::time::timeout;

use crate::fleet::programs;
use crate::server::Server;
use crate::skip::skip;
use crate::url::url;

const PATIENCE: Duration = Duration::from_secs(120);

/// How it is started in the folder of the repository.
const START: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/start");

/// `cargo` that notes its arguments, and puts the programs where they are found that the test has.
const CARGO: &str = r#"#!/bin/sh
echo "$@" >"$CARGO_TARGET_DIR/arguments"
mkdir -p "$CARGO_TARGET_DIR/debug"
ln -sf "$PROGRAMS/bank" "$CARGO_TARGET_DIR/debug/bank"
"#;

/// A short demo with three workers.
fn demo(mut command: Command, data: &Path) -> Command {
    command.args(["--demo", "--instances", "3", "--listen", "127.0.0.1:0"]);
    command.args(["--seconds", "1", "--transactions", "40"]);
    command.arg("--data").arg(data);
    command
}

/// Runs a command to its end, and returns what it printed. One that takes too long is asked to stop, so that it stops
/// what it has started.
async fn printed(mut command: Command) -> String {
    command.env("KEW_BINARY", find_kew(&programs()).unwrap());
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id().and_then(|it| Pid::from_raw(it.cast_signed()));
    let mut ended = Box::pin(child.wait_with_output());
    let output = match timeout(PATIENCE, &mut ended).await {
        Ok(output) => output.unwrap(),
        Err(_) => {
            kill_process(pid.unwrap(), Signal::TERM).unwrap();
            let output = ended.await.unwrap();
            panic!("it did not end in {PATIENCE:?}: {output:?}");
        }
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{error}");
    text
}

/// Checks what a demo with three workers printed and stored.
async fn was_complete(text: &str, store: &str) {
    for expected in [
        "3 workers run",
        "replaying Monday morning: 40 transactions in 1 s",
        "replaying Thursday afternoon: 40",
        "replaying an unforeseen burst: 40",
        "confirmed=120 booked=120",
        "every confirmed transaction is booked exactly once",
        "worker-3 stopped: exit status: 0",
        "bank-web stopped: exit status: 0",
        "kew stopped: exit status: 0",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let reports = Ledger::open(store).await.unwrap().reports(3_600).await;
    let names: Vec<String> = reports.unwrap().into_iter().map(|it| it.instance).collect();
    assert_eq!(names, ["worker-1", "worker-2", "worker-3"]);
}

#[tokio::test]
async fn one_command_builds_and_starts_three_workers_and_books_the_peaks() {
    let folder = tempfile::tempdir().unwrap();
    let cargo = folder.path().join("cargo");
    std::fs::write(&cargo, CARGO).unwrap();
    std::fs::set_permissions(&cargo, PermissionsExt::from_mode(0o755)).unwrap();
    let mut start = Command::new(START);
    let path = std::env::var("PATH").unwrap();
    start.env("PATH", format!("{}:{path}", folder.path().display()));
    start.env("CARGO_TARGET_DIR", folder.path());
    start.env("PROGRAMS", programs());
    let data = folder.path().join("data/of/the-bank");
    let text = printed(demo(start, &data)).await;
    was_complete(&text, data.join("bank.sqlite").to_str().unwrap()).await;
    let arguments = std::fs::read_to_string(folder.path().join("arguments")).unwrap();
    assert!(
        arguments.starts_with("build --quiet --manifest-path"),
        "{arguments}"
    );
    assert!(arguments.ends_with("--bins -p kew-bank\n"), "{arguments}");
}

/// What the script runs at its end.
fn bank_start() -> Command {
    let mut command = Command::new(programs().join("bank"));
    command.arg("start");
    command
}

#[tokio::test]
async fn the_demo_runs_on_service_bus() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = demo(bank_start(), folder.path());
    command.arg("--bus");
    // The shortest lock of a queue.
    command.env("BANK_WORKER_TIMEOUT_S", "5");
    let text = printed(command).await;
    assert!(text.contains("3 workers run, with 5 s for"), "{text}");
    was_complete(&text, folder.path().join("bank.sqlite").to_str().unwrap()).await;
    assert!(text.contains("Kew runs: Endpoint=sb://"), "{text}");
}

#[tokio::test]
async fn the_demo_runs_on_postgresql() {
    let Some(server) = Server::start().await else {
        let test = "the demo of the bank on PostgreSQL";
        return skip(test, "there is no PostgreSQL", "install postgresql");
    };
    let folder = tempfile::tempdir().unwrap();
    let store = url(&server, "postgres");
    let mut command = demo(bank_start(), folder.path());
    command.args(["--store", &store]);
    was_complete(&printed(command).await, &store).await;
    assert!(!folder.path().join("bank.sqlite").exists());
}
