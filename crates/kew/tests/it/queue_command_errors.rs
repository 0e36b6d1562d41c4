//! Errors of `kew queue`: command lines, connection strings, and services that are busy,
//! unreachable or something else.

use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpListener;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::client::{Done, Script, Shell, answer, command, connection_to, finish};

fn error(status: &str, code: &str, message: &str) -> String {
    let body =
        format!("<Error><Code>{code}</Code><Message>{message}\nRequestId:1</Message></Error>");
    answer(status, &format!("x-ms-error-code: {code}\r\n"), &body)
}

fn count(messages: u64) -> String {
    let header = format!("x-ms-approximate-messages-count: {messages}\r\n");
    answer("200 OK", &header, "")
}

const DONE: &str = "HTTP/1.1 204 No Content\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

#[test]
fn an_error_of_a_connection_string_names_the_part_and_no_secret() {
    for (text, named) in [
        (
            "AccountName=a1",
            "neither AccountKey nor SharedAccessSignature",
        ),
        (
            "AccountName=a1;AccountKey=c2Vjc!",
            "AccountKey that is not Base64",
        ),
        (
            "AccountKey=c2Vjcg==",
            "neither QueueEndpoint nor AccountName",
        ),
        ("AccountName=a1;c2Vjcg==", "part 2"),
        (
            "AccountName=a1;AccountKye=c2Vjcg==",
            "part 2, whose name is unknown: is it AccountKey?",
        ),
        (
            "QueueEndpoint=x;AccountName=a1;AccountKey=c2Vjcg==",
            "QueueEndpoint",
        ),
    ] {
        let by_flag =
            Shell::at("http://127.0.0.1:1/a1").run(&["list", "--connection-string", text]);
        by_flag.check_error(2, &["kew: the connection string", named]);
        let mut by_variable = command(text);
        by_variable.args(["queue", "list"]);
        let by_variable = finish(by_variable, b"");
        by_variable.check_error(2, &["KEW_CONNECTION_STRING", named]);
        for done in [by_flag, by_variable] {
            assert!(!done.err.contains("c2Vj"), "{done:?}");
        }
    }
}

#[test]
fn the_variable_of_the_sdks_comes_last() {
    let run = |own: &str, of_sdks: &str| {
        let mut command = command(own);
        command
            .env("AZURE_STORAGE_CONNECTION_STRING", of_sdks)
            .args(["queue", "list", "--retries", "0"]);
        finish(command, b"")
    };
    let (first, second) = (
        connection_to("http://127.0.0.1:1/first"),
        connection_to("http://127.0.0.1:1/second"),
    );
    run(&first, &second).check_error(3, &["/first"]);
    run("", &second).check_error(3, &["/second"]);
    run("", "nonsense").check_error(2, &["AZURE_STORAGE_CONNECTION_STRING"]);
}

#[test]
fn a_command_line_that_cannot_be_meant() {
    let shell = Shell::at("http://127.0.0.1:1/a1");
    for (arguments, named) in [
        (&["create", "Bad_Name"][..], "lower-case"),
        (&["create", "jobs", "--meta", "novalue"], "NAME=VALUE"),
        (
            &["receive", "jobs", "--visibility", "soon"],
            "for example 90s",
        ),
        (&["receive", "jobs", "--count", "0"], "0 is not in"),
        (&["peek", "jobs", "--count", "33"], "33 is not in"),
        (&["update", "jobs", "id", "receipt"], "--visibility"),
        (
            &["update", "jobs", "..", "receipt", "--visibility", "0"],
            "not an id",
        ),
        (&["send", "jobs", "text", "--lines"], "--lines"),
        (&["watch", "--interval", "1ms"], "100ms"),
        (&["list", "--timeout", "0"], "--timeout"),
        (&["list", "--ca-cert", "/no/such/file"], "/no/such/file"),
        (&["juggle"], "juggle"),
    ] {
        let done = shell.run(arguments);
        assert_eq!(done.code, 2, "{arguments:?}: {done:?}");
        assert!(done.err.contains(named), "{arguments:?}: {done:?}");
    }
}

