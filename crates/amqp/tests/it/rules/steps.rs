//! The cost of a peer's frames, in steps: it depends on what they change, not on what they name.

use bytes::BytesMut;
use kew_amqp::frame::{FrameType, write_frame};
use kew_amqp::performative::{
    DeliveryState, Detach, Disposition, Flow, Performative, Received, Role, TransactionalState,
};
use kew_amqp::{Config, Event, Limits, LinkId, Millis, Steps};

use super::{Peer, flow};
use crate::pair::send;

/// How many deliveries the peer has not settled.
const DELIVERIES: u32 = 2_000;

/// A peer with a link to it that has so many unsettled deliveries.
fn peer_with(deliveries: u32) -> (Peer, LinkId) {
    let config = Config {
        handle_max: 5_000,
        ..Config::default()
    };
    let mut peer = Peer::with(config, Limits::default());
    let link = receiver(&mut peer, 5);
    send_some(&mut peer, link, 5, deliveries);
    (peer, link)
}

fn receiver(peer: &mut Peer, handle: u32) -> LinkId {
    let link = peer.attach(handle, Role::Receiver);
    peer.events.clear();
    link
}

fn send_some(peer: &mut Peer, link: LinkId, handle: u32, count: u32) {
    let credit = Flow {
        link_credit: Some(count),
        delivery_count: Some(0),
        incoming_window: u32::MAX,
        ..flow(Some(handle))
    };
    peer.tell(3, Performative::Flow(credit));
    for _ in 0..count {
        send(&mut peer.server, link, 1, b"x").unwrap();
        peer.server.take_output(Millis(0));
    }
    peer.events.clear();
}

fn disposition(range: (u32, u32), settled: bool, state: Option<DeliveryState>) -> Performative {
    Performative::Disposition(Disposition {
        role: Role::Receiver,
        first: range.0,
        last: Some(range.1),
        settled,
        state,
        batchable: false,
    })
}

fn received() -> Option<DeliveryState> {
    Some(DeliveryState::Received(Received {
        section_number: 0,
        section_offset: 0,
    }))
}

fn feed(peer: &mut Peer, frames: impl IntoIterator<Item = Performative>) {
    let mut bytes = BytesMut::new();
    for frame in frames {
        write_frame(&mut bytes, FrameType::Amqp, 3, |out| frame.encode(out));
    }
    peer.server.feed(&bytes, Millis(0));
}

/// The steps that these frames take, and the events meanwhile.
fn steps_of(peer: &mut Peer, frames: impl IntoIterator<Item = Performative>) -> (u32, Vec<Event>) {
    feed(peer, frames);
    let mut steps = Steps::unlimited();
    let mut events = Vec::new();
    while let Some(event) = peer.server.poll_event_within(&mut steps) {
        events.push(event);
    }
    (steps.taken(), events)
}

#[test]
fn a_disposition_without_effect_costs_the_same_for_any_range() {
    let (mut peer, link) = peer_with(DELIVERIES);
    for state in [None, received()] {
        let frames = std::iter::repeat_n(disposition((0, u32::MAX >> 1), false, state), 100);
        let (steps, events) = steps_of(&mut peer, frames);
        assert_eq!(events, []);
        assert!(steps <= 300, "{steps} steps for 100 frames");
    }
    assert_eq!(peer.server.unsettled(link), DELIVERIES as usize);
}

#[test]
fn a_repeated_outcome_is_reported_once() {
    let (mut peer, link) = peer_with(DELIVERIES);
    let all = (0, u32::MAX >> 1);
    let tell = |settled| disposition(all, settled, Some(DeliveryState::ACCEPTED));
    let (steps, events) = steps_of(&mut peer, [tell(false)]);
    assert_eq!(events.len(), DELIVERIES as usize);
    assert!(steps <= 2 * DELIVERIES + 3, "{steps}");
    let (steps, events) = steps_of(&mut peer, std::iter::repeat_n(tell(false), 100));
    assert_eq!(events, []);
    assert!(steps <= 300, "{steps} steps for 100 frames");
    // It changes something that the peer settles them.
    let (_, events) = steps_of(&mut peer, [tell(true)]);
    assert_eq!(events.len(), DELIVERIES as usize);
    assert_eq!(peer.server.unsettled(link), 0);
}

