//! Sessions: their channels, windows and ends (AMQP 1.0, 2.5).

use std::collections::BTreeMap;

use super::deliveries::Deliveries;
use super::link::{Link, Sending};
use super::slab::{Key, Slab};
use super::steps::steps_to_look_at;
use super::{By, Connection, Event, Fault, SessionId};
use crate::codec::{Symbols, Text};
use crate::error::{Error, condition};
use crate::performative::{Begin, End, Flow, Role};

/// The outgoing window that we announce. Only the peer's window limits us.
pub(super) const OUTGOING_WINDOW: u32 = 0x7fff_ffff;

/// Whether everything but the peer's end is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    No,
    /// The caller has ended it, and gets the peer's answer as an event.
    Asked,
    /// The peer broke a rule, and the caller was informed.
    Told,
}

#[derive(Debug)]
pub(crate) struct Session {
    /// The peer's channel, from its begin on.
    pub(super) remote_channel: Option<u16>,
    pub(super) ending: Ending,
    pub(super) next_incoming_id: u32,
    /// How many transfers the peer may still send.
    pub(super) incoming_window: u32,
    pub(super) next_outgoing_id: u32,
    /// How many transfers we may still send.
    pub(super) outgoing_window: u32,
    pub(super) remote_handle_max: u32,
    pub(super) links: Slab<Link>,
    /// The peer's handles.
    pub(super) handles: BTreeMap<u32, Key>,
    /// Links by our role and their name.
    pub(super) names: BTreeMap<(Role, Text), Key>,
    pub(super) next_delivery_id: u32,
    pub(super) outgoing: Deliveries,
    pub(super) incoming: Deliveries,
    /// The message that is being sent.
    pub(super) sending: Option<Sending>,
    /// The caller waits for room.
    pub(super) is_awaited: bool,
}

impl Session {
    /// The deliveries of our role, and the links.
    pub(super) fn unsettled(&mut self, role: Role) -> (&mut Deliveries, &mut Slab<Link>) {
        let deliveries = match role {
            Role::Sender => &mut self.outgoing,
            Role::Receiver => &mut self.incoming,
        };
        (deliveries, &mut self.links)
    }

    /// A flow of the session only.
    pub(super) fn flow(&self) -> Flow {
        Flow {
            next_incoming_id: self.remote_channel.map(|_| self.next_incoming_id),
            incoming_window: self.incoming_window,
            next_outgoing_id: self.next_outgoing_id,
            outgoing_window: OUTGOING_WINDOW,
            handle: None,
            delivery_count: None,
            link_credit: None,
            available: None,
            drain: false,
            echo: false,
            properties: None,
        }
    }
}

/// The channel of a session: its number.
pub(super) fn channel_of(id: SessionId) -> u16 {
    u16::try_from(id.0.index).expect("sessions are only made where a channel has their number")
}

impl Connection {
    /// Begins a session. `None` if the connection is not open, or allows no more sessions.
    ///
    /// `Event::Begun` reports the peer's answer. Links can be attached before.
    pub fn begin(&mut self) -> Option<SessionId> {
        if !self.is_open() || self.sessions.len() >= self.limits.sessions_max {
            return None;
        }
        self.new_session(None)
    }

    /// Makes a session and writes its begin.
    fn new_session(&mut self, remote_channel: Option<u16>) -> Option<SessionId> {
        let id = SessionId(self.sessions.insert(Box::new(Session {
            remote_channel,
            ending: Ending::No,
            next_incoming_id: 0,
            incoming_window: self.config.incoming_window,
            next_outgoing_id: self.config.first_id,
            outgoing_window: 0,
            remote_handle_max: u32::MAX,
            links: Slab::new(),
            handles: BTreeMap::new(),
            names: BTreeMap::new(),
            next_delivery_id: self.config.first_id,
            outgoing: Deliveries::default(),
            incoming: Deliveries::default(),
            sending: None,
            is_awaited: false,
        })));
        let channel_max = self.remote_channel_max;
        let channel = u16::try_from(id.0.index).ok();
        let Some(channel) = channel.filter(|&channel| channel <= channel_max) else {
            self.sessions.remove(id.0);
            return None;
        };
        let begin = Begin {
            remote_channel,
            next_outgoing_id: self.config.first_id,
            incoming_window: self.config.incoming_window,
            outgoing_window: OUTGOING_WINDOW,
            handle_max: self.config.handle_max,
            offered_capabilities: Symbols::default(),
            desired_capabilities: Symbols::default(),
            properties: None,
        };
        self.output.frame(channel, &begin);
        Some(id)
    }

