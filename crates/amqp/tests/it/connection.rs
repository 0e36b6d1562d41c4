//! What two ends do together.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode, Map, Symbol};
use kew_amqp::error::{Error, condition};
use kew_amqp::performative::{
    Attach, Coordinator, DeliveryState, Modified, Outcome, Rejected, Role, SenderSettleMode, Tag,
    Target, TransactionalState,
};
use kew_amqp::sasl::SaslCode;
use kew_amqp::{
    By, Config, Connection, Delivery, Event, Limits, LinkId, Millis, Outgoing, Sasl, SendRefusal,
};

use crate::pair::{End, Pair, attach, sasl_client, sasl_server, send, small};

fn open() -> Pair {
    Pair::open(small(), Limits::default())
}

/// A link on which the server sends, with so much credit.
fn from_server(pair: &mut Pair, credit: u32) -> (LinkId, LinkId) {
    let session = pair.session();
    let (to, from) = pair.link(session, attach("out", Role::Receiver));
    assert!(pair.at(End::Client).grant(to, credit));
    pair.settle_down();
    (to, from)
}

/// A link on which the client sends, with so much credit.
fn to_server(pair: &mut Pair, credit: u32) -> (LinkId, LinkId) {
    let session = pair.session();
    let (from, to) = pair.link(session, attach("in", Role::Sender));
    assert!(pair.at(End::Server).grant(to, credit));
    pair.settle_down();
    (from, to)
}

fn deliveries(events: Vec<Event>) -> Vec<Delivery> {
    let found = events.into_iter().filter_map(|event| match event {
        Event::Delivery(delivery) => Some(delivery),
        _ => None,
    });
    found.collect()
}

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
    // What comes before the verdict waits, and not without bound.
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
fn a_message_goes_through_the_two_steps_of_settlement() {
    let rejected = || Rejected { error: None };
    let modified = || Modified {
        delivery_failed: None,
        undeliverable_here: Some(true),
        message_annotations: Some(Map::build(|map| map.entry(&Symbol::from_static("k"), "v"))),
    };
    let lost = Error::new("com.microsoft:message-lock-lost", "the lock has run out");
    let rows = [
        (Outcome::Accepted, Outcome::Accepted),
        (Outcome::Released, Outcome::Released),
        (Outcome::Modified(modified()), Outcome::Modified(modified())),
        (Outcome::Rejected(rejected()), Outcome::Rejected(rejected())),
        (Outcome::Accepted, Outcome::rejected(lost)),
    ];
    for (asked, verdict) in rows {
        let mut pair = open();
        let (to, from) = from_server(&mut pair, 1);
        let token = send(pair.at(End::Server), from, 7, b"hello").unwrap();
        assert_eq!(pair.at(End::Server).unsettled(from), 1);
        pair.run();
        let arrived = deliveries(pair.take(End::Client));
        let [delivery] = &arrived[..] else {
            panic!("{arrived:?}");
        };
        assert_eq!((delivery.link, &delivery.payload[..]), (to, &b"hello"[..]));
        assert_eq!(delivery.tag, Tag::from([7; 16]));
        assert!(!delivery.is_settled);

        let asked = DeliveryState::from(asked);
        assert!(
            pair.at(End::Client)
                .update(delivery.delivery, asked.clone())
        );
        pair.run();
        let events = pair.take(End::Server);
        let expected = Event::Disposition {
            delivery: token,
            link: from,
            tag: Tag::from([7; 16]),
            is_settled: false,
            state: Some(asked),
        };
        assert_eq!(events, [expected]);

        let verdict = DeliveryState::from(verdict);
        assert!(pair.at(End::Server).settle(token, Some(verdict.clone())));
        assert!(!pair.at(End::Server).settle(token, None), "once is enough");
        pair.run();
        let events = pair.take(End::Client);
        let [
            Event::Disposition {
                is_settled: true,
                state,
                ..
            },
        ] = &events[..]
        else {
            panic!("{events:?}");
        };
        assert_eq!(*state, Some(verdict));
        for (end, link) in [(End::Client, to), (End::Server, from)] {
            assert_eq!(pair.at(end).unsettled(link), 0);
        }
    }
}

