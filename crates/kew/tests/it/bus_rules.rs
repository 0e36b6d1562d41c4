//! `kew bus authorization-rule`: rules are added, used and removed while the server runs and while it does not.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::server::{PATIENCE, Server};

const CONFIG: &str = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns",
    "Queues": [{"Name": "Jobs"}]}]}}"#;

/// Exit code, standard output and standard error.
type Printed = (i32, String, String);

fn finish(command: &mut Command, input: &str) -> Printed {
    command.env_remove("KEW_DATA_DIR");
    command.env_remove("KEW_ADMIN_SOCKET");
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("kew was built with this test");
    let mut stdin = child.stdin.take().expect("piped");
    // A command that reads nothing may have ended already.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("our own child");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let code = output.status.code().expect("it exits");
    (code, text(output.stdout), text(output.stderr))
}

/// `kew bus authorization-rule` with a text on its standard input.
fn rule_with(data_dir: &Path, arguments: &[&str], input: &str) -> Printed {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kew"));
    command.args(["bus", "authorization-rule"]).args(arguments);
    command.arg("--data-dir").arg(data_dir);
    finish(&mut command, input)
}

fn rule(data_dir: &Path, arguments: &[&str]) -> Printed {
    rule_with(data_dir, arguments, "")
}

/// Whether a client with this connection string may do something. It signs a token.
fn may(connection: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kew"));
    command.args(["bus"]).args(arguments);
    command.env("SERVICEBUS_CONNECTION_STRING", connection);
    let (code, printed, log) = finish(&mut command, "");
    assert!(
        code == 0 || (code == 1 && log.contains("401")),
        "{arguments:?}: {printed}{log}"
    );
    code == 0
}

fn done(data_dir: &Path, arguments: &[&str]) -> Value {
    let (code, printed, log) = rule(data_dir, &[arguments, &["--json"]].concat());
    assert_eq!(code, 0, "{arguments:?}: {printed}{log}");
    serde_json::from_str(&printed).expect("JSON")
}

fn refused(data_dir: &Path, arguments: &[&str], code: i32, named: &str) {
    let (ended, printed, log) = rule(data_dir, arguments);
    assert_eq!(ended, code, "{arguments:?}: {printed}{log}");
    assert!(log.contains(named), "{named} is not in {log}");
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_else(|| panic!("{pointer} in {value}"))
}

fn serve(data_dir: &Path, import: Option<&Path>) -> Server {
    Server::start_with(|command| {
        command.arg("serve").arg("--data-dir").arg(data_dir);
        command.args([
            "--queue-listen",
            "127.0.0.1:0",
            "--bus-listen",
            "127.0.0.1:0",
        ]);
        command.arg("--no-public-key");
        if let Some(path) = import {
            command.arg("--import").arg(path);
        }
    })
}

/// Whether the server accepts a rule and its key, over SASL PLAIN.
fn is_taken(server: &Server, name: &str, key: &str) -> bool {
    let address: SocketAddr = server.facts("KEW_BUS_LISTEN")[0]
        .parse()
        .expect("an address");
    let mut stream = TcpStream::connect(address).expect("it is served");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let response = format!("\0{name}\0{key}");
    let length = |length: usize| u8::try_from(length).expect("short");
    let mut fields = vec![2, 0xa3, 5];
    fields.extend_from_slice(b"PLAIN");
    fields.extend_from_slice(&[0xa0, length(response.len())]);
    fields.extend_from_slice(response.as_bytes());
    let mut init = vec![2, 1, 0, 0, 0, 0x53, 0x41, 0xc0, length(fields.len())];
    init.extend_from_slice(&fields);
    let mut out = b"AMQP\x03\x01\x00\x00".to_vec();
    out.extend_from_slice(&[0, 0, 0, length(init.len() + 4)]);
    out.extend_from_slice(&init);
    stream.write_all(&out).expect("it reads");
    let mut answer = Vec::new();
    loop {
        let mut bytes = [0; 256];
        let count = stream.read(&mut bytes).expect("an answer in time");
        assert!(count > 0, "closed after {answer:?}");
        answer.extend_from_slice(&bytes[..count]);
        // The outcome: a list whose first field is the code.
        let mut windows = answer.windows(8);
        if let Some(outcome) = windows.find(|bytes| bytes.starts_with(&[0x00, 0x53, 0x44, 0xc0])) {
            assert_eq!(outcome[6], 0x50, "{answer:?}");
            return outcome[7] == 0;
        }
    }
}

