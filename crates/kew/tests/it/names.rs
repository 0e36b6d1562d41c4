//! The names of a server, and the addresses that it announces.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use kew_bus_api::{WELL_KNOWN_KEY, WELL_KNOWN_RULE, sign_token};

use crate::server::Server;

fn serve(more: &[&str]) -> Server {
    Server::start_with(|command| {
        command.args(["serve", "--ephemeral", "--queue-listen", "127.0.0.1:0"]);
        command.args(more);
    })
}

/// The address of a service that was announced under a name.
fn address(server: &Server, fact: &str) -> SocketAddr {
    let printed = server.facts(fact).first();
    printed.expect("it is served").parse().expect("an address")
}

/// The answer to a request with the public key and this host.
fn ask(address: SocketAddr, target: &str, host: &str) -> String {
    let token = sign_token(
        "sb://localhost/",
        WELL_KNOWN_RULE,
        WELL_KNOWN_KEY,
        u64::MAX / 2,
    );
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {token}\r\nConnection: close\r\n\r\n"
    );
    let mut stream = TcpStream::connect(address).expect("a listener");
    let patience = Some(Duration::from_secs(60));
    stream.set_read_timeout(patience).expect("a time limit");
    stream.write_all(request.as_bytes()).expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn check_status(answer: &str, status: u16) {
    assert!(
        answer.starts_with(&format!("HTTP/1.1 {status} ")),
        "{answer}"
    );
}

#[test]
fn the_public_key_works_only_under_names_of_the_server() {
    let server = serve(&[
        "--bus-listen",
        "127.0.0.1:0",
        "--metrics-listen",
        "127.0.0.1:0",
        "--server-name",
        "kew.example",
    ]);
    let bus = address(&server, "KEW_BUS_LISTEN");
    let metrics = address(&server, "KEW_METRICS_LISTEN");
    for host in ["localhost", "kew.example:5300", &bus.to_string()] {
        check_status(&ask(bus, "/$Resources/Queues", host), 200);
        check_status(&ask(metrics, "/metrics", host), 200);
    }
    let refused = ask(bus, "/$Resources/Queues", "evil.example:5300");
    check_status(&refused, 401);
    assert!(refused.contains("--server-name"), "{refused}");
    check_status(&ask(metrics, "/metrics", "evil.example"), 403);
    let log = server.terminate();
    // The error tells people which name was wrong.
    let says = ["evil.example:5300", "--server-name"];
    assert!(says.iter().all(|text| log.contains(text)), "{log}");
}

#[test]
fn the_log_names_every_listener_as_it_is() {
    let server = Server::start_with(|command| {
        command.args(["serve", "--ephemeral", "--allow-plain-http"]);
        command.args([
            "--queue-listen",
            "0.0.0.0:0",
            "--queue-listen",
            "127.0.0.1:0",
        ]);
        command.args(["--bus-listen", "0.0.0.0:0", "--bus-listen", "127.0.0.1:0"]);
    });
    let queue = server.facts("KEW_QUEUE_LISTEN").join(", ");
    let bus = server.facts("KEW_BUS_LISTEN").join(", ");
    let through = SocketAddr::from(([127, 0, 0, 1], address(&server, "KEW_BUS_LISTEN").port()));
    check_status(&ask(through, "/$Resources/Queues", "localhost"), 401);
    let log = server.terminate();
    for says in [
        format!("ready: Queue Storage on {queue}, messages in"),
        format!("ready: Service Bus on {bus}\n"),
        "public key there with --allow-public-key".to_owned(),
        "a Service Bus client was refused: the public key is not accepted by this listener"
            .to_owned(),
    ] {
        assert!(log.contains(&says), "{says}: {log}");
    }
}