#[test]
fn a_receiver_may_settle_at_once() {
    let mut pair = open();
    let (to, from) = to_server(&mut pair, 10);
    for number in 0..8 {
        send(pair.at(End::Client), to, number, b"x").unwrap();
    }
    pair.run();
    let arrived = deliveries(pair.take(End::Server));
    assert_eq!(arrived.len(), 8);
    for delivery in arrived {
        assert_eq!(delivery.link, from);
        let state = Some(DeliveryState::ACCEPTED);
        assert!(pair.at(End::Server).settle(delivery.delivery, state));
    }
    // Eight verdicts go out as one frame.
    let out = pair.at(End::Server).take_output(Millis(0));
    assert!(out.len() < 40, "{} bytes", out.len());
    pair.at(End::Client).feed(&out, Millis(0));
    pair.run();
    let settled = pair.take(End::Client);
    assert_eq!(settled.len(), 8);
    for event in settled {
        assert!(matches!(
            event,
            Event::Disposition {
                is_settled: true,
                ..
            }
        ));
    }
}

#[test]
fn a_message_in_many_frames_is_whole() {
    for size in [0, 1, 400, 450, 512, 2_000, 30_000] {
        let body: Vec<u8> = (0..size).map(|at: u32| at.to_be_bytes()[3]).collect();
        let mut pair = open();
        let (to, from) = from_server(&mut pair, 2);
        send(pair.at(End::Server), from, 1, &body).unwrap();
        pair.run();
        send(pair.at(End::Server), from, 2, &body).unwrap();
        pair.run();
        let arrived = deliveries(pair.take(End::Client));
        assert_eq!(arrived.len(), 2, "{size} bytes");
        for (delivery, tag) in arrived.iter().zip([1, 2]) {
            assert_eq!(delivery.payload, body);
            assert_eq!(delivery.tag, Tag::from([tag; 16]));
        }
        assert_eq!(pair.at(End::Client).credit(to), 0);
    }
}

#[test]
fn windows_stop_a_sender_until_the_peer_takes_more() {
    let mut pair = open();
    let (_, from) = from_server(&mut pair, 100);
    let body = vec![1; 512 * 20];
    let server = pair.at(End::Server);
    send(server, from, 1, &body).unwrap();
    assert_eq!(send(server, from, 2, b"x"), Err(SendRefusal::Blocked));
    let sent = server.take_output(Millis(0));
    assert!(
        (7 * 512..=8 * 512).contains(&sent.len()),
        "8 frames are allowed, {} bytes came",
        sent.len()
    );
    assert!(server.take_output(Millis(0)).is_empty());
    pair.at(End::Client).feed(&sent, Millis(0));
    pair.run();
    assert_eq!(deliveries(pair.take(End::Client)).len(), 1);
    let session = from.session();
    assert!(
        pair.take(End::Server)
            .contains(&Event::Writable { session })
    );
    assert!(send(pair.at(End::Server), from, 2, b"x").is_ok());
}

#[test]
fn a_full_output_stops_messages_and_then_everything() {
    let limits = Limits {
        output_size_max: 4_000,
        ..Limits::default()
    };
    let config = Config {
        incoming_window: 1_000,
        ..small()
    };
    let mut pair = Pair::open(config, limits);
    let (to, from) = from_server(&mut pair, 1_000);
    let server = pair.at(End::Server);
    let mut sent = 0;
    while send(server, from, 1, &[0; 400]).is_ok() {
        sent += 1;
        assert!(sent < 100);
    }
    assert!((4_000..4_600).contains(&server.output_size()));
    assert!(server.wants_input());
    for _ in 0..1_000 {
        pair.at(End::Client).tell(to, true, None, None);
    }
    let echoes = pair.at(End::Client).take_output(Millis(0));
    let server = pair.at(End::Server);
    server.feed(&echoes, Millis(0));
    while server.poll_event().is_some() {}
    assert!((8_000..8_100).contains(&server.output_size()));
    assert!(!server.wants_input());
    pair.run();
    assert!(pair.at(End::Server).wants_input());
    let arrived = deliveries(pair.take(End::Client));
    assert_eq!(arrived.len(), sent);
}

