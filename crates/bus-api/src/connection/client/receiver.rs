//! Messages that a client receives.
//!
//! A link with credit receives what is there, and again when all of that is sent. Only if there is
//! nothing it has a task, one at most, that waits.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use kew_amqp::codec::Text;
use kew_amqp::error::Error;
use kew_amqp::performative::Tag;
use kew_amqp::{DeliveryId, LinkId, Outgoing, SendRefusal};
use kew_broker::{Answer, Answered, Rejection, Watch};
use kew_engine::bus::{
    Awaited, BusCommand, DeliveredMessage, Disposition, ReceiveMode, SessionLock,
};
use kew_engine::{EntityName, Timestamp, Token};
use tokio::sync::{Notify, OwnedSemaphorePermit};

use super::changes::Attached;
use super::turn::steps_to_change;
use super::under_way::Purpose;
use super::{Client, Done, Link};
use crate::ground::refusal::{error_of, too_large_for_link};
use crate::ground::submit::Submitted;
use crate::memory::account::{Account, Part, Sum};
use crate::memory::holdings::Room;
use crate::messages::batch::{Batch, batch_of, has_some};
use crate::messages::outbound::{Facts, encode, tag};
use crate::shared::Shared;

/// How many messages are received at once, at the beginning and at most.
const COUNT_FIRST: u32 = 8;
const COUNT_MAX: u32 = 256;
/// About how many bytes are received at once: by the size of those before.
const SIZE_BYTES_WANTED: usize = 1 << 20;
/// How long a receive waits that the broker had no room for.
pub(super) const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// A link over which a client receives.
pub(super) struct Receiver {
    /// The link's.
    pub(super) name: Text,
    pub(super) attached: Attached,
    mode: ReceiveMode,
    pub(super) session: Option<SessionLock>,
    /// When to look whether the session is still locked, as [`Client`] has noted.
    pub(super) session_ends_at: Option<Timestamp>,
    /// Those that wait for credit or room.
    ready: Queue,
    pub(super) held: HeldLocks,
    credit: Part,
    /// The one task's.
    receiving: Option<Arc<Cancel>>,
    is_drain: bool,
    count: u32,
    /// The size of the largest message of the last batch.
    largest_size_bytes: usize,
}

/// How large a message is taken for of which nothing is known.
const UNKNOWN_SIZE_BYTES: usize = 256 << 10;

/// Messages that wait to go out, counted by their bytes.
struct Queue {
    messages: VecDeque<Ready>,
    size_bytes: usize,
    part: Part,
}

impl Queue {
    fn extend(&mut self, more: impl Iterator<Item = Ready>) {
        for ready in more {
            self.size_bytes += ready.size_bytes();
            self.messages.push_back(ready);
        }
        self.part.set(self.size_bytes);
    }

    fn pop(&mut self) {
        if let Some(ready) = self.messages.pop_front() {
            self.size_bytes -= ready.size_bytes();
            self.part.set(self.size_bytes);
        }
    }

    fn take(&mut self) -> VecDeque<Ready> {
        self.size_bytes = 0;
        self.part.set(0);
        std::mem::take(&mut self.messages)
    }
}

/// The locks of deliveries that the client has not settled.
pub(super) struct HeldLocks {
    locks: HashMap<DeliveryId, Token>,
    part: Part,
}

impl HeldLocks {
    fn insert(&mut self, delivery: DeliveryId, lock: Token) {
        self.locks.insert(delivery, lock);
        self.part.set(self.locks.len());
    }

    pub(super) fn take(&mut self, delivery: DeliveryId) -> Option<Token> {
        let lock = self.locks.remove(&delivery);
        self.part.set(self.locks.len());
        lock
    }
}

/// A message that can go out. It is encoded when it does: while some of a batch are on their way,
/// others are encoded.
struct Ready {
    message: DeliveredMessage,
    /// What is stored, then the changes to its properties.
    bytes: Vec<Bytes>,
}

impl Ready {
    fn size_bytes(&self) -> usize {
        size_of(&self.bytes)
    }

    fn tag(&self) -> Tag {
        match self.message.lock {
            Some(lock) => tag(lock),
            None => number_tag(self.message.sequence_number.as_u64()),
        }
    }

    fn encode(&self) -> Option<[Bytes; 2]> {
        let (stored, overlays) = self.bytes.split_first()?;
        encode(&Facts::from(&self.message), stored.clone(), overlays)
    }
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
        attached: Attached,
        mode: ReceiveMode,
        session: Option<SessionLock>,
        account: &Account,
    ) -> Self {
        Self {
            name,
            attached,
            mode,
            session,
            session_ends_at: None,
            ready: Queue {
                messages: VecDeque::new(),
                size_bytes: 0,
                part: account.part(Sum::ReadyBytes),
            },
            held: HeldLocks {
                locks: HashMap::new(),
                part: account.part(Sum::Deliveries),
            },
            credit: account.part(Sum::Credit),
            receiving: None,
            is_drain: false,
            count: COUNT_FIRST,
            largest_size_bytes: UNKNOWN_SIZE_BYTES,
        }
    }
}

