//! Errors that end a link, and how links treat a correct peer.

use bytes::Bytes;
use kew_amqp::codec::{Map, Symbol, Text, Value};
use kew_amqp::error::condition;
use kew_amqp::performative::{Attach, DeliveryState, Detach, Flow, Performative, Role, Transfer};
use kew_amqp::{By, Event, Limits};

use super::{Peer, config, flow, more, transfer};
use crate::pair::{attach, send};

#[test]
fn rules_of_a_link_detach_the_link() {
    let whole = |size: usize| vec![(transfer(0), vec![0; size])];
    let resumed = Transfer {
        resume: true,
        ..transfer(0)
    };
    let rows = [
        (
            "resume",
            1,
            vec![(resumed, vec![])],
            condition::NOT_IMPLEMENTED,
        ),
        ("no credit", 0, whole(1), condition::TRANSFER_LIMIT_EXCEEDED),
        (
            "two for one",
            1,
            [whole(1), vec![(transfer(1), vec![])]].concat(),
            condition::TRANSFER_LIMIT_EXCEEDED,
        ),
    ];
    for (name, credit, transfers, expected) in rows {
        let mut peer = Peer::begun();
        let link = peer.sender(credit);
        let last = transfers.len() - 1;
        for (at, (transfer, payload)) in transfers.into_iter().enumerate() {
            if at == last {
                assert_eq!(peer.ended(), ("nothing", ""), "{name}");
            }
            peer.tell_with(3, Performative::Transfer(transfer), &payload);
        }
        assert_eq!(peer.ended(), ("link", expected), "{name}");
        let told = peer.events.last();
        let by_us =
            matches!(told, Some(Event::Detached { link: own, by: By::Us, .. }) if *own == link);
        assert!(by_us, "{name}");
        // Frames on their way are ignored, and the handle is free after the peer's detach.
        let events = peer.events.len();
        peer.tell(3, Performative::Transfer(more(true)));
        peer.tell(
            3,
            Performative::Detach(Detach {
                handle: 5,
                closed: true,
                error: None,
            }),
        );
        assert_eq!(peer.events.len(), events, "{name}");
        peer.sender(1);
        peer.tell(3, Performative::Transfer(transfer(7)));
        assert!(
            matches!(peer.events.last(), Some(Event::Delivery(_))),
            "{name}"
        );
    }
}

#[test]
fn unfinished_messages_are_limited_over_all_links() {
    let limits = Limits {
        reassembly_size_max: 2_000,
        ..Limits::default()
    };
    let mut peer = Peer::with(config(), limits);
    for handle in 0..3 {
        let link = peer.attach(handle, Role::Sender);
        peer.server.grant(link, 9);
    }
    peer.listen();
    peer.frames.clear();
    let first = |handle, id| {
        Performative::Transfer(Transfer {
            handle,
            more: true,
            ..transfer(id)
        })
    };
    peer.tell_with(3, first(0, 0), &[0; 900]);
    peer.tell_with(3, first(1, 1), &[0; 900]);
    assert_eq!(peer.ended(), ("nothing", ""));
    peer.tell_with(3, first(2, 2), &[0; 201]);
    assert_eq!(peer.ended(), ("link", condition::RESOURCE_LIMIT_EXCEEDED));
    peer.frames.clear();
    // An aborted, detached or complete message makes room.
    let aborted = Transfer {
        handle: 0,
        aborted: true,
        ..more(true)
    };
    peer.tell(3, Performative::Transfer(aborted));
    peer.tell(
        3,
        Performative::Detach(Detach {
            handle: 1,
            closed: true,
            error: None,
        }),
    );
    peer.frames.clear();
    peer.tell_with(3, first(0, 3), &[0; 900]);
    let rest = Transfer {
        handle: 0,
        ..more(true)
    };
    peer.tell_with(3, Performative::Transfer(rest), &[0; 500]);
    assert!(matches!(peer.events.last(), Some(Event::Delivery(d)) if d.payload.len() == 1_400));
    peer.tell_with(3, first(0, 4), &[0; 900]);
    assert_eq!(peer.ended(), ("nothing", ""));
}

