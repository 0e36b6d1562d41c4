//! Errors that end a connection.

use bytes::BytesMut;
use kew_amqp::error::condition;
use kew_amqp::frame::{AMQP_HEADER, FrameType, SASL_HEADER, write_frame};
use kew_amqp::performative::{Attach, Begin, End, Open, Performative, Role, Transfer};
use kew_amqp::{By, Config, Connection, Event, Limits, Millis};

use super::{Peer, begin, config, more, open, transfer};
use crate::hex;
use crate::pair::{attach, sasl_server};

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
        (
            "SASL although none is configured",
            plain(&SASL_HEADER),
            AMQP_HEADER,
        ),
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
fn any_split_of_the_bytes_reads_the_same() {
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
