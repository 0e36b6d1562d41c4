//! An AMQP connection with a random peer and a random caller.

use bytes::Bytes;
use kew_amqp::codec::Symbol;
use kew_amqp::frame::{AMQP_HEADER, SASL_HEADER};
use kew_amqp::performative::{
    Attach, DeliveryState, Detach, Disposition, End, Performative, Role, Tag, Transfer,
};
use kew_amqp::sasl::SaslCode;
use kew_amqp::{
    Config, Connection, DeliveryId, Event, Limits, LinkId, Millis, Outgoing, Sasl, SessionId,
};
use kew_fuzz::gauge;
use kew_fuzz::mutate::{Input, changes};

use crate::amqp::{SASL_INIT, amqp, attach, flow, greeting, transfer};
use crate::{INPUT_SIZE_MAX, INPUTS};

fn limits() -> Limits {
    Limits {
        sessions_max: 4,
        links_max: 8,
        unsettled_max: 32,
        message_size_max: 4_096,
        reassembly_size_max: 8_192,
        output_size_max: 8_192,
        ..Limits::default()
    }
}

/// A server's caller, which answers where required and remembers ids.
struct Caller {
    server: Connection,
    sessions: Vec<SessionId>,
    links: Vec<(LinkId, Attach)>,
    deliveries: Vec<DeliveryId>,
    is_over: bool,
    now: u64,
}

impl Caller {
    /// A connection with a session and a link each way.
    fn begin(input: &mut Input<'_>) -> Self {
        let config = Config {
            frame_size_max: 1_024,
            channel_max: 8,
            handle_max: 8,
            incoming_window: 16,
            sasl: Sasl::Server {
                mechanisms: vec![Symbol::from_static("ANONYMOUS")],
                is_optional: true,
            },
            ..Config::default()
        };
        let mut caller = Self {
            server: Connection::server(config, limits(), Millis(0)),
            sessions: Vec::new(),
            links: Vec::new(),
            deliveries: Vec::new(),
            is_over: false,
            now: 0,
        };
        let server = &mut caller.server;
        if input.byte().is_multiple_of(4) {
            server.feed(&SASL_HEADER, Millis(0));
            server.feed(SASL_INIT, Millis(0));
        }
        server.feed(&AMQP_HEADER, Millis(0));
        server.feed(&greeting(), Millis(0));
        server.feed(&begins(1), Millis(0));
        for (handle, role) in [(0, Role::Receiver), (1, Role::Sender)] {
            let attach = attach(&handle.to_string(), handle, role);
            server.feed(
                &amqp(0, Performative::Attach(Box::new(attach)), b""),
                Millis(0),
            );
        }
        server.feed(
            &amqp(0, Performative::Flow(flow(Some(0), 9, false)), b""),
            Millis(0),
        );
        caller.poll(input);
        caller
    }

    fn poll(&mut self, input: &mut Input<'_>) {
        while let Some(event) = self.server.poll_event() {
            assert!(!self.is_over, "{event:?} after the end");
            match event {
                Event::SaslInit { .. } | Event::SaslResponse { .. } => {
                    self.server.sasl_outcome(SaslCode::Ok);
                }
                Event::Begun { session, .. } => self.sessions.push(session),
                Event::Attach { link, attach } => {
                    if input.byte() % 8 != 7 {
                        self.server.accept(link, attach.answer());
                        self.server.grant(link, 5);
                    }
                    self.links.push((link, *attach));
                }
                Event::Delivery(delivery) => {
                    assert!(delivery.payload.len() <= 8_192);
                    self.deliveries.push(delivery.delivery);
                }
                Event::Closed { .. } => self.is_over = true,
                _ => {}
            }
        }
        for names in [self.sessions.len(), self.links.len(), self.deliveries.len()] {
            assert!(names < 100_000);
        }
    }

