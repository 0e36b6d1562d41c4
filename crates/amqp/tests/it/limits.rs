//! Time and memory.

use std::time::Duration;

use bytes::BytesMut;
use kew_amqp::codec::{Decode, Encode, Reader, Text};
use kew_amqp::error::{Error, condition};
use kew_amqp::performative::{Attach, DeliveryState, Outcome, Rejected, Role, Source, Target};
use kew_amqp::{By, Config, Connection, Event, Limits, Millis, SendRefusal};

use crate::pair::{End, Pair, attach, send, small};

fn error_of(events: &[Event]) -> &str {
    let error = events.iter().find_map(|event| match event {
        Event::Closed { error, .. }
        | Event::Detached { error, .. }
        | Event::Ended { error, .. } => error.as_ref(),
        _ => None,
    });
    error.map_or("none", |error| error.condition.as_str())
}

#[test]
fn a_peer_is_kept_alive_and_a_silent_one_is_closed() {
    let idle = |seconds| Config {
        idle_timeout: Some(Duration::from_secs(seconds)),
        ..small()
    };
    let mut client = Connection::client(idle(60), Limits::default(), Millis(0));
    let mut server = Connection::server(idle(20), Limits::default(), Millis(0));
    for _ in 0..3 {
        server.feed(&client.take_output(Millis(0)), Millis(0));
        while server.poll_event().is_some() {}
        client.feed(&server.take_output(Millis(0)), Millis(0));
        while client.poll_event().is_some() {}
    }
    assert!(client.is_open() && server.is_open());
    // Each end announced half of its limit, and the other sends at half of that.
    assert_eq!(client.next_timeout(), Some(Millis(5_000)));
    assert_eq!(server.next_timeout(), Some(Millis(15_000)));
    client.on_time(Millis(4_999));
    assert!(client.take_output(Millis(4_999)).is_empty());
    client.on_time(Millis(5_000));
    let heartbeat = client.take_output(Millis(5_000));
    assert_eq!(heartbeat[..], [0, 0, 0, 8, 2, 0, 0, 0]);
    assert_eq!(client.next_timeout(), Some(Millis(10_000)));
    server.feed(&heartbeat, Millis(5_000));
    assert_eq!(server.poll_event(), None);

    server.on_time(Millis(24_999));
    assert_eq!(server.poll_event(), None);
    server.on_time(Millis(25_000));
    let Some(Event::Closed {
        by: By::Us,
        error: Some(error),
    }) = server.poll_event()
    else {
        panic!("it was silent for 20 s");
    };
    assert_eq!(error.condition, condition::RESOURCE_LIMIT_EXCEEDED);
    assert!(!server.is_closed(), "the peer may still answer");
    server.take_output(Millis(25_000));
    assert_eq!(server.next_timeout(), Some(Millis(30_000)));
    server.feed(&heartbeat, Millis(29_000));
    server.poll_event();
    assert_eq!(
        server.next_timeout(),
        Some(Millis(30_000)),
        "frames do not put it off"
    );
    server.on_time(Millis(30_000));
    assert!(server.is_closed());
    assert_eq!(server.next_timeout(), None);
}

#[test]
fn a_handshake_takes_no_longer_than_it_may() {
    let mut server = Connection::server(small(), Limits::default(), Millis(1_000));
    assert_eq!(server.next_timeout(), Some(Millis(21_000)));
    server.feed(b"AMQP\x00\x01", Millis(20_999));
    assert_eq!(server.poll_event(), None);
    server.on_time(Millis(20_999));
    assert!(!server.is_closed());
    server.on_time(Millis(21_000));
    assert!(server.is_closed());
    assert_eq!(
        error_of(&[server.poll_event().unwrap()]),
        condition::RESOURCE_LIMIT_EXCEEDED
    );
}

#[test]
fn a_peer_that_gives_up_too_fast_is_refused() {
    let client = Config {
        idle_timeout: Some(Duration::from_millis(300)),
        ..small()
    };
    let mut pair = Pair::new(
        Connection::client(client, Limits::default(), Millis(0)),
        Connection::server(small(), Limits::default(), Millis(0)),
    );
    pair.run();
    assert_eq!(error_of(&pair.take(End::Server)), condition::NOT_ALLOWED);
}

