//! The clients' commands, and what they remember for them.

use std::collections::HashMap;

use bytes::Bytes;
use kew_engine::storage::{
    AccessPolicies, AccessPolicy, PolicyTime, StorageCommand, StorageOutcome,
};
use kew_engine::{
    AccountQuota, AccountRecord, AccountSecret, BodyEncoding, Command, EntityName, Outcome,
    Service, Token, VisibilityTimeout,
};

use crate::random::Stream;
use crate::swarm::{Swarm, Weights};

/// A message that a client has, or once had, a receipt for.
#[derive(Clone, Debug)]
struct Held {
    queue: usize,
    message: Token,
    receipt: Token,
}

/// Chooses what clients do.
#[derive(Debug)]
pub(crate) struct Workload {
    random: Stream,
    held: Vec<Held>,
    stale: Vec<Held>,
    bodies: u64,
    /// How often each queue was created, and in which of its incarnations each message was seen.
    lives: HashMap<usize, u64>,
    life_of: HashMap<Token, u64>,
}

/// How many receipts are remembered.
const HELD_MAX: usize = 200;

/// The account of all queues.
pub(crate) const ACCOUNT: &str = "sim";

pub(crate) fn queue_name(queue: usize) -> EntityName {
    EntityName::storage_queue(ACCOUNT, format!("queue-{queue}"))
}

