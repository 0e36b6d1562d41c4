//! The connection: bytes in, events out; calls in, bytes out.
//!
//! The caller has the socket and the clock:
//!
//! 1. it passes input to [`Connection::feed`];
//! 2. it calls [`Connection::poll_event`] until there are no more events, and handles each event at
//!    once: input is read frame by frame, so that an answer precedes the next question.
//!    [`Connection::poll_event_within`] does the same for a number of steps, after which other
//!    connections have their turn;
//! 3. it writes the bytes from [`Connection::take_output`], which may make room for more events;
//! 4. it waits until [`Connection::next_timeout`], or for more input, and then calls
//!    [`Connection::on_time`];
//! 5. when [`Connection::is_closed`] is true, it writes the rest of the output and closes the
//!    socket.
//!
//! Calls name sessions, links and deliveries by ids that are never reused. A call that comes too
//! late does nothing and returns that.

mod config;
mod deliveries;
mod event;
mod flow;
mod handshake;
mod link;
mod output;
mod receive;
mod send;
mod session;
mod settle;
mod slab;
mod steps;
mod timers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};

pub use config::{Config, Limits, Sasl};
pub use event::{
    By, Delivery, DeliveryId, Direction, Event, LinkId, Oversized, SendRefusal, SessionId,
};
pub use send::Outgoing;
pub use steps::Steps;
pub use timers::Millis;

use self::handshake::Phase;
use self::link::Link;
use self::output::Output;
use self::session::{Ending, Session};
use self::settle::Told;
use self::slab::Slab;
use self::timers::Timers;
use crate::error::{Error, condition};
use crate::frame::{Frame, FrameType, take_frame};
use crate::performative::Performative;

/// An error, and how much of the connection ends with it.
#[derive(Debug)]
pub(crate) enum Fault {
    Connection(Error),
    Session(SessionId, Error),
    Link(LinkId, Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Connection(error)
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    limits: Limits,
    is_server: bool,
    phase: Phase,
    /// Frames can no longer be separated: all input is discarded until the end.
    is_deaf: bool,
    input: BytesMut,
    output: Output,
    events: VecDeque<Event>,
    sessions: Slab<Box<Session>>,
    /// The peer's channels.
    channels: BTreeMap<u16, SessionId>,
    /// The highest channel that the peer allows.
    remote_channel_max: u16,
    link_count: usize,
    /// The memory of all links, in bytes.
    links_size: usize,
    /// The size of incomplete messages, in bytes.
    reassembly_size: u64,
    /// The size of messages that are being sent and not in the output yet, in bytes.
    sending_size: usize,
    /// Sessions that wait for room: they have a message to send, or a caller that was refused.
    blocked: BTreeSet<SessionId>,
    /// The last disposition, until all its deliveries were visited: nothing is read before that.
    told: Option<Told>,
    /// How many things were visited at once that no turn has paid for yet.
    visited: usize,
    timers: Timers,
}

impl Connection {
    /// The server's end.
    pub fn server(config: Config, limits: Limits, now: Millis) -> Self {
        Self::new(config, limits, true, now)
    }

    /// The client's end. It sends its header at once.
    pub fn client(config: Config, limits: Limits, now: Millis) -> Self {
        let mut connection = Self::new(config, limits, false, now);
        connection.greet();
        connection
    }

    fn new(config: Config, limits: Limits, is_server: bool, now: Millis) -> Self {
        Self {
            is_server,
            phase: Phase::FirstHeader,
            is_deaf: false,
            input: BytesMut::new(),
            output: Output::new(),
            events: VecDeque::new(),
            sessions: Slab::new(),
            channels: BTreeMap::new(),
            remote_channel_max: 0,
            link_count: 0,
            links_size: 0,
            reassembly_size: 0,
            sending_size: 0,
            blocked: BTreeSet::new(),
            told: None,
            visited: 0,
            timers: Timers::new(now),
            config,
            limits,
        }
    }

