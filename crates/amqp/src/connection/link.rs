//! Links: how they begin and end (AMQP 1.0, 2.6).

use bytes::{Bytes, BytesMut};

use super::session::{Ending, Session, channel_of};
use super::slab::Key;
use super::{By, Connection, Event, Fault, LinkId, SessionId};
use crate::codec::{Map, Text};
use crate::error::{Error, condition};
use crate::performative::{
    Attach, DeliveryState, Detach, Role, SenderSettleMode, Tag, Target, Transfer,
};

/// How many refused links may wait for the peer's detach, beyond the limit of links.
const REFUSED_MAX: usize = 64;

/// The limit for the name of a link and for each of its addresses, in bytes: they are kept as long
/// as the link.
const NAME_SIZE_MAX: usize = 4_096;

/// The memory of a link beside its name, with its entries in the tables of its session.
const LINK_SIZE: usize = size_of::<Link>() + 128;

/// How far a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// Our attach is not answered.
    AttachSent,
    /// The peer's attach is not answered.
    Answering,
    Attached,
    /// Ignores everything but the peer's detach. Whether the caller waits for that.
    DetachSent {
        is_awaited: bool,
    },
}

/// A message whose remaining parts have not arrived yet.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) id: u32,
    pub(crate) tag: Tag,
    pub(crate) message_format: u32,
    pub(crate) is_settled: bool,
    pub(crate) state: Option<DeliveryState>,
    pub(crate) payload: BytesMut,
    /// How many bytes were discarded of a message that is larger than its link allows.
    pub(crate) discarded_size: u64,
}

impl Partial {
    /// How many bytes of the message have arrived.
    pub(crate) fn size(&self) -> u64 {
        self.payload.len() as u64 + self.discarded_size
    }
}

/// A message whose remaining parts are not sent yet.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) link: Key,
    pub(crate) transfer: Transfer,
    pub(crate) payload: [Bytes; 2],
}

impl Sending {
    pub(crate) fn size(&self) -> usize {
        self.payload.iter().map(Bytes::len).sum()
    }
}

/// The content of the peer's flows before its attach was answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Early {
    pub(crate) credit: u32,
    pub(crate) is_drain: bool,
    /// It asks for the state of the link.
    pub(crate) wants_echo: bool,
    /// The transaction that the credit is for, as the flow's properties name it.
    pub(crate) transaction: Option<Map>,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(super) name: Text,
    /// Ours.
    pub(super) role: Role,
    pub(super) state: LinkState,
    pub(super) remote_handle: Option<u32>,
    pub(super) is_settled_mode: bool,
    pub(super) delivery_count: u32,
    pub(super) credit: u32,
    /// The highest delivery count ever allowed. The peer may have used credit that was lowered
    /// since, before it knew.
    pub(super) granted: u32,
    pub(super) is_drain: bool,
    pub(super) early: Option<Early>,
    /// The limit for an incoming message, or that of the peer. 0: no limit.
    pub(super) message_size_max: u64,
    pub(super) partial: Option<Partial>,
    pub(super) unsettled: usize,
}

/// The approximate memory of a link with this name.
fn held_size(name: &Text) -> usize {
    LINK_SIZE + name.as_str().len()
}

impl Link {
    fn new(attach: &Attach, role: Role, state: LinkState) -> Self {
        Self {
            name: attach.name.unshared(),
            role,
            state,
            remote_handle: None,
            is_settled_mode: attach.snd_settle_mode == SenderSettleMode::Settled,
            delivery_count: attach.initial_delivery_count.unwrap_or(0),
            credit: 0,
            granted: attach.initial_delivery_count.unwrap_or(0),
            is_drain: false,
            early: None,
            message_size_max: 0,
            partial: None,
            unsettled: 0,
        }
    }

    /// Whether its deliveries count. They are forgotten when it is detached.
    pub(super) fn has_deliveries(&self) -> bool {
        self.state == LinkState::Attached
    }