/// Sends a message in parts of these sizes, settled or not. A link takes 1,500 bytes.
fn send_parts(peer: &mut Peer, id: u32, settled: Option<bool>, sizes: &[usize]) {
    for (at, &size) in sizes.iter().enumerate() {
        let first = match at {
            0 => transfer(id),
            _ => more(false),
        };
        let transfer = Transfer {
            settled,
            more: at + 1 < sizes.len(),
            ..first
        };
        peer.tell_with(3, Performative::Transfer(transfer), &vec![0; size]);
    }
}

#[test]
fn an_oversized_message_is_reported_when_complete_and_the_link_stays() {
    let mut peer = Peer::begun();
    let link = peer.sender(3);
    send_parts(&mut peer, 0, None, &[900, 600, 1, 900]);
    let Some(Event::Oversized(it)) = peer.events.pop() else {
        panic!("{:?}", peer.events);
    };
    assert_eq!(peer.events, []);
    assert_eq!(it.error.condition, condition::MESSAGE_SIZE_EXCEEDED);
    let text = "The received message (delivery-id:0, size:2401 bytes) exceeds the limit (1500 bytes) \
                currently allowed on the link.";
    assert_eq!(it.error.description.as_ref().unwrap().as_str(), text);
    assert_eq!(peer.ended(), ("nothing", ""));
    let counts = |peer: &Peer| (peer.server.credit(link), peer.server.unsettled(link));
    assert_eq!(counts(&peer), (2, 1));
    let verdict = DeliveryState::rejected(it.error);
    assert!(peer.server.settle(it.delivery, Some(verdict.clone())));
    assert_eq!(counts(&peer), (2, 0));
    // A sender that wants no outcome gets none.
    send_parts(&mut peer, 1, Some(true), &[900, 900]);
    let Some(Event::Oversized(it)) = peer.events.pop() else {
        panic!("{:?}", peer.events);
    };
    assert!(!peer.server.settle(it.delivery, Some(verdict.clone())));
    assert_eq!(counts(&peer), (1, 0));
    send_parts(&mut peer, 2, None, &[900, 600]);
    assert!(matches!(&peer.events[..], [Event::Delivery(d)] if d.payload.len() == 1_500));
    peer.listen();
    let verdicts = peer.frames.iter().filter_map(|(_, frame)| match frame {
        Performative::Disposition(it) => Some((it.first, it.last, it.settled, it.state.clone())),
        _ => None,
    });
    let verdicts: Vec<_> = verdicts.collect();
    assert_eq!(verdicts, [(0, None, true, Some(verdict))]);
}

#[test]
fn parts_of_a_message_that_is_too_large_are_not_kept() {
    let mut peer = Peer::begun();
    let link = peer.sender(3);
    let first = Transfer {
        more: true,
        ..transfer(0)
    };
    peer.tell_with(3, Performative::Transfer(first), &[0; 900]);
    assert_eq!(peer.server.reassembly_size(), 900);
    for _ in 0..100 {
        peer.tell_with(3, Performative::Transfer(more(false)), &[0; 900]);
        assert_eq!(peer.server.reassembly_size(), 0);
    }
    let aborted = Transfer {
        aborted: true,
        ..more(true)
    };
    peer.tell(3, Performative::Transfer(aborted));
    assert_eq!(peer.events, []);
    assert_eq!(
        (peer.server.credit(link), peer.server.unsettled(link)),
        (2, 0)
    );
    peer.tell_with(3, Performative::Transfer(transfer(1)), b"whole");
    assert!(matches!(&peer.events[..], [Event::Delivery(d)] if d.payload[..] == b"whole"[..]));
}