#[test]
fn sessions_are_limited() {
    let limits = Limits {
        sessions_max: 2,
        ..Limits::default()
    };
    let mut pair = Pair::open(small(), limits);
    pair.at(End::Client).set_limits(Limits::default());
    pair.session();
    pair.session();
    assert!(pair.at(End::Server).begin().is_none());
    assert!(pair.at(End::Client).begin().is_some());
    pair.run();
    assert_eq!(
        error_of(&pair.take(End::Server)),
        condition::RESOURCE_LIMIT_EXCEEDED
    );
    assert!(pair.at(End::Server).is_closed());
}

#[test]
fn a_peer_with_one_channel_gets_one_session() {
    let config = Config {
        channel_max: 0,
        ..small()
    };
    let mut pair = Pair::open(config, Limits::default());
    pair.session();
    assert!(pair.at(End::Client).begin().is_none());
    assert!(pair.at(End::Server).begin().is_none());
}

#[test]
fn links_are_limited_and_the_limit_can_be_raised() {
    let limits = Limits {
        links_max: 2,
        ..Limits::default()
    };
    let mut pair = Pair::open(small(), limits.clone());
    pair.at(End::Client).set_limits(Limits::default());
    let session = pair.session();
    pair.link(session, attach("1", Role::Sender));
    pair.link(session, attach("2", Role::Sender));
    pair.at(End::Client)
        .attach(session, attach("3", Role::Sender))
        .unwrap();
    pair.run();
    assert_eq!(pair.take(End::Server), [], "no event for the caller");
    assert_eq!(
        error_of(&pair.take(End::Client)),
        condition::RESOURCE_LIMIT_EXCEEDED
    );
    pair.at(End::Server).set_limits(Limits {
        links_max: 3,
        ..limits
    });
    pair.link(session, attach("3", Role::Sender));
}

#[test]
fn unread_refusals_are_limited_too() {
    let limits = Limits {
        links_max: 2,
        ..Limits::default()
    };
    let mut pair = Pair::open(small(), limits);
    pair.at(End::Client).set_limits(Limits::default());
    let session = pair.session();
    for number in 0..100 {
        let asked = attach(&number.to_string(), Role::Sender);
        pair.at(End::Client).attach(session, asked).unwrap();
    }
    // The client does not read the refusals.
    let attaches = pair.at(End::Client).take_output(Millis(0));
    pair.at(End::Server).feed(&attaches, Millis(0));
    let mut events = Vec::new();
    while let Some(event) = pair.at(End::Server).poll_event() {
        events.push(event);
    }
    assert_eq!(error_of(&events), condition::RESOURCE_LIMIT_EXCEEDED);
    assert!(matches!(events.last(), Some(Event::Closed { .. })));
}

#[test]
fn unsettled_deliveries_are_limited_both_ways() {
    let limits = Limits {
        unsettled_max: 3,
        ..Limits::default()
    };
    let mut pair = Pair::open(small(), limits);
    let session = pair.session();
    let (from, to) = pair.link(session, attach("in", Role::Sender));
    pair.at(End::Server).grant(to, 10);
    pair.settle_down();
    for number in 0..3 {
        send(pair.at(End::Client), from, number, b"x").unwrap();
    }
    let refused = send(pair.at(End::Client), from, 3, b"x");
    assert_eq!(refused, Err(SendRefusal::Unsettled(3)));
    pair.at(End::Client).set_limits(Limits::default());
    send(pair.at(End::Client), from, 3, b"x").unwrap();
    pair.run();
    assert_eq!(
        error_of(&pair.take(End::Server)),
        condition::RESOURCE_LIMIT_EXCEEDED
    );
    // With its deliveries gone, the refused one would have room.
    assert!(matches!(
        pair.take(End::Client)[..],
        [Event::Detached { link, .. }, Event::Writable { session: of }]
            | [Event::Writable { session: of }, Event::Detached { link, .. }]
            if link == from && of == session
    ));
}

