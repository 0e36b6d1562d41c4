//! The first entity of each session that has a coordinator.
//!
//! SDKs with cross-entity transactions attach the coordinator first, and all links to the same session. The service then
//! sends to all other entities via the first one, without a property that says so. So what a transaction sends to another
//! entity, which does not accept it at the commit, becomes a failed transfer of the first one.
//!
//! Source: Azure SDK for .NET, *Working with transactions* (across entities); Service Bus, *Overview of transaction
//! processing*.

use std::collections::BTreeMap;

use kew_amqp::SessionId;
use kew_engine::EntityName;

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
}

impl Firsts {
    /// A coordinator is attached.
    pub(super) fn begin(&mut self, session: SessionId) {
        self.0.entry(session).or_insert(None);
    }

    /// A link to this entity is attached.
    pub(super) fn note(&mut self, session: SessionId, asked: &EntityName) {
        if let Some(first @ None) = self.0.get_mut(&session) {
            *first = Some(First {
                asked: asked.clone(),
                whole: whole(asked),
            });
        }
    }

    /// The first entity of a session, if that is another one than this.
    pub(super) fn before(&self, session: SessionId, entity: &EntityName) -> Option<&First> {
        let first = self.0.get(&session)?.as_ref()?;
        (first.whole != whole(entity)).then_some(first)
    }

    pub(super) fn end(&mut self, session: SessionId) {
        self.0.remove(&session);
    }
}

/// The queue or topic that an entity is part of.
fn whole(entity: &EntityName) -> EntityName {
    let (name, _) = entity.name.split_once("/$").unwrap_or((&entity.name, ""));
    let entity = EntityName {
        name: name.into(),
        ..entity.clone()
    };
    topic_of(&entity).unwrap_or(entity)
}