#[test]
fn a_rule_lives_through_regeneration_crash_and_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let data_dir = dir.path().join("data");
    let config = dir.path().join("Config.json");
    std::fs::write(&config, CONFIG).expect("written");

    // While the server runs.
    let server = serve(&data_dir, Some(&config));
    assert!(server.facts("KEW_BUS_CONNECTION_STRING").is_empty());
    assert!(!is_taken(
        &server,
        "RootManageSharedAccessKey",
        "SAS_KEY_VALUE"
    ));
    let added = done(&data_dir, &["add", "worker", "--rights", "send,listen"]);
    assert_eq!(
        added["rule"]["rights"],
        serde_json::json!(["send", "listen"])
    );
    let (primary, secondary) = (text(&added, "/keys/0/value"), text(&added, "/keys/1/value"));
    assert_eq!((primary.len(), secondary.len()), (44, 44));
    let port = server.facts("KEW_BUS_LISTEN")[0]
        .rsplit_once(':')
        .expect("a port")
        .1;
    assert_eq!(
        text(&added, "/keys/0/connection_string"),
        format!(
            "Endpoint=sb://localhost:{port};SharedAccessKeyName=worker;\
             SharedAccessKey={primary};UseDevelopmentEmulator=true;"
        )
    );
    assert!(is_taken(&server, "worker", primary) && is_taken(&server, "worker", secondary));
    assert!(!is_taken(&server, "worker", "other"));
    let changed = done(&data_dir, &["regenerate", "worker", "--key", "primary"]);
    assert!(!is_taken(&server, "worker", primary));
    let primary = text(&changed, "/keys/0/value");
    assert!(is_taken(&server, "worker", primary) && is_taken(&server, "worker", secondary));
    let of_queue = ["add", "one", "--rights", "manage", "--entity", "JOBS"];
    let of_queue = done(&data_dir, &of_queue);
    let string = text(&of_queue, "/keys/0/connection_string");
    assert!(string.contains(";EntityPath=JOBS;"), "{string}");

    // After a crash, and on the data directory itself.
    server.kill();
    let keys = done(&data_dir, &["keys", "WORKER"]);
    assert_eq!(text(&keys, "/keys/0/value"), primary);
    assert_eq!(text(&keys, "/keys/1/value"), secondary);
    done(&data_dir, &["add", "late", "--rights", "Listen"]);
    let kept = done(&data_dir, &["keys", "one", "--entity", "jobs"]);
    assert_eq!(kept["keys"][0]["value"], of_queue["keys"][0]["value"]);

    // The file contains no rules, so importing it again does not change them.
    let server = serve(&data_dir, Some(&config));
    assert!(is_taken(&server, "worker", primary));
    let listed = done(&data_dir, &["list"]);
    let names: Vec<_> = (0..2)
        .map(|index| text(&listed, &format!("/rules/{index}/name")))
        .collect();
    assert_eq!(names, ["worker", "late"]);
    let listed = done(&data_dir, &["list", "--entity", "jobs"]);
    assert_eq!(text(&listed, "/rules/0/name"), "one");
    done(&data_dir, &["remove", "worker"]);
    assert!(!is_taken(&server, "worker", primary));
    let log = server.log_with(&["audit: remove bus authorization-rule"]);
    assert!(!log.contains(primary), "{log}");
}

/// The connection strings of a rule, as the server that runs prints them.
fn connection_strings(data_dir: &Path, arguments: &[&str]) -> [String; 2] {
    let keys = done(data_dir, &[&["keys"], arguments].concat());
    [0, 1].map(|at| text(&keys, &format!("/keys/{at}/connection_string")).to_owned())
}

#[test]
fn rights_that_were_set_hold_across_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let data_dir = dir.path().join("data");
    let config = dir.path().join("Config.json");
    std::fs::write(&config, CONFIG).expect("written");
    let (send, receive) = (["send", "jobs", "x"], ["receive", "jobs"]);

    let server = serve(&data_dir, Some(&config));
    for of in [&["all"][..], &["own", "--entity", "jobs"]] {
        done(&data_dir, &[&["add", "--rights", "send"], of].concat());
        let [primary, _] = connection_strings(&data_dir, of);
        assert!(may(&primary, &send) && !may(&primary, &receive));
        let set = done(&data_dir, &[&["set", "--rights", "Listen"], of].concat());
        assert_eq!(set["rule"]["rights"], serde_json::json!(["listen"]));
        assert!(set.get("keys").is_none(), "{set}");
        assert!(!may(&primary, &send) && may(&primary, &receive));
    }
    let log = server.log_with(&["audit: change bus authorization-rule", "entity=\"jobs\""]);
    assert!(log.contains("name=\"own\""), "{log}");
    server.kill();

    let server = serve(&data_dir, None);
    for of in [&["all"][..], &["own", "--entity", "jobs"]] {
        let [primary, secondary] = connection_strings(&data_dir, of);
        assert!(!may(&primary, &send) && may(&secondary, &receive));
        let shown = done(&data_dir, &[&["show"], of].concat());
        assert_eq!(shown["rule"]["rights"], serde_json::json!(["listen"]));
        let time = |name: &str| shown["rule"][name].as_u64().expect("a time");
        assert!(time("modified_at_ms") > time("created_at_ms"), "{shown}");
        let table = rule(&data_dir, &[&["show"], of].concat()).1;
        for text in [of[0], "Listen", "modified", "20"] {
            assert!(table.contains(text), "{table}");
        }
        let key = primary.split("SharedAccessKey=").nth(1).expect("a key");
        let key = key.split(';').next().expect("a part");
        assert!(!shown.to_string().contains(key) && !table.contains(key));
    }
    // The audit log records that keys were shown, but not that a rule was shown without keys.
    let log = server.log_with(&[
        "audit: show keys of bus authorization-rule",
        "name=\"own\" entity=\"jobs\"",
    ]);
    assert!(!log.contains("audit: show bus authorization-rule"), "{log}");
}

