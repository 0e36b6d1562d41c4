//! What a peer may not do, and how much of its connection that costs. The peer here is raw bytes.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Map, Text};
use kew_amqp::error::condition;
use kew_amqp::frame::{AMQP_HEADER, FrameType, SASL_HEADER, take_frame, write_frame};
use kew_amqp::performative::{
    Attach, Begin, DeliveryState, Detach, Disposition, End, Flow, Open, Performative, Role, Tag,
    Transfer,
};
use kew_amqp::{By, Config, Connection, Event, Limits, LinkId, Millis};

use crate::hex;
use crate::pair::{attach, sasl_server, send};

/// Bytes to a server, and frames from it.
struct Peer {
    server: Connection,
    frames: Vec<(u16, Performative)>,
    events: Vec<Event>,
}

fn config() -> Config {
    Config {
        frame_size_max: 1_000,
        incoming_window: 4,
        channel_max: 10,
        handle_max: 10,
        ..Config::default()
    }
}

impl Peer {
    /// A peer that has opened and begun a session on channel 3.
    fn begun() -> Self {
        Self::with(config(), Limits::default())
    }

    fn with(config: Config, limits: Limits) -> Self {
        let mut peer = Self {
            server: Connection::server(config, limits, Millis(0)),
            frames: Vec::new(),
            events: Vec::new(),
        };
        peer.server.feed(&AMQP_HEADER, Millis(0));
        assert_eq!(peer.server.poll_event(), None);
        assert_eq!(peer.server.take_output(Millis(0))[..], AMQP_HEADER);
        peer.tell(0, Performative::Open(Box::new(open())));
        peer.tell(3, Performative::Begin(begin()));
        assert!(matches!(
            peer.frames[..],
            [(0, Performative::Open(_)), (0, Performative::Begin(_))]
        ));
        peer.frames.clear();
        peer.events.clear();
        peer
    }

    fn tell(&mut self, channel: u16, performative: Performative) {
        self.tell_with(channel, performative, b"");
    }

    fn tell_with(&mut self, channel: u16, performative: Performative, payload: &[u8]) {
        let mut out = BytesMut::new();
        write_frame(&mut out, FrameType::Amqp, channel, |out| {
            performative.encode(out);
            out.extend_from_slice(payload);
        });
        self.raw(&out);
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.server.feed(bytes, Millis(0));
        while let Some(event) = self.server.poll_event() {
            self.events.push(event);
        }
        self.listen();
    }

    fn listen(&mut self) {
        let mut output = BytesMut::from(&self.server.take_output(Millis(0))[..]);
        while let Some(frame) = take_frame(&mut output, u32::MAX).unwrap() {
            let (performative, _) = Performative::decode(&frame.body).unwrap();
            self.frames.push((frame.channel, performative));
        }
        assert!(output.is_empty());
    }

    /// Attaches a link with this handle, which the server accepts.
    fn attach(&mut self, handle: u32, role: Role) -> LinkId {
        let asked = Attach {
            handle,
            ..attach(&format!("link {handle}"), role)
        };
        self.tell(3, Performative::Attach(Box::new(asked.clone())));
        let Some(Event::Attach { link, .. }) = self.events.pop() else {
            panic!("an attach was told");
        };
        let answer = Attach {
            max_message_size: Some(1_500),
            ..asked.answer()
        };
        assert!(self.server.accept(link, answer));
        self.listen();
        self.frames.clear();
        link
    }

    fn sender(&mut self, credit: u32) -> LinkId {
        let link = self.attach(5, Role::Sender);
        self.server.grant(link, credit);
        self.listen();
        self.frames.clear();
        link
    }

    /// The error that ended something, and how much it ended.
    fn ended(&self) -> (&'static str, &str) {
        let found = self.frames.iter().find_map(|(_, frame)| match frame {
            Performative::Close(close) => Some(("connection", &close.error)),
            Performative::End(end) => Some(("session", &end.error)),
            Performative::Detach(detach) => Some(("link", &detach.error)),
            _ => None,
        });
        match found {
            Some((what, Some(error))) => (what, error.condition.as_str()),
            Some((what, None)) => (what, ""),
            None => ("nothing", ""),
        }
    }
}