    pub(super) fn on_begin(&mut self, channel: u16, begin: Begin) -> Result<(), Fault> {
        if channel > self.config.channel_max {
            let max = self.config.channel_max;
            let text = format!("channel {channel} is above the maximum of {max}");
            return Err(Error::new(condition::FRAMING_ERROR, text).into());
        }
        if self.channels.contains_key(&channel) {
            let text = format!("channel {channel} already has a session");
            return Err(Error::new(condition::FRAMING_ERROR, text).into());
        }
        let id = match begin.remote_channel {
            Some(own) => self.answered_session(own)?,
            None if self.sessions.len() >= self.limits.sessions_max => {
                let text = format!("at most {} sessions are allowed", self.limits.sessions_max);
                return Err(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text).into());
            }
            None => self.new_session(Some(channel)).ok_or_else(|| {
                let text = "the peer allows no channel for another session";
                Error::new(condition::NOT_ALLOWED, text)
            })?,
        };
        self.channels.insert(channel, id);
        let Some(session) = self.sessions.get_mut(id.0) else {
            return Ok(());
        };
        session.remote_channel = Some(channel);
        session.next_incoming_id = begin.next_outgoing_id;
        session.outgoing_window = begin.incoming_window;
        session.remote_handle_max = begin.handle_max;
        if session.ending == Ending::No {
            let properties = begin.properties;
            self.events.push_back(Event::Begun {
                session: id,
                properties,
            });
        }
        Ok(())
    }

    /// The session of ours that a begin answers.
    fn answered_session(&self, channel: u16) -> Result<SessionId, Fault> {
        let key = self.sessions.key_of(u32::from(channel));
        let unanswered = key.filter(|&key| {
            let session = self.sessions.get(key);
            session.is_some_and(|session| session.remote_channel.is_none())
        });
        unanswered.map(SessionId).ok_or_else(|| {
            let text = format!("no begin on channel {channel} waits for an answer");
            Error::new(condition::FRAMING_ERROR, text).into()
        })
    }

    /// Ends a session with all its links. Returns whether there was one.
    ///
    /// `Event::Ended` reports the peer's answer.
    pub fn end(&mut self, id: SessionId, error: Option<Error>) -> bool {
        self.send_end(id, error, Ending::Asked)
    }

    fn send_end(&mut self, id: SessionId, error: Option<Error>, ending: Ending) -> bool {
        self.clear_session(id);
        let Some(session) = self.sessions.get_mut(id.0) else {
            return false;
        };
        if session.ending != Ending::No {
            return false;
        }
        session.ending = ending;
        self.output
            .frame_of_error(channel_of(id), error, |error| End { error });
        true
    }

    /// Ends a session in which the peer broke a rule.
    pub(super) fn fail_session(&mut self, session: SessionId, error: Error) {
        if self.send_end(session, Some(error.clone()), Ending::Told) {
            let by = By::Us;
            let error = Some(error);
            self.events.push_back(Event::Ended { session, by, error });
        }
    }

    pub(super) fn on_end(&mut self, channel: u16, id: SessionId, end: End) {
        self.channels.remove(&channel);
        self.clear_session(id);
        let Some(session) = self.sessions.remove(id.0) else {
            return;
        };
        let by = match session.ending {
            Ending::Told => return,
            Ending::Asked => By::Us,
            Ending::No => {
                self.output.frame(channel_of(id), &End { error: None });
                By::Peer
            }
        };
        let error = end.error;
        let session = id;
        self.events.push_back(Event::Ended { session, by, error });
    }

    /// Subtracts everything in a session from the totals.
    fn clear_session(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id.0) else {
            return;
        };
        self.link_count -= session.links.len();
        self.visited += steps_to_look_at(session.links.len());
        self.links_size -= session.links.iter().map(Link::held_size).sum::<usize>();
        self.reassembly_size -= session.links.iter().map(Link::partial_size).sum::<u64>();
        session.links = Slab::new();
        session.handles.clear();
        session.names.clear();
        session.outgoing.clear();
        session.incoming.clear();
        if let Some(sending) = session.sending.take() {
            self.sending_size -= sending.size();
        }
        session.is_awaited = false;
        self.blocked.remove(&id);
    }

    /// Sends the peer the session's windows again when half of ours is used.
    pub(super) fn refresh_window(&mut self, id: SessionId) {
        let window = self.config.incoming_window;
        let Some(session) = self.sessions.get_mut(id.0) else {
            return;
        };
        if session.incoming_window <= window / 2 {
            session.incoming_window = window;
            self.output.frame(channel_of(id), &session.flow());
        }
    }
}