    /// Changes the limits for the peer. Existing sessions and links stay.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Takes bytes that were read.
    pub fn feed(&mut self, bytes: &[u8], now: Millis) {
        self.input.extend_from_slice(bytes);
        self.fed(now);
    }

    /// The buffer of the input, to read into without a copy. Call [`Connection::fed`] afterwards.
    pub fn input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// Takes the bytes that were put into [`Connection::input`].
    pub fn fed(&mut self, now: Millis) {
        self.timers.received(now);
    }

    /// Whether the caller should read more. Not while the caller must decide something, nor while
    /// the peer does not read the output that it caused.
    pub fn wants_input(&self) -> bool {
        match self.phase {
            Phase::Closed => false,
            Phase::SaslVerdict => {
                self.input.len() < self.config.frame_size_max_before_open as usize
            }
            _ => !self.is_choked(),
        }
    }

    /// The next event, if there is one.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.poll_event_within(&mut Steps::unlimited())
    }

    /// The same, within a number of steps. `None` means that there are no more events only if steps
    /// are left.
    ///
    /// Each event is a step, and so is each header, frame and visited delivery of a range before
    /// it.
    pub fn poll_event_within(&mut self, steps: &mut Steps) -> Option<Event> {
        loop {
            steps.charge(std::mem::take(&mut self.visited));
            if !steps.are_left() {
                return None;
            }
            self.fail_if_oversized();
            if let Some(event) = self.events.pop_front() {
                steps.charge(1);
                return Some(event);
            }
            match self.step() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(fault) => self.handle_fault(fault),
            }
            steps.charge(1);
        }
    }

    /// The bytes to send. Empty if there are none.
    pub fn take_output(&mut self, now: Millis) -> Bytes {
        let mut bytes = self.output.take();
        if self.fail_if_oversized() {
            let close = self.output.take();
            bytes = [bytes, close].concat().into();
        }
        if self.phase == Phase::CloseSent {
            self.timers.closing(now);
        }
        if !bytes.is_empty() {
            self.timers.sent(now);
            self.unblock();
        }
        bytes
    }

    /// The size of waiting output, in bytes. Dispositions that may still be joined are not counted.
    pub fn output_size(&self) -> usize {
        self.output.len()
    }

    /// The number of sessions.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// The size of incomplete messages that are arriving, in bytes.
    pub fn reassembly_size(&self) -> u64 {
        self.reassembly_size
    }

    /// Bytes in memory: unread input, parts of messages in both directions, output, and links with
    /// their names. The memory of the sessions themselves is not included.
    pub fn held_size(&self) -> usize {
        let parts = usize::try_from(self.reassembly_size).unwrap_or(usize::MAX);
        let buffers = self.input.len() + self.output.len();
        buffers
            .saturating_add(parts)
            .saturating_add(self.sending_size)
            .saturating_add(self.links_size)
    }

    /// Frees the memory of empty buffers, as those of an idle connection are.
    pub fn shrink(&mut self) {
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
        self.output.shrink();
    }

    /// Whether the connection has ended, except for the rest of the output.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Whether the peer has opened and no side has closed.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Closes the connection if a necessary frame is larger than the peer accepts.
    fn fail_if_oversized(&mut self) -> bool {
        let is_oversized = std::mem::take(&mut self.output.is_oversized);
        if is_oversized {
            let text = "a frame to send is larger than the peer's max-frame-size";
            self.fail(Error::new(condition::FRAME_SIZE_TOO_SMALL, text));
        }
        is_oversized
    }

    fn is_choked(&self) -> bool {
        self.output.len() >= self.limits.output_size_max.saturating_mul(2)
    }

    /// Takes one header or frame from the input. Returns whether there was one.
    fn step(&mut self) -> Result<bool, Fault> {
        match self.phase {
            _ if self.is_deaf || self.is_closed() => {
                self.input.clear();
                Ok(false)
            }
            Phase::SaslVerdict => Ok(false),
            Phase::FirstHeader | Phase::SecondHeader => self.take_header(),
            _ if self.is_choked() => Ok(false),
            phase => {
                if self.visit_told() {
                    return Ok(true);
                }
                let size_max = match phase {
                    Phase::Open | Phase::CloseSent => self.config.frame_size_max,
                    _ => self.config.frame_size_max_before_open,
                };
                let taken = take_frame(&mut self.input, size_max);
                self.is_deaf = taken.is_err();
                match taken? {
                    Some(frame) => self.on_frame(frame).map(|()| true),
                    None => Ok(false),
                }
            }
        }
    }

    fn on_frame(&mut self, frame: Frame) -> Result<(), Fault> {
        let expected = match self.phase {
            Phase::SaslInit | Phase::SaslServer => FrameType::Sasl,
            _ => FrameType::Amqp,
        };
        if frame.kind != expected {
            let text = format!(
                "unexpected frame of type {:?} in phase {:?}",
                frame.kind, self.phase
            );
            return Err(Error::new(condition::FRAMING_ERROR, text).into());
        }
        if expected == FrameType::Sasl {
            return self.on_sasl(&frame.body);
        }
        if frame.body.is_empty() {
            return Ok(());
        }
        let (performative, payload) = Performative::decode(&frame.body).map_err(Error::from)?;
        if !payload.is_empty() && !matches!(performative, Performative::Transfer(_)) {
            let text = format!(
                "{} bytes follow a performative that has no payload",
                payload.len()
            );
            return Err(Error::new(condition::DECODE_ERROR, text).into());
        }
        self.on_performative(frame.channel, performative, payload)
    }

    fn on_performative(
        &mut self,
        channel: u16,
        performative: Performative,
        payload: Bytes,
    ) -> Result<(), Fault> {
        match (self.phase, performative) {
            (Phase::CloseSent, Performative::Close(_)) => {
                self.phase = Phase::Closed;
                Ok(())
            }
            (Phase::CloseSent, _) => Ok(()),
            (Phase::AwaitOpen, Performative::Open(open)) => self.on_open(open),
            (Phase::Open, Performative::Close(close)) => {
                self.on_close(close);
                Ok(())
            }
            (Phase::Open, Performative::Begin(begin)) => self.on_begin(channel, begin),
            (Phase::AwaitOpen, _) | (_, Performative::Open(_)) => {
                let text = "the first performative must be an open, and there must be only one";
                Err(Error::new(condition::NOT_ALLOWED, text).into())
            }
            (_, performative) => self.on_session_frame(channel, performative, payload),
        }
    }

    fn on_session_frame(
        &mut self,
        channel: u16,
        performative: Performative,
        payload: Bytes,
    ) -> Result<(), Fault> {
        let Some(&id) = self.channels.get(&channel) else {
            let text = format!("no session was begun on channel {channel}");
            return Err(Error::new(condition::NOT_ALLOWED, text).into());
        };
        if let Performative::End(end) = performative {
            self.on_end(channel, id, end);
            return Ok(());
        }
        let Some(session) = self.sessions.get_mut(id.0) else {
            return Ok(());
        };
        if session.ending != Ending::No {
            return Ok(());
        }
        match performative {
            Performative::Attach(attach) => self.on_attach(id, attach),
            Performative::Flow(flow) => self.on_flow(id, flow),
            Performative::Transfer(transfer) => self.on_transfer(id, transfer, payload),
            Performative::Disposition(disposition) => self.on_disposition(id, disposition),
            Performative::Detach(detach) => self.on_detach(id, detach),
            _ => Ok(()),
        }
    }

    fn handle_fault(&mut self, fault: Fault) {
        match fault {
            Fault::Connection(error) => self.fail(error),
            Fault::Session(session, error) => self.fail_session(session, error),
            Fault::Link(link, error) => self.fail_link(link, error),
        }
    }

    fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(id.0).map(Box::as_mut)
    }

    fn link(&self, id: LinkId) -> Option<&Link> {
        self.sessions.get(id.session.0)?.links.get(id.key)
    }

    fn link_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        self.sessions.get_mut(id.session.0)?.links.get_mut(id.key)
    }
}