fn open() -> Open {
    Open {
        container_id: "raw".into(),
        hostname: None,
        max_frame_size: u32::MAX,
        channel_max: u16::MAX,
        idle_time_out: None,
        outgoing_locales: Default::default(),
        incoming_locales: Default::default(),
        offered_capabilities: Default::default(),
        desired_capabilities: Default::default(),
        properties: None,
    }
}

fn begin() -> Begin {
    Begin {
        remote_channel: None,
        next_outgoing_id: 100,
        incoming_window: u32::MAX,
        outgoing_window: 10,
        handle_max: u32::MAX,
        offered_capabilities: Default::default(),
        desired_capabilities: Default::default(),
        properties: None,
    }
}

fn flow(handle: Option<u32>) -> Flow {
    Flow {
        next_incoming_id: Some(0),
        incoming_window: u32::MAX,
        next_outgoing_id: 100,
        outgoing_window: 10,
        handle,
        delivery_count: None,
        link_credit: None,
        available: None,
        drain: false,
        echo: false,
        properties: None,
    }
}

fn transfer(id: u32) -> Transfer {
    Transfer {
        handle: 5,
        delivery_id: Some(id),
        delivery_tag: Some(Tag::new(&id.to_be_bytes()).unwrap()),
        message_format: Some(0),
        settled: None,
        more: false,
        rcv_settle_mode: None,
        state: None,
        resume: false,
        aborted: false,
        batchable: false,
    }
}

/// A transfer that goes on with the one before.
fn more(is_last: bool) -> Transfer {
    Transfer {
        delivery_id: None,
        delivery_tag: None,
        message_format: None,
        more: !is_last,
        ..transfer(0)
    }
}

#[test]
fn the_first_bytes_decide() {
    let plain = |bytes: &[u8]| (config(), bytes.to_vec());
    let sasl = |bytes: &[u8]| {
        let sasl = sasl_server(false);
        (Config { sasl, ..config() }, bytes.to_vec())
    };
    let rows = [
        ("HTTP", plain(b"GET / HTTP/1.1\r\n"), AMQP_HEADER),
        ("one wrong byte", plain(b"B"), AMQP_HEADER),
        ("AMQP 0.9.1", plain(b"AMQP\x00\x00\x09\x01"), AMQP_HEADER),
        ("TLS in AMQP", plain(b"AMQP\x02\x01\x00\x00"), AMQP_HEADER),
        ("SASL where there is none", plain(&SASL_HEADER), AMQP_HEADER),
        ("no SASL where it must be", sasl(&AMQP_HEADER), SASL_HEADER),
        ("HTTP to SASL", sasl(b"POST"), SASL_HEADER),
    ];
    for (name, (config, bytes), answer) in rows {
        let mut server = Connection::server(config, Limits::default(), Millis(0));
        server.feed(&bytes, Millis(0));
        assert!(
            matches!(server.poll_event(), Some(Event::Closed { .. })),
            "{name}"
        );
        assert!(server.is_closed(), "{name}");
        assert_eq!(server.take_output(Millis(0))[..], answer, "{name}");
        server.feed(&AMQP_HEADER, Millis(0));
        assert_eq!(server.poll_event(), None, "{name}");
        assert!(!server.wants_input(), "{name}");
    }
}

