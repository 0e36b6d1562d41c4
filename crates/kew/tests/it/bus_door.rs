//! The protocols on a listener of Service Bus, with TLS and without.

use std::io::{Read, Write};
use std::net::SocketAddr;

use crate::server::{Server, run};
use crate::tls::{connect, dial, start};

const BUS: [&str; 2] = ["--bus-listen", "127.0.0.1:0"];
/// The header of the SASL layer, and that of AMQP itself.
const SASL: &[u8; 8] = b"AMQP\x03\x01\0\0";
const AMQP: &[u8; 8] = b"AMQP\0\x01\0\0";
/// An open with only the name of the container, which is empty.
const OPEN: &[u8; 16] = b"\0\0\0\x10\x02\0\0\0\0\x53\x10\xc0\x03\x01\xa1\0";
const HEALTH: &str = "GET /health HTTP/1.1\r\nhost: kew\r\nconnection: close\r\n\r\n";

fn address(server: &Server) -> SocketAddr {
    let printed = server.facts("KEW_BUS_LISTEN").first();
    printed.expect("it is served").parse().expect("an address")
}

fn check_amqp(mut stream: impl Read + Write) {
    stream.write_all(SASL).expect("it is read");
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, SASL);
}

/// The answer to bytes that make the server end the connection.
fn ask(mut stream: impl Read + Write, request: &[u8]) -> String {
    stream.write_all(request).expect("it is read");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

fn check_http(stream: impl Read + Write) {
    let answer = ask(stream, HEALTH.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.ends_with("Service is healthy.\"}"), "{answer}");
}

#[test]
fn one_port_speaks_amqp_and_http_with_tls_and_without() {
    let (place, server) = start(&BUS);
    let address = address(&server);
    check_amqp(dial(address));
    check_http(dial(address));
    check_amqp(connect(address, place.path()));
    check_http(connect(address, place.path()));
    server.terminate();
}

#[test]
fn with_tls_only_plain_clients_get_an_error_in_their_protocol() {
    let (place, server) = start(&[BUS[0], BUS[1], "--tls-only"]);
    let address = address(&server);
    check_amqp(connect(address, place.path()));
    check_http(connect(address, place.path()));
    let mut stream = dial(address);
    stream
        .write_all(&[&AMQP[..], OPEN].concat())
        .expect("it is read");
    let mut answer = Vec::new();
    // Up to the close, which the client would answer.
    while !answer.ends_with(b"(amqps).") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a close");
        answer.push(byte[0]);
    }
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("amqp:unauthorized-access"), "{answer}");
    let answer = ask(dial(address), HEALTH.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(answer.contains("use https"), "{answer}");
    server.terminate();
}

#[test]
fn amqp_is_spoken_in_a_web_socket_over_tls() {
    let (place, server) = start(&BUS);
    let mut stream = connect(address(&server), place.path());
    let request = "GET /$servicebus/websocket/ HTTP/1.1\r\nhost: kew\r\nconnection: Upgrade\r\n\
                   upgrade: websocket\r\nsec-websocket-version: 13\r\n\
                   sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                   sec-websocket-protocol: AMQPWSB10\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it is read");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an answer");
        answer.push(byte[0]);
    }
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    // With a mask of zeros, which changes nothing.
    let message = [&b"\x82\x88\0\0\0\0"[..], SASL].concat();
    stream.write_all(&message).expect("it is read");
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer, *[&b"\x82\x08"[..], SASL].concat());
    drop(stream);
    server.terminate();
}

#[test]
fn queues_and_topics_are_exported_as_they_were_imported() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let config = place.path().join("Config.json");
    let text = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
        {"Name": "Orders", "Properties": {"MaxDeliveryCount": 7, "ForwardTo": "later"}},
        {"Name": "later", /* as it comes */ },
    ], "Topics": [{"Name": "Events", "Subscriptions": [{"Name": "All"}, {"Name": "Red", "Rules": [
        {"Name": "red", "Properties": {"FilterType": "Correlation", "CorrelationFilter": {"Label": "red"}}},
    ]}]}]}]}}"#;
    std::fs::write(&config, text).expect("a file");
    let data = place.path().join("data");
    let server = Server::start_with(|command| {
        command.arg("serve").arg("--data-dir").arg(&data);
        command.args(["--queue-listen", "127.0.0.1:0", "--bus-listen", "none"]);
        command.arg("--import").arg(&config);
    });
    assert!(server.facts("KEW_BUS_LISTEN").is_empty());
    let export = |more: &[&str]| {
        let (ended, printed) = run(|command| {
            command.args(["bus", "export", "--data-dir"]).arg(&data);
            command.args(more);
        });
        assert!(ended.status.success(), "{printed}{}", ended.log);
        printed
    };
    let printed = export(&[]);
    assert!(printed.contains("\"MaxDeliveryCount\": 7"), "{printed}");
    for named in [
        "\"Name\": \"Orders\"",
        "\"Name\": \"Events\"",
        "\"Label\": \"red\"",
    ] {
        assert!(printed.contains(named), "{printed}");
    }
    server.terminate();
    // It works without a server too, and the written file can be imported.
    let file = place.path().join("exported.json");
    let path = file.to_str().expect("a path of text");
    export(&["--output", path]);
    let written = std::fs::read_to_string(&file).expect("a file");
    assert_eq!(written.trim(), printed.trim());
    let server = Server::start_with(|command| {
        command.args(["serve", "--ephemeral", "--queue-listen", "127.0.0.1:0"]);
        command.arg("--import").arg(&file);
    });
    server.log_with(&["--import: 5 Service Bus queues, topics and subscriptions"]);
    server.terminate();
}