impl Client {
    pub(super) fn on_credit(&mut self, link: LinkId, is_drain: bool) {
        if let Some(Link::Receiver(receiver)) = self.links.get_mut(link) {
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
        let may_receive = self.may_receive();
        let count_max = match self.room {
            Room::Much => u32::MAX,
            Room::None | Room::Gone => 1,
        };
        let Some(Link::Receiver(receiver)) = self.links.get_mut(link) else {
            return;
        };
        receiver.credit.set(credit as usize);
        if credit == 0 {
            receiver.is_drain = false;
            if let Some(cancel) = &receiver.receiving {
                cancel.give_up();
            }
            let unwanted = match receiver.mode {
                ReceiveMode::PeekLock => receiver.ready.take(),
                // They are nowhere else: they wait for credit.
                ReceiveMode::ReceiveAndDelete | ReceiveMode::DeleteOnceRead => VecDeque::new(),
            };
            let entity = receiver.attached.entity.clone();
            self.connection.drained(link);
            return self.give_back(entity, unwanted);
        }
        if receiver.receiving.is_none() && receiver.ready.messages.is_empty() {
            let count = credit.min(receiver.count).min(count_max);
            if may_receive {
                self.receive(link, count);
            } else if receiver.is_drain {
                // Who drains waits for the answer, not for room: there is nothing for it now.
                receiver.is_drain = false;
                receiver.credit.set(0);
                self.connection.drained(link);
            } else {
                self.starved.insert(link);
            }
        }
    }

    fn send_ready(&mut self, link: LinkId) -> Result<(), Error> {
        let Some(Link::Receiver(receiver)) = self.links.get_mut(link) else {
            return Ok(());
        };
        while let Some(ready) = receiver.ready.messages.front()
            && self.connection.can_send_or_await(link)
        {
            let changes = ready.bytes.iter().skip(1).map(Bytes::len).sum();
            self.steps.charge(1 + steps_to_change(changes));
            let Some(parts) = ready.encode() else {
                receiver.ready.pop();
                continue;
            };
            let outgoing = Outgoing {
                tag: ready.tag(),
                message_format: 0,
                is_settled: receiver.mode == ReceiveMode::ReceiveAndDelete,
                state: None,
            };
            let size_bytes = size_of(&parts);
            match self.connection.send(link, outgoing, parts) {
                Ok(delivery) => {
                    let lock = ready.message.lock;
                    let instruments = &self.shared.observer.instruments;
                    instruments.note_delivery(lock.is_some(), size_bytes);
                    if let Some(lock) = lock {
                        receiver.held.insert(delivery, lock);
                    }
                }
                Err(refusal @ SendRefusal::TooLarge { .. }) => {
                    return Err(too_large_for_link(&refusal));
                }
                // Credit, room or settlements will bring it here again.
                Err(_) => return Ok(()),
            }
            receiver.ready.pop();
        }
        Ok(())
    }

    fn receive(&mut self, link: LinkId, count: u32) {
        let Some(Link::Receiver(receiver)) = self.links.get_mut(link) else {
            return;
        };
        let cancel = Arc::<Cancel>::default();
        receiver.receiving = Some(Arc::clone(&cancel));
        let command = BusCommand::Receive {
            queue: receiver.attached.entity.clone(),
            count,
            mode: receiver.mode,
            session: receiver.session.as_ref().map(|session| session.lock),
        };
        let incarnation = receiver.attached.incarnation;
        let awaited = match &receiver.session {
            Some(session) => Awaited::OfSession(session.session.clone()),
            None => Awaited::Message,
        };
        let size_bytes = receiver.largest_size_bytes.saturating_mul(count as usize);
        let may_wait = !receiver.is_drain;
        let receive = Receive {
            shared: Arc::clone(&self.shared),
            queue: receiver.attached.entity.clone(),
            command,
            size_bytes,
            cancel,
        };
        // Nothing that comes from now on is missed.
        let watch = may_wait.then(|| self.shared.broker.watch(incarnation, awaited));
        let Some(room) = self.shared.answers.try_for(size_bytes) else {
            return self.receive_later(link, receive, watch, Next::Look);
        };
        let command = receive.command.clone();
        let look = FirstLook {
            link,
            receive,
            watch,
            room,
        };
        self.submit(command, Purpose::Receive(Box::new(look)));
    }

    fn receive_later(&mut self, link: LinkId, receive: Receive, watch: Option<Watch>, next: Next) {
        self.tasks.spawn(async move {
            let queue = receive.queue.clone();
            let received = receive.run(watch, next).await;
            Done::Received(link, queue, received)
        });
    }

    /// What was there, or a wait if nothing was.
    pub(super) fn on_first_look(&mut self, look: FirstLook, reply: Result<Answered, Rejection>) {
        let FirstLook {
            link,
            receive,
            watch,
            room,
        } = look;
        let answer = match reply.map(Answer::in_memory) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(answered)) => {
                let broker = self.shared.broker.clone();
                self.tasks.spawn(async move {
                    let queue = receive.queue.clone();
                    let received = match broker.read(*answered).await {
                        // It had no room to delete what it read.
                        Err(Rejection::Busy | Rejection::Full) => {
                            drop(room);
                            receive.run(watch, Next::Pause).await
                        }
                        answer => answer.map(|answer| Received {
                            batch: batch_of(answer),
                            room: Some(room),
                        }),
                    };
                    Done::Received(link, queue, received)
                });
                return;
            }
            Err(rejection) => Err(rejection),
        };
        match Looked::of(answer) {
            Looked::Found(batch) => {
                let room = Some(room);
                self.on_received(link, receive.queue, Ok(Received { batch, room }));
            }
            Looked::Refused(rejection) => self.on_received(link, receive.queue, Err(rejection)),
            Looked::Not(next) => {
                drop(room);
                self.receive_later(link, receive, watch, next);
            }
        }
    }

    pub(super) fn on_received(
        &mut self,
        link: LinkId,
        entity: EntityName,
        received: Result<Received, Rejection>,
    ) {
        let is_full = self.account.value(Sum::ReadyBytes)
            >= self.shared.limits.ready_size_bytes_max.saturating_mul(2);
        let Some(Link::Receiver(receiver)) = self.links.get_mut(link) else {
            // The link went away in the meantime.
            let batch = received.map(|received| received.batch).unwrap_or_default();
            let unwanted = batch.into_iter().map(ready);
            return self.give_back(entity, unwanted.collect());
        };
        let cancel = receiver.receiving.take();
        let Received { batch, room } = match received {
            Ok(received) => received,
            Err(rejection) => return self.detach(link, error_of(&rejection)),
        };
        let is_empty = batch.is_empty();
        self.steps.charge(batch.len());
        if let Some(largest) = batch.iter().map(|(_, bytes)| size_of(bytes)).max() {
            let count = SIZE_BYTES_WANTED / largest.max(1);
            receiver.count = u32::try_from(count)
                .unwrap_or(COUNT_MAX)
                .clamp(1, COUNT_MAX);
            receiver.largest_size_bytes = largest;
        }
        let batch = batch.into_iter().map(ready);
        if is_full && receiver.mode == ReceiveMode::PeekLock {
            // Others of the connection were faster. There is no harm in it: nobody has seen these.
            let unwanted = batch.collect();
            self.give_back(entity, unwanted);
            self.stirred.insert(link);
            return;
        }
        receiver.ready.extend(batch);
        // From now on it is what the connection holds.
        drop(room);
        let was_last_look = is_empty && receiver.is_drain;
        let is_stale = cancel.is_none_or(|cancel| cancel.is_given_up());
        if was_last_look && !is_stale {
            receiver.is_drain = false;
            self.connection.drained(link);
        }
        self.stirred.insert(link);
    }

    /// Unlocks messages that nobody has seen.
    fn give_back(&mut self, queue: EntityName, unwanted: VecDeque<Ready>) {
        self.steps.charge(unwanted.len());
        let locks = unwanted.into_iter().filter_map(|it| it.message.lock);
        let settlements: Vec<_> = locks.map(|lock| (lock, Disposition::Release)).collect();
        if !settlements.is_empty() {
            self.submit_and_forget(BusCommand::Settle { queue, settlements });
        }
    }

    pub(super) fn close_receiver(&mut self, receiver: Receiver) {
        if let Some(cancel) = &receiver.receiving {
            cancel.give_up();
        }
        let mut receiver = receiver;
        let unwanted = receiver.ready.take();
        let entity = receiver.attached.entity;
        self.give_back(entity.clone(), unwanted);
        if let Some(session) = receiver.session {
            // What was settled before the link went is settled before its session is free, if the broker is
            // not busy: then its messages may come again.
            self.flush_settlements();
            self.submit_and_forget(BusCommand::ReleaseSession {
                queue: entity,
                session: session.lock,
            });
        }
    }
}

