//! The first entity of each session that has a coordinator.
//!
//! SDKs with cross-entity transactions attach the coordinator first, and all links to the same session. The service then
//! sends to all other entities via the first one, without a property that says so. So what a transaction sends to another
//! entity, which does not accept it at the commit, becomes a failed transfer of the first one.
//!
//! Source: Azure SDK for .NET, *Working with transactions* (across entities); Service Bus, *Overview of transaction
//! processing*.

use std::collections::BTreeMap;

use kew_amqp::{LinkId, SessionId};
use kew_engine::EntityName;
use kew_engine::bus::EntityKind;

use crate::ground::address::topic_of;

/// The first entities, by session. `None` until a link to one is attached.
#[derive(Default)]
pub(crate) struct Firsts(BTreeMap<SessionId, Option<First>>);

/// The first entity of a session.
pub(crate) struct First {
    /// The name that the client asked for, of which it has rights.
    pub(crate) asked: EntityName,
    /// The queue or topic that this is part of. It gets the failed transfers.
    pub(crate) whole: EntityName,
    /// The link to it, while that is not accepted yet: another link of its session does not take its place meanwhile.
    opening: Option<LinkId>,
}

impl First {
    /// Whether it is known to be there.
    pub(crate) fn is_open(&self) -> bool {
        self.opening.is_none()
    }
}

impl Firsts {
    /// A coordinator is attached.
    pub(super) fn begin(&mut self, session: SessionId) {
        self.0.entry(session).or_insert(None);
    }

    /// A client asks for a link to this entity.
    pub(super) fn reserve(&mut self, link: LinkId, asked: &EntityName) {
        if let Some(first @ None) = self.0.get_mut(&link.session()) {
            *first = Some(First {
                asked: asked.clone(),
                whole: whole(asked, None),
                opening: Some(link),
            });
        }
    }

    /// A link is not opening any more. If it is not attached at once, the next one that a client asks for has its place.
    pub(super) fn give_back(&mut self, link: LinkId) {
        if let Some(first) = self.0.get_mut(&link.session()) {
            first.take_if(|it| it.opening == Some(link));
        }
    }

    /// A link to this entity, as the client asked for it, is attached.
    pub(super) fn note(&mut self, session: SessionId, asked: &EntityName, whole: EntityName) {
        if let Some(first @ None) = self.0.get_mut(&session) {
            *first = Some(First {
                asked: asked.clone(),
                whole,
                opening: None,
            });
        }
    }

    /// The first entity of a session, if that is another one than this.
    pub(super) fn before(&self, session: SessionId, entity: &EntityName) -> Option<&First> {
        let first = self.0.get(&session)?.as_ref()?;
        (first.whole != *entity).then_some(first)
    }

    pub(super) fn end(&mut self, session: SessionId) {
        self.0.remove(&session);
    }
}

/// The queue or topic that an entity or its sub-queue is part of. A queue of an earlier version can have the name of a
/// subscription, so the kind counts once it is known.
pub(super) fn whole(asked: &EntityName, kind: Option<EntityKind>) -> EntityName {
    let (name, _) = asked.name.split_once("/$").unwrap_or((&asked.name, ""));
    let entity = EntityName {
        name: name.into(),
        ..asked.clone()
    };
    match kind {
        Some(EntityKind::Queue | EntityKind::Topic) => entity,
        Some(EntityKind::Subscription) | None => topic_of(&entity).unwrap_or(entity),
    }
}