#[test]
fn credit_is_absolute_and_counts_what_is_on_the_way() {
    let mut pair = open();
    let (to, from) = from_server(&mut pair, 5);
    assert_eq!(
        send(pair.at(End::Client), to, 1, b""),
        Err(SendRefusal::NoLink)
    );
    send(pair.at(End::Server), from, 1, b"1").unwrap();
    send(pair.at(End::Server), from, 2, b"2").unwrap();
    // The client lowers its credit before it sees them.
    assert!(pair.at(End::Client).grant(to, 3));
    let lowered = pair.at(End::Client).take_output(Millis(0));
    pair.at(End::Server).feed(&lowered, Millis(0));
    pair.run();
    assert_eq!(pair.at(End::Server).credit(from), 1);
    assert_eq!(pair.at(End::Client).credit(to), 1);
    send(pair.at(End::Server), from, 3, b"3").unwrap();
    assert_eq!(
        send(pair.at(End::Server), from, 4, b"4"),
        Err(SendRefusal::NoCredit)
    );
    pair.at(End::Client).grant(to, 0);
    pair.settle_down();
    assert_eq!(pair.at(End::Server).credit(from), 0);
}

#[test]
fn drain_gives_back_what_is_left() {
    for waiting in [0, 2, 5] {
        let mut pair = open();
        let (to, from) = from_server(&mut pair, 5);
        assert!(!pair.at(End::Server).drained(from), "nobody asked");
        assert!(pair.at(End::Client).drain(to));
        pair.run();
        let events = pair.take(End::Server);
        let [
            Event::Credit {
                credit: 5,
                is_drain: true,
                ..
            },
        ] = events[..]
        else {
            panic!("{events:?}");
        };
        for number in 0..waiting {
            send(pair.at(End::Server), from, number, b"x").unwrap();
        }
        assert!(pair.at(End::Server).drained(from));
        assert!(!pair.at(End::Server).drained(from), "once is enough");
        pair.run();
        let events = pair.take(End::Client);
        assert_eq!(events.last(), Some(&Event::Drained { link: to }));
        assert_eq!(deliveries(events).len(), usize::from(waiting));
        assert_eq!(pair.at(End::Client).credit(to), 0);
        // The link goes on.
        pair.at(End::Client).grant(to, 1);
        pair.settle_down();
        assert_eq!(pair.at(End::Server).credit(from), 1);
        send(pair.at(End::Server), from, 9, b"x").unwrap();
        pair.run();
        assert_eq!(deliveries(pair.take(End::Client)).len(), 1);
    }
}

#[test]
fn flows_are_echoed_and_carry_properties() {
    let mut pair = open();
    let (from, to) = to_server(&mut pair, 3);
    let properties = Map::build(|map| map.entry(&Symbol::from_static("x"), &1u32));
    let client = pair.at(End::Client);
    assert!(client.tell(from, true, Some(17), Some(properties.clone())));
    pair.run();
    let told = Event::Available {
        link: to,
        available: Some(17),
        properties: Some(properties),
    };
    assert_eq!(pair.take(End::Server), [told]);
    let echo = Event::Credit {
        link: from,
        credit: 3,
        is_drain: false,
        properties: None,
    };
    assert_eq!(pair.take(End::Client), [echo]);
}

#[test]
fn a_settled_link_settles_everything() {
    let mut pair = open();
    let session = pair.session();
    let asked = Attach {
        snd_settle_mode: SenderSettleMode::Settled,
        ..attach("out", Role::Receiver)
    };
    let (to, from) = pair.link(session, asked);
    pair.at(End::Client).grant(to, 1);
    pair.settle_down();
    send(pair.at(End::Server), from, 1, b"x").unwrap();
    assert_eq!(pair.at(End::Server).unsettled(from), 0);
    pair.run();
    let arrived = deliveries(pair.take(End::Client));
    assert!(arrived[0].is_settled);
    assert!(!pair.at(End::Client).settle(arrived[0].delivery, None));
}