    pub(super) fn held_size(&self) -> usize {
        held_size(&self.name)
    }

    pub(super) fn partial_size(&self) -> u64 {
        let partial = self.partial.as_ref();
        partial.map_or(0, |partial| partial.payload.len() as u64)
    }
}

impl Session {
    /// The link that a frame of the peer names.
    pub(super) fn by_handle(&self, id: SessionId, handle: u32) -> Result<Key, Fault> {
        self.handles.get(&handle).copied().ok_or_else(|| {
            let text = format!("no link is attached with handle {handle}");
            Fault::Session(id, Error::new(condition::UNATTACHED_HANDLE, text))
        })
    }
}

impl Connection {
    /// Attaches a link. The handle is chosen here; everything else is as the caller sets it.
    ///
    /// `None` if the session has ended, allows no more links, or has a link with this name and
    /// role. `Event::Attached` reports the answer, which may be a refusal.
    pub fn attach(&mut self, session: SessionId, mut attach: Attach) -> Option<LinkId> {
        if self.link_count >= self.limits.links_max {
            return None;
        }
        let message_size_max = self.message_size_max(&mut attach);
        let own = self.session(session)?;
        let name = (attach.role, attach.name.clone());
        if own.ending != Ending::No || own.names.contains_key(&name) {
            return None;
        }
        let mut link = Link::new(&attach, attach.role, LinkState::AttachSent);
        if attach.role == Role::Receiver {
            link.message_size_max = message_size_max;
        }
        let key = own.links.insert(link);
        if key.index > own.remote_handle_max {
            own.links.remove(key);
            return None;
        }
        own.names.insert(name, key);
        attach.handle = key.index;
        self.link_count += 1;
        self.links_size += held_size(&attach.name);
        self.output.frame(channel_of(session), &attach);
        Some(LinkId { session, key })
    }

    /// Our limit for messages on a link. It is always sent, because SDKs read it, even where we are
    /// the sender.
    fn message_size_max(&self, attach: &mut Attach) -> u64 {
        let own = attach.max_message_size.filter(|&size| size > 0);
        let size = own.unwrap_or(self.limits.message_size_max);
        attach.max_message_size = Some(size);
        size
    }

    /// Answers an attach of the peer. `Attach::answer` makes an answer that agrees to everything.
    ///
    /// Returns whether the link still waited for the answer. Credit that the peer gave before is
    /// reported as an event now.
    pub fn accept(&mut self, id: LinkId, mut answer: Attach) -> bool {
        let message_size_max = self.message_size_max(&mut answer);
        let Some(link) = self.link_mut(id) else {
            return false;
        };
        if link.state != LinkState::Answering {
            return false;
        }
        link.state = LinkState::Attached;
        link.is_settled_mode = answer.snd_settle_mode == SenderSettleMode::Settled;
        answer.name = link.name.clone();
        answer.role = link.role;
        answer.handle = id.key.index;
        let early = link.early.take();
        let role = link.role;
        if role == Role::Sender {
            let count = *answer.initial_delivery_count.get_or_insert(0);
            link.delivery_count = count;
            if let Some(early) = &early {
                link.credit = early.credit;
                link.is_drain = early.is_drain;
            }
        } else {
            answer.initial_delivery_count = None;
            link.message_size_max = message_size_max;
        }
        self.output.frame(channel_of(id.session), &answer);
        if let Some(early) = early {
            self.after_answer(id, role, early);
        }
        true
    }

    /// Refuses an attach of the peer: an answer without the terminus of our side, and a detach with
    /// the error (AMQP 1.0, 2.6.3). Returns whether the link still waited for the answer.
    pub fn refuse(&mut self, id: LinkId, asked: &Attach, error: Error) -> bool {
        let Some(link) = self.link_mut(id) else {
            return false;
        };
        if link.state != LinkState::Answering {
            return false;
        }
        link.state = LinkState::DetachSent { is_awaited: false };
        let mut answer = asked.answer();
        answer.handle = id.key.index;
        match answer.role {
            Role::Sender => answer.source = None,
            Role::Receiver => answer.target = None,
        }
        let channel = channel_of(id.session);
        self.output.frame(channel, &answer);
        self.output
            .frame_of_error(channel, Some(error), |error| Detach {
                handle: id.key.index,
                closed: true,
                error,
            });
        self.forget_name(id);
        true
    }

