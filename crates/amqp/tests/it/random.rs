//! Two ends do random operations, with bytes on the way between them: in any order, neither end
//! breaks a rule, and no message is lost, duplicated or invented.

use std::collections::{BTreeMap, VecDeque};

use kew_amqp::performative::{DeliveryState, Outcome, Role};
use kew_amqp::{
    Config, Connection, DeliveryId, Event, Limits, LinkId, Millis, SendRefusal, SessionId,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::pair::{End, attach, send};

const ENDS: [End; 2] = [End::Client, End::Server];

#[derive(Clone, Debug)]
enum Op {
    Begin(End),
    Attach(End, u8, Role),
    Grant(u8, u32),
    Send(u8, u16),
    Update(u8, bool),
    Settle(u8, bool),
    Drain(u8),
    Tell(End, u8, bool),
    Detach(End, u8, bool),
    End(End, u8),
    /// Lets so many bytes arrive.
    Arrive(End, u16),
}

fn op() -> impl Strategy<Value = Op> {
    let end = || prop_oneof![Just(End::Client), Just(End::Server)];
    let role = prop_oneof![Just(Role::Sender), Just(Role::Receiver)];
    let n = any::<u8>;
    prop_oneof![
        1 => end().prop_map(Op::Begin),
        3 => (end(), n(), role).prop_map(|(end, session, role)| Op::Attach(end, session, role)),
        6 => (n(), 0..20u32).prop_map(|(link, credit)| Op::Grant(link, credit)),
        12 => (n(), 0..3_000u16).prop_map(|(link, size)| Op::Send(link, size)),
        4 => (n(), any::<bool>()).prop_map(|(at, accept)| Op::Update(at, accept)),
        6 => (n(), any::<bool>()).prop_map(|(at, accept)| Op::Settle(at, accept)),
        2 => n().prop_map(Op::Drain),
        1 => (end(), n(), any::<bool>()).prop_map(|(end, link, echo)| Op::Tell(end, link, echo)),
        1 => (end(), n(), any::<bool>()).prop_map(|(end, link, closed)| Op::Detach(end, link, closed)),
        1 => (end(), n()).prop_map(|(end, session)| Op::End(end, session)),
        20 => (end(), 0..2_000u16).prop_map(|(end, bytes)| Op::Arrive(end, bytes)),
    ]
}

/// The test's model of a link.
#[derive(Debug)]
struct Known {
    /// The link's name at each end.
    ids: [Option<LinkId>; 2],
    sender: End,
    is_gone: bool,
    /// Messages that were sent and have not arrived.
    on_the_way: VecDeque<(u8, Vec<u8>)>,
    sent: u8,
    /// The credit that the receiver granted, minus the messages that have arrived.
    credit: u32,
}

struct World {
    ends: [Connection; 2],
    /// Bytes to each end.
    pipes: [VecDeque<u8>; 2],
    sessions: [Vec<SessionId>; 2],
    links: BTreeMap<String, Known>,
    names: u32,
    /// Deliveries that may get a state.
    open: Vec<(End, DeliveryId)>,
    arrived: u32,
}

fn other(end: End) -> End {
    match end {
        End::Client => End::Server,
        End::Server => End::Client,
    }
}

impl World {
    fn new(first_id: u32) -> Self {
        let config = Config {
            frame_size_max: 512,
            incoming_window: 6,
            first_id,
            ..Config::default()
        };
        let limits = Limits {
            output_size_max: 3_000,
            ..Limits::default()
        };
        Self {
            ends: [
                Connection::client(config.clone(), limits.clone(), Millis(0)),
                Connection::server(config, limits, Millis(0)),
            ],
            pipes: Default::default(),
            sessions: Default::default(),
            links: BTreeMap::new(),
            names: 0,
            open: Vec::new(),
            arrived: 0,
        }
    }

    fn at(&mut self, end: End) -> &mut Connection {
        &mut self.ends[end as usize]
    }

    fn pick(&self, at: u8) -> Option<String> {
        let live = self.links.iter().filter(|(_, link)| !link.is_gone);
        let live: Vec<_> = live.map(|(name, _)| name.clone()).collect();
        live.get(usize::from(at) % live.len().max(1)).cloned()
    }

    fn session(&self, end: End, at: u8) -> Option<SessionId> {
        let sessions = &self.sessions[end as usize];
        sessions
            .get(usize::from(at) % sessions.len().max(1))
            .copied()
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Begin(end) => {
                if let Some(session) = self.at(end).begin() {
                    self.sessions[end as usize].push(session);
                }
            }
            Op::Attach(end, session, role) => self.attach(end, session, role),
            Op::Grant(link, credit) => self.grant(link, credit),
            Op::Send(link, size) => self.send(link, size),
            Op::Update(at, accept) => {
                if let Some((end, delivery)) = self.delivery(at) {
                    self.at(end).update(delivery, verdict(accept));
                }
            }
            Op::Settle(at, accept) => {
                if let Some((end, delivery)) = self.delivery(at) {
                    self.at(end).settle(delivery, Some(verdict(accept)));
                    self.open.retain(|open| *open != (end, delivery));
                }
            }
            Op::Drain(at) => {
                if let Some((receiver, id)) = self.receiver(at) {
                    self.at(receiver).drain(id);
                }
            }
            Op::Tell(end, at, echo) => {
                let link = self
                    .pick(at)
                    .and_then(|name| self.links[&name].ids[end as usize]);
                if let Some(link) = link {
                    self.at(end).tell(link, echo, Some(3), None);
                }
            }
            Op::Detach(end, at, closed) => {
                let Some(name) = self.pick(at) else { return };
                if let Some(link) = self.links[&name].ids[end as usize]
                    && self.at(end).detach(link, closed, None)
                {
                    self.links.get_mut(&name).unwrap().is_gone = true;
                }
            }
            Op::End(end, at) => {
                let Some(session) = self.session(end, at) else {
                    return;
                };
                if self.at(end).end(session, None) {
                    self.lose(end, session);
                }
            }
            Op::Arrive(end, bytes) => self.arrive(end, usize::from(bytes)),
        }
    }

    fn lose(&mut self, end: End, session: SessionId) {
        self.sessions[end as usize].retain(|own| *own != session);
        for link in self.links.values_mut() {
            let own = link.ids[end as usize];
            link.is_gone |= own.is_some_and(|own| own.session() == session);
        }
    }

    fn delivery(&self, at: u8) -> Option<(End, DeliveryId)> {
        self.open
            .get(usize::from(at) % self.open.len().max(1))
            .copied()
    }

    fn receiver(&self, at: u8) -> Option<(End, LinkId)> {
        let link = &self.links[&self.pick(at)?];
        let receiver = other(link.sender);
        Some((receiver, link.ids[receiver as usize]?))
    }

    fn attach(&mut self, end: End, session: u8, role: Role) {
        let Some(session) = self.session(end, session) else {
            return;
        };
        let name = format!("link {:05}", self.names);
        let Some(id) = self.at(end).attach(session, attach(&name, role)) else {
            return;
        };
        self.names += 1;
        let mut ids = [None; 2];
        ids[end as usize] = Some(id);
        let sender = if role == Role::Sender {
            end
        } else {
            other(end)
        };
        let known = Known {
            ids,
            sender,
            is_gone: false,
            on_the_way: VecDeque::new(),
            sent: 0,
            credit: 0,
        };
        self.links.insert(name, known);
    }

    fn grant(&mut self, at: u8, credit: u32) {
        let Some(name) = self.pick(at) else { return };
        if let Some((receiver, id)) = self.receiver(at)
            && self.at(receiver).grant(id, credit)
        {
            self.links.get_mut(&name).unwrap().credit = credit;
        }
    }

    fn send(&mut self, at: u8, size: u16) {
        let Some(name) = self.pick(at) else { return };
        let (sender, tag) = (self.links[&name].sender, self.links[&name].sent);
        let Some(id) = self.links[&name].ids[sender as usize] else {
            return;
        };
        let payload: Vec<u8> = (0..size).map(|at| at.to_be_bytes()[1] ^ tag).collect();
        let credit = self.at(sender).credit(id);
        match send(self.at(sender), id, tag, &payload) {
            Ok(delivery) => {
                assert_eq!(self.at(sender).credit(id), credit - 1);
                let link = self.links.get_mut(&name).unwrap();
                link.sent = tag.wrapping_add(1);
                link.on_the_way.push_back((tag, payload));
                self.open.push((sender, delivery));
            }
            Err(SendRefusal::NoCredit) => assert_eq!(credit, 0),
            Err(_) => {}
        }
    }

    fn arrive(&mut self, end: End, bytes: usize) {
        let from = other(end);
        let output = self.at(from).take_output(Millis(0));
        self.pipes[end as usize].extend(output);
        let pipe = &mut self.pipes[end as usize];
        let bytes: Vec<u8> = pipe.drain(..bytes.min(pipe.len())).collect();
        self.at(end).feed(&bytes, Millis(0));
        for end in ENDS {
            while let Some(event) = self.at(end).poll_event() {
                self.on_event(end, event);
            }
        }
    }

    fn name_of(&self, end: End, id: LinkId) -> String {
        let found = self
            .links
            .iter()
            .find(|(_, link)| link.ids[end as usize] == Some(id));
        found.unwrap().0.clone()
    }

    fn on_event(&mut self, end: End, event: Event) {
        match event {
            Event::Opened(_) | Event::Attached { .. } | Event::Available { .. } => {}
            Event::Begun { session, .. } => {
                if !self.sessions[end as usize].contains(&session) {
                    self.sessions[end as usize].push(session);
                }
            }
            Event::Attach { link, attach } => {
                let known = self.links.get_mut(attach.name.as_str()).unwrap();
                known.ids[end as usize] = Some(link);
                assert!(self.at(end).accept(link, attach.answer()));
            }
            Event::Delivery(delivery) => {
                let name = self.name_of(end, delivery.link);
                let link = self.links.get_mut(&name).unwrap();
                let (tag, payload) = link.on_the_way.pop_front().expect("it was sent");
                assert_eq!(delivery.tag.as_bytes(), [tag; 16]);
                assert_eq!(delivery.payload, payload);
                self.arrived += 1;
                self.open.push((end, delivery.delivery));
            }
            Event::Disposition {
                delivery,
                is_settled,
                ..
            } => {
                if is_settled {
                    self.open.retain(|open| *open != (end, delivery));
                } else if delivery.direction() == kew_amqp::Direction::Outgoing {
                    self.at(end).settle(delivery, Some(DeliveryState::ACCEPTED));
                    self.open.retain(|open| *open != (end, delivery));
                }
            }
            Event::Credit {
                link,
                is_drain: true,
                ..
            } => {
                assert!(self.at(end).drained(link));
            }
            Event::Detached { link, error, .. } => {
                assert_eq!(error, None, "neither end broke a rule");
                let name = self.name_of(end, link);
                self.links.get_mut(&name).unwrap().is_gone = true;
            }
            Event::Ended { session, error, .. } => {
                assert_eq!(error, None, "neither end broke a rule");
                self.lose(end, session);
            }
            Event::Credit { .. } | Event::Drained { .. } | Event::Writable { .. } => {}
            other => panic!("{end:?}: {other:?}"),
        }
    }

    fn come_to_rest(&mut self) {
        for _ in 0..10_000 {
            for end in ENDS {
                self.arrive(end, usize::MAX);
            }
            let is_quiet = ENDS.iter().all(|&end| self.at(end).output_size() == 0);
            let outputs = ENDS.map(|end| self.at(other(end)).take_output(Millis(0)));
            let is_silent = outputs.iter().all(|output| output.is_empty());
            for (pipe, output) in self.pipes.iter_mut().zip(outputs) {
                pipe.extend(output);
            }
            if is_quiet && is_silent {
                return;
            }
        }
        panic!("the two ends do not become idle");
    }

    fn check(&self) {
        for (name, link) in self.links.iter().filter(|(_, link)| !link.is_gone) {
            let [Some(client), Some(server)] = link.ids else {
                panic!("{name} was not attached");
            };
            let [a, b] = &self.ends;
            assert!(
                link.on_the_way.is_empty(),
                "{name}: every message has arrived"
            );
            assert_eq!(a.credit(client), b.credit(server), "{name}: credit");
            assert_eq!(
                a.unsettled(client),
                b.unsettled(server),
                "{name}: unsettled"
            );
        }
    }
}

fn verdict(accept: bool) -> DeliveryState {
    let outcome = if accept {
        Outcome::Accepted
    } else {
        Outcome::Released
    };
    outcome.into()
}

fn run(first_id: u32, ops: Vec<Op>) -> World {
    let mut world = World::new(first_id);
    world.come_to_rest();
    for end in ENDS {
        world.run(Op::Begin(end));
        world.run(Op::Attach(end, 0, Role::Sender));
        world.run(Op::Attach(end, 0, Role::Receiver));
    }
    world.come_to_rest();
    for op in ops {
        world.run(op);
    }
    world.come_to_rest();
    world.check();
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn anything_in_any_order(first in 0..3u32, ops in vec(op(), 1..200)) {
        run(first.wrapping_sub(2), ops);
    }
}

/// The test above would pass if nothing ever arrived.
#[test]
fn messages_do_arrive() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut arrived = 0;
    for _ in 0..20 {
        let ops = vec(op(), 200).new_tree(&mut runner).unwrap();
        arrived += run(0, proptest::strategy::ValueTree::current(&ops)).arrived;
    }
    assert!(arrived > 100, "{arrived} messages arrived");
}