#[test]
fn a_key_that_is_brought_signs_tokens() {
    let dir = tempfile::tempdir().expect("a directory");
    let data_dir = dir.path().join("data");
    let config = dir.path().join("Config.json");
    std::fs::write(&config, CONFIG).expect("written");
    let key = "a2V5IG9mIG1vcmUgdGhhbiAxNiBieXRlcw==";
    let add = ["add", "mine", "--rights", "send", "--key-from-stdin"];

    let server = serve(&data_dir, Some(&config));
    let (code, printed, log) = rule_with(&data_dir, &[&add[..], &["--json"]].concat(), key);
    assert_eq!(code, 0, "{log}");
    let added: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(text(&added, "/keys/0/value"), key);
    assert_eq!(text(&added, "/keys/1/value"), key);
    let string = text(&added, "/keys/0/connection_string");
    assert!(may(string, &["send", "jobs", "x"]));
    assert!(!may(
        &string.replace(key, "b3RoZXI="),
        &["send", "jobs", "x"]
    ));
    // A rotated key is made, and the other one stays.
    done(&data_dir, &["rotate", "mine", "--key", "primary"]);
    let [primary, secondary] = connection_strings(&data_dir, &["mine"]);
    assert!(!primary.contains(key) && secondary.contains(key));
    assert!(may(&secondary, &["send", "jobs", "x"]) && may(&primary, &["send", "jobs", "x"]));
    let log = server.terminate();
    assert!(
        log.contains("audit: rotate primary key of bus authorization-rule"),
        "{log}"
    );
    assert!(!log.contains(key), "{log}");

    // On the data directory itself, and for a queue.
    let short = ["add", "short", "--rights", "send", "--key-from-stdin"];
    let (code, _, log) = rule_with(&data_dir, &short, "c2hvcnQ=");
    assert_eq!(code, 1);
    assert!(
        log.contains("16 to 64 bytes") && !log.contains("c2hvcnQ="),
        "{log}"
    );
    let of_queue = [&add[..], &["--entity", "Jobs"]].concat();
    assert_eq!(rule_with(&data_dir, &of_queue, key).0, 0);
    let _server = serve(&data_dir, None);
    let [string, _] = connection_strings(&data_dir, &["mine", "--entity", "jobs"]);
    assert!(string.contains(key), "{string}");
    assert!(may(&string, &["send", "jobs", "x"]));
}

#[test]
fn invalid_values_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = serve(dir.path(), None);
    let path = dir.path();
    refused(path, &["add", "r"], 2, "--rights");
    refused(
        path,
        &["add", "r", "--rights", "all"],
        2,
        "Send, Listen or Manage",
    );
    refused(path, &["add", "a b", "--rights", "send"], 1, "\"a b\"");
    let absent = ["add", "r", "--rights", "send", "--entity", "absent"];
    refused(
        path,
        &absent,
        1,
        "there is no queue \"absent\"; kew bus list shows",
    );
    let no_queue = ["list", "--entity", "jobs/$deadletterqueue"];
    refused(path, &no_queue, 1, "is not a valid queue name");
    let missing = "there is no rule \"absent\"; kew bus authorization-rule list shows them";
    for verb in ["keys", "show", "remove"] {
        refused(path, &[verb, "absent"], 1, missing);
    }
    refused(path, &["rotate", "absent", "--key", "primary"], 1, missing);
    refused(path, &["set", "absent", "--rights", "send"], 1, missing);
    refused(path, &["set", "absent"], 2, "--rights");
    refused(path, &["set", "r", "--rights", "some"], 2, "Manage");
    done(path, &["add", "r", "--rights", "send"]);
    let taken = "\"R\" exists already; kew bus authorization-rule show R shows it";
    refused(path, &["add", "R", "--rights", "send"], 1, taken);
    drop(server);
}