#[test]
fn messages_are_limited_in_size() {
    let mut pair = Pair::open(small(), Limits::default());
    let session = pair.session();
    let limited = Attach {
        max_message_size: Some(2_000),
        ..attach("out", Role::Receiver)
    };
    let (to, from) = pair.link(session, limited);
    pair.at(End::Client).grant(to, 5);
    pair.settle_down();
    let refused = send(pair.at(End::Server), from, 1, &[0; 2_001]);
    let too_large = SendRefusal::TooLarge {
        size: 2_001,
        limit: 2_000,
    };
    assert_eq!(refused, Err(too_large));
    send(pair.at(End::Server), from, 1, &[0; 2_000]).unwrap();
    pair.run();
    assert!(matches!(pair.take(End::Client)[..], [Event::Delivery(_)]));
}

/// Messages that a peer requests in many sessions whose windows it keeps closed, except for one
/// frame.
#[test]
fn messages_on_their_way_are_limited_over_all_sessions() {
    let config = Config {
        frame_size_max: 512,
        incoming_window: 1,
        ..Config::default()
    };
    let limits = Limits {
        sending_size_max: 5_000,
        ..Limits::default()
    };
    let mut pair = Pair::open(config, limits);
    let mut links = Vec::new();
    for number in 0..4 {
        let session = pair.session();
        let (to, from) = pair.link(session, attach(&number.to_string(), Role::Receiver));
        pair.at(End::Client).grant(to, 1);
        links.push((session, from));
    }
    pair.settle_down();
    // The links themselves, with their names.
    let before = pair.at(End::Server).held_size();
    let sent: Vec<_> = links
        .iter()
        .map(|(session, from)| {
            let sent = send(pair.at(End::Server), *from, 1, &[0; 3_000]);
            (*session, *from, sent)
        })
        .collect();
    let results: Vec<bool> = sent.iter().map(|(_, _, sent)| sent.is_ok()).collect();
    assert_eq!(results, [true, true, false, false]);
    assert_eq!(sent[2].2, Err(SendRefusal::Blocked));
    let held = pair.at(End::Server).held_size();
    assert!((4_000..8_000).contains(&(held - before)), "{held}");
    // The client receives the two, which makes room for the others.
    let mut deliveries = 0;
    let mut writable = 0;
    for _ in 0..100 {
        pair.run();
        let events = pair.take(End::Server).into_iter();
        for event in events {
            if let Event::Writable { session } = event {
                writable += 1;
                let links: Vec<_> = sent
                    .iter()
                    .filter(|it| session.links().contains(&it.1))
                    .collect();
                assert_eq!(links.len(), 1);
                send(pair.at(End::Server), links[0].1, 1, &[0; 3_000]).unwrap();
            }
        }
        let events = pair.take(End::Client).into_iter();
        deliveries += events
            .filter(|event| matches!(event, Event::Delivery(_)))
            .count();
        if deliveries == 4 {
            break;
        }
    }
    assert_eq!((deliveries, writable), (4, 2));
    assert_eq!(pair.at(End::Server).held_size(), before);
}

#[test]
fn links_are_held_with_their_names_until_they_are_gone() {
    let mut pair = Pair::open(Config::default(), Limits::default());
    let session = pair.session();
    let other = pair.session();
    let held = |pair: &mut Pair| pair.at(End::Server).held_size();
    assert_eq!(held(&mut pair), 0);
    let long = "n".repeat(4_000);
    let (link, _) = pair.link(session, attach(&long, Role::Receiver));
    pair.settle_down();
    let one = held(&mut pair);
    assert!((4_000..5_000).contains(&one), "{one}");
    let (_, detached) = pair.link(other, attach(&long, Role::Sender));
    pair.link(other, attach("short", Role::Sender));
    pair.settle_down();
    let three = held(&mut pair);
    assert!((2 * one..2 * one + 1_000).contains(&three), "{three}");
    pair.at(End::Client).detach(link, true, None);
    pair.settle_down();
    assert_eq!(held(&mut pair), three - one);
    pair.at(End::Server).detach(detached, true, None);
    pair.settle_down();
    assert_eq!(held(&mut pair), three - 2 * one);
    pair.at(End::Client).end(other, None);
    pair.settle_down();
    assert_eq!(held(&mut pair), 0);
}

#[test]
fn buffers_of_an_idle_connection_are_given_back() {
    let mut pair = Pair::open(small(), Limits::default());
    pair.at(End::Server).input().reserve(4_096);
    pair.at(End::Server).shrink();
    assert_eq!(pair.at(End::Server).input().capacity(), 0);
    pair.at(End::Server).feed(b"\0\0\0", Millis(0));
    pair.at(End::Server).shrink();
    assert_eq!(pair.at(End::Server).held_size(), 3, "received input stays");
    pair.session();
}

