//! Messages that a client receives.
//!
//! A link with credit has one task at most: it receives, and waits while there is nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kew_amqp::codec::Text;
use kew_amqp::error::{Error, condition};
use kew_amqp::{LinkId, Outgoing, SendRefusal};
use kew_broker::{Broker, Rejection, Watch};
use kew_engine::bus::{
    BusCommand, BusOutcome, DeliveredMessage, Disposition, ReceiveMode, SessionLock,
};
use kew_engine::{EntityName, Incarnation, Outcome, Token};
use tokio::sync::Notify;

use super::settle::Held;
use super::{Client, Done, Link};
use crate::outbound::{Facts, encode, tag};
use crate::refusal::error_of;
use crate::submit::Submitted;

/// How many messages are received at once, at the beginning and at most.
const COUNT_FIRST: u32 = 8;
const COUNT_MAX: u32 = 256;
/// About how many bytes are received at once: by the size of those before.
const SIZE_BYTES_WANTED: usize = 1 << 20;
/// How long a receive waits that the broker had no room for.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// Messages, and for each its bytes and the changes to its properties.
pub(crate) type Batch = Vec<(DeliveredMessage, Vec<Bytes>)>;

/// A link over which a client receives.
pub(super) struct Receiver {
    /// The link's.
    pub(super) name: Text,
    pub(super) entity: Arc<EntityName>,
    incarnation: Incarnation,
    mode: ReceiveMode,
    pub(super) session: Option<SessionLock>,
    /// Those that wait for credit or room.
    ready: VecDeque<Ready>,
    /// The one task's.
    receiving: Option<Arc<Cancel>>,
    /// Between two receives. While a task runs, the task has it.
    watch: Option<Watch>,
    /// The last receive left nothing behind: the watch tells when to try again.
    has_taken_all: bool,
    is_drain: bool,
    count: u32,
}

/// What a receive comes to.
pub(crate) struct Taken {
    batch: Batch,
    /// It has been there since before the receive.
    watch: Option<Watch>,
    /// There were no more messages than these.
    is_all: bool,
}

/// A message that can go out.
struct Ready {
    lock: Option<Token>,
    number: u64,
    parts: [Bytes; 2],
}

/// Ends a wait, before or after a last look.
#[derive(Debug, Default)]
pub(super) struct Cancel {
    wake: Notify,
    is_given_up: AtomicBool,
}

impl Cancel {
    /// Nothing is wanted any more.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// What is there now is wanted, and no wait.
    fn hurry(&self) {
        self.wake.notify_one();
    }

    pub(super) async fn cancelled(&self) {
        self.wake.notified().await;
    }

    fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }
}

impl Receiver {
    pub(super) fn new(
        name: Text,
        entity: EntityName,
        incarnation: Incarnation,
        mode: ReceiveMode,
        session: Option<SessionLock>,
    ) -> Self {
        Self {
            name,
            entity: Arc::new(entity),
            incarnation,
            mode,
            session,
            ready: VecDeque::new(),
            receiving: None,
            watch: None,
            has_taken_all: false,
            is_drain: false,
            count: COUNT_FIRST,
        }
    }
}

