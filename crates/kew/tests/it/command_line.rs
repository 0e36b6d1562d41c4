//! Refusals of the command line, and how clear they are.

use std::net::TcpListener;

use crate::server::{Ended, Server, run};

/// A refusal names the mistake, ends with an error and prints no facts.
fn check_refused(arguments: &[&str], named: &[&str]) -> Ended {
    let (ended, printed) = run(|command| {
        command.args(arguments);
    });
    assert!(
        !ended.status.success(),
        "{arguments:?} was accepted:\n{printed}"
    );
    assert!(
        !printed.contains("KEW_READY"),
        "{arguments:?} became ready:\n{printed}"
    );
    for part in named {
        assert!(
            ended.log.contains(part),
            "{arguments:?} does not name {part}:\n{}",
            ended.log
        );
    }
    ended
}

#[test]
fn an_unknown_flag_is_named() {
    check_refused(&["serve", "--no-such-flag"], &["--no-such-flag"]);
}

#[test]
fn a_bad_address_is_named() {
    for address in ["nonsense", "127.0.0.1:99999", "127.0.0.1"] {
        check_refused(
            &["serve", "--ephemeral", "--queue-listen", address],
            &[address],
        );
    }
}

#[test]
fn an_absent_configuration_file_is_named() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let path = place.path().join("absent.toml");
    let path = path.to_str().expect("UTF-8");
    check_refused(
        &["serve", "--ephemeral", "--config", path],
        &["absent.toml"],
    );
}

#[test]
fn a_bad_configuration_file_is_named_with_the_mistake() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let path = place.path().join("kew.toml");
    for (text, named) in [
        ("no_such_setting = 1\n", "no_such_setting"),
        ("= =\n", "kew.toml"),
    ] {
        std::fs::write(&path, text).expect("writable");
        let path = path.to_str().expect("UTF-8");
        check_refused(
            &["serve", "--ephemeral", "--config", path],
            &["kew.toml", named],
        );
    }
}

#[test]
fn a_bad_environment_variable_is_named() {
    let (ended, printed) = run(|command| {
        command.args(["serve", "--ephemeral"]);
        command.env("KEW_QUEUE_LISTEN", "nonsense");
    });
    assert!(!ended.status.success(), "{printed}");
    assert!(ended.log.contains("nonsense"), "{}", ended.log);
}

#[test]
fn a_data_directory_that_is_a_file_is_named() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let path = place.path().join("a-file");
    std::fs::write(&path, "not a directory").expect("writable");
    let path = path.to_str().expect("UTF-8");
    let arguments = ["serve", "--data-dir", path, "--queue-listen", "127.0.0.1:0"];
    check_refused(&arguments, &["a-file"]);
}

#[test]
fn a_port_in_use_is_named() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = holder.local_addr().expect("bound").to_string();
    check_refused(
        &["serve", "--ephemeral", "--queue-listen", &address],
        &[&address, "in use"],
    );
}

#[test]
fn a_data_directory_in_use_is_refused() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let first = Server::start(place.path());
    let path = place.path().to_str().expect("UTF-8");
    let arguments = ["serve", "--data-dir", path, "--queue-listen", "127.0.0.1:0"];
    let ended = check_refused(&arguments, &[path]);
    let clear = ["in use", "locked", "another", "lock"];
    assert!(
        clear.iter().any(|word| ended.log.contains(word)),
        "unclear:\n{}",
        ended.log
    );
    // It was not disturbed.
    first.terminate();
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let place = tempfile::tempdir().expect("a temporary directory");
    Server::start(place.path()).terminate();
    let Some(manifest) = find_manifest(place.path()) else {
        panic!("a data directory has a MANIFEST that states its format");
    };
    let raised = raise_format(&std::fs::read(&manifest).expect("readable"));
    std::fs::write(&manifest, &raised).expect("writable");

    let path = place.path().to_str().expect("UTF-8");
    let arguments = ["serve", "--data-dir", path, "--queue-listen", "127.0.0.1:0"];
    check_refused(&arguments, &[path, "format", "999"]);
    assert_eq!(
        std::fs::read(&manifest).expect("readable"),
        raised,
        "it was changed"
    );
}

fn find_manifest(data_dir: &std::path::Path) -> Option<std::path::PathBuf> {
    let mut places = vec![data_dir.to_owned()];
    while let Some(place) = places.pop() {
        for entry in std::fs::read_dir(place).ok()?.filter_map(Result::ok) {
            let path = entry.path();
            if path.is_dir() {
                places.push(path);
            } else if entry.file_name() == "MANIFEST" {
                return Some(path);
            }
        }
    }
    None
}

/// Replaces the first number of the manifest, which is its format, by a far higher one.
fn raise_format(manifest: &[u8]) -> Vec<u8> {
    let from = manifest.iter().position(u8::is_ascii_digit);
    let from = from.expect("the manifest states its format as a number");
    let digits = manifest[from..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit());
    let to = from + digits.count();
    [&manifest[..from], b"999", &manifest[to..]].concat()
}