#[test]
fn names_and_addresses_of_links_are_short() {
    let long = |size| Text::from("n".repeat(size));
    let named = |size| Attach {
        name: long(size),
        ..attach("", Role::Sender)
    };
    let to = |size| Attach {
        target: Some(Target::new(long(size))),
        ..attach(&format!("to {size}"), Role::Sender)
    };
    let from = |size| Attach {
        source: Some(Source::new(long(size))),
        ..attach(&format!("from {size}"), Role::Sender)
    };
    let makes: [&dyn Fn(usize) -> Attach; 3] = [&named, &to, &from];
    for make in makes {
        let mut pair = Pair::open(Config::default(), Limits::default());
        let session = pair.session();
        pair.link(session, make(4_096));
        pair.at(End::Client).attach(session, make(4_097)).unwrap();
        pair.run();
        let events = pair.take(End::Client);
        assert!(
            events
                .iter()
                .any(|event| matches!(event, Event::Ended { .. }))
        );
        assert_eq!(error_of(&events), condition::RESOURCE_LIMIT_EXCEEDED);
    }
}

/// The errors that the client received, with the lengths of their texts.
fn told(pair: &mut Pair) -> Vec<(String, Option<usize>)> {
    pair.run();
    let events = pair.take(End::Client).into_iter();
    let errors = events.filter_map(|event| match event {
        Event::Ended { error, .. } | Event::Detached { error, .. } => error,
        Event::Disposition {
            state: Some(DeliveryState::Outcome(Outcome::Rejected(Rejected { error }))),
            ..
        } => error,
        _ => None,
    });
    errors
        .map(|error| {
            let text = error.description.map(|text| text.as_str().len());
            (error.condition.as_str().to_owned(), text)
        })
        .collect()
}

#[test]
fn an_error_text_above_the_peers_limit_is_left_out() {
    for (size, expected) in [(100, Some(100)), (600, None)] {
        let error = || Error::new(condition::NOT_ALLOWED, "x".repeat(size));
        let expected = [(condition::NOT_ALLOWED.to_owned(), expected)];
        let mut pair = Pair::open(small(), Limits::default());
        let session = pair.session();
        let (to, from) = pair.link(session, attach("in", Role::Sender));
        pair.at(End::Server).grant(from, 1);
        pair.settle_down();
        send(pair.at(End::Client), to, 1, b"message").unwrap();
        pair.run();
        let delivery = pair
            .take(End::Server)
            .into_iter()
            .find_map(|event| match event {
                Event::Delivery(delivery) => Some(delivery.delivery),
                _ => None,
            });
        let state = DeliveryState::rejected(error());
        pair.at(End::Server).settle(delivery.unwrap(), Some(state));
        assert_eq!(told(&mut pair), expected, "rejected");
        pair.at(End::Server).detach(from, true, Some(error()));
        assert_eq!(told(&mut pair), expected, "detached");

        pair.accepts = false;
        let asked = attach("refused", Role::Sender);
        pair.at(End::Client).attach(session, asked).unwrap();
        pair.run();
        for event in pair.take(End::Server) {
            if let Event::Attach { link, attach } = event {
                assert!(pair.at(End::Server).refuse(link, &attach, error()));
            }
        }
        assert_eq!(told(&mut pair), expected, "refused");
        let ended = pair.at(End::Server).end(from.session(), Some(error()));
        assert!(ended);
        assert_eq!(told(&mut pair), expected, "ended");
        assert!(pair.at(End::Server).is_open());
    }
}

#[test]
fn a_copy_of_an_attach_does_not_keep_what_it_came_with() {
    let mut came = BytesMut::new();
    attach("in", Role::Sender).encode(&mut came);
    let size = came.len();
    came.extend_from_slice(&[0; 60_000]);
    let came = came.freeze();
    let attach = Attach::decode(&mut Reader::new(&came)).unwrap();
    assert!(!came.is_unique());
    let (copy, copied) = attach.unshared();
    assert_eq!((&copy, copied), (&attach, size));
    drop(attach);
    assert!(came.is_unique());
}
