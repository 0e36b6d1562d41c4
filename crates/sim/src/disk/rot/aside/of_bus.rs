//! The same for Service Bus: messages with locks, sessions, schedules and changed properties, deferred ones, dead letters
//! and copies.
//!
//! A start has to read the pages of runs with sessions or changed properties, also if no message stays in memory. The
//! checker follows each message by the number in its body, so this begins with what the whole disk says of each place.

use std::collections::HashMap;
use std::sync::Arc;

use kew_engine::bus::{BusCommand, Purge};
use kew_engine::{SequenceNumber, Service, Token};
use kew_log::{BodyLocation, LogPosition};

use super::{AsideCounts, Closed};
use crate::bus::checker::number_of;
use crate::bus::{NAMESPACE, entity, topics as names};
use crate::checker::Violation;
use crate::disk::clients::{Clients, StoredMessage};
use crate::disk::host::Host;
use crate::disk::setting::{Setting, violation};
use crate::disk::step::Step;
use crate::disk::tape::Tape;
use crate::disk::workload::{Act, Workload};
use crate::disk::{bus, sessions, topics};
use crate::random::Stream;

/// Messages of all kinds, enough of each entity for a page.
const MESSAGES: [(Step, usize); 17] = [
    (Step::BusSend, 7),
    (Step::BusReceive, 1),
    (Step::BusDefer, 1),
    (Step::BusDeadLetter, 1),
    (Step::BusReceive, 1),
    (Step::BusDeadLetter, 2),
    (Step::BusSendScheduled, 3),
    (Step::BusPublish, 6),
    (Step::BusReceiveCopy, 1),
    (Step::BusDeadLetter, 1),
    (Step::BusSendToSession, 12),
    (Step::BusReceiveOfSession, 3),
    (Step::BusDefer, 1),
    (Step::BusAbandon, 1),
    (Step::BusSession, 2),
    (Step::BusReceiveOfSession, 1),
    (Step::BusReceive, 1),
];

/// Two snapshots name their pages: otherwise a start uses the one that does not.
const SNAPSHOTS: [Step; 4] = [
    Step::Snapshot,
    Step::BusSend,
    Step::BusSendToSession,
    Step::Snapshot,
];

/// What the log, or the directory, has beside the pages, and what clients do when some messages are set aside.
const AFTERWARDS: [Step; 14] = [
    Step::BusSend,
    Step::BusSendToSession,
    Step::BusPublish,
    Step::BusReceive,
    Step::BusReceiveOfSession,
    Step::BusReceiveCopy,
    Step::BusComplete,
    Step::BusAbandon,
    Step::BusDefer,
    Step::BusDeadLetter,
    Step::BusResubmit,
    Step::BusDelete,
    Step::BusSession,
    Step::Snapshot,
];

/// The same workload in a world where pages are needed, with messages of all kinds and snapshots that have them.
pub(super) fn with_messages(workload: Workload, random: &mut Stream) -> Workload {
    let mut steps: Vec<Step> = Vec::new();
    for (step, count) in MESSAGES {
        steps.resize(steps.len() + count, step);
    }
    steps.extend(SNAPSHOTS);
    steps.extend(afterwards(random));
    let mut acts = workload.acts;
    acts.extend(steps.into_iter().map(Act::Play));
    Workload {
        setting: Setting::BUS_ASIDE[random.index(Setting::BUS_ASIDE.len())],
        acts,
        ..workload
    }
}

fn afterwards(random: &mut Stream) -> Vec<Step> {
    let count = random.index(6);
    let steps = (0..count).map(|_| AFTERWARDS[random.index(AFTERWARDS.len())]);
    steps.collect()
}

/// Clients go on: they may name what is set aside. Snapshots have it, with all others of its runs.
pub(super) fn use_some(host: &mut Host, random: &mut Stream) -> Result<(), Violation> {
    let steps = afterwards(random);
    steps.into_iter().try_for_each(|step| host.play(step))?;
    for _ in 0..random.index(3) {
        host.play(Step::BusSend)?;
        host.play(Step::Snapshot)?;
    }
    Ok(())
}

impl Closed {
    /// Where each message of a bus entity is, by its id.
    pub(super) fn stored_messages(&self) -> Result<HashMap<Token, StoredMessage>, Violation> {
        let tape = Tape::new(self.disk.kill());
        let setting = self.setting.whole();
        let host = Host::open(tape, setting, self.clients.clone(), self.now, 1);
        let host = host.map_err(|not| violation("before it is damaged", &not.error))?;
        let partition = host.partition();
        let state = partition.state();
        let of_bus = state.messages();
        let of_bus = of_bus.filter(|it| it.queue_name.service == Service::ServiceBus);
        let stored = of_bus.filter_map(|it| {
            let location = BodyLocation {
                record: LogPosition::new(it.body.record),
                offset: it.body.offset(),
                length: it.body.length,
            };
            let body = partition.log().body(location)?.read().ok()?;
            let at = entity(it.queue_name);
            let stored = StoredMessage {
                at: (at, it.sequence_number.as_u64()),
                message: names::number_in(at.queue, number_of(&body)),
            };
            Some((state.id_of(it.queue, it.sequence_number)?, stored))
        });
        Ok(stored.collect())
    }

    /// Tells the clients, before pages are damaged.
    pub(super) fn tell_stored(&mut self) -> Result<(), Violation> {
        let stored = self.stored_messages()?;
        self.clients.know_stored(Arc::new(stored));
        Ok(())
    }
}

/// Looks at everything that the entities have and count, once all that is due is done.
pub(super) fn look(host: &mut Host) -> Result<(), Violation> {
    let [with_sessions, dead_letters] = sessions::parts();
    let list_sessions = BusCommand::ListSessions {
        queue: with_sessions.clone(),
        from: "".into(),
        state_set_after: None,
        skip: 0,
        limit: 100,
    };
    let list_topics = BusCommand::ListTopics {
        namespace: NAMESPACE.into(),
        skip: 0,
        limit: 100,
    };
    let list_queues = BusCommand::ListQueues {
        namespace: NAMESPACE.into(),
        from: "".into(),
        skip: 0,
        limit: 100,
    };
    // What is asked for together is checked in this order, and one answer may wait for a page while another does not. So
    // nothing may change meanwhile.
    host.settle()?;
    for list in [list_sessions, list_topics, list_queues] {
        bus::ask(host, vec![list])?;
    }
    topics::look(host)?;
    let peeks = vec![bus::peek(with_sessions), bus::peek(dead_letters)];
    bus::ask(host, peeks)
}

/// Purges everything.
pub(super) fn purge(host: &mut Host) -> Result<(), Violation> {
    let purge = |queue| BusCommand::Purge {
        queue,
        purge: Purge {
            from: SequenceNumber::default(),
            until: None,
            before: None,
            count: 1000,
            with_locked: true,
            is_dry_run: false,
        },
    };
    let parts = bus::parts().into_iter().chain(sessions::parts());
    bus::ask(host, parts.map(purge).collect())?;
    look(host)
}

impl AsideCounts {
    /// Counts the kinds of messages of bus entities that were set aside.
    pub(super) fn note_kinds(&mut self, clients: &Clients) {
        self.locked += clients.occurred("a locked message was set aside");
        self.scheduled += clients.occurred("a scheduled message was set aside");
        self.deferred += clients.occurred("a deferred message was set aside");
        self.dead_letters += clients.occurred("a dead letter was set aside");
        self.of_sessions += clients.occurred("a message of a session was set aside");
        self.copies += clients.occurred("a copy was set aside");
    }
}
