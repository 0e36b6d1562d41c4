//! The queues themselves under kills: one connection creates them, deletes them and sets metadata.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kew_client::{Error, ErrorKind, QueueAccount, QueueClient};

use super::Until;
use crate::server::queue_client;

/// The prefix of names.
const PREFIX: &str = "catalogue-";

/// How many queues are kept; older ones are deleted.
const KEPT: usize = 20;

/// The queues of the one connection.
#[derive(Default)]
pub(super) struct Catalogue {
    queues: Mutex<BTreeMap<u64, Vec<Stage>>>,
    next: AtomicU64,
    operation_count: AtomicU64,
    unknown_count: AtomicU64,
}

/// A possible state of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Absent,
    Present { metadata: u64 },
}

impl Catalogue {
    /// Creates, changes and deletes queues until it must stop or cannot continue.
    pub(super) async fn run(self: Arc<Self>, account: QueueAccount, until: Until) {
        let client = queue_client(account);
        while !until.is_over() {
            let Err(error) = self.step(&client).await else {
                continue;
            };
            match (error.kind(), error.status()) {
                (ErrorKind::TryAgainLater, None) => break,
                (ErrorKind::OutcomeUnknown, _) if until.ends_with_a_failure() => break,
                _ => {}
            }
        }
    }

    async fn step(&self, client: &QueueClient) -> Result<(), Error> {
        let number = self.next.fetch_add(1, Relaxed);
        let name = name(number);
        self.change(
            number,
            Stage::Absent,
            Stage::Present { metadata: 0 },
            async { client.create_queue(&name, &numbered("0")).await.map(|_| ()) },
        )
        .await?;
        self.change(
            number,
            Stage::Present { metadata: 0 },
            Stage::Present { metadata: 1 },
            async { client.set_metadata(&name, &numbered("1")).await },
        )
        .await?;
        let oldest = self
            .queues()
            .iter()
            .find_map(|(number, stages)| match stages[..] {
                [stage @ Stage::Present { .. }] => Some((*number, stage)),
                _ => None,
            });
        if let Some((number, stage)) = oldest.filter(|_| self.present_count() > KEPT) {
            let name = self::name(number);
            self.change(number, stage, Stage::Absent, client.delete_queue(&name))
                .await?;
        }
        Ok(())
    }

    /// Notes that a queue changes from one state to another, and the result.
    async fn change(
        &self,
        number: u64,
        from: Stage,
        to: Stage,
        operation: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        self.queues().insert(number, vec![from, to]);
        let result = operation.await;
        let stages = match &result {
            Ok(()) => vec![to],
            Err(error) => match (error.kind(), error.status()) {
                (ErrorKind::TryAgainLater, None | Some(503)) => vec![from],
                (ErrorKind::OutcomeUnknown, None) => {
                    self.unknown_count.fetch_add(1, Relaxed);
                    vec![from, to]
                }
                _ => panic!("{}: {error}", name(number)),
            },
        };
        self.operation_count.fetch_add(1, Relaxed);
        self.queues().insert(number, stages);
        result
    }

    /// Lists all queues and compares them with their possible states; then their states are known.
    pub(super) async fn check(&self, client: &QueueClient) {
        let mut found = BTreeMap::new();
        let mut marker = None;
        loop {
            let page = client.list_queues(PREFIX, true, marker.as_deref()).await;
            let (page, next) = page.expect("listed");
            for queue in page {
                let number = queue.name.strip_prefix(PREFIX).and_then(|n| n.parse().ok());
                let number: u64 = number.unwrap_or_else(|| panic!("PHANTOM queue {}", queue.name));
                let metadata = queue.metadata.iter().find(|(name, _)| name == "number");
                let metadata = metadata.and_then(|(_, value)| value.parse().ok());
                let metadata = metadata.expect("every queue has its number in its metadata");
                let twice = found.insert(number, Stage::Present { metadata });
                assert!(twice.is_none(), "{} is listed twice", queue.name);
            }
            marker = next;
            if marker.is_none() {
                break;
            }
        }
        let mut queues = self.queues();
        for number in found.keys() {
            assert!(
                queues.contains_key(number),
                "PHANTOM queue {}",
                name(*number)
            );
        }
        for (number, stages) in queues.iter_mut() {
            let stage = found.get(number).copied().unwrap_or(Stage::Absent);
            assert!(
                stages.contains(&stage),
                "{} is {stage:?}, not {stages:?}",
                name(*number)
            );
            *stages = vec![stage];
        }
    }

    pub(super) fn report(&self) -> String {
        format!(
            "Catalogue {{ operations: {}, unknown: {} }}",
            self.operation_count.load(Relaxed),
            self.unknown_count.load(Relaxed)
        )
    }

    fn present_count(&self) -> usize {
        let queues = self.queues();
        queues
            .values()
            .filter(|stages| stages[..] != [Stage::Absent])
            .count()
    }

    fn queues(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<Stage>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn numbered(number: &str) -> [(String, String); 1] {
    [("number".to_owned(), number.to_owned())]
}

fn name(number: u64) -> String {
    format!("{PREFIX}{number:06}")
}
