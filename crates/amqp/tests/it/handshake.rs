//! How connections begin and end.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode, Map, Symbol, Text};
use kew_amqp::error::{Error, condition};
use kew_amqp::performative::{Modified, Outcome, Role};
use kew_amqp::sasl::SaslCode;
use kew_amqp::{By, Config, Connection, Event, Limits, Millis, Sasl};

use crate::pair::{
    End, Pair, attach, deliveries, open, sasl_client, sasl_server, send, small, to_server,
};

#[test]
fn mechanisms_are_decided_by_the_caller() {
    let server = |is_optional| Config {
        sasl: sasl_server(is_optional),
        ..small()
    };
    for mechanism in ["ANONYMOUS", "MSSBCBS", "PLAIN", "EXTERNAL"] {
        let client = Config {
            sasl: sasl_client(mechanism),
            ..small()
        };
        let mut pair = Pair::new(
            Connection::client(client, Limits::default(), Millis(0)),
            Connection::server(server(false), Limits::default(), Millis(0)),
        );
        pair.run();
        let events = pair.take(End::Server);
        let Event::SaslInit {
            mechanism: chosen,
            response,
            ..
        } = &events[0]
        else {
            panic!("{events:?}");
        };
        assert_eq!(*chosen, mechanism);
        assert_eq!(response.as_deref(), Some(&b"\0rule\0key"[..]));
        assert!(pair.at(End::Client).is_open() && pair.at(End::Server).is_open());
    }
    for (is_optional, expected) in [(true, true), (false, false)] {
        let mut pair = Pair::new(
            Connection::client(small(), Limits::default(), Millis(0)),
            Connection::server(server(is_optional), Limits::default(), Millis(0)),
        );
        pair.run();
        assert_eq!(pair.at(End::Server).is_open(), expected);
        assert_eq!(pair.at(End::Server).is_closed(), !expected);
    }
}

#[test]
fn authentication_can_ask_again_and_be_refused() {
    let mut client = Connection::client(
        Config {
            sasl: sasl_client("PLAIN"),
            ..small()
        },
        Limits::default(),
        Millis(0),
    );
    let sasl = sasl_server(false);
    let mut server = Connection::server(Config { sasl, ..small() }, Limits::default(), Millis(0));
    let exchange = |client: &mut Connection, server: &mut Connection| {
        server.feed(&client.take_output(Millis(0)), Millis(0));
        let asked = server.poll_event();
        client.feed(&server.take_output(Millis(0)), Millis(0));
        asked
    };
    exchange(&mut client, &mut server);
    assert_eq!(client.poll_event(), None);
    let asked = exchange(&mut client, &mut server);
    assert!(matches!(asked, Some(Event::SaslInit { .. })));
    // Input before the SASL outcome waits, with a limit.
    server.feed(&[0; 8192], Millis(0));
    assert_eq!(server.poll_event(), None);
    assert!(!server.wants_input());
    server.input().clear();
    server.sasl_challenge(Bytes::from_static(b"more?"));
    client.feed(&server.take_output(Millis(0)), Millis(0));
    let challenge = Bytes::from_static(b"more?");
    assert_eq!(
        client.poll_event(),
        Some(Event::SaslChallenge { challenge })
    );
    client.sasl_response(Bytes::from_static(b"more."));
    let asked = exchange(&mut client, &mut server);
    let response = Bytes::from_static(b"more.");
    assert_eq!(asked, Some(Event::SaslResponse { response }));
    server.sasl_outcome(SaslCode::Auth);
    client.feed(&server.take_output(Millis(0)), Millis(0));
    for end in [&mut client, &mut server] {
        let Some(Event::Closed {
            error: Some(error), ..
        }) = end.poll_event()
        else {
            panic!("it is over");
        };
        assert_eq!(error.condition, condition::UNAUTHORIZED_ACCESS);
        assert!(end.is_closed());
    }
}

#[test]
fn both_ends_close() {
    for end in [End::Client, End::Server] {
        for error in [
            None,
            Some(Error::new(condition::CONNECTION_FORCED, "maintenance")),
        ] {
            let mut pair = open();
            pair.session();
            pair.at(end).close(error.clone());
            pair.at(end).close(None);
            pair.run();
            for own in [End::Client, End::Server] {
                let by = if own == end { By::Us } else { By::Peer };
                let error = error.clone();
                assert_eq!(pair.take(own), [Event::Closed { by, error }]);
                assert!(pair.at(own).is_closed());
                assert!(pair.at(own).begin().is_none());
            }
        }
    }
}

#[test]
fn a_long_error_text_is_cut_to_the_peers_limit() {
    let mut pair = open();
    let error = Error::new(condition::INTERNAL_ERROR, "x".repeat(600));
    pair.at(End::Server).close(Some(error));
    pair.run();
    let events = pair.take(End::Client);
    let [
        Event::Closed {
            error: Some(error), ..
        },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(error.condition, condition::INTERNAL_ERROR);
    assert_eq!(error.description, None);
}

#[test]
fn a_frame_above_the_peers_limit_closes() {
    let mut pair = open();
    let session = pair.session();
    let asked = attach(&"x".repeat(600), Role::Sender);
    pair.at(End::Client).attach(session, asked).unwrap();
    pair.run();
    let events = pair.take(End::Server);
    let [
        Event::Closed {
            error: Some(error), ..
        },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(error.condition, condition::FRAME_SIZE_TOO_SMALL);
}

#[test]
fn an_outcome_above_the_peers_limit_closes_at_once() {
    let mut pair = open();
    let (from, _) = to_server(&mut pair, 1);
    send(pair.at(End::Client), from, 1, b"x").unwrap();
    pair.run();
    let arrived = deliveries(pair.take(End::Server));
    let annotations =
        Map::build(|map| map.entry(&Symbol::from_static("x"), &Text::from("x".repeat(600))));
    let modified = Outcome::Modified(Modified {
        delivery_failed: None,
        undeliverable_here: None,
        message_annotations: Some(annotations),
    });
    let server = pair.at(End::Server);
    assert!(server.settle(arrived[0].delivery, Some(modified.into())));
    let goodbye = server.take_output(Millis(0));
    pair.at(End::Client).feed(&goodbye, Millis(0));
    pair.run();
    let events = pair.take(End::Client);
    assert!(
        matches!(events[..], [Event::Closed { by: By::Peer, .. }]),
        "{events:?}"
    );
}

#[test]
fn without_sasl_a_client_that_wants_it_gets_the_amqp_header() {
    let client = Config {
        sasl: sasl_client("ANONYMOUS"),
        ..small()
    };
    let server = Config {
        sasl: Sasl::None,
        ..small()
    };
    let mut pair = Pair::new(
        Connection::client(client, Limits::default(), Millis(0)),
        Connection::server(server, Limits::default(), Millis(0)),
    );
    pair.run();
    assert!(pair.at(End::Client).is_closed() && pair.at(End::Server).is_closed());
}

#[test]
fn an_error_has_all_its_fields() {
    let mut out = BytesMut::new();
    Error::new("amqp:not-found", "x").encode(&mut out);
    let digits = "00 53 1d c0 15 03 a3 0e 616d71703a6e6f742d666f756e64 a1 01 78 40";
    assert_eq!(out.freeze(), crate::hex(digits));
}
