//! Links of handles: attached when they are needed, again when they were lost.

use std::collections::VecDeque;

use kew_amqp::performative::{Attach, Role};
use kew_amqp::{LinkId, Millis};

use super::link::{Attached, InboxSender, Link, Phase, session_of};
use super::spec::{LinkSpec, LinkUse};
use super::{Core, LinkKey, Owner};
use crate::bus::job::Job;
use crate::error::Error;

impl Core {
    pub(super) fn add_link(
        &mut self,
        key: LinkKey,
        spec: LinkSpec,
        inbox: Option<InboxSender>,
        job: Job<Attached>,
    ) {
        let links_max = self.settings.links_max;
        if self.links.len() >= links_max {
            let text = format!("the client has {links_max} links, which is its limit");
            job.finish(Err(Error::refused(text)));
            return;
        }
        let link = Link {
            spec,
            name: String::new(),
            phase: Phase::Detached,
            attaching: Some(job),
            queue: VecDeque::new(),
            inbox,
            wanted: 0,
            draining: None,
            under_way: 0,
            progress_at: self.now,
            is_leaving: false,
        };
        self.links.insert(key, link);
        self.stir_link(key);
    }

    /// Does for a link what can be done now.
    pub(super) fn stir_link(&mut self, key: LinkKey) {
        let Some(link) = self.links.get_mut(&key) else {
            return;
        };
        link.queue.retain(|it| !it.job.is_withdrawn());
        match &link.phase {
            Phase::Detached if link.is_needed() => self.attach_link(key),
            Phase::Detached | Phase::AwaitsToken | Phase::Attaching(_) => {}
            &Phase::Attached(id) => {
                self.grant(key, id);
                self.send_queued(key, id);
            }
            Phase::Over(error) => {
                let error = error.clone();
                self.fail_waiting(key, &error);
            }
        }
    }

    fn attach_link(&mut self, key: LinkKey) {
        if !self.is_ready() {
            return;
        }
        let number = self.number();
        let Some(link) = self.links.get_mut(&key) else {
            return;
        };
        let audience = link.spec.audience.clone();
        // A coordinator has none: what is done in a transaction needs the tokens of its entities.
        let needs_token = link.spec.purpose != LinkUse::Coordinate;
        if needs_token && !self.has_token(&audience) {
            if let Some(link) = self.links.get_mut(&key) {
                link.phase = Phase::AwaitsToken;
            }
            self.want_token(audience);
            return;
        }
        let (Some(wire), Some(link)) = (&mut self.wire, self.links.get_mut(&key)) else {
            return;
        };
        if let Some(job) = &link.attaching
            && !job.start()
            && job.is_withdrawn()
        {
            link.attaching = None;
            return;
        }
        link.name = format!("{}-{number}", self.settings.name);
        let attach = link.spec.attach(&link.name);
        let attached = wire
            .session
            .and_then(|session| wire.amqp.attach(session, attach));
        match attached {
            Some(id) => {
                link.phase = Phase::Attaching(id);
                self.owners.insert(id, Owner::Link(key));
            }
            None => {
                let text = "the connection takes no more links";
                self.fail_link(key, &Error::later(text));
            }
        }
    }

    /// The token of an audience is there.
    pub(super) fn stir_links_of(&mut self, audience: &str) {
        let waiting: Vec<LinkKey> = self.waiting_for_token(audience);
        for key in waiting {
            if let Some(link) = self.links.get_mut(&key) {
                link.phase = Phase::Detached;
            }
            self.stir_link(key);
        }
    }

    /// There is no token for an audience.
    pub(super) fn fail_links_of(&mut self, audience: &str, error: &Error) {
        for key in self.waiting_for_token(audience) {
            self.fail_link(key, error);
        }
    }

    fn waiting_for_token(&self, audience: &str) -> Vec<LinkKey> {
        let waits = |link: &Link| {
            matches!(link.phase, Phase::AwaitsToken) && *link.spec.audience == *audience
        };
        let links = self.links.iter().filter(|(_, link)| waits(link));
        links.map(|(&key, _)| key).collect()
    }

    /// The service has answered an attach. A refusal is followed by a detach, which says why.
    pub(super) fn on_link_attached(&mut self, key: LinkKey, id: LinkId, answer: &Attach) {
        let Some(link) = self.links.get_mut(&key) else {
            return;
        };
        let is_refusal = match answer.role {
            Role::Sender => answer.source.is_none(),
            Role::Receiver => answer.target.is_none(),
        };
        if is_refusal {
            return;
        }
        let attached = Attached {
            message_size_max: answer.max_message_size.filter(|&size| size > 0),
            session: session_of(answer),
        };
        if link.spec.purpose.is_session() && attached.session.is_none() {
            let text = "the service answered without naming the session that it has locked";
            self.detach(key, &Error::refused(text));
            return;
        }
        link.phase = Phase::Attached(id);
        if let Some(job) = link.attaching.take() {
            job.finish(Ok(attached));
        }
        self.stir_link(key);
    }

    /// Detaches a link, if it is attached. What went over it fails.
    pub(super) fn detach(&mut self, key: LinkKey, error: &Error) {
        let id = self.links.get(&key).and_then(Link::id);
        if let (Some(id), Some(wire)) = (id, &mut self.wire) {
            wire.amqp.detach(id, true, None);
            self.owners.remove(&id);
        }
        self.fail_link(key, error);
    }

