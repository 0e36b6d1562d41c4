//! Two ends of a connection, back to back.

use bytes::Bytes;
use kew_amqp::codec::{Symbol, Text};
use kew_amqp::performative::{
    Attach, ReceiverSettleMode, Role, SenderSettleMode, Source, Tag, Target,
};
use kew_amqp::sasl::SaslCode;
use kew_amqp::{
    Config, Connection, Delivery, DeliveryId, Event, Limits, LinkId, Millis, Outgoing, Sasl,
    SendRefusal, SessionId,
};

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Client,
    Server,
}

pub(crate) struct Pair {
    pub(crate) ends: [Connection; 2],
    /// Events that the test has not looked at, by end.
    pub(crate) events: [Vec<Event>; 2],
    pub(crate) now: Millis,
    /// Sizes of the pieces in which bytes arrive; all at once if empty.
    pub(crate) piece: usize,
    /// Whether every attach gets an agreeing answer.
    pub(crate) accepts: bool,
}

pub(crate) fn small() -> Config {
    Config {
        frame_size_max: 512,
        incoming_window: 8,
        ..Config::default()
    }
}

impl Pair {
    /// Two ends of the same settings, open.
    pub(crate) fn open(config: Config, limits: Limits) -> Self {
        let mut pair = Self::new(
            Connection::client(config.clone(), limits.clone(), Millis(0)),
            Connection::server(config, limits, Millis(0)),
        );
        pair.run();
        for end in [End::Client, End::Server] {
            let events = pair.take(end);
            assert!(matches!(events[..], [Event::Opened(_)]), "{events:?}");
        }
        pair
    }

    pub(crate) fn new(client: Connection, server: Connection) -> Self {
        Self {
            ends: [client, server],
            events: [Vec::new(), Vec::new()],
            now: Millis(0),
            piece: 0,
            accepts: true,
        }
    }

    pub(crate) fn at(&mut self, end: End) -> &mut Connection {
        &mut self.ends[end as usize]
    }

    /// Moves bytes and collects events until nothing more happens.
    pub(crate) fn run(&mut self) {
        for _ in 0..10_000 {
            let mut is_quiet = true;
            for from in [End::Client, End::Server] {
                let to = match from {
                    End::Client => End::Server,
                    End::Server => End::Client,
                };
                self.collect(from);
                let now = self.now;
                let bytes = self.at(from).take_output(now);
                is_quiet &= bytes.is_empty();
                let piece = if self.piece == 0 {
                    bytes.len().max(1)
                } else {
                    self.piece
                };
                for piece in bytes.chunks(piece) {
                    self.at(to).feed(piece, now);
                    self.collect(to);
                }
                self.collect(from);
            }
            if is_quiet {
                return;
            }
        }
        panic!("they do not stop talking");
    }

    fn collect(&mut self, end: End) {
        while let Some(event) = self.ends[end as usize].poll_event() {
            let own = &mut self.ends[end as usize];
            match &event {
                Event::Attach { link, attach } if self.accepts => {
                    assert!(own.accept(*link, attach.answer()));
                }
                Event::SaslInit { .. } => own.sasl_outcome(SaslCode::Ok),
                _ => {}
            }
            self.events[end as usize].push(event);
        }
    }

    pub(crate) fn take(&mut self, end: End) -> Vec<Event> {
        std::mem::take(&mut self.events[end as usize])
    }

    /// Runs, and drops the events.
    pub(crate) fn settle_down(&mut self) {
        self.run();
        self.take(End::Client);
        self.take(End::Server);
    }

    pub(crate) fn session(&mut self) -> SessionId {
        let session = self.at(End::Client).begin().unwrap();
        self.settle_down();
        session
    }

    /// A link from the client to the server: its id at each end.
    pub(crate) fn link(&mut self, session: SessionId, attach: Attach) -> (LinkId, LinkId) {
        let ours = self.at(End::Client).attach(session, attach).unwrap();
        self.run();
        let theirs = self
            .take(End::Server)
            .iter()
            .find_map(|event| match event {
                Event::Attach { link, .. } => Some(*link),
                _ => None,
            })
            .unwrap();
        self.take(End::Client);
        (ours, theirs)
    }
}

pub(crate) fn attach(name: &str, role: Role) -> Attach {
    Attach {
        source: Some(Source::new("from".into())),
        target: Some(Target::new(Text::from("to"))),
        snd_settle_mode: SenderSettleMode::Unsettled,
        rcv_settle_mode: ReceiverSettleMode::Second,
        ..Attach::new(name.into(), role)
    }
}

pub(crate) fn send(
    connection: &mut Connection,
    link: LinkId,
    tag: u8,
    payload: &[u8],
) -> Result<DeliveryId, SendRefusal> {
    let message = Outgoing {
        tag: Tag::from([tag; 16]),
        message_format: 0,
        is_settled: false,
        state: None,
    };
    let (head, body) = payload.split_at(payload.len() / 3);
    let parts = [Bytes::copy_from_slice(head), Bytes::copy_from_slice(body)];
    connection.send(link, message, parts)
}

pub(crate) fn sasl_server(is_optional: bool) -> Sasl {
    let names = ["ANONYMOUS", "MSSBCBS", "PLAIN", "EXTERNAL"];
    Sasl::Server {
        mechanisms: names.map(Symbol::from_static).to_vec(),
        is_optional,
    }
}

pub(crate) fn sasl_client(mechanism: &'static str) -> Sasl {
    Sasl::Client {
        mechanism: Symbol::from_static(mechanism),
        initial_response: Some(Bytes::from_static(b"\0rule\0key")),
    }
}

pub(crate) fn open() -> Pair {
    Pair::open(small(), Limits::default())
}

/// A link on which the server sends, with this credit.
pub(crate) fn from_server(pair: &mut Pair, credit: u32) -> (LinkId, LinkId) {
    let session = pair.session();
    let (to, from) = pair.link(session, attach("out", Role::Receiver));
    assert!(pair.at(End::Client).grant(to, credit));
    pair.settle_down();
    (to, from)
}

/// A link on which the client sends, with this credit.
pub(crate) fn to_server(pair: &mut Pair, credit: u32) -> (LinkId, LinkId) {
    let session = pair.session();
    let (from, to) = pair.link(session, attach("in", Role::Sender));
    assert!(pair.at(End::Server).grant(to, credit));
    pair.settle_down();
    (from, to)
}

pub(crate) fn deliveries(events: Vec<Event>) -> Vec<Delivery> {
    let found = events.into_iter().filter_map(|event| match event {
        Event::Delivery(delivery) => Some(delivery),
        _ => None,
    });
    found.collect()
}