#[test]
fn broken_frames_close_the_connection() {
    let rows = [
        (
            "size below 8",
            "00000007 02000000",
            condition::FRAMING_ERROR,
        ),
        (
            "size above the maximum, before its bytes",
            "000003e9",
            condition::FRAMING_ERROR,
        ),
        ("size of 4 GiB", "ffffffff", condition::FRAMING_ERROR),
        (
            "body begins in the header",
            "00000008 01000000",
            condition::FRAMING_ERROR,
        ),
        (
            "body begins after the end",
            "00000008 03000000",
            condition::FRAMING_ERROR,
        ),
        ("SASL frame", "00000008 02010000", condition::FRAMING_ERROR),
        (
            "unknown type",
            "00000008 02020000",
            condition::FRAMING_ERROR,
        ),
        (
            "no performative",
            "0000000c 02000000 00533045",
            condition::DECODE_ERROR,
        ),
        (
            "a SASL performative",
            "0000000c 02000000 00534045",
            condition::DECODE_ERROR,
        ),
        ("no value", "00000009 02000000 10", condition::DECODE_ERROR),
        (
            "mandatory field missing",
            "0000000c 02000003 00531245",
            condition::DECODE_ERROR,
        ),
        (
            "field of a wrong type",
            "0000000f 02000003 005313c0020141",
            condition::DECODE_ERROR,
        ),
        (
            "a field too many",
            "00000010 02000003 005317c003024040",
            condition::DECODE_ERROR,
        ),
        (
            "bytes after an end",
            "0000000d 02000003 00531745 00",
            condition::DECODE_ERROR,
        ),
        (
            "channel without session",
            "0000000c 02000004 00531745",
            condition::NOT_ALLOWED,
        ),
    ];
    for (name, digits, expected) in rows {
        let mut peer = Peer::begun();
        peer.raw(&hex(digits));
        assert_eq!(peer.ended(), ("connection", expected), "{name}");
        assert!(
            matches!(peer.events[..], [Event::Closed { by: By::Us, .. }]),
            "{name}"
        );
        assert!(!peer.server.is_closed(), "{name}: the peer may answer");
        peer.raw(&hex("0000000c 02000000 00531845"));
        let is_heard = expected != condition::FRAMING_ERROR || name == "SASL frame";
        assert_eq!(peer.server.is_closed(), is_heard, "{name}");
        peer.server.on_time(Millis(5_000));
        assert!(peer.server.is_closed(), "{name}");
    }
}