#[test]
fn a_message_that_is_far_too_large_detaches_its_link() {
    let limits = Limits {
        discarded_size_max: 2_000,
        ..Limits::default()
    };
    let mut peer = Peer::with(config(), limits);
    let link = peer.sender(3);
    send_parts(&mut peer, 0, None, &[900, 900, 200]);
    assert!(matches!(peer.events[..], [Event::Oversized(_)]));
    assert_eq!(peer.ended(), ("nothing", ""));
    send_parts(&mut peer, 1, None, &[900, 900, 201]);
    assert_eq!(peer.ended(), ("link", condition::MESSAGE_SIZE_EXCEEDED));
    let by_us = matches!(peer.events.last(), Some(Event::Detached { link: own, by: By::Us, .. }) if *own == link);
    assert!(by_us, "{:?}", peer.events);
}

#[test]
fn an_aborted_delivery_has_no_effect() {
    let mut peer = Peer::begun();
    let link = peer.sender(3);
    let first = Transfer {
        more: true,
        ..transfer(0)
    };
    peer.tell_with(3, Performative::Transfer(first), b"half");
    let aborted = Transfer {
        aborted: true,
        ..more(true)
    };
    peer.tell(3, Performative::Transfer(aborted));
    assert_eq!(peer.events, []);
    assert_eq!(
        (peer.server.credit(link), peer.server.unsettled(link)),
        (2, 0)
    );
    peer.tell_with(3, Performative::Transfer(transfer(1)), b"whole");
    assert!(matches!(&peer.events[..], [Event::Delivery(d)] if d.payload[..] == b"whole"[..]));
}

#[test]
fn settled_and_state_of_any_part_count() {
    let mut peer = Peer::begun();
    peer.sender(3);
    let first = Transfer {
        more: true,
        ..transfer(0)
    };
    let last = Transfer {
        settled: Some(true),
        state: Some(DeliveryState::ACCEPTED),
        ..more(true)
    };
    peer.tell_with(3, Performative::Transfer(first), b"a");
    peer.tell_with(3, Performative::Transfer(last), b"b");
    let [Event::Delivery(delivery)] = &peer.events[..] else {
        panic!("{:?}", peer.events);
    };
    assert!(delivery.is_settled);
    assert_eq!(delivery.state, Some(DeliveryState::ACCEPTED));
    assert_eq!(delivery.payload[..], b"ab"[..]);
}

#[test]
fn credit_with_the_attach_counts_after_the_answer() {
    // Python sends both before it reads an answer, and its flow has no delivery count.
    let mut peer = Peer::begun();
    let asked = Attach {
        handle: 1,
        ..attach("out", Role::Receiver)
    };
    peer.tell(3, Performative::Attach(Box::new(asked.clone())));
    let credit = Flow {
        link_credit: Some(10),
        ..flow(Some(1))
    };
    peer.tell(3, Performative::Flow(credit));
    let [Event::Attach { link, .. }] = peer.events[..] else {
        panic!("{:?}", peer.events);
    };
    assert!(!peer.server.can_send(link));
    peer.server.accept(link, asked.answer());
    let told = Event::Credit {
        link,
        credit: 10,
        is_drain: false,
        properties: None,
    };
    assert_eq!(peer.server.poll_event(), Some(told));
    assert!(peer.server.can_send(link));
    peer.listen();
    let (_, Performative::Attach(answer)) = &peer.frames[0] else {
        panic!("{:?}", peer.frames);
    };
    assert_eq!(
        answer.initial_delivery_count,
        Some(0),
        "Python closes a link without it"
    );
    assert_eq!(answer.max_message_size, Some(1 << 20));
}

