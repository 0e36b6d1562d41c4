//! Sessions, links and credit.

use kew_amqp::codec::{Map, Symbol};
use kew_amqp::error::{Error, condition};
use kew_amqp::performative::Role;
use kew_amqp::{By, Event, Millis, SendRefusal};

use crate::pair::{End, attach, deliveries, from_server, open, send, to_server};

#[test]
fn credit_is_absolute_and_counts_messages_on_the_way() {
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
fn drain_returns_unused_credit() {
    for waiting in [0, 2, 5] {
        let mut pair = open();
        let (to, from) = from_server(&mut pair, 5);
        assert!(
            !pair.at(End::Server).drained(from),
            "there is no drain to answer"
        );
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
        // The link stays attached.
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
fn a_link_detached_before_its_answer_gets_no_event() {
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
fn a_detached_link_forgets_its_deliveries() {
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
        // Its handle and its name are reused, but its id is not.
        let (again, _) = pair.link(to.session(), attach("out", Role::Receiver));
        assert_ne!(again, to);
        assert!(!pair.at(End::Client).grant(to, 1));
    }
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