    /// Something that a caller may do at any time, also with outdated ids.
    fn act(&mut self, input: &mut Input<'_>) {
        let pick = input.byte();
        let at = usize::from(pick);
        let link = self.links.get(at % self.links.len().max(1)).cloned();
        let delivery = self
            .deliveries
            .get(at % self.deliveries.len().max(1))
            .copied();
        let session = self.sessions.get(at % self.sessions.len().max(1)).copied();
        let server = &mut self.server;
        match (input.byte() % 14, link, delivery, session) {
            (0, Some((link, _)), _, _) => drop(server.grant(link, u32::from(pick))),
            (1, Some((link, _)), _, _) => drop(server.drained(link)),
            (2, Some((link, _)), _, _) => drop(server.drain(link)),
            (3, Some((link, _)), _, _) => drop(server.detach(link, pick < 128, None)),
            (4, Some((link, asked)), _, _) => drop(server.accept(link, asked.answer())),
            (5, Some((link, asked)), _, _) => {
                let error = kew_amqp::error::Error::new("amqp:not-found", "gone");
                server.refuse(link, &asked, error);
            }
            (6 | 7, Some((link, _)), _, _) => {
                let message = Outgoing {
                    tag: Tag::from([pick; 16]),
                    message_format: 0,
                    is_settled: pick < 16,
                    state: None,
                };
                let body = Bytes::from(vec![pick; at * 8]);
                if let Ok(sent) = server.send(link, message, [Bytes::new(), body]) {
                    self.deliveries.push(sent);
                }
            }
            (8, _, Some(delivery), _) => {
                server.settle(delivery, Some(DeliveryState::ACCEPTED));
            }
            (9, _, Some(delivery), _) => drop(server.update(delivery, DeliveryState::ACCEPTED)),
            (10, _, _, Some(session)) if pick < 32 => drop(server.end(session, None)),
            (11, ..) if pick < 8 => server.close(None),
            (12, ..) => {
                self.now += u64::from(pick) * 10;
                server.on_time(Millis(self.now));
            }
            _ => {
                let output = server.take_output(Millis(self.now));
                assert!(output.len() < 64 << 10);
            }
        }
        let _ = server.next_timeout();
    }
}

/// Continues short inputs, each in its own way: only long histories reach deep states.
fn stretched(bytes: &[u8]) -> Vec<u8> {
    let mix = |hash: u64, byte: u64| (hash ^ byte).wrapping_mul(0x100_0000_01b3).rotate_left(29);
    let mut hash = bytes
        .iter()
        .fold(1, |hash, &byte| mix(hash, u64::from(byte)));
    let mut stretched = bytes.to_vec();
    while stretched.len() < INPUT_SIZE_MAX / 2 {
        hash = mix(hash, 0x9e37);
        stretched.push(hash.to_le_bytes()[5]);
    }
    stretched
}

/// The peer's state, so that its frames are mostly valid.
#[derive(Default)]
struct Peer {
    next_id: u32,
    is_unfinished: bool,
}

impl Peer {
    /// A frame with numbers from the input: it seldom ends something.
    fn frame(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let channel = u16::from(input.byte() > 253);
        let role = [Role::Sender, Role::Receiver][usize::from(input.byte() % 2)];
        let handle = match input.byte() {
            0 => 2,
            _ => u32::from(role == Role::Sender),
        };
        let number = u32::from(input.byte() % 32);
        let flag = input.byte().is_multiple_of(2);
        let performative = match input.byte() {
            0..=3 => return begins(1),
            4..=11 => Performative::Attach(Box::new(attach(&handle.to_string(), handle, role))),
            12..=15 => Performative::Detach(Detach {
                handle,
                closed: flag,
                error: None,
            }),
            16..=19 => Performative::End(End { error: None }),
            20..=60 => Performative::Flow(flow(Some(0), number, flag)),
            61..=70 => Performative::Flow(flow(None, 0, false)),
            71..=120 => Performative::Disposition(Disposition {
                role,
                first: number,
                last: Some(number + handle * 3),
                settled: flag,
                state: Some(DeliveryState::ACCEPTED),
                batchable: false,
            }),
            _ => {
                let payload = vec![7; input.below(900)];
                let transfer = self.transfer(flag, number == 31);
                return amqp(channel, Performative::Transfer(transfer), &payload);
            }
        };
        amqp(channel, performative, b"")
    }

    fn transfer(&mut self, more: bool, aborted: bool) -> Transfer {
        let id = (!self.is_unfinished).then_some(self.next_id);
        self.next_id += u32::from(id.is_some());
        self.is_unfinished = more && !aborted;
        Transfer {
            aborted,
            ..transfer(1, id, more)
        }
    }
}

/// A random peer and a random caller. The limits bound the memory of the connection, for any input.
///
/// Returns how many deliveries arrived and were sent. When a connection has ended, another one
/// begins.
fn check_connections(bytes: &[u8]) -> usize {
    let mut input = Input::new(bytes);
    let mut deliveries = 0;
    while !input.is_empty() {
        deliveries += check_connection(&mut input);
    }
    deliveries
}