    /// Something ran out of time before it went out. If the link is only busy it stays: what is under way would be
    /// lost with it. A receiver's link stays too, because nothing waits for its credit.
    pub(super) fn replace_if_stuck(&mut self, key: LinkKey) {
        let Some(link) = self.links.get(&key) else {
            return;
        };
        let is_stuck = match link.phase {
            Phase::Attaching(_) => true,
            Phase::Attached(_) => {
                let is_idle = link.under_way == 0 || link.silent_until() <= self.now;
                link.spec.purpose == LinkUse::Send && is_idle
            }
            Phase::Detached | Phase::AwaitsToken | Phase::Over(_) => false,
        };
        if is_stuck {
            self.detach(key, &Error::later("the service did not answer in time"));
        }
    }

    /// Nobody has a link any more. What is under way gets its outcome first.
    pub(super) fn forget_link(&mut self, key: LinkKey) {
        let Some(link) = self.links.get_mut(&key) else {
            return;
        };
        if link.under_way == 0 {
            self.remove_link(key);
            return;
        }
        link.is_leaving = true;
        link.progress_at = self.now;
        link.inbox = None;
        link.wanted = 0;
        if let (Phase::Attached(id), Some(wire)) = (&link.phase, &mut self.wire)
            && wire.amqp.credit(*id) > 0
        {
            wire.amqp.grant(*id, 0);
        }
    }

    /// When links that nobody has are given up although something is under way.
    pub(super) fn leaving_until(&self) -> impl Iterator<Item = Millis> {
        let leaving = self.links.values().filter(|link| link.is_leaving);
        leaving.map(Link::silent_until)
    }

    /// Gives up links that nobody has and that no more outcomes come over.
    pub(super) fn give_up_silent_links(&mut self) {
        let now = self.now;
        let is_due = |link: &Link| link.is_leaving && link.silent_until() <= now;
        let due = self.links.iter().filter(|(_, link)| is_due(link));
        let due: Vec<LinkKey> = due.map(|(&key, _)| key).collect();
        for key in due {
            self.remove_link(key);
        }
    }

    pub(super) fn remove_link(&mut self, key: LinkKey) {
        self.detach(key, &Error::refused("the link was closed"));
        self.links.remove(&key);
        self.blocked.remove(&Owner::Link(key));
    }

    /// A link is gone, or could not be attached: all that goes over it fails.
    pub(super) fn fail_link(&mut self, key: LinkKey, error: &Error) {
        let Some(link) = self.links.get_mut(&key) else {
            return;
        };
        if let Some(id) = link.id() {
            self.owners.remove(&id);
        }
        let over = match &link.phase {
            Phase::Over(error) => Some(error.clone()),
            Phase::Attached(_) => link.spec.purpose.end(error),
            Phase::Detached | Phase::AwaitsToken | Phase::Attaching(_) => None,
        };
        let error = match (&over, &link.spec.purpose) {
            // Of what is under way to a coordinator nobody knows whether it was carried out.
            (_, LinkUse::Coordinate) | (None, _) => error.clone(),
            (Some(over), _) => over.clone(),
        };
        link.phase = over.map_or(Phase::Detached, Phase::Over);
        link.under_way = 0;
        let is_leaving = link.is_leaving;
        let sent = self.sending.extract_if(.., |_, it| it.link == key);
        let sent: Vec<_> = sent.map(|(_, it)| it.job).collect();
        let settled = self.settling.extract_if(.., |_, it| it.link == key);
        let settled: Vec<_> = settled.map(|(_, it)| it).collect();
        for job in sent {
            job.lose(&error);
        }
        for settling in settled {
            settling.lose(&error);
        }
        self.fail_waiting(key, &error);
        if is_leaving {
            self.links.remove(&key);
            self.blocked.remove(&Owner::Link(key));
        }
    }

    /// What waits for a link that is not there.
    fn fail_waiting(&mut self, key: LinkKey, error: &Error) {
        let Some(link) = self.links.get_mut(&key) else {
            return;
        };
        if let Some(job) = link.attaching.take() {
            job.finish(Err(error.clone()));
        }
        for waiting in link.queue.drain(..) {
            waiting.job.finish(Err(error.clone()));
        }
        // The service forgets what was on its way.
        if let Some(job) = link.draining.take() {
            job.finish(Ok(()));
        }
        let is_awaited = std::mem::take(&mut link.wanted) > 0;
        if let Some(inbox) = link.inbox.as_ref().filter(|_| is_awaited) {
            // If it is full, its receiver has messages to see to, and asks again afterwards.
            let _ = inbox.try_send(Err(error.clone()));
        }
    }

    /// Why a link cannot be attached again, if it cannot.
    pub(super) fn over(&self, key: LinkKey) -> Option<Error> {
        match self.links.get(&key).map(|link| &link.phase) {
            Some(Phase::Over(error)) => Some(error.clone()),
            Some(
                Phase::Detached | Phase::AwaitsToken | Phase::Attaching(_) | Phase::Attached(_),
            ) => None,
            None => Some(Error::refused("the link was closed")),
        }
    }

    /// The name of a link, for requests that are about what it has locked.
    pub(super) fn name_of(&self, key: LinkKey) -> Result<&str, Error> {
        match self.links.get(&key) {
            Some(link) if link.is_attached() => Ok(&link.name),
            Some(_) | None => {
                let later = || Error::later("the link is not attached");
                Err(self.over(key).unwrap_or_else(later))
            }
        }
    }
}
