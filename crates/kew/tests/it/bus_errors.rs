//! What `kew bus` says when a server cannot be reached any more, and how it gets there.

use serde_json::{Value, json};

use crate::client::{Done, Script, answer, command, finish};

fn kew_at(address: &str, more: &str, variables: &[(&str, &str)], arguments: &[&str]) -> Done {
    let connection = format!(
        "Endpoint=sb://{address};SharedAccessKeyName=r;SharedAccessKey=k;UseDevelopmentEmulator=true;{more}"
    );
    let mut command = command("");
    command
        .env("KEW_BUS_CONNECTION_STRING", connection)
        .envs(variables.iter().copied())
        .args(arguments);
    finish(command, b"")
}

#[test]
fn management_and_web_sockets_go_through_the_proxy_of_the_environment() {
    let list = &["bus", "list", "--retries", "0"][..];
    let send = &["bus", "send", "q", "x", "--retries", "0", "--timeout", "2s"][..];
    for (more, arguments) in [("", list), ("TransportType=AmqpWebSockets;", send)] {
        let proxy = Script::start(&[answer("407 Authenticate", "", "")]);
        let address = format!("http://{}", proxy.address);
        let variables = [("http_proxy", &*address)];
        let done = kew_at("bus.example:81", more, &variables, arguments);
        done.check_error(3, &["proxy"]);
        assert_eq!(proxy.requests(), ["CONNECT bus.example:81 HTTP/1.1"]);
    }
}

#[test]
fn a_job_that_cannot_be_followed_is_named() {
    let job = json!({
        "id": "j1", "act": "purge", "entity": "q", "dry_run": false, "looked_at": 0, "matched": 0, "done": 0,
        "skipped": {}, "session_states": 0, "state": "running",
    });
    let began = answer("202 Accepted", "", &job.to_string());
    let script = Script::start(&[began, String::new()]);
    let purge = ["bus", "purge", "q", "--yes", "--retries", "0", "--json"];
    let done = kew_at(&script.address.to_string(), "", &[], &purge);
    let error: Value = serde_json::from_str(&done.err).expect("one line of JSON");
    let message = error["error"]["message"].as_str().expect("a text");
    assert_eq!(done.code, 3, "{message}");
    assert!(
        message.contains("job j1 goes on") && message.contains("kew bus cancel j1"),
        "{message}"
    );
    assert_eq!(script.requests().len(), 2);
}
