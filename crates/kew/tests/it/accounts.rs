//! Accounts: added, used, changed and removed while the server runs and while it does not.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use queue_load::{Client, Endpoint, Error, PutOptions};
use serde_json::Value;

use crate::server::{PATIENCE, Server};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        tokio::time::timeout(2 * PATIENCE, future)
            .await
            .expect("within the time limit")
    })
}

/// Exit code, standard output and standard error of `kew account`.
fn account(data_dir: &Path, arguments: &[&str], input: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kew"));
    command.env_remove("KEW_DATA_DIR");
    command.env_remove("KEW_ADMIN_SOCKET");
    command.arg("account").args(arguments);
    command.arg("--data-dir").arg(data_dir);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("kew was built with this test");
    let mut stdin = child.stdin.take().expect("piped");
    // If it reads no key, it may have ended already.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("our own child");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (
        output.status.code().expect("it exits"),
        text(output.stdout),
        text(output.stderr),
    )
}

fn done(data_dir: &Path, arguments: &[&str]) -> String {
    let (code, printed, log) = account(data_dir, arguments, "");
    assert_eq!(code, 0, "{arguments:?}: {printed}{log}");
    printed
}

fn refused(data_dir: &Path, arguments: &[&str], code: i32, named: &str) {
    let (ended, printed, log) = account(data_dir, arguments, "");
    assert_eq!(ended, code, "{arguments:?}: {printed}{log}");
    assert!(
        log.contains(named),
        "{arguments:?} does not name {named}: {log}"
    );
}

/// The text after each `… connection string:`, primary first.
fn connection_strings(printed: &str) -> Vec<String> {
    let lines = printed.lines();
    lines
        .filter_map(|line| Some(line.split_once("connection string: ")?.1.to_owned()))
        .collect()
}

fn key_of(connection_string: &str) -> &str {
    let (_, rest) = connection_string.split_once("AccountKey=").expect("a key");
    rest.split(';').next().expect("there is a first part")
}

/// A client of this server with the key of a connection string.
fn client(server: &Server, connection_string: &str) -> Client {
    let endpoint = Endpoint::from_connection_string(connection_string).expect("usable");
    let endpoint = endpoint.through(server.addresses()[0]);
    Client::new(Arc::new(endpoint))
}

fn status(result: Result<impl Sized, Error>) -> (u16, String) {
    match result {
        Ok(_) => (200, String::new()),
        Err(error) => {
            let (status, code) = error.refusal().unwrap_or_else(|| panic!("{error}"));
            (status, code.to_owned())
        }
    }
}

