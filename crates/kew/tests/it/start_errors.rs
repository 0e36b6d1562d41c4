//! The errors of a failed start, and their advice.

use std::path::Path;

use kew_client::PutOptions;

use crate::repair::{block_on, corrupt, files};
use crate::server::{Ended, Server, run};

/// The error of a failed start: the last line of its log.
fn refused(server: Result<Server, Ended>) -> String {
    let Err(ended) = server else {
        panic!("it starts");
    };
    assert!(!ended.status.success());
    ended.log.lines().last().expect("an error").to_owned()
}

fn check(error: &str, named: &[&str]) {
    for part in named {
        assert!(error.contains(part), "no {part:?} in: {error}");
    }
}

fn serve(data_dir: &Path, listen: &str) -> Result<Server, Ended> {
    Server::try_start_with(|command| {
        command.arg("serve").arg("--data-dir").arg(data_dir);
        command.args(["--queue-listen", listen]);
    })
}

#[test]
fn a_second_server_names_the_process_with_the_port_or_the_directory() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let (first, second) = (place.path().join("first"), place.path().join("second"));
    let server = Server::start(&first);
    let address = server.addresses()[0].to_string();
    let holder = if cfg!(target_os = "linux") {
        format!("in use by process {} (kew)", server.pid())
    } else {
        "in use by another process".to_owned()
    };
    let error = refused(serve(&second, &address));
    check(&error, &[&address, "--queue-listen", &holder]);
    let directory = first.display().to_string();
    let error = refused(serve(&first, "127.0.0.1:0"));
    check(&error, &[&directory, &holder, "stop that process"]);
    let (ended, _) = run(|command| {
        command.args(["log", "repair", "--data-dir"]).arg(&first);
    });
    check(&ended.log, &[&directory, &holder]);
    let bus = Server::try_start_with(|command| {
        command.args(["serve", "--ephemeral", "--queue-listen", "127.0.0.1:0"]);
        command.args(["--bus-listen", &address]);
    });
    check(&refused(bus), &[&address, "--bus-listen", &holder]);
    server.terminate();
}

#[test]
fn a_damaged_start_names_the_file_and_the_repair() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let data_dir = place.path().join("my data");
    let server = Server::start(&data_dir);
    block_on(async {
        let client = server.queue_client();
        client.create_queue("orders", &[]).await.expect("created");
        for _ in 0..20 {
            let put = client.put("orders", "text", PutOptions::default());
            put.await.expect("put");
        }
    });
    server.terminate();
    let segment = files(&data_dir, "segment-").remove(0);
    corrupt(&segment, |content| content[..512].fill(0));
    let error = refused(serve(&data_dir, "127.0.0.1:0"));
    check(
        &error,
        &[
            &format!("{} is damaged at byte", segment.display()),
            &format!("kew log repair --data-dir '{}'", data_dir.display()),
        ],
    );
}

#[test]
fn a_cause_is_printed_once() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let file = place.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let error = refused(serve(&file.join("data"), "127.0.0.1:0"));
    assert_eq!(error.matches("Not a directory").count(), 1, "{error}");
}

#[test]
fn an_invalid_level_is_refused() {
    for (filter, named) in [
        ("warnn", "KEW_LOG is \"warnn\""),
        ("info,kew=loud", "KEW_LOG is \"info,kew=loud\""),
    ] {
        let (ended, printed) = run(|command| {
            command.args(["serve", "--ephemeral", "--queue-listen", "127.0.0.1:0"]);
            command.env("KEW_LOG", filter);
        });
        assert_eq!(ended.status.code(), Some(2), "{printed}");
        check(&ended.log, &[named, "warn", "info,kew::access=debug"]);
    }
}

#[test]
fn service_bus_that_is_off_by_default_is_announced() {
    let start = |more: &[&str]| {
        Server::start_with(|command| {
            command.args(["serve", "--ephemeral", "--queue-listen", "127.0.0.1:0"]);
            command.args(more);
        })
    };
    let server = start(&[]);
    server.log_with(&["Service Bus is off", "--bus-listen ADDR:PORT"]);
    server.terminate();
    let log = start(&["--bus-listen", "none"]).terminate();
    assert!(!log.contains("Service Bus is off"), "{log}");
}