fn size_of(bytes: &[Bytes]) -> usize {
    bytes.iter().map(Bytes::len).sum()
}

fn ready((message, bytes): (DeliveredMessage, Vec<Bytes>)) -> Ready {
    Ready { message, bytes }
}

/// The tag of a message that has no lock: unique, which is all that is asked of it.
fn number_tag(number: u64) -> Tag {
    let mut bytes = [0; 16];
    for (place, byte) in bytes.iter_mut().zip(number.to_be_bytes()) {
        *place = byte;
    }
    bytes.into()
}

/// Messages, and the room that they take until the connection has them.
pub(crate) struct Received {
    batch: Batch,
    room: Option<OwnedSemaphorePermit>,
}

impl Received {
    const NOTHING: Self = Self {
        batch: Batch::new(),
        room: None,
    };
}

/// One receive.
struct Receive {
    shared: Arc<Shared>,
    queue: EntityName,
    command: BusCommand,
    /// About how much it brings at most.
    size_bytes: usize,
    cancel: Arc<Cancel>,
}

/// A receive whose first answer is still to come.
pub(super) struct FirstLook {
    link: LinkId,
    receive: Receive,
    /// None if it must not wait.
    watch: Option<Watch>,
    room: OwnedSemaphorePermit,
}

/// What an answer to a receive comes to.
enum Looked {
    Found(Batch),
    Refused(Rejection),
    Not(Next),
}