#[test]
fn states_of_transactions_are_carried() {
    let mut pair = open();
    let session = pair.session();
    let coordinator = Target::Coordinator(Coordinator {
        capabilities: Default::default(),
    });
    let asked = Attach {
        target: Some(coordinator),
        ..attach("control", Role::Sender)
    };
    let (from, to) = pair.link(session, asked);
    pair.at(End::Server).grant(to, 1);
    pair.settle_down();
    let state = DeliveryState::Transactional(TransactionalState {
        txn_id: Bytes::from_static(b"txn"),
        outcome: None,
    });
    let message = Outgoing {
        tag: Tag::new(b"").unwrap(),
        message_format: 0x8001_3700,
        is_settled: false,
        state: Some(state.clone()),
    };
    let body = Bytes::from(vec![0; 2_000]);
    pair.at(End::Client)
        .send(from, message, [Bytes::new(), body])
        .unwrap();
    pair.run();
    let arrived = deliveries(pair.take(End::Server));
    assert_eq!(arrived[0].state, Some(state));
    assert_eq!(arrived[0].message_format, 0x8001_3700);
    assert_eq!(arrived[0].tag.as_bytes(), b"");
}

#[test]
fn a_refused_link_is_answered_and_detached() {
    for role in [Role::Sender, Role::Receiver] {
        let mut pair = open();
        pair.accepts = false;
        let session = pair.session();
        let asked = attach("no", role);
        let ours = pair.at(End::Client).attach(session, asked.clone()).unwrap();
        pair.run();
        let events = pair.take(End::Server);
        let [Event::Attach { link, .. }] = events[..] else {
            panic!("{events:?}");
        };
        let error = Error::new(
            condition::NOT_FOUND,
            "The messaging entity 'no' could not be found",
        );
        assert!(pair.at(End::Server).refuse(link, &asked, error.clone()));
        assert!(!pair.at(End::Server).refuse(link, &asked, error.clone()));
        assert!(!pair.at(End::Server).accept(link, asked.answer()));
        pair.run();
        assert_eq!(pair.take(End::Server), []);
        let events = pair.take(End::Client);
        let [
            Event::Attached { attach, .. },
            Event::Detached {
                link,
                by,
                is_closed,
                error: told,
            },
        ] = &events[..]
        else {
            panic!("{events:?}");
        };
        match role {
            Role::Sender => assert!(attach.target.is_none() && attach.source.is_some()),
            Role::Receiver => assert!(attach.source.is_none() && attach.target.is_some()),
        }
        assert_eq!((*link, *by, *is_closed), (ours, By::Peer, true));
        assert_eq!(*told, Some(error));
        // The name is free again.
        pair.accepts = true;
        pair.link(session, asked);
    }
}

#[test]
fn a_link_that_is_given_up_before_its_answer_hears_nothing() {
    let mut pair = open();
    pair.accepts = false;
    let session = pair.session();
    let asked = attach("later", Role::Receiver);
    let ours = pair.at(End::Client).attach(session, asked.clone()).unwrap();
    pair.run();
    pair.take(End::Server);
    assert!(pair.at(End::Client).detach(ours, true, None));
    pair.run();
    let events = pair.take(End::Server);
    let [
        Event::Detached {
            link, by: By::Peer, ..
        },
    ] = events[..]
    else {
        panic!("{events:?}");
    };
    assert!(!pair.at(End::Server).accept(link, asked.answer()));
    assert!(!pair.at(End::Server).detach(link, true, None));
    assert!(pair.at(End::Server).take_output(Millis(0)).is_empty());
}

