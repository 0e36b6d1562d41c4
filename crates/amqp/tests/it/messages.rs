//! Messages and their settlement.

use bytes::Bytes;
use kew_amqp::codec::{Map, Symbol};
use kew_amqp::error::Error;
use kew_amqp::performative::{
    Attach, Coordinator, DeliveryState, Modified, Outcome, Rejected, Role, SenderSettleMode, Tag,
    Target, TransactionalState,
};
use kew_amqp::{Config, Event, Limits, Millis, Outgoing, SendRefusal};

use crate::pair::{End, Pair, attach, deliveries, from_server, open, send, small, to_server};

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
    // Eight settlements are sent as one frame.
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
        "8 frames are allowed, {} bytes arrived",
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