#[test]
fn an_account_lives_through_rotation_crash_and_restart() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(place.path());
    let added = connection_strings(&done(place.path(), &["add", "orders"]));
    let [primary, secondary] = &added[..] else {
        panic!("{added:?}");
    };
    let mut all_keys = vec![key_of(primary).to_owned(), key_of(secondary).to_owned()];
    assert_ne!(all_keys[0], all_keys[1]);
    block_on(async {
        // The printed text can be used unchanged.
        let endpoint = Endpoint::from_connection_string(primary).expect("usable");
        let mut first = Client::new(Arc::new(endpoint));
        first.create_queue("jobs", &[]).await.expect("created");
        let mut second = client(&server, secondary);
        let put = second.put("jobs", "kept", PutOptions::default()).await;
        put.expect("either key signs");
    });

    let rotated = done(place.path(), &["rotate", "orders", "--key", "primary"]);
    let rotated = connection_strings(&rotated);
    assert_eq!(rotated.len(), 1);
    all_keys.push(key_of(&rotated[0]).to_owned());
    let wrong = (403, "AuthenticationFailed".to_owned());
    block_on(async {
        let old = client(&server, primary).peek("jobs", 1).await;
        assert_eq!(status(old), wrong);
        let other = client(&server, secondary).peek("jobs", 1).await;
        assert_eq!(other.expect("still good").len(), 1);
        let new = client(&server, &rotated[0]).peek("jobs", 1).await;
        assert_eq!(new.expect("good at once").len(), 1);
    });

    server.log_with(&["audit: rotate primary key of account"]);
    server.kill();
    assert!(
        place.path().join("admin.sock").exists(),
        "left by the crash"
    );
    let server = Server::start(place.path());
    block_on(async {
        let old = client(&server, primary).peek("jobs", 1).await;
        assert_eq!(status(old), wrong);
        let new = client(&server, &rotated[0]).peek("jobs", 1).await;
        assert_eq!(new.expect("still there")[0].text, "kept");
    });

    // Keys can be shown again, and the audit log records it. Nothing else shows them.
    let shown = connection_strings(&done(place.path(), &["keys", "orders"]));
    let keys: Vec<_> = shown.iter().map(|string| key_of(string)).collect();
    assert_eq!(keys, [key_of(&rotated[0]), key_of(secondary)]);
    let as_json = done(place.path(), &["keys", "orders", "--json"]);
    let as_json: Value = serde_json::from_str(&as_json).expect("JSON");
    assert_eq!(as_json["account"]["name"], "orders");
    assert_eq!(as_json["keys"][1]["value"], keys[1]);
    let plain = done(place.path(), &["show", "orders"]);
    let plain = plain + &done(place.path(), &["show", "orders", "--json"]);
    assert!(plain.contains("orders"), "{plain}");
    server.log_with(&["audit: show keys of account", "name=\"orders\""]);

    // No key is in the server's log, nor in an error of the command.
    refused(place.path(), &["add", "orders"], 1, "exists already");
    refused(place.path(), &["remove", "orders"], 1, "--with-queues");
    let listed = done(place.path(), &["list"]);
    done(place.path(), &["remove", "orders", "--with-queues"]);
    block_on(async {
        let gone = client(&server, &rotated[0]).peek("jobs", 1).await;
        assert_eq!(status(gone), (404, "ResourceNotFound".to_owned()));
    });
    let log = server.terminate();
    assert!(
        log.contains("audit: remove account with its queues"),
        "{log}"
    );
    assert!(!log.contains("audit: show account"), "{log}");
    for key in &all_keys {
        assert!(!log.contains(&**key) && !listed.contains(&**key) && !plain.contains(&**key));
    }
    assert!(!place.path().join("admin.sock").exists());
}