#[test]
fn deliveries_are_reported_in_the_order_of_their_numbers() {
    let (mut peer, _) = peer_with(10);
    let told = |settled, range| disposition(range, settled, Some(DeliveryState::ACCEPTED));
    assert_eq!(steps_of(&mut peer, [told(false, (3, 5))]).1.len(), 3);
    assert_eq!(steps_of(&mut peer, [told(false, (2, 6))]).1.len(), 2);
    let (_, events) = steps_of(&mut peer, [told(true, (1, 8))]);
    let names: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Disposition { delivery, .. } => Some(*delivery),
            _ => None,
        })
        .collect();
    assert_eq!(names.len(), 8);
    assert!(names.is_sorted());
}

#[test]
fn a_range_does_not_affect_later_deliveries() {
    let (mut peer, link) = peer_with(10);
    let credit = Flow {
        link_credit: Some(5),
        delivery_count: Some(10),
        incoming_window: u32::MAX,
        ..flow(Some(5))
    };
    let _ = steps_of(&mut peer, [Performative::Flow(credit)]);
    let all = disposition((0, u32::MAX >> 1), true, Some(DeliveryState::ACCEPTED));
    feed(&mut peer, [all]);
    let mut steps = Steps::unlimited();
    assert!(peer.server.poll_event_within(&mut steps).is_some());
    for _ in 0..5 {
        send(&mut peer.server, link, 1, b"x").unwrap();
        peer.server.take_output(Millis(0));
    }
    while peer.server.poll_event_within(&mut steps).is_some() {}
    assert_eq!(peer.server.unsettled(link), 5);
}

#[test]
fn a_repeated_part_of_a_transaction_is_unmatched() {
    let (mut peer, _) = peer_with(3);
    let state = TransactionalState {
        txn_id: vec![1].into(),
        outcome: None,
    };
    let tell = || {
        disposition(
            (0, 2),
            false,
            Some(DeliveryState::Transactional(state.clone())),
        )
    };
    let (_, events) = steps_of(&mut peer, [tell()]);
    assert_eq!(events.len(), 3);
    let (_, events) = steps_of(&mut peer, [tell()]);
    let state = state.clone();
    assert_eq!(events, [Event::Unmatched { state }]);
}

#[test]
fn a_range_continues_where_the_steps_ended() {
    let (mut peer, link) = peer_with(DELIVERIES);
    let all = disposition((0, DELIVERIES - 1), true, None);
    feed(&mut peer, [all]);
    let mut steps = Steps::of(100);
    let (mut turns, mut told) = (0, 0);
    while told < DELIVERIES {
        steps.renew();
        while peer.server.poll_event_within(&mut steps).is_some() {
            told += 1;
        }
        assert!(steps.taken() <= 101, "{steps:?}");
        turns += 1;
    }
    assert!(turns >= 2 * DELIVERIES / 100, "{turns}");
    assert_eq!(peer.server.unsettled(link), 0);
}

#[test]
fn detaching_a_link_costs_its_own_deliveries_only() {
    let (mut peer, others) = peer_with(DELIVERIES);
    let mut steps = 0;
    for handle in 6..1_006 {
        let link = receiver(&mut peer, handle);
        send_some(&mut peer, link, handle, 1);
        let detach = Performative::Detach(Detach {
            handle,
            closed: true,
            error: None,
        });
        let (own, events) = steps_of(&mut peer, [detach]);
        assert!(matches!(events[..], [Event::Detached { .. }]), "{events:?}");
        steps += own;
    }
    assert!(steps <= 10 * 1_000, "{steps} steps for 1,000 links");
    assert_eq!(peer.server.unsettled(others), DELIVERIES as usize);
    let all = disposition((0, u32::MAX >> 1), true, None);
    assert_eq!(steps_of(&mut peer, [all]).1.len(), DELIVERIES as usize);
    assert_eq!(peer.server.unsettled(others), 0);
}