impl Workload {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Stream::new(seed, "workload"),
            held: Vec::new(),
            stale: Vec::new(),
            bodies: 0,
            lives: HashMap::new(),
            life_of: HashMap::new(),
        }
    }

    /// The next command, and the index of its queue.
    pub(crate) fn next(&mut self, swarm: &Swarm) -> (usize, Command) {
        let index = self.random.index(swarm.queues);
        let queue = queue_name(index);
        let w = &swarm.weights;
        let Weights {
            send,
            receive,
            peek,
            update,
            delete,
            read,
            list,
            ..
        } = w;
        let kinds = [
            *send,
            *receive,
            *peek,
            *update,
            *delete,
            *read,
            w.set_metadata,
            w.clear,
            w.delete_queue,
            w.create_queue,
            *list,
            w.set_policies,
            w.properties,
            w.accounts,
        ];
        let command = match self.choose(&kinds) {
            0 => self.send(queue, swarm),
            1 => Command::Storage(StorageCommand::Receive {
                queue,
                count: 1 + self.random.below_u32(32),
                visibility_timeout: self.timeout(1),
            }),
            2 => Command::Storage(StorageCommand::Peek {
                queue,
                count: 1 + self.random.below_u32(32),
            }),
            3 => match self.pick(swarm) {
                Some((index, held)) => return (index, self.update(held, swarm)),
                None => self.send(queue, swarm),
            },
            4 => match self.pick(swarm) {
                Some((index, held)) => {
                    let Held {
                        message, receipt, ..
                    } = held;
                    let queue = queue_name(index);
                    return (
                        index,
                        Command::Storage(StorageCommand::Delete {
                            queue,
                            message,
                            receipt,
                        }),
                    );
                }
                None => self.send(queue, swarm),
            },
            5 => Command::Storage(StorageCommand::ReadQueue { queue }),
            6 => {
                let value = self.random.below(4).to_string();
                let metadata = [("round", value)].into_iter().collect();
                Command::Storage(StorageCommand::SetQueueMetadata { queue, metadata })
            }
            7 => Command::Storage(StorageCommand::Clear { queue }),
            8 => Command::Storage(StorageCommand::DeleteQueue { queue }),
            // Sometimes with other metadata than an existing queue of that name.
            9 => match self.random.below(4) {
                0 => create_queue_with(index, "7"),
                _ => create_queue(index),
            },
            10 => list_queues(),
            11 => Command::Storage(StorageCommand::SetQueuePolicies {
                queue,
                policies: self.policies(),
            }),
            12 => self.properties(),
            _ => self.account(swarm),
        };
        (index, command)
    }

    fn policies(&mut self) -> AccessPolicies {
        let policy = |number: u64| AccessPolicy {
            id: number.to_string().into(),
            start: number.is_multiple_of(2).then_some(PolicyTime(number)),
            expiry: None,
            permissions: Some("rap".into()),
        };
        let count = self.random.below(3);
        let policies = (0..count).map(|_| policy(self.random.below(1000)));
        AccessPolicies::new(policies.collect()).expect("two are not too many")
    }

    fn properties(&mut self) -> Command {
        let (service, account) = (Service::QueueStorage, ACCOUNT.into());
        match self.random.below(2) {
            0 => Command::SetServiceProperties {
                service,
                account,
                properties: self.random.below(1000).to_string().into(),
            },
            _ => Command::ReadServiceProperties { service, account },
        }
    }

    fn account(&mut self, swarm: &Swarm) -> Command {
        let name = if self.random.happens(700) {
            ACCOUNT
        } else {
            "spare"
        };
        match self.random.below(12) {
            0..7 => Command::PutAccount {
                account: self.account_record(name, swarm),
                is_new: self.random.happens(500),
            },
            7..11 => Command::ListAccounts,
            _ => Command::RemoveAccount {
                account: name.into(),
                with_queues: self.random.happens(300),
            },
        }
    }

    fn account_record(&mut self, name: &str, swarm: &Swarm) -> AccountRecord {
        let number = self.random.next();
        let key = |of: u8| {
            let bytes = [&number.to_le_bytes()[..], &[of]].concat();
            AccountSecret::new(&bytes).expect("nine bytes are a key")
        };
        // Some messages fit, and some do not.
        let size = 300 + swarm.body_size_max;
        let sizes = [None, Some(size), Some(size * 8), Some(size * 40)];
        AccountRecord {
            name: name.into(),
            keys: [key(1), key(2)],
            quota: AccountQuota {
                queues_max: [None, None, Some(1), Some(2)][self.random.index(4)],
                size_bytes_max: sizes[self.random.index(4)],
            },
            is_disabled: self.random.happens(200),
        }
    }

    fn choose(&mut self, weights: &[u64]) -> usize {
        let mut left = self.random.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            match left.checked_sub(*weight) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        unreachable!("the number is below the sum of the weights")
    }

    fn send(&mut self, queue: EntityName, swarm: &Swarm) -> Command {
        let lives = self.random.happens(swarm.time_to_live_per_mille);
        let time_to_live = 1 + self.random.below_u32(60);
        let hidden = if self.random.happens(200) {
            self.random.below_u32(20)
        } else {
            0
        };
        Command::Storage(StorageCommand::Send {
            queue,
            body: self.body(swarm),
            encoding: BodyEncoding::Text,
            time_to_live_seconds: lives.then_some(time_to_live),
            visibility_timeout: seconds(hidden),
        })
    }

    /// A unique body: a number, then filling that follows from it.
    fn body(&mut self, swarm: &Swarm) -> Bytes {
        self.bodies += 1;
        let mut body = format!("{}:", self.bodies).into_bytes();
        let mut filling = Stream::new(self.bodies, "body");
        let size = self.random.below(swarm.body_size_max);
        for _ in 0..size.div_ceil(8) {
            // Letters: the low four bits of each byte choose one.
            let letters = filling.next() & 0x0f0f_0f0f_0f0f_0f0f;
            body.extend(letters.to_le_bytes().map(|letter| b'a' + letter));
        }
        body.into()
    }

    fn update(&mut self, held: Held, swarm: &Swarm) -> Command {
        let body = self.random.happens(500);
        Command::Storage(StorageCommand::Update {
            queue: queue_name(held.queue),
            message: held.message,
            receipt: held.receipt,
            visibility_timeout: self.timeout(0),
            body: body.then(|| (BodyEncoding::Text, self.body(swarm))),
        })
    }

    fn timeout(&mut self, least: u32) -> VisibilityTimeout {
        seconds(least + self.random.below_u32(30))
    }

    /// A receipt to use: usually one that is probably valid, sometimes one that is known to be
    /// stale.
    fn pick(&mut self, swarm: &Swarm) -> Option<(usize, Held)> {
        let stale = self.random.happens(swarm.stale_receipt_per_mille) && !self.stale.is_empty();
        if stale {
            let index = self.random.index(self.stale.len());
            return self.stale.get(index).map(|held| (held.queue, held.clone()));
        }
        if self.held.is_empty() {
            return None;
        }
        let held = self.held.swap_remove(self.random.index(self.held.len()));
        remember(&mut self.stale, held.clone());
        Some((held.queue, held))
    }

    /// Whether a message belongs to an earlier incarnation of its queue.
    pub(crate) fn is_of_earlier_life(&self, queue: usize, message: Token) -> bool {
        let life = self.life_of.get(&message);
        life.is_some_and(|life| self.lives.get(&queue).is_some_and(|now| now > life))
    }

    /// Learns from an answer for the next commands.
    pub(crate) fn learn(&mut self, queue: usize, command: &Command, outcome: &Outcome) {
        if let (_, Outcome::Storage(StorageOutcome::QueueCreated)) = (command, outcome) {
            *self.lives.entry(queue).or_default() += 1;
        }
        let life = self.lives.get(&queue).copied().unwrap_or_default();
        let mut hold = |message, receipt| {
            self.life_of.insert(message, life);
            let held = Held {
                queue,
                message,
                receipt,
            };
            remember(&mut self.held, held);
        };
        match (command, outcome) {
            (_, Outcome::Storage(StorageOutcome::Sent(sent))) => hold(sent.message, sent.receipt),
            (_, Outcome::Storage(StorageOutcome::Received(messages))) => {
                messages.iter().for_each(|m| hold(m.message, m.receipt));
            }
            (
                Command::Storage(StorageCommand::Update { message, .. }),
                Outcome::Storage(StorageOutcome::Updated { receipt, .. }),
            ) => {
                hold(*message, *receipt);
            }
            _ => {}
        }
    }
}

fn remember(list: &mut Vec<Held>, held: Held) {
    if list.len() == HELD_MAX {
        list.remove(0);
    }
    list.push(held);
}

pub(crate) fn create_queue(index: usize) -> Command {
    create_queue_with(index, "0")
}

fn create_queue_with(index: usize, round: &str) -> Command {
    Command::Storage(StorageCommand::CreateQueue {
        queue: queue_name(index),
        metadata: [("round", round)].into_iter().collect(),
    })
}

fn list_queues() -> Command {
    Command::Storage(StorageCommand::ListQueues {
        service: Service::QueueStorage,
        account: ACCOUNT.into(),
        prefix: "".into(),
        from: "".into(),
        limit: 100,
        metadata_size_bytes_max: Some(usize::MAX),
    })
}

fn seconds(seconds: u32) -> VisibilityTimeout {
    VisibilityTimeout::from_seconds(seconds).expect("the workload stays below seven days")
}
