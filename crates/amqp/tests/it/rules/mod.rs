//! The rules for a peer, and how much of its connection ends if it breaks one. The peer here sends
//! raw bytes.

mod connection;
mod link;
mod session;
mod steps;

use bytes::BytesMut;
use kew_amqp::frame::{AMQP_HEADER, FrameType, take_frame, write_frame};
use kew_amqp::performative::{Attach, Begin, Flow, Open, Performative, Role, Tag, Transfer};
use kew_amqp::{Config, Connection, Event, Limits, LinkId, Millis};

use crate::pair::attach;

/// Bytes to a server, and frames from it.
pub(super) struct Peer {
    pub(super) server: Connection,
    pub(super) frames: Vec<(u16, Performative)>,
    pub(super) events: Vec<Event>,
}

pub(super) fn config() -> Config {
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
    pub(super) fn begun() -> Self {
        Self::with(config(), Limits::default())
    }

    pub(super) fn with(config: Config, limits: Limits) -> Self {
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

    pub(super) fn tell(&mut self, channel: u16, performative: Performative) {
        self.tell_with(channel, performative, b"");
    }

    pub(super) fn tell_with(&mut self, channel: u16, performative: Performative, payload: &[u8]) {
        let mut out = BytesMut::new();
        write_frame(&mut out, FrameType::Amqp, channel, |out| {
            performative.encode(out);
            out.extend_from_slice(payload);
        });
        self.raw(&out);
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.server.feed(bytes, Millis(0));
        while let Some(event) = self.server.poll_event() {
            self.events.push(event);
        }
        self.listen();
    }

    pub(super) fn listen(&mut self) {
        let mut output = BytesMut::from(&self.server.take_output(Millis(0))[..]);
        while let Some(frame) = take_frame(&mut output, u32::MAX).unwrap() {
            let (performative, _) = Performative::decode(&frame.body).unwrap();
            self.frames.push((frame.channel, performative));
        }
        assert!(output.is_empty());
    }

    /// Attaches a link with this handle, which the server accepts.
    pub(super) fn attach(&mut self, handle: u32, role: Role) -> LinkId {
        let asked = Attach {
            handle,
            ..attach(&format!("link {handle}"), role)
        };
        self.tell(3, Performative::Attach(Box::new(asked.clone())));
        let Some(Event::Attach { link, .. }) = self.events.pop() else {
            panic!("there was an attach event");
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

    pub(super) fn sender(&mut self, credit: u32) -> LinkId {
        let link = self.attach(5, Role::Sender);
        self.server.grant(link, credit);
        self.listen();
        self.frames.clear();
        link
    }

    /// The error that ended something, and its scope.
    pub(super) fn ended(&self) -> (&'static str, &str) {
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

pub(super) fn open() -> Open {
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

pub(super) fn begin() -> Begin {
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

pub(super) fn flow(handle: Option<u32>) -> Flow {
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

pub(super) fn transfer(id: u32) -> Transfer {
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

/// A transfer that continues the one before.
pub(super) fn more(is_last: bool) -> Transfer {
    Transfer {
        delivery_id: None,
        delivery_tag: None,
        message_format: None,
        more: !is_last,
        ..transfer(0)
    }
}
