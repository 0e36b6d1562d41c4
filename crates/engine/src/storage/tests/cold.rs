//! Every operation on a message in every state. The partition of these tests gives each command to a state with nothing
//! in memory too, and compares.

use std::collections::BTreeSet;

use super::*;
use crate::event::Fact;
use crate::storage::AccessPolicies;
use crate::turn::missing::tests::variants;
use crate::vocabulary::SequenceNumber;

/// The state of the message that the operation finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Fresh,
    Delayed,
    DelayOver,
    Leased,
    LeaseOver,
    Expired,
    SetAside,
    Gone,
}

const ALL: [Found; 8] = [
    Found::Fresh,
    Found::Delayed,
    Found::DelayOver,
    Found::Leased,
    Found::LeaseOver,
    Found::Expired,
    Found::SetAside,
    Found::Gone,
];

/// A partition with such a message and others, its token and its latest receipt.
fn with(found: Found) -> (Partition, Token, Token) {
    let mut p = Partition::with_queue();
    let is_delayed = matches!(found, Found::Delayed | Found::DelayOver);
    let ttl = (found == Found::Expired).then_some(5);
    let sent = p.send_with("meant", ttl, if is_delayed { 5 } else { 0 });
    let Ok(Outcome::Storage(StorageOutcome::Sent(sent))) = sent else {
        panic!("{sent:?}");
    };
    for _ in 0..6 {
        p.send("another");
    }
    let mut receipt = sent.receipt;
    match found {
        Found::Fresh | Found::Delayed => {}
        Found::DelayOver | Found::Expired => p.wait_seconds(5),
        Found::Leased | Found::LeaseOver => {
            receipt = p.receive(1, 5)[0].receipt;
            if found == Found::LeaseOver {
                p.wait_seconds(5);
            }
        }
        // As if its record could not be read any more.
        Found::SetAside => {
            let (at, entity) = (p.now, p.state.catalogue.find(&jobs()).unwrap());
            let apply = |state: &mut State| {
                state.apply(Event {
                    at,
                    fact: Fact::Quarantined {
                        entity,
                        first: SequenceNumber::FIRST,
                        messages: 1,
                    },
                });
            };
            apply(&mut p.state);
            p.cold.as_mut().unwrap().change(apply);
        }
        Found::Gone => {
            p.delete(sent.message, receipt).unwrap();
        }
    }
    (p, sent.message, receipt)
}

fn operations(message: Token, receipt: Token) -> Vec<StorageCommand> {
    let queue = jobs;
    let receive = |count| StorageCommand::Receive {
        queue: queue(),
        count,
        visibility_timeout: seconds(5),
    };
    let update = |body: Option<&'static [u8]>| StorageCommand::Update {
        queue: queue(),
        message,
        receipt,
        visibility_timeout: seconds(3),
        body: body.map(|body| (BodyEncoding::Text, Bytes::from_static(body))),
    };
    vec![
        StorageCommand::Send {
            queue: queue(),
            body: Bytes::from_static(b"more"),
            encoding: BodyEncoding::Text,
            time_to_live_seconds: None,
            visibility_timeout: seconds(0),
        },
        receive(1),
        receive(3),
        receive(32),
        StorageCommand::Peek {
            queue: queue(),
            count: 1,
        },
        StorageCommand::Peek {
            queue: queue(),
            count: 32,
        },
        update(None),
        update(Some(b"changed")),
        StorageCommand::Delete {
            queue: queue(),
            message,
            receipt,
        },
        StorageCommand::Clear { queue: queue() },
        StorageCommand::ReadQueue { queue: queue() },
        StorageCommand::DeleteQueue { queue: queue() },
        StorageCommand::SetQueueMetadata {
            queue: queue(),
            metadata: Metadata::default(),
        },
        StorageCommand::SetQueuePolicies {
            queue: queue(),
            policies: AccessPolicies::default(),
        },
        StorageCommand::CreateQueue {
            queue: EntityName {
                name: "new".into(),
                ..queue()
            },
            metadata: Metadata::default(),
        },
        StorageCommand::ListQueues {
            service: queue().service,
            account: queue().account,
            prefix: "".into(),
            from: "".into(),
            limit: 10,
            metadata_size_bytes_max: Some(100),
        },
    ]
}

variants!(COMMANDS, name_of, StorageCommand:
    CreateQueue DeleteQueue ReadQueue SetQueueMetadata ListQueues Send Receive Peek Update Delete Clear SetQueuePolicies);

#[test]
fn every_command_is_among_the_operations() {
    let (_, message, receipt) = with(Found::Fresh);
    let operations = operations(message, receipt);
    let names: BTreeSet<_> = operations.iter().map(name_of).collect();
    assert_eq!(names, COMMANDS.iter().copied().collect());
}

#[test]
fn every_operation_in_every_state_decides_the_same_without_memory() {
    for found in ALL {
        let (_, message, receipt) = with(found);
        for nth in 0..operations(message, receipt).len() {
            let (mut p, message, receipt) = with(found);
            let operation = operations(message, receipt).swap_remove(nth);
            // Many are refused in that state. That is compared too.
            let _ = p.ask(Command::Storage(operation));
            p.wait_seconds(10);
            while p.tick(7) {}
            let _ = p.ask(Command::Storage(StorageCommand::Peek {
                queue: jobs(),
                count: 32,
            }));
        }
    }
}
