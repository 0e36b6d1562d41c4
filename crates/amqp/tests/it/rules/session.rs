//! Errors that end a session, and input that does not.

use kew_amqp::error::condition;
use kew_amqp::performative::{
    Attach, DeliveryState, Detach, Disposition, End, Flow, Performative, Role, Transfer,
};
use kew_amqp::{By, Config, Event, Limits};

use super::{Peer, begin, config, flow, transfer};
use crate::pair::{attach, send};

#[test]
fn rules_of_a_session_end_the_session() {
    let detach = |handle| {
        Performative::Detach(Detach {
            handle,
            closed: true,
            error: None,
        })
    };
    let again = Performative::Attach(Box::new(Attach {
        handle: 5,
        ..attach("another", Role::Sender)
    }));
    let untagged = Transfer {
        delivery_tag: None,
        ..transfer(0)
    };
    let unnumbered = Transfer {
        delivery_id: None,
        ..transfer(0)
    };
    let backwards = Performative::Disposition(Disposition {
        role: Role::Receiver,
        first: 5,
        last: Some(4),
        settled: true,
        state: None,
        batchable: false,
    });
    let other = Transfer {
        handle: 6,
        ..transfer(0)
    };
    let rows = [
        ("handle in use", again, condition::HANDLE_IN_USE),
        (
            "flow without link",
            Performative::Flow(flow(Some(4))),
            condition::UNATTACHED_HANDLE,
        ),
        (
            "detach without link",
            detach(4),
            condition::UNATTACHED_HANDLE,
        ),
        (
            "transfer without link",
            Performative::Transfer(other),
            condition::UNATTACHED_HANDLE,
        ),
        (
            "transfer without tag",
            Performative::Transfer(untagged),
            condition::INVALID_FIELD,
        ),
        (
            "transfer without id",
            Performative::Transfer(unnumbered),
            condition::INVALID_FIELD,
        ),
        ("range backwards", backwards, condition::INVALID_FIELD),
    ];
    for (name, performative, expected) in rows {
        let mut peer = Peer::begun();
        peer.sender(3);
        peer.tell(3, performative);
        assert_eq!(peer.ended(), ("session", expected), "{name}");
        assert!(
            matches!(peer.events[..], [Event::Ended { by: By::Us, .. }]),
            "{name}"
        );
        // Until the peer has ended it, everything else on the channel is ignored. Then the channel
        // is free.
        peer.tell(3, Performative::Transfer(transfer(9)));
        peer.tell(3, Performative::End(End { error: None }));
        assert_eq!(peer.events.len(), 1, "{name}");
        peer.tell(3, Performative::Begin(begin()));
        assert!(matches!(peer.events[1], Event::Begun { .. }), "{name}");
    }
}

#[test]
fn deliveries_have_numbers_of_their_own() {
    let mut peer = Peer::begun();
    peer.sender(3);
    peer.tell(3, Performative::Transfer(transfer(1)));
    peer.tell(3, Performative::Transfer(transfer(1)));
    assert_eq!(peer.ended(), ("session", condition::INVALID_FIELD));

    let mut peer = Peer::begun();
    peer.sender(3);
    let first = Transfer {
        more: true,
        ..transfer(1)
    };
    peer.tell(3, Performative::Transfer(first));
    peer.tell(3, Performative::Transfer(transfer(2)));
    assert_eq!(peer.ended(), ("session", condition::INVALID_FIELD));

    let mut peer = Peer::begun();
    peer.attach(5, Role::Receiver);
    peer.tell(3, Performative::Transfer(transfer(1)));
    assert_eq!(
        peer.ended(),
        ("session", condition::NOT_ALLOWED),
        "the link is a sender"
    );
}

#[test]
fn the_number_of_a_delivery_that_came_settled_can_be_another_ones() {
    let mut peer = Peer::begun();
    let (settled, unsettled) = (peer.sender(3), peer.attach(6, Role::Sender));
    peer.server.grant(unsettled, 3);
    let part = Transfer {
        settled: Some(true),
        more: true,
        ..transfer(1)
    };
    peer.tell(3, Performative::Transfer(part.clone()));
    let other = Transfer {
        handle: 6,
        ..transfer(1)
    };
    peer.tell(3, Performative::Transfer(other));
    let last = Transfer {
        more: false,
        ..part
    };
    peer.tell(3, Performative::Transfer(last));
    assert_eq!(peer.ended(), ("nothing", ""));
    assert_eq!(peer.server.unsettled(settled), 0);
    assert_eq!(peer.server.unsettled(unsettled), 1);
}

#[test]
fn the_window_is_enforced_and_opened_again() {
    let mut peer = Peer::begun();
    let link = peer.sender(100);
    for id in 0..20 {
        peer.tell(3, Performative::Transfer(transfer(id)));
    }
    assert_eq!(peer.ended(), ("nothing", ""));
    let opened = peer.frames.iter().filter_map(|(_, frame)| match frame {
        Performative::Flow(flow) => Some((flow.next_incoming_id, flow.incoming_window)),
        _ => None,
    });
    let opened: Vec<_> = opened.collect();
    let expected: Vec<_> = (1..=10).map(|turn| (Some(100 + turn * 2), 4)).collect();
    assert_eq!(opened, expected);
    assert_eq!(peer.server.unsettled(link), 20);
}

#[test]
fn a_window_that_is_closed_is_closed() {
    let mut peer = Peer::with(
        Config {
            incoming_window: 0,
            ..config()
        },
        Limits::default(),
    );
    peer.sender(100);
    peer.tell(3, Performative::Transfer(transfer(0)));
    assert_eq!(peer.ended(), ("session", condition::WINDOW_VIOLATION));
}

#[test]
fn ranges_affect_existing_deliveries_only() {
    let mut peer = Peer::begun();
    let link = peer.attach(5, Role::Receiver);
    let credit = Flow {
        link_credit: Some(100),
        ..flow(Some(5))
    };
    peer.tell(3, Performative::Flow(credit));
    let names: Vec<_> = (0..10)
        .map(|n| send(&mut peer.server, link, n, b"x").unwrap())
        .collect();
    peer.events.clear();
    peer.server.settle(names[3], None);
    let range = |first, last| {
        Performative::Disposition(Disposition {
            role: Role::Receiver,
            first,
            last: Some(last),
            settled: true,
            state: Some(DeliveryState::ACCEPTED),
            batchable: true,
        })
    };
    peer.tell(3, range(2, 0x7000_0000));
    assert_eq!(peer.events.len(), 7, "2 and 4 to 9");
    assert_eq!(peer.server.unsettled(link), 2);
    peer.tell(3, range(0xffff_fff0, 0));
    assert_eq!(
        peer.server.unsettled(link),
        1,
        "a range over the end of the numbers"
    );
    peer.tell(3, range(500, 600));
    assert_eq!(
        peer.ended(),
        ("nothing", ""),
        "unknown deliveries are ignored"
    );
}
