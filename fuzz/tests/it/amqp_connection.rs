//! An AMQP connection whose peer and caller do anything.

use bytes::Bytes;
use kew_amqp::codec::Symbol;
use kew_amqp::frame::{AMQP_HEADER, SASL_HEADER};
use kew_amqp::performative::{
    Attach, Begin, DeliveryState, Detach, Disposition, End, Performative, Role, Tag,
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

/// A server's caller, who answers what must be answered and remembers names.
struct Caller {
    server: Connection,
    sessions: Vec<SessionId>,
    links: Vec<(LinkId, Attach)>,
    deliveries: Vec<DeliveryId>,
    is_over: bool,
    now: u64,
}

impl Caller {
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

    /// Something that a caller may do at any time, also with names that are long gone.
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

/// One of the frames that a peer sends, with numbers from the input.
fn peers_frame(input: &mut Input<'_>) -> Vec<u8> {
    let channel = u16::from(input.byte() % 3);
    let handle = u32::from(input.byte() % 3);
    let id = u32::from(input.byte() % 32);
    let flag = input.byte().is_multiple_of(2);
    let role = if flag { Role::Receiver } else { Role::Sender };
    let payload = vec![7; input.below(600)];
    let performative = match input.byte() % 12 {
        0 => Performative::Begin(Begin {
            remote_channel: None,
            next_outgoing_id: 0,
            incoming_window: id,
            outgoing_window: 10,
            handle_max: 10,
            offered_capabilities: Default::default(),
            desired_capabilities: Default::default(),
            properties: None,
        }),
        1 | 2 => Performative::Attach(attach(&format!("{handle}"), handle, role)),
        3 | 4 => Performative::Flow(flow(Some(handle), id, flag)),
        5 => Performative::Flow(flow(None, 0, false)),
        6 => {
            return amqp(
                channel,
                Performative::Transfer(transfer(handle, Some(id), flag)),
                &payload,
            );
        }
        7 => {
            return amqp(
                channel,
                Performative::Transfer(transfer(handle, None, flag)),
                &payload,
            );
        }
        8 | 9 => Performative::Disposition(Disposition {
            role,
            first: id,
            last: Some(id.wrapping_add(handle)),
            settled: flag,
            state: Some(DeliveryState::ACCEPTED),
            batchable: false,
        }),
        10 => Performative::Detach(Detach {
            handle,
            closed: flag,
            error: None,
        }),
        _ => Performative::End(End { error: None }),
    };
    amqp(channel, performative, b"")
}

/// A peer and a caller do anything. What they can make the connection hold is bounded by its
/// limits, whatever the peer sends.
fn check_connection(bytes: &[u8]) {
    let mut input = Input::new(bytes);
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
    let mut caller = Caller {
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
    caller.poll(&mut input);
    while !input.is_empty() {
        match input.byte() % 16 {
            0 => caller.server.feed(input.piece(), Millis(caller.now)),
            1 => {
                let mut frame = peers_frame(&mut input);
                changes(&mut frame, &mut input);
                caller.server.feed(&frame, Millis(caller.now));
            }
            2..=10 => {
                let frame = peers_frame(&mut input);
                if caller.server.wants_input() {
                    caller.server.feed(&frame, Millis(caller.now));
                }
            }
            _ => caller.act(&mut input),
        }
        caller.poll(&mut input);
    }
}

/// What a connection may hold: limits, buffers that double, and what the test itself remembers.
const CONNECTION_MEMORY_MAX_BYTES: usize = 512 << 10;

#[test]
fn connection() {
    bolero::check!()
        .with_iterations(INPUTS / 2)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes: &[u8]| {
            gauge::within(CONNECTION_MEMORY_MAX_BYTES, || check_connection(bytes));
        });
}

/// Bytes that claim the most: none of it is believed before it is there.
#[test]
fn bombs_take_no_memory() {
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

/// With right frames alone, messages do arrive.
#[test]
fn messages_do_arrive() {
    let mut server = Connection::server(Config::default(), limits(), Millis(0));
    server.feed(&AMQP_HEADER, Millis(0));
    server.feed(&greeting(), Millis(0));
    server.feed(&begins(1), Millis(0));
    server.feed(
        &amqp(0, Performative::Attach(attach("a", 0, Role::Sender)), b""),
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
