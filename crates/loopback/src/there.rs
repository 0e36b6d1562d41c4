//! The partition's end of a connection.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kew_broker::{Answer, Answers, Broker, ChangeWatch, Epoch, Rejection, Reply, Source, Watch};
use kew_engine::bus::Awaited;
use kew_engine::wire::{Frame, Interest, Value, Watched, Woken};
use kew_engine::{Command, Incarnation};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::Bytes;
use crate::reasons::value_of;

/// Sends frames, in order.
#[derive(Clone)]
struct ToNode(UnboundedSender<Bytes>);

impl ToNode {
    /// Nobody needs what is sent when the connection has ended.
    fn send(&self, number: u64, value: Value) {
        let _ = self.0.send(bytes_of(number, value));
    }
}

fn bytes_of(number: u64, value: Value) -> Bytes {
    let mut bytes = Vec::new();
    Frame { number, value }.encode(&mut bytes);
    bytes.into()
}

/// With which epoch the partition is owned.
fn owned(epoch: Option<Epoch>) -> Value {
    Value::Owned(epoch.map_or(0, Epoch::as_u64))
}

/// To a task that watches for a node: how many of its wake-ups have come there, and what is new. When this is dropped, a
/// wake-up that has perhaps not come there goes to another receiver.
type Watching = UnboundedSender<(u64, Says)>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    /// A receiver waits.
    Waits,
    /// The last one has gone.
    Ends,
}

struct Serving {
    broker: Broker,
    to_node: ToNode,
    answers: Arc<Answers>,
    /// Commands without an answer.
    under_way: Arc<Mutex<HashSet<u64>>>,
    watched: HashMap<Watched, Watching>,
}

/// Carries out what a node asks for, until the connection ends. Returns what is sent first: who owns the partition.
pub(crate) fn serve(
    broker: Broker,
    mut from_node: UnboundedReceiver<Bytes>,
    to_node: UnboundedSender<Bytes>,
) -> Bytes {
    let mut changes = broker.ownership().watch();
    let greeting = bytes_of(0, owned(*changes.borrow_and_update()));
    let mut serving = Serving {
        broker,
        to_node: ToNode(to_node),
        answers: Arc::default(),
        under_way: Arc::default(),
        watched: HashMap::new(),
    };
    let answering = tokio::spawn(answer(
        serving.broker.clone(),
        Arc::clone(&serving.answers),
        Arc::clone(&serving.under_way),
        serving.to_node.clone(),
    ));
    let to_node = serving.to_node.clone();
    let telling = tokio::spawn(async move {
        while changes.changed().await.is_ok() {
            let epoch = *changes.borrow_and_update();
            to_node.send(0, owned(epoch));
        }
    });
    tokio::spawn(async move {
        while let Some(bytes) = from_node.recv().await {
            // The node says with nothing that this is all.
            if bytes.is_empty() || !serving.take(&bytes) {
                break;
            }
        }
        answering.abort();
        telling.abort();
        // What waits to hand messages out and remove them is not carried out for a node that has gone.
        serving.answers.close();
    });
    greeting
}

/// Sends answers, in their order.
async fn answer(
    broker: Broker,
    answers: Arc<Answers>,
    under_way: Arc<Mutex<HashSet<u64>>>,
    to_node: ToNode,
) {
    let mut came = Vec::new();
    loop {
        answers.ready().await;
        answers.take(&mut came);
        for (number, reply) in came.drain(..) {
            {
                let mut under_way = lock(&under_way);
                under_way.remove(&number);
                answers.forget_given_up(number);
            }
            to_node.send(number, read(&broker, reply).await);
        }
    }
}

/// An answer as it travels. Its bodies are read here, where damaged ones are left out.
async fn read(broker: &Broker, reply: Reply) -> Value {
    let read = match reply {
        Ok(answered) => broker.read(answered).await,
        Err(rejection) => Err(rejection),
    };
    match read {
        Ok(Answer { outcome, bodies }) if bodies.is_empty() => Value::Outcome(outcome),
        Ok(Answer { outcome, bodies }) => Value::Answer(outcome, bodies),
        Err(rejection) => value_of(rejection),
    }
}