fn check_connection(input: &mut Input<'_>) -> usize {
    let mut caller = Caller::begin(input);
    let mut peer = Peer::default();
    while !input.is_empty() && !caller.is_over {
        match input.byte() {
            0 => caller.server.feed(input.piece(), Millis(caller.now)),
            1..=4 => {
                let mut frame = peer.frame(input);
                changes(&mut frame, input);
                caller.server.feed(&frame, Millis(caller.now));
            }
            5..=150 => {
                let frame = peer.frame(input);
                if caller.server.wants_input() {
                    caller.server.feed(&frame, Millis(caller.now));
                }
            }
            _ => caller.act(input),
        }
        caller.poll(input);
    }
    caller.deliveries.len()
}

/// The memory that a connection may use: limits, buffers that double, and what the test itself
/// remembers.
const CONNECTION_MEMORY_MAX_BYTES: usize = 512 << 10;

#[test]
fn connection() {
    bolero::check!()
        .with_iterations(INPUTS / 2)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes: &[u8]| {
            let bytes = stretched(bytes);
            gauge::within(CONNECTION_MEMORY_MAX_BYTES, || check_connections(&bytes));
        });
    // The harness would find nothing if connections broke before any delivery.
    let deliveries = (0..100u8)
        .map(|seed| check_connections(&stretched(&[seed])))
        .sum::<usize>();
    assert!(deliveries > 100, "{deliveries} deliveries in 100 histories");
}

/// Bytes with the largest claims: nothing is allocated before the data is there.
#[test]
fn claims_of_huge_sizes_take_no_memory() {
    let open = greeting();
    let nulls = b"\xf0\0\0\0\x05\xff\xff\xff\xff\x40";
    let bombs: [(&str, Vec<u8>); 5] = [
        ("a frame of 4 GiB", vec![0xff; 8]),
        (
            "an array of 4 billion nulls in an open",
            [
                &b"\0\0\0\x1e\x02\0\0\0\0\x53\x10\xc0\x11\x06\xa1\0\x40\x40\x40\x40"[..],
                nulls,
            ]
            .concat(),
        ),
        (
            "nothing but lists",
            [
                &b"\0\0\x04\0\x02\0\0\0\0\x53\x10"[..],
                &[0xc0, 0xfd, 0x01].repeat(400),
            ]
            .concat(),
        ),
        ("begins without end", [open.clone(), begins(3_000)].concat()),
        ("attaches without end", [open, attaches(2_000)].concat()),
    ];
    for (name, bytes) in bombs {
        assert!(bytes.len() <= 80 << 10, "{name}");
        gauge::within(1 << 20, || {
            let mut server =
                Connection::server(Config::default(), Limits::before_trust(), Millis(0));
            server.feed(&AMQP_HEADER, Millis(0));
            server.feed(&bytes, Millis(0));
            let mut ended = false;
            while let Some(event) = server.poll_event() {
                ended |= matches!(event, Event::Closed { .. });
            }
            assert!(ended, "{name}");
        });
    }
}

fn begins(count: u16) -> Vec<u8> {
    let begin = b"\0\x53\x11\xc0\x05\x04\x40\x43\x43\x43";
    let frames = (0..count).flat_map(|channel| {
        let head = [0, 0, 0, 18, 2, 0];
        [&head[..], &channel.to_be_bytes(), begin].concat()
    });
    frames.collect()
}

fn attaches(count: u16) -> Vec<u8> {
    let attaches = (0..count).flat_map(|handle| {
        let [high, low] = handle.to_be_bytes();
        let mut frame = b"\0\0\0\x1d\x02\0\0\0\0\x53\x12\xc0\x10\x03\xa1\x07".to_vec();
        frame.extend_from_slice(format!("{handle:07}").as_bytes());
        frame.extend_from_slice(&[0x70, 0, 0, high, low, 0x42]);
        let size = u8::try_from(frame.len()).expect("short");
        frame[3] = size;
        frame[12] = size - 13;
        frame
    });
    begins(1).into_iter().chain(attaches).collect()
}

/// With valid frames only, messages do arrive.
#[test]
fn messages_do_arrive() {
    let mut server = Connection::server(Config::default(), limits(), Millis(0));
    server.feed(&AMQP_HEADER, Millis(0));
    server.feed(&greeting(), Millis(0));
    server.feed(&begins(1), Millis(0));
    server.feed(
        &amqp(
            0,
            Performative::Attach(Box::new(attach("a", 0, Role::Sender))),
            b"",
        ),
        Millis(0),
    );
    let mut delivered = 0;
    server.feed(
        &amqp(0, Performative::Transfer(transfer(0, Some(0), false)), b"x"),
        Millis(0),
    );
    while let Some(event) = server.poll_event() {
        match event {
            Event::Attach { link, attach } => {
                server.accept(link, attach.answer());
                server.grant(link, 1);
            }
            Event::Delivery(_) => delivered += 1,
            _ => {}
        }
    }
    assert_eq!(delivered, 1);
}
