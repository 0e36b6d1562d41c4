//! That commands keep to their descriptions. The tests of each service check it for every command that they
//! give; here are the largest ones.

use std::collections::BTreeSet;

use super::*;
use crate::bus::TransactionPart;
use crate::bus::{
    BODIES_SIZE_BYTES_MAX, BusCommand, BusFact, BusMessage, Disposition, ITEMS_MAX, Resubmission,
    Resubmit, SESSION_ID_SIZE_BYTES_MAX, TRANSACTION_ENDED_MAX, TRANSACTION_MESSAGES_MAX,
    TRANSACTION_SIZE_BYTES_MAX, TransactionWork,
};
use crate::event::{Event, Fact};
use crate::turn::DUE_BUDGET;
use crate::vocabulary::EntityName;
use crate::vocabulary::{Incarnation, SequenceNumber, Service, Timestamp, Token};

/// The description of a command, kept until it is decided.
pub(crate) struct Promise {
    room_bytes: u64,
    class: Class,
    is_refused: bool,
    /// Whether due work may be done first, which can concern other queues.
    is_work_due: bool,
    names: Option<Vec<EntityName>>,
    queues: BTreeSet<Incarnation>,
    /// Those of subscriptions: their use may be noted.
    topics: BTreeSet<Incarnation>,
}

impl Promise {
    pub(crate) fn of(command: &Command, state: &State, now: Timestamp) -> Self {
        let description = command.describe();
        let names = match description.touches {
            Touches::Queue(queue) => Some(vec![queue.clone()]),
            Touches::Transfer { from, to } => {
                let to = to.map(|to| EntityName {
                    name: to.into(),
                    ..from.clone()
                });
                Some([from.clone()].into_iter().chain(to).collect())
            }
            Touches::Queues(ref queues) => Some(queues.iter().copied().cloned().collect()),
            Touches::Catalogue => Some(Vec::new()),
            Touches::Account(_) | Touches::Bodies => None,
        };
        let mut promise = Self {
            room_bytes: description.room_size_bytes_max(state, DUE_BUDGET),
            class: description.class,
            is_refused: description.refusal.is_some(),
            is_work_due: state.next_deadline().is_some_and(|it| it <= now),
            names,
            queues: BTreeSet::new(),
            topics: BTreeSet::new(),
        };
        promise.find_queues(state);
        promise
    }

    fn find_queues(&mut self, state: &State) {
        for name in self.names.iter().flatten() {
            let Some(found) = state.catalogue.find(name) else {
                continue;
            };
            self.queues.insert(found);
            let Some(queue) = state.bus.get(&found) else {
                continue;
            };
            let first = queue.role.first_of(found);
            let topic = state.bus.get(&first).and_then(|it| it.role.topic());
            self.topics.extend(topic);
            let subscriptions = state.catalogue.subscriptions_of(first);
            let firsts = std::iter::once(first).chain(subscriptions);
            self.queues
                .extend(firsts.flat_map(Incarnation::with_sub_queues));
        }
    }

    /// Checks what the command has written.
    pub(crate) fn check(mut self, state: &State, events: &[Vec<u8>], written_bytes: u64) {
        assert!(
            written_bytes <= self.room_bytes,
            "{written_bytes} bytes were written where {} were promised",
            self.room_bytes
        );
        assert!(events.is_empty() || !self.is_refused);
        if self.is_work_due {
            return;
        }
        self.find_queues(state);
        for event in events {
            let event = Event::decode(event).unwrap();
            let is_used = matches!(event.fact, Fact::Bus(BusFact::Used { .. }));
            assert!(is_used || self.class != Class::Read, "{event:?}");
            if self.names.is_some() {
                let is_meant = |queue: Incarnation| {
                    self.queues.contains(&queue) || (is_used && self.topics.contains(&queue))
                };
                assert!(
                    event.entities().all(is_meant),
                    "{event:?} is outside {:?}",
                    self.names
                );
            }
        }
    }
}

/// A batch that holds the largest command. A log that cannot hold it needs smaller limits in `bus/room.rs`.
const LARGEST_COMMAND_BYTES: u64 = 8 << 20;

fn entity(name: &str) -> EntityName {
    EntityName {
        service: Service::ServiceBus,
        account: "ns".into(),
        name: name.into(),
    }
}