impl Serving {
    /// Takes what a node has sent. Returns false if it makes no sense: the connection ends.
    fn take(&mut self, bytes: &Bytes) -> bool {
        let Some((source, _)) = bytes.split_first_chunk() else {
            tracing::error!("a node has sent too little");
            return false;
        };
        let source = Source::numbered(u64::from_le_bytes(*source));
        let Frame { number, value } = match Frame::decode(&bytes.slice(source_len()..)) {
            Ok(frame) => frame,
            Err(error) => {
                tracing::error!(%error, "a node has sent what cannot be read");
                return false;
            }
        };
        match value {
            // Only a partition asks these of itself.
            Value::Command(Command::Initialize { .. } | Command::MoveBodies { .. })
            | Value::Within(_, Command::Initialize { .. } | Command::MoveBodies { .. })
            | Value::Outcome(_)
            | Value::Refusal(_)
            | Value::Answer(..)
            | Value::Unserved(_)
            | Value::Woken(..)
            | Value::Owned(_) => {
                tracing::error!("a node has sent what no node sends");
                return false;
            }
            Value::Command(command) => self.submit(source, number, None, command),
            Value::Within(epoch, command) => {
                self.submit(source, number, Some(Epoch::new(epoch)), command);
            }
            Value::GiveUp => self.give_up(number),
            Value::Interest(of, interest) => self.heed(of, interest, number),
        }
        true
    }

    /// It may be answered already.
    fn give_up(&self, number: u64) {
        let under_way = lock(&self.under_way);
        if under_way.contains(&number) {
            self.answers.give_up(number);
        }
    }

    fn submit(&self, source: Source, number: u64, within: Option<Epoch>, command: Command) {
        let broker = self.broker.of_source(source);
        lock(&self.under_way).insert(number);
        let commands = std::iter::once((number, command));
        let refused = |number, rejection: Rejection| {
            lock(&self.under_way).remove(&number);
            self.to_node.send(number, value_of(rejection));
        };
        broker.submit_among_within(within, commands, &self.answers, refused);
    }

    fn heed(&mut self, of: Watched, interest: Interest, came: u64) {
        match (interest, of.awaited.clone()) {
            (Interest::Begins, awaited) => {
                let watching = match awaited {
                    Some(awaited) => self.watch(of.entity, awaited),
                    None => self.watch_changes(of.entity),
                };
                self.watched.insert(of, watching);
            }
            (Interest::Waits, _) => {
                if let Some(watching) = self.watched.get(&of) {
                    // Its task ends after this alone.
                    let _ = watching.send((came, Says::Waits));
                }
            }
            (Interest::PassesOn, Some(awaited)) => self.broker.pass_on(of.entity, &awaited),
            // A change reaches all.
            (Interest::PassesOn, None) => {}
            (Interest::Ends, _) => {
                if let Some(watching) = self.watched.remove(&of) {
                    let _ = watching.send((came, Says::Ends));
                }
            }
        }
    }

    /// Wakes the node once each time that a receiver waits there.
    fn watch(&self, entity: Incarnation, awaited: Awaited) -> Watching {
        let mut watch: Watch = self.broker.watch(entity, awaited.clone());
        let (says, mut said) = unbounded_channel();
        let (broker, to_node) = (self.broker.clone(), self.to_node.clone());
        tokio::spawn(async move {
            let (mut number, mut waits) = (0, false);
            loop {
                tokio::select! {
                    biased;
                    said = said.recv() => {
                        let Some((came, says)) = said else {
                            // The connection is cut, and those that were woken there have perhaps not looked.
                            drop(watch);
                            if number > 0 {
                                broker.pass_on(entity, &awaited);
                            }
                            return;
                        };
                        if came == number && !waits {
                            // The last wake-up has come to the node, which sees to it.
                            watch.looked();
                        }
                        if says == Says::Ends {
                            break;
                        }
                        waits = true;
                    }
                    woken = watch.woken_as(), if waits => {
                        (number, waits) = (number + 1, false);
                        let awaited = Some(awaited.clone());
                        to_node.send(number, Value::Woken(Watched { entity, awaited }, woken));
                    }
                }
            }
        });
        says
    }

    fn watch_changes(&self, entity: Incarnation) -> Watching {
        let notify = Arc::<Notify>::default();
        let watch: ChangeWatch = self.broker.watch_changes(entity, &notify);
        let (says, mut said) = unbounded_channel();
        let to_node = self.to_node.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    // A node says one thing about changes: that it has gone.
                    _ = said.recv() => break,
                    () = notify.notified() => {
                        if watch.take() {
                            let awaited = None;
                            to_node.send(0, Value::Woken(Watched { entity, awaited }, Woken::All));
                        }
                    }
                }
            }
        });
        says
    }
}

/// What is changed while this is held is never half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many bytes of a message are the number of its source.
const fn source_len() -> usize {
    size_of::<u64>()
}
