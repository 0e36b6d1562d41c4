//! The connection: bytes in, events out; calls in, bytes out.
//!
//! Whoever drives it has the socket and the clock:
//!
//! 1. what was read goes in with [`Connection::feed`];
//! 2. [`Connection::poll_event`] is called until it has nothing more, and every event is handled
//!    when it comes: input is read frame by frame, so that an answer precedes the next question.
//!    [`Connection::poll_event_within`] does the same for so many steps, after which others have their turn;
//! 3. what [`Connection::take_output`] gives is written, which may make room for more events;
//! 4. until [`Connection::next_timeout`], or more input; then [`Connection::on_time`] is called;
//! 5. when [`Connection::is_closed`], the rest of the output is written and the socket closed.
//!
//! Calls name sessions, links and deliveries by ids that are never used again, so a call that comes
//! too late does nothing, and says so.

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

/// What went wrong, and how much of the connection ends with it.
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
    /// Frames can no longer be told apart: what comes in is thrown away until the end.
    is_deaf: bool,
    input: BytesMut,
    output: Output,
    events: VecDeque<Event>,
    sessions: Slab<Box<Session>>,
    /// The peer's channels.
    channels: BTreeMap<u16, SessionId>,
    /// The highest channel that the peer takes.
    remote_channel_max: u16,
    link_count: usize,
    /// What links take, in bytes.
    links_size: usize,
    /// Bytes of messages that are not complete.
    reassembly_size: u64,
    /// Bytes of messages that are on their way out, and not in the output yet.
    sending_size: usize,
    /// Sessions with a message on its way out, or with a caller who was refused, that wait for room.
    blocked: BTreeSet<SessionId>,
    /// The last disposition, until all its deliveries were visited: nothing is read before that.
    told: Option<Told>,
    /// What was visited in one go, and is still to be charged to a turn.
    visited: usize,
    timers: Timers,
}

impl Connection {
    /// The end that was connected to.
    pub fn server(config: Config, limits: Limits, now: Millis) -> Self {
        Self::new(config, limits, true, now)
    }

    /// The end that connects. It begins to speak at once.
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

    /// Changes what bounds the peer. What is there already stays.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Takes bytes that came in.
    pub fn feed(&mut self, bytes: &[u8], now: Millis) {
        self.input.extend_from_slice(bytes);
        self.fed(now);
    }

    /// The buffer of the input, to read into without a copy. Call [`Connection::fed`] afterwards.
    pub fn input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// Takes what was put into [`Connection::input`].
    pub fn fed(&mut self, now: Millis) {
        self.timers.received(now);
    }

    /// Whether more should be read. Not while the caller has to decide, nor while the peer does
    /// not take what it asked for.
    pub fn wants_input(&self) -> bool {
        match self.phase {
            Phase::Closed => false,
            Phase::SaslVerdict => {
                self.input.len() < self.config.frame_size_max_before_open as usize
            }
            _ => !self.is_choked(),
        }
    }

    /// The next thing that happened, if any did.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.poll_event_within(&mut Steps::unlimited())
    }

    /// The same, as far as the steps reach. None means that nothing more happened only while some are left.
    ///
    /// An event is a step, and so is each header, frame and delivery of a range that is visited until there
    /// is one.
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

    /// What is to be sent. Empty if there is nothing.
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

    /// How much waits to be sent, in bytes. Dispositions that still may be joined are not counted.
    pub fn output_size(&self) -> usize {
        self.output.len()
    }

    /// How many sessions there are.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Bytes of messages that came in and are not complete.
    pub fn reassembly_size(&self) -> u64 {
        self.reassembly_size
    }

    /// Bytes that are held: what came in and was not read yet, parts of messages in both directions,
    /// output, and links with their names. What a session takes by itself is not in it.
    pub fn held_size(&self) -> usize {
        let parts = usize::try_from(self.reassembly_size).unwrap_or(usize::MAX);
        let buffers = self.input.len() + self.output.len();
        buffers
            .saturating_add(parts)
            .saturating_add(self.sending_size)
            .saturating_add(self.links_size)
    }

    /// Gives back the memory of buffers that are empty, as those of an idle connection are.
    pub fn shrink(&mut self) {
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
        self.output.shrink();
    }

    /// Whether all is over, but for the rest of the output.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Whether the peer has opened and nobody has closed.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Something had to be said that the peer cannot take.
    fn fail_if_oversized(&mut self) -> bool {
        let is_oversized = std::mem::take(&mut self.output.is_oversized);
        if is_oversized {
            let text = "a frame that has to be sent is above the peer's maximum";
            self.fail(Error::new(condition::FRAME_SIZE_TOO_SMALL, text));
        }
        is_oversized
    }

    fn is_choked(&self) -> bool {
        self.output.len() >= self.limits.output_size_max.saturating_mul(2)
    }

    /// Takes one header or frame from the input. Says whether there was one.
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
            let text = format!("a frame of type {:?} in phase {:?}", frame.kind, self.phase);
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
                "{} bytes follow a performative without payload",
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
                let text = "an open comes first, and once";
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
