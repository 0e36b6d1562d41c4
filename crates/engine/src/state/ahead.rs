//! What a receiver is likely to need next. Nothing is decided by it: who reads it ahead spares the next receive a read.

use super::State;
use crate::queues::Receiving;
use crate::table::{GroupAhead, Missing, Slots, Table};
use crate::vocabulary::{Incarnation, SequenceNumber, Timestamp};

/// The fewest messages that are looked for ahead of a receiver, and the most groups: one job reads so many.
const MESSAGES_MIN: usize = 16;
const GROUPS_MAX: usize = 64;

/// The most messages of a session that are looked for.
const OF_SESSION_MAX: usize = 1024;

/// What lies ahead of a receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// In the order in which it is received.
    pub groups: Vec<GroupAhead>,
    /// From this message on, half of it was received.
    pub half: SequenceNumber,
}

impl State {
    /// The first message that a receiver finds.
    pub fn first_for(&self, receiving: &Receiving) -> Option<SequenceNumber> {
        match receiving.session {
            0 => self.table_of(receiving.entity)?.first_ready(),
            session => self.ready_of_session(receiving.entity, session).next(),
        }
    }

    /// The messages that lie ahead of a receiver, at most so many. What it misses itself is not ahead.
    ///
    /// In the order of numbers, that are the next ⌈count / 128⌉ + 1 groups behind that of its first message, and more
    /// if few of their messages are left. Of a session, as many as two receives take.
    pub fn ahead_of(
        &self,
        receiving: &Receiving,
        missing: &Missing,
        room: u64,
        now: Timestamp,
    ) -> Ahead {
        let Some(table) = self.table_of(receiving.entity) else {
            return Ahead::default();
        };
        match receiving.session {
            0 => groups_ahead(table, receiving, missing, room, now),
            _ => self.session_ahead(table, receiving, missing, room),
        }
    }

    fn session_ahead(
        &self,
        table: &Table,
        receiving: &Receiving,
        missing: &Missing,
        room: u64,
    ) -> Ahead {
        let entity = receiving.entity;
        let count = receiving.count.saturating_mul(2);
        let count = count.clamp(MESSAGES_MIN, OF_SESSION_MAX);
        let count = usize::try_from(room).map_or(count, |room| count.min(room));
        let numbers = self.ready_of_session(entity, receiving.session);
        let ahead = numbers.filter_map(|it| Some((it, table.group_ahead(entity, it)?)));
        let ahead = ahead.filter(|(_, it)| !missing.has(it.group, it.messages));
        let ahead: Vec<(SequenceNumber, GroupAhead)> = ahead.take(count).collect();
        let mut groups: Vec<GroupAhead> = Vec::new();
        for (_, it) in &ahead {
            match groups.last_mut() {
                Some(last) if last.group == it.group => {
                    last.messages |= it.messages;
                    last.missing |= it.missing;
                }
                Some(_) | None => groups.push(*it),
            }
        }
        let half = ahead.get(ahead.len() / 2);
        Ahead {
            groups,
            half: half.map_or_else(SequenceNumber::default, |(number, _)| *number),
        }
    }

    pub(super) fn table_of(&self, entity: Incarnation) -> Option<&Table> {
        let stored = self.storage.get(&entity);
        let stored = stored.map(|stored| stored.backlog.table());
        stored.or_else(|| Some(self.bus.get(&entity)?.backlog.table()))
    }

    fn ready_of_session(
        &self,
        entity: Incarnation,
        session: u32,
    ) -> impl Iterator<Item = SequenceNumber> {
        let queue = self.bus.get(&entity);
        let session = queue.and_then(|queue| queue.backlog.sessions.get(session));
        let session = session.into_iter();
        session.flat_map(|session| session.messages.ready())
    }
}

fn groups_ahead(
    table: &Table,
    receiving: &Receiving,
    missing: &Missing,
    room: u64,
    now: Timestamp,
) -> Ahead {
    let per_group = table.length().slots_per_group();
    let (groups_min, messages_min) = (
        receiving.count.div_ceil(per_group) + 1,
        receiving.count.max(MESSAGES_MIN),
    );
    let (mut ahead, mut messages, mut records) = (Vec::new(), 0, 0);
    // The first one is in memory, or the receiver is about to ask for it.
    for (first, it) in table.ready_groups(receiving.entity, now).skip(1) {
        if ahead.len() >= GROUPS_MAX || ahead.len() >= groups_min && messages >= messages_min {
            break;
        }
        if missing.groups.contains_key(&it.group) {
            continue;
        }
        messages += count_of(it.messages);
        records += count_of(it.records()) as u64;
        if records > room {
            break;
        }
        ahead.push((first, it));
    }
    let half = ahead.get(ahead.len() / 2);
    Ahead {
        half: half.map_or_else(SequenceNumber::default, |(first, _)| *first),
        groups: ahead.into_iter().map(|(_, it)| it).collect(),
    }
}

fn count_of(messages: Slots) -> usize {
    messages.count_ones() as usize
}