#[test]
fn an_unreachable_service() {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("it is bound").port()
    };
    let shell = Shell::at(&format!("http://127.0.0.1:{port}/a1"));
    shell
        .run(&["list", "--retries", "1"])
        .check_error(3, &["kew: cannot reach http://127.0.0.1:", "refused"]);
    let done = shell.run(&["list", "--retries", "0", "--json"]);
    let told: Value = serde_json::from_str(&done.err).expect("an object");
    assert_eq!(told["error"]["exit_code"], json!(3));
    assert_eq!(told["error"]["code"], Value::Null);
    // The array on standard output is complete.
    assert_eq!(done.json(), json!([]));
}

#[test]
fn a_service_that_does_not_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let shell = Shell::at(&format!("http://{address}/a1"));
    shell
        .run(&["show", "jobs", "--timeout", "100ms", "--retries", "1"])
        .check_error(3, &["did not answer within"]);
}

#[test]
fn a_busy_service_is_asked_again() {
    let body = "<Error><Code>ServerBusy</Code><Message>Later.</Message></Error>";
    let busy = answer("503 Busy", "Retry-After: 1\r\n", body);
    let script = Script::start(&[busy.clone(), busy.clone(), DONE.to_owned()]);
    script.shell.ok(&["delete", "jobs", "--yes"]);
    let requests = script.requests();
    assert_eq!(requests.len(), 3);
    let is_delete = |it: &String| it.starts_with("DELETE /a1/jobs");
    assert!(requests.iter().all(is_delete), "{requests:?}");

    let script = Script::start(&[busy]);
    script
        .shell
        .run(&["delete", "jobs", "--yes", "--retries", "0"])
        .check_error(3, &["Later. (ServerBusy, status 503)"]);
}

#[test]
fn what_may_have_happened_is_not_sent_again() {
    let failed = error("500 Failed", "InternalError", "Something broke.");
    for reply in [String::new(), failed] {
        for arguments in [
            &["send", "jobs", "hello"][..],
            &["receive", "jobs"],
            &["delete-message", "jobs", "id", "receipt"],
        ] {
            let script = Script::start(std::slice::from_ref(&reply));
            let done = script.shell.run(arguments);
            done.check_error(3, &["the outcome is unknown"]);
            assert_eq!(script.requests().len(), 1, "{arguments:?}");
        }
    }
    // A second clear would delete messages that have come meanwhile.
    let script = Script::start(&[count(3), String::new()]);
    let done = script.shell.run(&["purge", "jobs", "--yes"]);
    done.check_error(3, &["the outcome is unknown"]);
    assert_eq!(script.requests().len(), 2);
    // A look changes nothing.
    let script = Script::start(&[
        String::new(),
        count(3),
        error("404 No", "QueueNotFound", "No."),
    ]);
    let done = script.shell.run(&["show", "jobs"]);
    done.check_error(1, &["No. (QueueNotFound, status 404)"]);
    assert_eq!(script.requests().len(), 3);
}

/// A proxy for one connection: it opens a tunnel to a service with one answer, or refuses.
fn proxied(opening: &'static str, variables: &[(&str, &str)]) -> (Done, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let mut command = command(&connection_to("http://queue.example:81/a1"));
    command
        .env("http_proxy", format!("http://me:secret@{address}"))
        .envs(variables.iter().copied())
        .args(["queue", "delete", "jobs", "--yes", "--retries", "0"]);
    let proxy = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client");
        let mut reader = BufReader::new(&stream);
        let asked = head(&mut reader);
        (&stream).write_all(opening.as_bytes()).expect("it is read");
        if opening.contains("200") {
            let request = head(&mut reader);
            assert!(request.starts_with("DELETE /a1/jobs"), "{request}");
            (&stream).write_all(DONE.as_bytes()).expect("it is read");
        }
        asked
    });
    let done = finish(command, b"");
    (done, proxy.join().expect("it was asked"))
}

/// The head of a request.
fn head(reader: &mut impl BufRead) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let read = reader.read_line(&mut head).expect("a line");
        assert_ne!(read, 0, "{head}");
    }
    head
}