#[test]
fn order_and_numbers_of_the_connection() {
    let begin_on = |remote_channel| {
        Performative::Begin(Begin {
            remote_channel,
            ..begin()
        })
    };
    let attach_as = |handle| {
        Performative::Attach(Box::new(Attach {
            handle,
            ..attach("x", Role::Sender)
        }))
    };
    let rows = [
        (
            "channel in use",
            3,
            begin_on(None),
            condition::FRAMING_ERROR,
        ),
        (
            "channel too high",
            11,
            begin_on(None),
            condition::FRAMING_ERROR,
        ),
        (
            "answer to no begin",
            4,
            begin_on(Some(7)),
            condition::FRAMING_ERROR,
        ),
        (
            "answer to the peer's own",
            4,
            begin_on(Some(0)),
            condition::FRAMING_ERROR,
        ),
        (
            "handle too high",
            3,
            attach_as(11),
            condition::FRAMING_ERROR,
        ),
        (
            "second open",
            0,
            Performative::Open(Box::new(open())),
            condition::NOT_ALLOWED,
        ),
        (
            "end without session",
            5,
            Performative::End(End { error: None }),
            condition::NOT_ALLOWED,
        ),
    ];
    for (name, channel, performative, expected) in rows {
        let mut peer = Peer::begun();
        peer.tell(channel, performative);
        assert_eq!(peer.ended(), ("connection", expected), "{name}");
    }
    let mut early = Peer {
        server: Connection::server(config(), Limits::default(), Millis(0)),
        frames: Vec::new(),
        events: Vec::new(),
    };
    early.server.feed(&AMQP_HEADER, Millis(0));
    early.server.poll_event();
    early.server.take_output(Millis(0));
    early.tell(0, Performative::Begin(begin()));
    assert!(
        matches!(early.frames[0].1, Performative::Open(_)),
        "an open precedes the close"
    );
    assert_eq!(early.ended(), ("connection", condition::NOT_ALLOWED));
    for (size, is_open) in [(511, false), (512, true)] {
        let mut peer = Peer {
            server: Connection::server(config(), Limits::default(), Millis(0)),
            frames: Vec::new(),
            events: Vec::new(),
        };
        peer.server.feed(&AMQP_HEADER, Millis(0));
        peer.server.poll_event();
        peer.server.take_output(Millis(0));
        let max_frame_size = size;
        peer.tell(
            0,
            Performative::Open(Box::new(Open {
                max_frame_size,
                ..open()
            })),
        );
        assert_eq!(peer.server.is_open(), is_open, "{size}");
    }
}

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
        // Until the peer has ended it, nothing else counts there. Then the channel is free.
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
        "a link that sends"
    );
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
fn rules_of_a_link_detach_the_link() {
    let whole = |size: usize| vec![(transfer(0), vec![0; size])];
    let parts = |sizes: &[usize]| {
        let mut parts: Vec<_> = sizes
            .iter()
            .map(|&size| (more(false), vec![0; size]))
            .collect();
        parts[0].0 = Transfer {
            more: true,
            ..transfer(0)
        };
        parts
    };
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
        (
            "too large in parts",
            1,
            parts(&[900, 600, 1]),
            condition::MESSAGE_SIZE_EXCEEDED,
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
        // What is on its way is passed over, and the handle is free after the peer's detach.
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
fn what_is_unfinished_is_limited_over_all_links() {
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
    // What is given up, detached or complete makes room.
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

#[test]
fn an_aborted_delivery_never_was() {
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
    // Python sends both before it hears anything, and its flow has no delivery count.
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
}

#[test]
fn a_drain_says_all_that_clients_look_at() {
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
        "nothing before the messages that are there"
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
fn ranges_reach_what_is_there_and_nothing_else() {
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
        "nobody knows these, and nobody minds"
    );
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
        panic!("an attach was told");
    };
    peer.server.accept(link, asked.answer());
    peer.listen();
    let Some((_, Performative::Attach(answer))) = peer.frames.pop() else {
        panic!("it was answered");
    };
    assert_eq!(answer.unsettled, None);
}

#[test]
fn any_split_of_the_bytes_says_the_same() {
    let mut bytes = BytesMut::from(&AMQP_HEADER[..]);
    let mut frame = |channel, performative: Performative, payload: &[u8]| {
        write_frame(&mut bytes, FrameType::Amqp, channel, |out| {
            performative.encode(out);
            out.extend_from_slice(payload);
        });
    };
    frame(0, Performative::Open(Box::new(open())), b"");
    frame(1, Performative::Begin(begin()), b"");
    frame(
        1,
        Performative::Attach(Box::new(Attach {
            handle: 5,
            ..attach("in", Role::Sender)
        })),
        b"",
    );
    frame(
        1,
        Performative::Transfer(Transfer {
            more: true,
            ..transfer(0)
        }),
        b"one",
    );
    frame(1, Performative::Transfer(more(true)), b"two");
    frame(1, Performative::Transfer(transfer(1)), b"three");
    bytes.extend_from_slice(&hex("00000008 02000000 ffffffff"));
    let run = |piece: usize| {
        let mut server = Connection::server(config(), Limits::default(), Millis(0));
        let mut events = Vec::new();
        for piece in bytes.chunks(piece) {
            server.feed(piece, Millis(0));
            while let Some(event) = server.poll_event() {
                if let Event::Attach { link, attach } = &event {
                    server.accept(*link, attach.answer());
                    server.grant(*link, 10);
                }
                events.push(event);
            }
        }
        (events, server.take_output(Millis(0)))
    };
    let whole = run(bytes.len());
    assert_eq!(whole.0.len(), 6, "{:?}", whole.0);
    for piece in 1..bytes.len() {
        assert_eq!(run(piece), whole, "pieces of {piece} bytes");
    }
}
