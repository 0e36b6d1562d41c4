//! The node's end of a connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kew_broker::{
    Admission, AdmissionLimits, Admitted, AnswerBodies, Answered, Asker, Door, Epoch, Ownership,
    Rejection, Reply, Source, Watchers,
};
use kew_engine::Command;
use kew_engine::wire::{Frame, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::Bytes;
use crate::reasons::rejection_of;

/// A door to a partition behind a connection.
#[derive(Debug)]
pub struct Loopback {
    state: Mutex<State>,
    watchers: Arc<Watchers>,
    /// As the partition has said last. Changed while the state is locked, so that it stays `None` after a cut.
    ownership: Arc<Ownership>,
    to_partition: ToPartition,
}

#[derive(Debug)]
struct State {
    admission: Admission,
    /// Commands that were sent and are not answered, by their numbers.
    under_way: BTreeMap<u64, (Asker, Admitted)>,
    last_number: u64,
    is_cut: bool,
}

/// Sends frames, in order.
#[derive(Clone, Debug)]
struct ToPartition(UnboundedSender<Bytes>);

impl ToPartition {
    /// If the connection has ended, nothing is sent.
    fn send(&self, from: Source, number: u64, value: Value) {
        let mut bytes = from.number().to_le_bytes().to_vec();
        Frame { number, value }.encode(&mut bytes);
        let _ = self.0.send(bytes.into());
    }

    /// Says that nothing follows. There are other senders, of hooks that stay.
    fn end(&self) {
        let _ = self.0.send(Bytes::new());
    }
}

/// `greeting` is the first that the partition sends: no door is used before it has come.
pub(crate) fn connect(
    to_partition: UnboundedSender<Bytes>,
    greeting: &Bytes,
    from_partition: UnboundedReceiver<Bytes>,
    limits: AdmissionLimits,
) -> Arc<Loopback> {
    let to_partition = ToPartition(to_partition);
    let telling = to_partition.clone();
    let door = Arc::new(Loopback {
        state: Mutex::new(State {
            admission: Admission::new(limits),
            under_way: BTreeMap::new(),
            last_number: 0,
            is_cut: false,
        }),
        watchers: Watchers::remote(Arc::new(move |watched, interest, number| {
            // If the connection has ended, all were woken.
            telling.send(Source::ALONE, number, Value::Interest(watched, interest));
        })),
        ownership: Arc::default(),
        to_partition,
    });
    door.take_bytes(greeting);
    tokio::spawn(receive(Arc::downgrade(&door), from_partition));
    door
}

/// Takes what the partition sends, until the connection or the door is gone.
async fn receive(door: Weak<Loopback>, mut from_partition: UnboundedReceiver<Bytes>) {
    while let Some(bytes) = from_partition.recv().await {
        let Some(door) = door.upgrade() else {
            return;
        };
        door.take_bytes(&bytes);
    }
    if let Some(door) = door.upgrade() {
        door.cut();
    }
}

impl Loopback {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing is half done where a thread can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_bytes(&self, bytes: &Bytes) {
        match Frame::decode(bytes) {
            Ok(frame) => self.take(frame),
            Err(error) => {
                tracing::error!(%error, "the partition has sent what cannot be read");
                self.cut();
            }
        }
    }

    fn take(&self, frame: Frame) {
        let Frame { number, value } = frame;
        let reply = match value {
            Value::Woken(watched, woken) => {
                return self.watchers.woken(watched, woken, number);
            }
            Value::Outcome(outcome) => answered(outcome, Vec::new()),
            Value::Answer(outcome, bodies) => answered(outcome, bodies),
            Value::Refusal(refusal) => Err(Rejection::Refused(refusal)),
            Value::Unserved(unserved) => Err(rejection_of(unserved)),
            Value::Owned(epoch) => return self.note_owned(epoch),
            Value::Command(_) | Value::Within(..) | Value::GiveUp | Value::Interest(..) => {
                tracing::error!("the partition has sent what only a node sends");
                return self.cut();
            }
        };
        let mut state = self.state();
        let Some((asker, admitted)) = state.under_way.remove(&number) else {
            // It was answered when the connection was cut.
            return;
        };
        state.admission.release(admitted);
        drop(state);
        asker.answer(reply);
    }

    /// Notes the number of the epoch with which the partition is owned. 0 if it is not.
    fn note_owned(&self, epoch: u64) {
        let state = self.state();
        if !state.is_cut {
            self.ownership.set((epoch > 0).then(|| Epoch::new(epoch)));
        }
    }

    /// Cuts the connection, for good. What was sent is perhaps carried out. What is submitted later is not. Receivers look
    /// again, because nothing wakes them from now on.
    pub fn cut(&self) {
        let mut state = self.state();
        if std::mem::replace(&mut state.is_cut, true) {
            return;
        }
        self.to_partition.end();
        self.ownership.set(None);
        let under_way = std::mem::take(&mut state.under_way);
        for (_, admitted) in under_way.values() {
            state.admission.release(*admitted);
        }
        drop(state);
        for (asker, _) in under_way.into_values() {
            asker.answer(Err(Rejection::Unknown));
        }
        self.watchers.wake_all();
    }

    /// How many commands are under way.
    pub fn under_way(&self) -> usize {
        self.state().under_way.len()
    }

    /// Sends a command, or gives the asker back.
    fn send(
        &self,
        from: Source,
        within: Option<Epoch>,
        asker: Asker,
        command: Command,
    ) -> Result<(), (Asker, Rejection)> {
        let mut state = self.state();
        if state.is_cut {
            return Err((asker, Rejection::NotOwner));
        }
        let Ok(admitted) = state.admission.admit(&command.describe()) else {
            return Err((asker, Rejection::Busy));
        };
        state.last_number += 1;
        let number = state.last_number;
        let to_partition = self.to_partition.clone();
        let asker = asker.hearing(move || {
            to_partition.send(from, number, Value::GiveUp);
        });
        state.under_way.insert(number, (asker, admitted));
        // Within the lock, so that the order is that of the numbers, and nothing follows the end.
        let value = match within {
            Some(epoch) => Value::Within(epoch.as_u64(), command),
            None => Value::Command(command),
        };
        self.to_partition.send(from, number, value);
        Ok(())
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.cut();
    }
}

fn answered(outcome: kew_engine::Outcome, bodies: Vec<Bytes>) -> Reply {
    Ok(Answered {
        outcome,
        bodies: AnswerBodies::Read(bodies),
    })
}

impl Door for Loopback {
    fn submit(
        &self,
        from: Source,
        within: Option<Epoch>,
        commands: &mut dyn Iterator<Item = (Asker, Command)>,
        refused: &mut dyn FnMut(Asker, Rejection),
    ) {
        for (asker, command) in commands {
            if let Err((asker, rejection)) = self.send(from, within, asker, command) {
                refused(asker, rejection);
            }
        }
    }

    fn watchers(&self) -> &Arc<Watchers> {
        &self.watchers
    }

    fn ownership(&self) -> &Arc<Ownership> {
        &self.ownership
    }
}