fn message(size_bytes: u64) -> BusMessage {
    BusMessage {
        body: vec![0; usize::try_from(size_bytes).unwrap()].into(),
        message_id: None,
        session: Some("s".repeat(SESSION_ID_SIZE_BYTES_MAX).into()),
        time_to_live_ms: None,
        scheduled_at: None,
    }
}

fn abandon(size_bytes: u64) -> Disposition {
    Disposition::Abandon {
        overlay: Some(vec![0; usize::try_from(size_bytes).unwrap()].into()),
    }
}

/// Commands at their limits. The rest name a message or two.
fn largest() -> Vec<BusCommand> {
    let queue = entity("jobs");
    let each = BODIES_SIZE_BYTES_MAX / ITEMS_MAX as u64;
    let resubmission = |number| Resubmission {
        sequence_number: SequenceNumber::new(number),
        overlay_count: 0,
        body: message(each).body,
        message_id: None,
        session: message(0).session,
        time_to_live_ms: None,
    };
    let part = |index: usize, work| TransactionPart {
        queue: entity(&format!("jobs-{index}")),
        incarnation: None,
        work,
    };
    let sent = TRANSACTION_SIZE_BYTES_MAX / TRANSACTION_MESSAGES_MAX as u64;
    // Each names two queues.
    let sends = (0..TRANSACTION_MESSAGES_MAX).map(|index| {
        let to = entity(&format!("to-{index}"));
        part(index, TransactionWork::SendVia(to, vec![message(sent)]))
    });
    let token = Token::from_bytes([0; 16]);
    let settles = (0..TRANSACTION_ENDED_MAX)
        .map(|index| part(index + 1000, TransactionWork::Settle(token, abandon(0))));
    vec![
        BusCommand::Send {
            queue: queue.clone(),
            messages: vec![message(each); ITEMS_MAX],
        },
        BusCommand::SendVia {
            via: queue.clone(),
            to: entity("other"),
            messages: vec![message(each); ITEMS_MAX],
        },
        BusCommand::Resubmit {
            queue: queue.clone(),
            resubmit: Resubmit {
                to: None,
                messages: (0..ITEMS_MAX as u64).map(resubmission).collect(),
            },
        },
        BusCommand::Settle {
            queue: queue.clone(),
            settlements: vec![(token, abandon(each)); ITEMS_MAX],
        },
        BusCommand::ClearSessionStates {
            queue: queue.clone(),
            from: Box::default(),
            count: u32::MAX,
            is_dry_run: false,
        },
        BusCommand::SetSessionState {
            queue,
            session: token,
            state: Some(message(BODIES_SIZE_BYTES_MAX).body),
        },
        BusCommand::Transact {
            parts: sends.chain(settles).collect(),
        },
    ]
}

#[test]
fn the_largest_commands_fit_into_a_batch() {
    let state = State::new();
    for command in largest() {
        let command = Command::Bus(command);
        let description = command.describe();
        assert_eq!(description.refusal, None);
        let room_bytes = description.room_size_bytes_max(&state, DUE_BUDGET);
        assert!(room_bytes > BODIES_SIZE_BYTES_MAX, "{room_bytes}");
        assert!(room_bytes <= LARGEST_COMMAND_BYTES, "{room_bytes}");
    }
}

#[test]
fn a_command_beyond_its_limits_needs_no_room() {
    let state = State::new();
    for mut command in largest() {
        match &mut command {
            BusCommand::Send { messages, .. } | BusCommand::SendVia { messages, .. } => {
                messages.push(message(0));
            }
            BusCommand::Resubmit { resubmit, .. } => {
                let again = resubmit.messages[0].clone();
                resubmit.messages.push(again);
            }
            BusCommand::Settle { settlements, .. } => {
                let again = settlements[0].clone();
                settlements.push(again);
            }
            BusCommand::SetSessionState { state, .. } => {
                *state = Some(message(BODIES_SIZE_BYTES_MAX + 1).body);
            }
            BusCommand::Transact { parts } => {
                let again = parts[0].clone();
                parts.push(again);
            }
            BusCommand::ClearSessionStates { from, .. } => {
                *from = "s".repeat(SESSION_ID_SIZE_BYTES_MAX + 1).into();
            }
            other => panic!("{other:?}"),
        }
        let command = Command::Bus(command);
        let description = command.describe();
        assert!(description.refusal.is_some(), "{:?}", description.touches);
        assert_eq!(description.room_size_bytes_max(&state, DUE_BUDGET), 0);
    }
}