    pub(super) fn on_attach(
        &mut self,
        session: SessionId,
        attach: Box<Attach>,
    ) -> Result<(), Fault> {
        let (handle, handle_max) = (attach.handle, self.config.handle_max);
        let links_max = self.limits.links_max.saturating_add(REFUSED_MAX);
        let is_flood = self.link_count >= links_max;
        if handle > handle_max {
            let text = format!("handle {handle} is above the maximum of {handle_max}");
            return Err(Error::new(condition::FRAMING_ERROR, text).into());
        }
        // Refusing only the link would keep its name until the peer detaches it.
        if let Some(text) = too_long(&attach) {
            let error = Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
            return Err(Fault::Session(session, error));
        }
        let Some(own) = self.session(session) else {
            return Ok(());
        };
        if own.handles.contains_key(&handle) {
            let text = format!("handle {handle} is in use");
            return Err(Fault::Session(
                session,
                Error::new(condition::HANDLE_IN_USE, text),
            ));
        }
        let role = attach.role.opposite();
        match own.names.get(&(role, attach.name.clone())) {
            Some(&key) => {
                let id = LinkId { session, key };
                if self
                    .link(id)
                    .is_some_and(|link| link.remote_handle.is_none())
                {
                    self.on_attach_answer(id, attach);
                    return Ok(());
                }
                let text = "another link with this name was attached";
                self.fail_link(id, Error::new(condition::STOLEN, text));
            }
            None if is_flood => {
                let text = "the peer attaches links faster than it reads refusals";
                return Err(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text).into());
            }
            None => {}
        }
        self.on_new_link(session, role, attach)
    }

    fn on_new_link(
        &mut self,
        session: SessionId,
        role: Role,
        attach: Box<Attach>,
    ) -> Result<(), Fault> {
        let is_over = self.link_count >= self.limits.links_max;
        let links_max = self.limits.links_max;
        let Some(own) = self.session(session) else {
            return Ok(());
        };
        let mut link = Link::new(&attach, role, LinkState::Answering);
        link.remote_handle = Some(attach.handle);
        if role == Role::Sender {
            link.message_size_max = attach.max_message_size.unwrap_or(0);
        }
        let key = own.links.insert(link);
        if key.index > own.remote_handle_max {
            own.links.remove(key);
            let text = "the peer allows no handle for another link";
            return Err(Fault::Session(
                session,
                Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text),
            ));
        }
        own.handles.insert(attach.handle, key);
        if let Some(link) = own.links.get(key) {
            own.names.insert((role, link.name.clone()), key);
        }
        self.link_count += 1;
        self.links_size += held_size(&attach.name);
        let link = LinkId { session, key };
        if is_over {
            let text = format!("at most {links_max} links are allowed");
            let error = Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
            self.refuse(link, &attach, error);
        } else {
            self.events.push_back(Event::Attach { link, attach });
        }
        Ok(())
    }

    fn on_attach_answer(&mut self, id: LinkId, attach: Box<Attach>) {
        let Some(own) = self.session(id.session) else {
            return;
        };
        own.handles.insert(attach.handle, id.key);
        let Some(link) = own.links.get_mut(id.key) else {
            return;
        };
        link.remote_handle = Some(attach.handle);
        if link.state != LinkState::AttachSent {
            // It was detached before it was answered: the peer's detach follows.
            self.forget_name(id);
            return;
        }
        link.state = LinkState::Attached;
        link.is_settled_mode = attach.snd_settle_mode == SenderSettleMode::Settled;
        match link.role {
            Role::Receiver => {
                link.delivery_count = attach.initial_delivery_count.unwrap_or(0);
                link.granted = link.delivery_count;
            }
            Role::Sender => link.message_size_max = attach.max_message_size.unwrap_or(0),
        }
        self.events.push_back(Event::Attached { link: id, attach });
    }

    /// Detaches a link. Returns whether it was attached or attaching.
    ///
    /// `Event::Detached` reports the peer's answer. If the peer has attached the link and got no
    /// answer yet, refuse it instead.
    pub fn detach(&mut self, id: LinkId, is_closed: bool, error: Option<Error>) -> bool {
        self.send_detach(id, is_closed, error, true)
    }

    fn send_detach(
        &mut self,
        id: LinkId,
        closed: bool,
        error: Option<Error>,
        is_awaited: bool,
    ) -> bool {
        let Some(link) = self.link_mut(id) else {
            return false;
        };
        if !matches!(link.state, LinkState::AttachSent | LinkState::Attached) {
            return false;
        }
        link.state = LinkState::DetachSent { is_awaited };
        let is_known = link.remote_handle.is_some();
        self.forget_deliveries(id);
        if is_known {
            self.forget_name(id);
        }
        let handle = id.key.index;
        self.output
            .frame_of_error(channel_of(id.session), error, |error| Detach {
                handle,
                closed,
                error,
            });
        true
    }

    /// Detaches a link because the peer broke one of its rules.
    pub(super) fn fail_link(&mut self, id: LinkId, error: Error) {
        let is_unanswered = self
            .link(id)
            .is_some_and(|l| l.state == LinkState::Answering);
        let was_attached = if is_unanswered {
            let Some((name, role)) = self.link(id).map(|l| (l.name.clone(), l.role)) else {
                return;
            };
            let asked = Attach::new(name, role.opposite());
            self.refuse(id, &asked, error.clone())
        } else {
            self.send_detach(id, true, Some(error.clone()), false)
        };
        if was_attached {
            self.events.push_back(Event::Detached {
                link: id,
                by: By::Us,
                is_closed: true,
                error: Some(error),
            });
        }
    }

    pub(super) fn on_detach(&mut self, session: SessionId, detach: Detach) -> Result<(), Fault> {
        let Some(own) = self.session(session) else {
            return Ok(());
        };
        let key = own.by_handle(session, detach.handle)?;
        let Some(state) = own.links.get(key).map(|link| link.state) else {
            return Ok(());
        };
        let id = LinkId { session, key };
        if let Some(link) = own.links.get_mut(key) {
            // Neither its name nor its deliveries are needed any more.
            link.state = LinkState::DetachSent { is_awaited: false };
        }
        self.forget_deliveries(id);
        if state == LinkState::Attached {
            let answer = Detach {
                handle: key.index,
                closed: detach.closed,
                error: None,
            };
            self.output.frame(channel_of(session), &answer);
        }
        // A link without an answer gets none: some peers close the connection if they receive a
        // frame on a link that they have given up.
        self.remove_link(id);
        let by = match state {
            LinkState::DetachSent { is_awaited: false } => return Ok(()),
            LinkState::DetachSent { is_awaited: true } => By::Us,
            _ => By::Peer,
        };
        self.events.push_back(Event::Detached {
            link: id,
            by,
            is_closed: detach.closed,
            error: detach.error,
        });
        Ok(())
    }
}

/// Which part of an attach is longer than its limit.
fn too_long(attach: &Attach) -> Option<String> {
    let source = attach.source.as_ref().and_then(|it| it.address.as_ref());
    let target = attach.target.as_ref().and_then(Target::address);
    let named = [
        ("name", Some(&attach.name)),
        ("source's address", source),
        ("target's address", target),
    ];
    named.into_iter().find_map(|(what, text)| {
        let size = text?.as_str().len();
        (size > NAME_SIZE_MAX).then(|| {
            format!("a link's {what} has {size} bytes, at most {NAME_SIZE_MAX} are allowed")
        })
    })
}