/// What a receive that has found nothing does next.
#[derive(Clone, Copy)]
enum Next {
    /// Looks, which it has not done yet.
    Look,
    /// Waits until there may be something.
    Wait,
    /// Lets a busy broker be, and looks again.
    Pause,
}

impl Looked {
    fn of(answer: Result<Answer, Rejection>) -> Self {
        match answer.map(batch_of) {
            Ok(batch) if batch.is_empty() => Self::Not(Next::Wait),
            Ok(batch) => Self::Found(batch),
            Err(Rejection::Busy | Rejection::Full) => Self::Not(Next::Pause),
            Err(rejection) => Self::Refused(rejection),
        }
    }
}

impl Receive {
    /// Receives what is there; if there is nothing, waits for something unless that is not wanted.
    async fn run(self, mut watch: Option<Watch>, mut next: Next) -> Result<Received, Rejection> {
        loop {
            match (next, &mut watch) {
                (Next::Look, _) => {}
                // Who drains waits for the answer, however long there is no room.
                (Next::Pause | Next::Wait, None) => return Ok(Received::NOTHING),
                (Next::Pause, Some(_)) => tokio::select! {
                    () = tokio::time::sleep(BUSY_PAUSE) => {}
                    () = self.cancel.cancelled() => watch = None,
                },
                (Next::Wait, Some(waiting)) => tokio::select! {
                    () = waiting.woken() => {}
                    () = self.cancel.cancelled() => watch = None,
                },
            }
            // Nothing is taken for a link that is known to be gone.
            if self.cancel.is_given_up() {
                return Ok(Received::NOTHING);
            }
            let (looked, room) = match self.room().await {
                Place::Room(room) => (self.look().await, Some(room)),
                Place::NotNeeded(looked) => (looked, None),
                Place::Unwanted => return Ok(Received::NOTHING),
            };
            if let Some(watch) = &mut watch
                && !matches!(looked, Looked::Not(Next::Pause))
            {
                watch.looked();
            }
            match looked {
                Looked::Found(batch) => return Ok(Received { batch, room }),
                Looked::Refused(rejection) => return Err(rejection),
                Looked::Not(then) => next = then,
            }
        }
    }

    async fn look(&self) -> Looked {
        let submitted = Submitted::new(&self.shared.broker, self.command.clone());
        Looked::of(submitted.answer().await)
    }

    /// Room for what it brings, for which it waits only if there is something. Whoever was woken keeps
    /// the wake-up meanwhile.
    async fn room(&self) -> Place {
        if let Some(room) = self.shared.answers.try_for(self.size_bytes) {
            return Place::Room(room);
        }
        match has_some(&self.shared.broker, &self.queue).await {
            Ok(true) => {}
            Ok(false) => return Place::NotNeeded(Looked::Not(Next::Wait)),
            Err(Rejection::Busy | Rejection::Full) => {
                return Place::NotNeeded(Looked::Not(Next::Pause));
            }
            Err(rejection) => return Place::NotNeeded(Looked::Refused(rejection)),
        }
        let room = tokio::select! {
            room = self.shared.answers.wait_for(self.size_bytes) => room,
            () = self.cancel.cancelled() => None,
        };
        room.map_or(Place::Unwanted, Place::Room)
    }
}

/// Where a receive puts what it brings.
enum Place {
    Room(OwnedSemaphorePermit),
    /// There is nothing to put anywhere.
    NotNeeded(Looked),
    /// It is not wanted any more.
    Unwanted,
}
