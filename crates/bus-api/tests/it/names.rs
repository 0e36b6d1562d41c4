//! With the public key: which names of the server are accepted, and from which pages.

use std::net::Ipv4Addr;

use kew_amqp::codec::Text;
use kew_amqp::{Config, Event};
use kew_bus_api::{AuthorizationRule, Rights, WELL_KNOWN_KEY, WELL_KNOWN_RULE};

use crate::client::{Client, Server, token, token_by};
use crate::rest::{Answer, exchange};

const SETTING: &str = "--server-name";

/// A request for the queues with a token for everything, and these headers.
async fn list(server: &Server, token: &str, headers: &str) -> Answer {
    let request = format!(
        "GET /$Resources/Queues HTTP/1.1\r\n{headers}Authorization: {token}\r\n\
         Connection: close\r\n\r\n"
    );
    exchange(server, &request).await
}

fn public() -> String {
    token("sb://localhost/", WELL_KNOWN_KEY, 100)
}

/// A token by a rule of the server's own.
async fn own(server: &Server) -> String {
    let rule = AuthorizationRule::generate("own", Rights::ALL, 1).unwrap();
    server.add_rule(None, rule.clone()).await.unwrap();
    token_by("own", "sb://localhost/", &rule.primary_key, u64::MAX / 2)
}

#[tokio::test]
async fn a_name_that_points_here_is_refused_with_the_public_key() {
    let server = Server::start().await;
    let own = own(&server).await;
    for headers in [
        "Host: evil.example:5300\r\n",
        // A page with the same name as the request, as a browser sees it.
        "Host: evil.example:5300\r\nOrigin: http://evil.example:5300\r\n\
         Sec-Fetch-Site: same-origin\r\n",
        "Host: localhost.evil.example\r\n",
        "Host: 10.0.0.5\r\n",
        "Host: sbemulatorns\r\n",
    ] {
        let refused = list(&server, &public(), headers).await;
        assert_eq!(refused.status, 401, "{refused:?}");
        assert!(refused.body.contains(SETTING), "{refused:?}");
        assert!(refused.body.contains("(this request: '"), "{refused:?}");
        let answer = list(&server, &own, headers).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    for host in [
        "localhost",
        "127.0.0.1:5300",
        "[::1]:5300",
        "ns.example",
        "192.0.2.1:1",
    ] {
        let answer = list(&server, &public(), &format!("Host: {host}\r\n")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

#[tokio::test]
async fn the_host_of_an_absolute_target_counts_too() {
    let server = Server::start().await;
    for (target, host, status) in [
        ("http://evil.example", "localhost", 401),
        ("http://localhost", "evil.example", 401),
        ("http://localhost", "localhost", 200),
    ] {
        let request = format!(
            "GET {target}/$Resources/Queues HTTP/1.1\r\nHost: {host}\r\n\
             Authorization: {}\r\nConnection: close\r\n\r\n",
            public()
        );
        let answer = exchange(&server, &request).await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
}

#[tokio::test]
async fn a_page_of_another_origin_is_refused_with_the_reason() {
    let server = Server::start().await;
    let own = own(&server).await;
    for headers in [
        "Host: localhost\r\nOrigin: http://evil.example\r\n",
        "Host: localhost\r\nOrigin: null\r\n",
        "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n",
    ] {
        let refused = list(&server, &public(), headers).await;
        assert_eq!(refused.status, 401, "{refused:?}");
        assert!(refused.body.contains("header Origin"), "{refused:?}");
        assert_eq!(list(&server, &own, headers).await.status, 200);
    }
    for page in ["http://localhost:3000", "http://ns.example:5300"] {
        let headers = format!("Host: ns.example:5300\r\nOrigin: {page}\r\n");
        assert_eq!(
            list(&server, &public(), &headers).await.status,
            200,
            "{page}"
        );
    }
}

fn called(name: &str) -> Config {
    Config {
        hostname: Some(Text::from(name)),
        ..Config::default()
    }
}

/// The error of a connection that was opened and closed; `None` if it stays open.
async fn opened(client: &mut Client) -> Option<String> {
    let is_opened = |event: &Event| matches!(event, Event::Opened(_)).then_some(());
    client.until(is_opened).await;
    client.session = client.connection.begin();
    let ended = client.until(|event| match event {
        Event::Begun { .. } => Some(None),
        Event::Closed { error, .. } => {
            let text = error.as_ref().and_then(|error| error.description.clone());
            Some(Some(text.map(|text| text.to_string()).unwrap_or_default()))
        }
        _ => None,
    });
    ended.await
}

#[tokio::test]
async fn a_connection_by_a_foreign_name_is_refused_with_the_public_key() {
    let server = Server::start().await;
    let own = own(&server).await;
    let password = format!("\0{WELL_KNOWN_RULE}\0{WELL_KNOWN_KEY}");
    for (name, is_ours) in [
        ("evil.example", false),
        ("evil.example:5672", false),
        ("localhost", true),
        ("ns.example:5671", true),
        ("127.0.0.1", true),
        ("sbemulatorns", true),
    ] {
        let mut client = server.connect_with(called(name), "PLAIN", Some(&password));
        let ended = opened(&mut client).await;
        assert_eq!(ended.is_none(), is_ours, "{name}: {ended:?}");
        let text = ended.unwrap_or_default();
        let explains = text.contains(SETTING) && text.contains("'evil.example");
        assert!(is_ours || explains, "{text}");

        let mut client = server.connect_with(called(name), "ANONYMOUS", None);
        client.begun().await;
        let (status, text) = client.put_token_for("sb://localhost/jobs", &public()).await;
        assert_eq!(status == 202, is_ours, "{name}: {status} {text}");
        assert!(is_ours || text.contains(SETTING), "{text}");
        assert_eq!(client.put_token("sb://localhost/jobs", &own).await, 202);
    }
}

#[tokio::test]
async fn a_listener_for_all_addresses_is_called_by_any() {
    let server = Server::start_at(Ipv4Addr::UNSPECIFIED.into()).await;
    let password = format!("\0{WELL_KNOWN_RULE}\0{WELL_KNOWN_KEY}");
    for (name, is_ours) in [("10.0.0.5", true), ("evil.example", false)] {
        let mut client = server.connect_with(called(name), "PLAIN", Some(&password));
        let ended = opened(&mut client).await;
        assert_eq!(ended.is_none(), is_ours, "{name}: {ended:?}");
        let mut client = server.connect_with(called(name), "ANONYMOUS", None);
        client.begun().await;
        let (status, text) = client.put_token_for("sb://localhost/jobs", &public()).await;
        assert_eq!(status == 202, is_ours, "{name}: {status} {text}");
    }
}

#[tokio::test]
async fn a_web_socket_of_another_origin_is_refused_with_the_reason() {
    let server = Server::start().await;
    for (host, page, says) in [
        ("ns.example:5300", "http://ns.example:5300", None),
        ("localhost:5672", "http://localhost:5672", None),
        (
            "localhost:5672",
            "http://evil.example",
            Some("header Origin"),
        ),
        ("evil.example", "http://evil.example", Some(SETTING)),
    ] {
        let headers = [("host", host), ("origin", page)];
        let socket = crate::websocket::open_amqp(&server, &headers).await;
        let mut client = crate::websocket::anonymous(&server, socket);
        client.begun().await;
        let (status, text) = client.put_token_for("sb://localhost/jobs", &public()).await;
        match says {
            None => assert_eq!(status, 202, "{text}"),
            Some(says) => {
                assert_eq!(status, 401);
                assert!(text.contains(says), "{text}");
            }
        }
    }
}