#[test]
fn flows_before_the_answer_count_after_it() {
    let named = |size: usize| {
        Map::build(|map| {
            map.entry(&Symbol::from_static("other"), "x");
            let id = Bytes::from(vec![7; size]);
            map.entry(&Symbol::from_static("txn-id"), &id);
        })
    };
    let id = |value| {
        Some(Map::build(|map| {
            map.entry(&Symbol::from_static("txn-id"), &value)
        }))
    };
    for (size, kept) in [
        (32, Value::Binary(Bytes::from(vec![7; 32]))),
        (500, Value::Null),
    ] {
        let mut peer = Peer::begun();
        let asked = Attach {
            handle: 1,
            ..attach("out", Role::Receiver)
        };
        peer.tell(3, Performative::Attach(Box::new(asked.clone())));
        let credit = Flow {
            link_credit: Some(10),
            properties: Some(named(size)),
            ..flow(Some(1))
        };
        peer.tell(3, Performative::Flow(credit));
        let echo = Flow {
            echo: true,
            ..flow(Some(1))
        };
        peer.tell(3, Performative::Flow(echo));
        let [Event::Attach { link, .. }] = peer.events[..] else {
            panic!("{:?}", peer.events);
        };
        assert!(peer.frames.is_empty());
        peer.server.accept(link, asked.answer());
        let told = Event::Credit {
            link,
            credit: 10,
            is_drain: false,
            properties: id(kept),
        };
        assert_eq!(peer.server.poll_event(), Some(told));
        peer.listen();
        let [
            (_, Performative::Attach(_)),
            (_, Performative::Flow(answer)),
        ] = &peer.frames[..]
        else {
            panic!("{:?}", peer.frames);
        };
        assert_eq!(answer.link_credit, Some(10));
        assert_eq!(answer.delivery_count, Some(0));
    }
}

#[test]
fn a_drain_sets_every_field_that_clients_read() {
    let mut peer = Peer::begun();
    let link = peer.attach(5, Role::Receiver);
    let drain = Flow {
        link_credit: Some(10),
        delivery_count: Some(0),
        drain: true,
        echo: true,
        ..flow(Some(5))
    };
    peer.tell(3, Performative::Flow(drain));
    assert!(
        peer.frames.is_empty(),
        "nothing before the available messages"
    );
    send(&mut peer.server, link, 1, b"x").unwrap();
    peer.server.drained(link);
    peer.listen();
    let [
        (_, Performative::Transfer(_)),
        (_, Performative::Flow(flow)),
    ] = &peer.frames[..]
    else {
        panic!("{:?}", peer.frames);
    };
    assert_eq!(flow.handle, Some(0));
    assert_eq!((flow.link_credit, flow.delivery_count), (Some(0), Some(10)));
    assert!(flow.drain);
    assert_eq!(
        (flow.next_incoming_id, flow.next_outgoing_id),
        (Some(100), 1)
    );
    assert_eq!(flow.incoming_window, 4);
}

#[test]
fn a_link_of_the_same_name_takes_over() {
    let mut peer = Peer::begun();
    let old = peer.attach(5, Role::Sender);
    let asked = Attach {
        handle: 6,
        ..attach("link 5", Role::Sender)
    };
    peer.tell(3, Performative::Attach(Box::new(asked)));
    assert_eq!(peer.ended(), ("link", condition::STOLEN));
    let [
        Event::Detached { link, .. },
        Event::Attach { link: new, .. },
    ] = peer.events[..]
    else {
        panic!("{:?}", peer.events);
    };
    assert_eq!(link, old);
    assert_ne!(new, old);
}

#[test]
fn unsettled_deliveries_of_a_former_link_are_not_known() {
    let mut peer = Peer::begun();
    let asked = Attach {
        handle: 1,
        unsettled: Some(Map::build(|map| {
            map.entry(&Bytes::from_static(b"tag"), &None::<Text>)
        })),
        ..attach("again", Role::Sender)
    };
    peer.tell(3, Performative::Attach(Box::new(asked.clone())));
    let Some(Event::Attach { link, .. }) = peer.events.pop() else {
        panic!("there was an attach event");
    };
    peer.server.accept(link, asked.answer());
    peer.listen();
    let Some((_, Performative::Attach(answer))) = peer.frames.pop() else {
        panic!("it was answered");
    };
    assert_eq!(answer.unsettled, None);
}