impl Client {
    pub(super) fn on_credit(&mut self, link: LinkId, is_drain: bool) {
        if let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) {
            receiver.is_drain = is_drain;
            if let (true, Some(cancel)) = (is_drain, &receiver.receiving) {
                cancel.hurry();
            }
        }
        if is_drain && matches!(self.links.get(&link), Some(Link::Replies(_))) {
            self.pump_replies(link);
            self.connection.drained(link);
        }
        self.stirred.insert(link);
    }

    /// Sends what is ready, and asks for more while there is credit.
    pub(super) fn pump(&mut self, link: LinkId) {
        if let Err(error) = self.send_ready(link) {
            return self.detach(link, error);
        }
        let credit = self.connection.credit(link);
        let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) else {
            return;
        };
        if credit == 0 {
            receiver.is_drain = false;
            if let Some(cancel) = &receiver.receiving {
                cancel.give_up();
            }
            let unwanted = match receiver.mode {
                ReceiveMode::PeekLock => std::mem::take(&mut receiver.ready),
                // They are nowhere else: they wait for credit.
                ReceiveMode::ReceiveAndDelete => VecDeque::new(),
            };
            let entity = Arc::clone(&receiver.entity);
            self.connection.drained(link);
            return self.give_back(&entity, unwanted);
        }
        if receiver.receiving.is_none() && receiver.ready.is_empty() {
            let count = credit.min(receiver.count);
            self.receive(link, count);
        }
    }

    fn send_ready(&mut self, link: LinkId) -> Result<(), Error> {
        let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) else {
            return Ok(());
        };
        while let Some(ready) = receiver.ready.front() {
            let outgoing = Outgoing {
                tag: ready.lock.map_or_else(|| number_tag(ready.number), tag),
                message_format: 0,
                is_settled: receiver.mode == ReceiveMode::ReceiveAndDelete,
                state: None,
            };
            let sent = self.connection.send(link, outgoing, ready.parts.clone());
            match (sent, ready.lock) {
                (Ok(delivery), Some(lock)) => {
                    let entity = Arc::clone(&receiver.entity);
                    self.held.insert(delivery, Held { link, entity, lock });
                }
                (Ok(_), None) => {}
                (Err(error @ SendRefusal::TooLarge { .. }), _) => {
                    let condition = condition::MESSAGE_SIZE_EXCEEDED;
                    return Err(Error::new(condition, error.to_string()));
                }
                // Credit, room or settlements will bring it here again.
                (Err(_), _) => return Ok(()),
            }
            receiver.ready.pop_front();
        }
        Ok(())
    }

    fn receive(&mut self, link: LinkId, count: u32) {
        let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) else {
            return;
        };
        let cancel = Arc::<Cancel>::default();
        receiver.receiving = Some(Arc::clone(&cancel));
        let command = BusCommand::Receive {
            queue: (*receiver.entity).clone(),
            count,
            mode: receiver.mode,
            session: receiver.session.as_ref().map(|session| session.lock),
        };
        let waiting = Waiting {
            entity: receiver.incarnation,
            watch: receiver.watch.take(),
            is_needed: !receiver.is_drain,
            comes_first: receiver.has_taken_all && !receiver.is_drain,
            cancel,
        };
        let entity = Arc::clone(&receiver.entity);
        let broker = self.shared.broker.clone();
        self.tasks.spawn(async move {
            let taken = receive(broker, command, count, waiting).await;
            Done::Received(link, entity, taken)
        });
    }

    pub(super) fn on_received(
        &mut self,
        link: LinkId,
        entity: Arc<EntityName>,
        taken: Result<Taken, Rejection>,
    ) {
        let Some(Link::Receiver(receiver)) = self.links.get_mut(&link) else {
            // The link went away in the meantime.
            let batch = taken.map_or_else(|_| Batch::new(), |taken| taken.batch);
            let unwanted = batch.into_iter().filter_map(ready);
            return self.give_back(&entity, unwanted.collect());
        };
        let cancel = receiver.receiving.take();
        let Taken {
            batch,
            watch,
            is_all,
        } = match taken {
            Ok(taken) => taken,
            Err(rejection) => return self.detach(link, error_of(&rejection)),
        };
        receiver.has_taken_all = is_all && watch.is_some();
        receiver.watch = watch;
        let is_empty = batch.is_empty();
        if let Some(largest) = batch.iter().map(|(_, bytes)| size_of(bytes)).max() {
            let count = SIZE_BYTES_WANTED / largest.max(1);
            receiver.count = u32::try_from(count)
                .unwrap_or(COUNT_MAX)
                .clamp(1, COUNT_MAX);
        }
        receiver.ready.extend(batch.into_iter().filter_map(ready));
        let was_last_look = is_empty && receiver.is_drain;
        let is_stale = cancel.is_none_or(|cancel| cancel.is_given_up());
        if was_last_look && !is_stale {
            receiver.is_drain = false;
            self.connection.drained(link);
        }
        self.stirred.insert(link);
    }

    /// Unlocks messages that nobody has seen.
    fn give_back(&mut self, queue: &EntityName, unwanted: VecDeque<Ready>) {
        let locks = unwanted.into_iter().filter_map(|ready| ready.lock);
        let settlements: Vec<_> = locks.map(|lock| (lock, Disposition::Release)).collect();
        if !settlements.is_empty() {
            let queue = queue.clone();
            self.submit_and_forget(BusCommand::Settle { queue, settlements });
        }
    }

    pub(super) fn close_receiver(&mut self, receiver: Receiver) {
        if let Some(cancel) = &receiver.receiving {
            cancel.give_up();
        }
        let entity = receiver.entity;
        self.give_back(&entity, receiver.ready);
        if let Some(session) = receiver.session {
            self.submit_and_forget(BusCommand::ReleaseSession {
                queue: (*entity).clone(),
                session: session.lock,
            });
        }
    }
}