#[test]
fn a_disabled_account_is_refused_and_a_quota_holds() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(place.path());
    let path = place.path();
    let added = [
        "add",
        "small",
        "--quota-queues",
        "1",
        "--quota-bytes",
        "1KiB",
    ];
    let strings = connection_strings(&done(path, &added));
    let full = (403, "AccountQuotaExceeded".to_owned());
    block_on(async {
        let mut client = client(&server, &strings[0]);
        client.create_queue("one", &[]).await.expect("one may be");
        assert_eq!(status(client.create_queue("two", &[]).await), full);
        let body = "x".repeat(500);
        client
            .put("one", &body, PutOptions::default())
            .await
            .expect("fits");
        let second = client.put("one", &body, PutOptions::default()).await;
        assert_eq!(status(second), full);
        done(path, &["set", "small", "--quota-bytes", "none"]);
        client
            .put("one", &body, PutOptions::default())
            .await
            .expect("no limit");

        // Over a connection that is already open.
        done(path, &["set", "small", "--disable"]);
        let disabled = client.peek("one", 1).await;
        assert_eq!(status(disabled), (403, "AccountIsDisabled".to_owned()));
        done(path, &["set", "small", "--enable"]);
        client.peek("one", 1).await.expect("enabled again");
    });

    // What was set survives a crash.
    let set = [
        "set",
        "small",
        "--quota-queues",
        "none",
        "--quota-bytes",
        "1GiB",
        "--disable",
    ];
    done(path, &set);
    server.kill();
    let server = Server::start(path);
    let shown = done(path, &["show", "small", "--json"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let expected = serde_json::json!({
        "account": {"name": "small", "disabled": true, "quota_queues": null, "quota_bytes": 1 << 30},
    });
    assert_eq!(shown, expected);
    block_on(async {
        let disabled = client(&server, &strings[1]).peek("one", 1).await;
        assert_eq!(status(disabled), (403, "AccountIsDisabled".to_owned()));
    });
}

/// The status, the head and the body of an answer on the administration socket.
fn ask(data_dir: &Path, method: &str, path: &str, body: &str) -> (u16, String, Value) {
    let stream = UnixStream::connect(data_dir.join("admin.sock"));
    let mut stream = stream.expect("it is open");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: kew\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
    let body = serde_json::from_str(body).expect("JSON");
    (status.expect("a status"), head.to_owned(), body)
}

#[test]
fn both_kinds_have_the_same_paths_on_the_socket() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(place.path());
    let ask = |method: &str, path: &str, body: &str| ask(place.path(), method, path, body);
    for (all, kind, new, change) in [
        (
            "/v1/accounts",
            "account",
            "{\"name\": \"one\"}",
            "{\"disabled\": true}",
        ),
        (
            "/v1/bus/rules",
            "rule",
            "{\"name\": \"one\", \"rights\": [\"send\"]}",
            "{\"rights\": [\"listen\"]}",
        ),
    ] {
        let (status, _, added) = ask("POST", all, new);
        assert_eq!(
            (status, &added[kind]["name"]),
            (201, &"one".into()),
            "{added}"
        );
        let one = format!("{all}/one");
        let (status, _, shown) = ask("GET", &one, "");
        assert_eq!(
            (status, &shown[kind]["name"]),
            (200, &"one".into()),
            "{shown}"
        );
        assert!(shown.get("keys").is_none(), "{shown}");
        let (status, _, keys) = ask("GET", &format!("{one}/keys"), "");
        assert_eq!(status, 200, "{keys}");
        assert_eq!(keys, added);
        // The older name of a path, too.
        for verb in ["rotate", "regenerate"] {
            let path = format!("{one}/{verb}");
            let (status, _, rotated) = ask("POST", &path, "{\"key\": \"secondary\"}");
            assert_eq!(status, 200, "{rotated}");
            assert_eq!(rotated["keys"].as_array().expect("keys").len(), 1);
            assert_ne!(rotated["keys"][0]["value"], keys["keys"][1]["value"]);
        }
        let (status, _, changed) = ask("PATCH", &one, change);
        assert_eq!(status, 200, "{changed}");
        let (status, _, refused) = ask("POST", all, new);
        assert_eq!((status, &refused["error"]), (409, &"exists".into()));
        let (status, head, refused) = ask("PUT", &one, "");
        assert_eq!((status, &refused["error"]), (405, &"method".into()));
        assert!(head.contains("allow: DELETE, GET, PATCH"), "{head}");
        let (status, _, refused) = ask("GET", &format!("{one}/other"), "");
        assert_eq!((status, &refused["error"]), (404, &"no-such-path".into()));
        let (status, _, removed) = ask("DELETE", &one, "");
        assert_eq!((status, &removed["removed"]), (200, &"one".into()));
        for (method, path) in [
            ("GET", &one),
            ("DELETE", &one),
            ("GET", &format!("{one}/keys")),
        ] {
            let (status, _, refused) = ask(method, path, "");
            assert_eq!((status, &refused["error"]), (404, &"not-found".into()));
        }
    }
    let (status, _, refused) = ask("POST", "/v1/accounts", "{\"name\": 1}");
    assert_eq!((status, &refused["error"]), (400, &"invalid".into()));
    let (status, _, refused) = ask("GET", "/v1/bus/rules?queue=jobs", "");
    assert_eq!((status, &refused["error"]), (400, &"invalid".into()));
    server.terminate();
}