#[test]
fn what_is_detached_forgets_its_deliveries() {
    for is_closed in [true, false] {
        let mut pair = open();
        let (to, from) = from_server(&mut pair, 5);
        let first = send(pair.at(End::Server), from, 1, b"x").unwrap();
        pair.run();
        let arrived = deliveries(pair.take(End::Client));
        assert!(pair.at(End::Client).detach(to, is_closed, None));
        assert!(!pair.at(End::Client).settle(arrived[0].delivery, None));
        pair.run();
        let gone = |link, by| Event::Detached {
            link,
            by,
            is_closed,
            error: None,
        };
        assert_eq!(pair.take(End::Server), [gone(from, By::Peer)]);
        assert_eq!(pair.take(End::Client), [gone(to, By::Us)]);
        assert!(!pair.at(End::Server).settle(first, None));
        assert_eq!(
            send(pair.at(End::Server), from, 2, b"x"),
            Err(SendRefusal::NoLink)
        );
        // Its handle and its name are used again, and its id is not.
        let (again, _) = pair.link(to.session(), attach("out", Role::Receiver));
        assert_ne!(again, to);
        assert!(!pair.at(End::Client).grant(to, 1));
    }
}

#[test]
fn a_message_on_its_way_does_not_hold_up_others_when_its_link_goes() {
    let mut pair = open();
    let (_, from) = from_server(&mut pair, 5);
    let server = pair.at(End::Server);
    send(server, from, 1, &[1; 512 * 20]).unwrap();
    assert_eq!(send(server, from, 2, b""), Err(SendRefusal::Blocked));
    let error = Error::new("com.microsoft:session-lock-lost", "gone");
    assert!(server.detach(from, true, Some(error)));
    pair.run();
    let session = from.session();
    assert!(
        pair.take(End::Server)
            .contains(&Event::Writable { session })
    );
}

#[test]
fn sessions_end_with_their_links() {
    let mut pair = open();
    let (to, from) = from_server(&mut pair, 5);
    let waiting = send(pair.at(End::Server), from, 1, b"x").unwrap();
    assert!(pair.at(End::Client).end(to.session(), None));
    assert!(!pair.at(End::Client).end(to.session(), None));
    pair.run();
    let ended = |session, by| Event::Ended {
        session,
        by,
        error: None,
    };
    assert_eq!(pair.take(End::Server), [ended(from.session(), By::Peer)]);
    assert_eq!(pair.take(End::Client), [ended(to.session(), By::Us)]);
    let server = pair.at(End::Server);
    assert!(!server.settle(waiting, None));
    assert!(!server.drained(from) && !server.detach(from, true, None));
    assert_eq!(send(server, from, 1, b"x"), Err(SendRefusal::NoLink));
    let again = pair.session();
    assert_ne!(again, to.session());
}

#[test]
fn hundreds_of_sessions_and_links_live_in_one_connection() {
    let mut pair = open();
    for number in 0..300 {
        let session = pair.session();
        pair.link(session, attach(&format!("in{number}"), Role::Sender));
        pair.link(session, attach(&format!("in{number}"), Role::Receiver));
    }
}

#[test]
fn numbers_wrap_around() {
    for first_id in [u32::MAX - 10, 0x7fff_fff5] {
        let config = Config {
            first_id,
            ..small()
        };
        let mut pair = Pair::open(config, Limits::default());
        let (from, _) = to_server(&mut pair, 40);
        let mut names = Vec::new();
        for number in 0..40 {
            send(pair.at(End::Client), from, number, &[number; 600]).unwrap();
            pair.run();
            names.extend(deliveries(pair.take(End::Server)));
        }
        assert_eq!(names.len(), 40);
        for delivery in &names {
            let state = Some(DeliveryState::ACCEPTED);
            assert!(pair.at(End::Server).settle(delivery.delivery, state));
        }
        pair.run();
        assert_eq!(pair.take(End::Client).len(), 40);
        assert_eq!(pair.at(End::Client).unsettled(from), 0);
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
fn a_long_goodbye_is_cut_to_what_the_peer_takes() {
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
fn a_frame_that_the_peer_cannot_take_closes() {
    let mut pair = open();
    let (to, _) = from_server(&mut pair, 1);
    let error = Error::new(condition::INTERNAL_ERROR, "x".repeat(600));
    pair.at(End::Client).detach(to, true, Some(error));
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
fn without_sasl_a_client_that_wants_it_is_told() {
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