#[test]
fn a_proxy_of_the_environment_is_used() {
    let (done, asked) = proxied("HTTP/1.1 200 Connected\r\n\r\n", &[]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(
        asked.starts_with("CONNECT queue.example:81 HTTP/1.1\r\n"),
        "{asked}"
    );
    // That of me:secret, in Base64.
    let credentials = "proxy-authorization: Basic bWU6c2VjcmV0";
    assert!(asked.contains(credentials), "{asked}");

    let (done, _) = proxied(
        "HTTP/1.1 407 Authenticate\r\nContent-Length: 0\r\n\r\n",
        &[],
    );
    done.check_error(3, &["the proxy 127.0.0.1:", "407"]);
    assert!(!done.err.contains("secret"), "{done:?}");
}

#[test]
fn a_proxy_that_cannot_be_used_is_refused() {
    let mut command = command(&connection_to("https://queue.example/a1"));
    command
        .env("https_proxy", "socks5://me:secret@127.0.0.1:1")
        .args(["queue", "list"]);
    let done = finish(command, b"");
    done.check_error(1, &["socks5", "use http://HOST:PORT"]);
    assert!(!done.err.contains("secret"), "{done:?}");
}

#[test]
fn a_clear_that_runs_out_of_time_is_repeated() {
    let late = error("500 Late", "OperationTimedOut", "Too much.");
    let script = Script::start(&[
        count(900),
        late.clone(),
        count(400),
        late,
        count(100),
        DONE.to_owned(),
    ]);
    let cleared = script.shell.json(&["purge", "jobs", "--retries", "0"]);
    assert_eq!(cleared["messages_before"], 900);
    assert_eq!(script.requests().len(), 6);
}

#[test]
fn lists_continue_over_pages_and_never_in_circles() {
    let page = |name: &str, next: &str| {
        let body = format!(
            "\u{FEFF}<?xml version=\"1.0\"?><EnumerationResults><Queues><Queue><Name>{name}</Name></Queue></Queues><NextMarker>{next}</NextMarker></EnumerationResults>"
        );
        answer("200 OK", "Content-Type: application/xml\r\n", &body)
    };
    let script = Script::start(&[page("one", "/a1/b c"), page("two", "")]);
    assert_eq!(script.shell.ok(&["list"]), "NAME\none\ntwo\n");
    let requests = script.requests();
    assert!(requests[1].contains("marker=%2Fa1%2Fb%20c"), "{requests:?}");

    let script = Script::start(&[page("one", "x"), page("two", "x")]);
    script
        .shell
        .run(&["list"])
        .check_error(1, &["does not end"]);
}

#[test]
fn text_from_a_server_reaches_the_terminal_escaped() {
    let script = Script::start(&[error("400 Bad", "Odd", "\u{9b}31mred\u{202e}")]);
    let done = script.shell.run(&["delete", "jobs", "--yes"]);
    done.check_error(1, &["\\u{9b}31mred\\u{202e} (Odd, status 400)"]);
}

#[test]
fn another_protocol_is_reported_as_such() {
    for (status, body) in [
        ("200 OK", "<html>hello</html>"),
        ("200 OK", "{}"),
        ("404 Not Found", "nothing here"),
        ("302 Found", ""),
    ] {
        let script = Script::start(&[answer(status, "Location: http://127.0.0.1:1/\r\n", body)]);
        script
            .shell
            .run(&["peek", "jobs"])
            .check_error(1, &["not Queue Storage"]);
        assert_eq!(script.requests().len(), 1);
    }
}

#[test]
fn completions_are_scripts_and_manuals_are_pages() {
    let kew = |arguments: &[&str]| {
        let mut command = command("");
        command.args(arguments);
        finish(command, b"")
    };
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let done = kew(&["completions", shell]);
        assert_eq!(done.code, 0, "{done:?}");
        assert!(done.text().contains("delete-message"), "{shell}");
    }
    let script = kew(&["completions", "bash"]);
    let mut bash = std::process::Command::new("bash");
    bash.arg("-n")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let checked = finish(bash, &script.out);
    assert_eq!((checked.code, checked.err.as_str()), (0, ""));

    let place = tempfile::tempdir().expect("a temporary directory");
    let path = place.path().to_str().expect("UTF-8");
    assert_eq!(kew(&["man", path]).code, 0);
    let page = std::fs::read_to_string(place.path().join("kew-queue-send.1"));
    assert!(page.expect("a page").contains("lines"));
    assert_eq!(kew(&["man", "/no/such/directory"]).code, 1);
}