#[test]
fn a_data_directory_that_no_server_uses_is_changed_itself() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let path = place.path().join("data");
    refused(&path, &["list"], 1, "no data directory");
    assert!(!path.exists(), "nothing was made");
    let server = Server::start(&path);
    drop(server);
    let key = "a2V5IG9mIG1vcmUgdGhhbiAxNiBieXRlcw==";
    let arguments = ["add", "offline", "--key-from-stdin", "--json"];
    let (code, printed, log) = account(&path, &arguments, &format!("{key}\n"));
    assert_eq!(code, 0, "{log}");
    assert!(printed.contains(key), "{printed}");
    let (code, _, log) = account(&path, &["add", "short", "--key-from-stdin"], "c2hvcnQ=");
    assert_eq!(code, 1);
    assert!(!log.contains("c2hvcnQ="), "{log}");
    let missing = "there is no account \"nobody\"; kew account list shows them";
    for verb in ["keys", "show", "remove"] {
        refused(&path, &[verb, "nobody"], 1, missing);
    }
    refused(&path, &["set", "nobody", "--disable"], 1, missing);
    refused(&path, &["rotate", "nobody", "--key", "primary"], 1, missing);
    refused(&path, &["add", "Bad-Name"], 1, "Bad-Name");
    refused(&path, &["add", "devstoreaccount1"], 1, "its key is public");
    refused(&path, &["keys", "devstoreaccount1"], 1, "its key is public");
    refused(&path, &["set", "offline"], 2, "--disable");
    refused(&path, &["rotate", "offline", "--key", "third"], 2, "third");

    let server = Server::start(&path);
    let string = format!(
        "DefaultEndpointsProtocol=http;AccountName=offline;AccountKey={key};\
         QueueEndpoint=http://127.0.0.1:10001/offline;"
    );
    block_on(async {
        let created = client(&server, &string).create_queue("jobs", &[]).await;
        created.expect("an account of the command line");
    });
}

#[test]
fn the_public_key_stays_on_loopback() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let serve = |more: &[&str]| {
        Server::start_with(|command| {
            command.arg("serve").arg("--data-dir").arg(place.path());
            command.args(more);
        })
    };
    let server = serve(&["--queue-listen", "0.0.0.0:0", "--allow-plain-http"]);
    assert!(server.facts("KEW_QUEUE_CONNECTION_STRING").is_empty());
    let at = |server: &Server| ([127, 0, 0, 1], server.addresses()[0].port()).into();
    let missing = (404, "ResourceNotFound".to_owned());
    block_on(async {
        let mut public = Client::new(Endpoint::development(at(&server)).into());
        assert_eq!(status(public.create_queue("jobs", &[]).await), missing);
        let strings = connection_strings(&done(place.path(), &["add", "named"]));
        let endpoint = Endpoint::from_connection_string(&strings[0]).expect("usable");
        let mut named = Client::new(endpoint.through(at(&server)).into());
        named.create_queue("jobs", &[]).await.expect("served");
    });
    let log = server.terminate();
    assert!(log.contains("no account can be reached"), "{log}");
    assert!(
        log.contains("well-known account there with --allow-public-key"),
        "{log}"
    );
    // And the log explains a refusal.
    let refused = "a request for the well-known account was refused: the public key is not accepted by \
        this listener: use a key of your own, or start the server with --allow-public-key";
    assert!(log.contains(refused), "{log}");

    let allowed = serve(&[
        "--queue-listen",
        "0.0.0.0:0",
        "--allow-plain-http",
        "--allow-public-key",
    ]);
    let status_at = |server: &Server| {
        let mut public = Client::new(Endpoint::development(at(server)).into());
        block_on(async { status(public.list_queues("", "", 1).await) })
    };
    assert_eq!(status_at(&allowed).0, 200);
    drop(allowed);
    let nowhere = serve(&["--queue-listen", "127.0.0.1:0", "--no-public-key"]);
    assert_eq!(status_at(&nowhere), missing);
}

#[test]
fn only_the_owner_may_open_the_socket() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let socket = place.path().join("elsewhere.sock");
    let _server = Server::start_with(|command| {
        command.args(["serve", "--ephemeral", "--queue-listen", "127.0.0.1:0"]);
        command.arg("--admin-socket").arg(&socket);
    });
    let mode = std::fs::metadata(&socket).expect("open").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kew"));
    command.env_remove("KEW_DATA_DIR");
    command.args(["account", "add", "kept", "--json", "--admin-socket"]);
    let output = command.arg(&socket).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(printed.contains("connection_string"), "{printed}");
}