fn size_of(bytes: &[Bytes]) -> usize {
    bytes.iter().map(Bytes::len).sum()
}

/// A message as it goes out, from what is stored.
fn ready((message, mut bytes): (DeliveredMessage, Vec<Bytes>)) -> Option<Ready> {
    if bytes.is_empty() {
        return None;
    }
    let overlays = bytes.split_off(1);
    let parts = encode(&Facts::from(&message), bytes.pop()?, &overlays)?;
    Some(Ready {
        lock: message.lock,
        number: message.sequence_number.as_u64(),
        parts,
    })
}

/// The tag of a message that has no lock: unique, which is all that is asked of it.
fn number_tag(number: u64) -> kew_amqp::performative::Tag {
    let mut bytes = [0; 16];
    for (place, byte) in bytes.iter_mut().zip(number.to_be_bytes()) {
        *place = byte;
    }
    bytes.into()
}

/// How a receive waits.
struct Waiting {
    entity: Incarnation,
    /// The one of the last receive, if that brought messages.
    watch: Option<Watch>,
    /// Whether to wait if there is nothing.
    is_needed: bool,
    /// There is nothing before the watch has told so.
    comes_first: bool,
    cancel: Arc<Cancel>,
}

/// Receives what is there; if there is nothing, waits for something unless that is not wanted.
///
/// What became of a watch that was given up is another receiver's.
async fn receive(
    broker: Broker,
    command: BusCommand,
    count: u32,
    waiting: Waiting,
) -> Result<Taken, Rejection> {
    let cancel = waiting.cancel;
    let has_taken_all = waiting.comes_first && waiting.watch.is_some();
    let mut watch = waiting.is_needed.then(|| {
        let kept = waiting.watch;
        kept.unwrap_or_else(|| broker.watch(waiting.entity))
    });
    if let (true, Some(waiting)) = (has_taken_all, &watch)
        && wait(waiting, &cancel).await == WaitEnd::Hurried
    {
        watch = None;
    }
    while !cancel.is_given_up() {
        match Submitted::new(&broker, command.clone()).answer().await {
            Ok(answer) => {
                let batch = batch_of(answer);
                if !batch.is_empty() || watch.is_none() {
                    let is_all = batch.len() < count as usize;
                    return Ok(Taken {
                        batch,
                        watch,
                        is_all,
                    });
                }
            }
            Err(Rejection::Busy) => {
                tokio::time::sleep(BUSY_PAUSE).await;
                continue;
            }
            Err(rejection) => return Err(rejection),
        }
        if let Some(waiting) = &watch
            && wait(waiting, &cancel).await == WaitEnd::Hurried
        {
            watch = None;
        }
    }
    Ok(Taken {
        batch: Batch::new(),
        watch: None,
        is_all: false,
    })
}

/// What ended a wait.
#[derive(PartialEq, Eq)]
enum WaitEnd {
    /// There may be something.
    Woken,
    /// A last look is wanted, or nothing.
    Hurried,
}

async fn wait(watch: &Watch, cancel: &Cancel) -> WaitEnd {
    tokio::select! {
        () = watch.woken() => WaitEnd::Woken,
        () = cancel.cancelled() => WaitEnd::Hurried,
    }
}

/// The messages of an answer, each with its bytes.
pub(crate) fn batch_of(answer: kew_broker::Answer) -> Batch {
    let Outcome::Bus(BusOutcome::Received(messages)) = answer.outcome else {
        return Batch::new();
    };
    let mut bodies = answer.bodies.into_iter();
    let with_bytes = |message: DeliveredMessage| {
        let parts = 1 + message.overlays.len();
        let bytes = bodies.by_ref().take(parts).collect();
        (message, bytes)
    };
    messages.into_iter().map(with_bytes).collect()
}
