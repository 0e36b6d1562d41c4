//! The partition's end of a connection.

use std::collections::HashMap;
use std::sync::Arc;

use kew_broker::{Answer, Answers, Broker, ChangeWatch, Rejection, Reply, Source, Watch};
use kew_engine::bus::Awaited;
use kew_engine::wire::{Frame, Interest, Value, Watched, Woken};
use kew_engine::{Command, Incarnation};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use crate::Bytes;
use crate::reasons::value_of;

/// Sends frames, in order.
#[derive(Clone)]
struct ToNode(UnboundedSender<Bytes>);

impl ToNode {
    /// Nobody needs what is sent when the connection has ended.
    fn send(&self, number: u64, value: Value) {
        let mut bytes = Vec::new();
        Frame { number, value }.encode(&mut bytes);
        let _ = self.0.send(bytes.into());
    }
}

/// What a node is interested in: ends with it.
struct Watching {
    /// Says that receivers wait.
    waits: UnboundedSender<()>,
    task: JoinHandle<()>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        // A wake-up that it has not passed on goes to another receiver.
        self.task.abort();
    }
}

struct Serving {
    broker: Broker,
    to_node: ToNode,
    answers: Arc<Answers>,
    watched: HashMap<Watched, Watching>,
}

/// Carries out what a node asks for, until the connection ends.
pub(crate) fn serve(
    broker: Broker,
    mut from_node: UnboundedReceiver<Bytes>,
    to_node: UnboundedSender<Bytes>,
) {
    let mut serving = Serving {
        broker,
        to_node: ToNode(to_node),
        answers: Arc::default(),
        watched: HashMap::new(),
    };
    let answering = tokio::spawn(answer(
        serving.broker.clone(),
        Arc::clone(&serving.answers),
        serving.to_node.clone(),
    ));
    tokio::spawn(async move {
        while let Some(bytes) = from_node.recv().await {
            if !serving.take(&bytes) {
                break;
            }
        }
        answering.abort();
    });
}

/// Sends answers, in their order.
async fn answer(broker: Broker, answers: Arc<Answers>, to_node: ToNode) {
    let mut came = Vec::new();
    loop {
        answers.ready().await;
        answers.take(&mut came);
        for (number, reply) in came.drain(..) {
            answers.forget_given_up(number);
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
            | Value::Outcome(_)
            | Value::Refusal(_)
            | Value::Answer(..)
            | Value::Unserved(_)
            | Value::Woken(..) => {
                tracing::error!("a node has sent what no node sends");
                return false;
            }
            Value::Command(command) => self.submit(source, number, command),
            Value::GiveUp => self.answers.give_up(number),
            Value::Interest(of, interest) => self.heed(of, interest),
        }
        true
    }

    fn submit(&self, source: Source, number: u64, command: Command) {
        let broker = self.broker.of_source(source);
        let commands = std::iter::once((number, command));
        broker.submit_among(commands, &self.answers, |number, rejection: Rejection| {
            self.to_node.send(number, value_of(rejection));
        });
    }

    fn heed(&mut self, of: Watched, interest: Interest) {
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
                    // Its task ends with it alone.
                    let _ = watching.waits.send(());
                }
            }
            (Interest::PassesOn, Some(awaited)) => self.broker.pass_on(of.entity, awaited),
            // A change reaches everybody.
            (Interest::PassesOn, None) => {}
            (Interest::Ends, _) => drop(self.watched.remove(&of)),
        }
    }

    /// Wakes the node once each time that a receiver waits there.
    fn watch(&self, entity: Incarnation, awaited: Awaited) -> Watching {
        let mut watch: Watch = self.broker.watch(entity, awaited.clone());
        let (waits, mut waiting) = unbounded_channel();
        let to_node = self.to_node.clone();
        let task = tokio::spawn(async move {
            while waiting.recv().await.is_some() {
                let woken = watch.woken_as().await;
                let awaited = Some(awaited.clone());
                to_node.send(0, Value::Woken(Watched { entity, awaited }, woken));
                // From now on the node sees to it.
                watch.looked();
            }
        });
        Watching { waits, task }
    }

    fn watch_changes(&self, entity: Incarnation) -> Watching {
        let notify = Arc::<Notify>::default();
        let watch: ChangeWatch = self.broker.watch_changes(entity, &notify);
        let (waits, _) = unbounded_channel();
        let to_node = self.to_node.clone();
        let task = tokio::spawn(async move {
            loop {
                notify.notified().await;
                if watch.take() {
                    let awaited = None;
                    to_node.send(0, Value::Woken(Watched { entity, awaited }, Woken::All));
                }
            }
        });
        Watching { waits, task }
    }
}

/// How many bytes of a message are the number of its source.
const fn source_len() -> usize {
    size_of::<u64>()
}
