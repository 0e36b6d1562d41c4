//! One client: its links, and what of its is under way.

mod attach;
mod changes;
mod coordinator;
mod hostname;
mod links;
mod node;
mod receiver;
mod sender;
mod session_end;
mod settle;
mod tokens;
mod transaction;
mod turn;
mod under_way;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use kew_amqp::codec::{Symbol, Text};
use kew_amqp::error::{Error, condition};
use kew_amqp::performative::DeliveryState;
use kew_amqp::sasl::SaslCode;
use kew_amqp::{By, Config, Connection, Event, Limits as WireLimits, LinkId, Millis, Sasl, Steps};
use kew_broker::{Answer, Answers, Broker, Rejection, Reply};
use kew_engine::bus::{BusCommand, BusQueueView};
use kew_engine::{Command, EntityName, Outcome, Timestamp, Token};
use kew_listen::Place;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use self::attach::Opened;
use self::links::Links;
use self::node::{Replies, Requests};
use self::receiver::{BUSY_PAUSE, Received, Receiver};
use self::sender::Sender;
use self::settle::Settlement;
use self::tokens::{Judged, Put};
use self::transaction::{Transactions, gone};
use self::turn::{ATTACH_STEPS, Backlog, steps_to_look_at};
use self::under_way::AllUnderWay;
use crate::authorization::grants::Grants;
use crate::ground::origin::Origin;
use crate::ground::refusal::bus_condition;
use crate::ground::submit::Submitted;
use crate::memory::account::{Account, Sum};
use crate::memory::holdings::{Holdings, MODEST_SIZE_BYTES, Room, UNPROVEN_SIZE_BYTES};
use crate::metrics::{HELD, Held, Offered, Overdue, Scope};
use crate::shared::Shared;

/// What a link of the client is to us.
enum Link {
    /// It was attached, and we are still to answer.
    Opening(attach::Opening),
    /// The client sends messages to an entity.
    Sender(Sender),
    /// The client receives messages from an entity.
    Receiver(Box<Receiver>),
    /// The client sends requests to a node.
    Requests(Requests),
    /// The client receives a node's answers.
    Replies(Replies),
    /// The client declares and discharges transactions.
    Coordinator,
}

impl Link {
    /// Whether what comes over it can be part of a transaction.
    fn may_be_in_transactions(&self) -> bool {
        match self {
            Self::Sender(_) | Self::Receiver(_) | Self::Requests(_) => true,
            Self::Opening(_) | Self::Replies(_) | Self::Coordinator => false,
        }
    }
}

/// What a task of the client comes to.
pub(crate) enum Done {
    /// The entity of a link, and whether it was looked for alone, and no session.
    Opened(LinkId, Result<Opened, Error>, bool),
    Received(LinkId, EntityName, Result<Received, Rejection>),
    Answered(node::Asker, node::Reply),
    /// What the queue is now whose scheduled messages a transaction is to take back.
    Cancelling(
        Box<node::Cancelling>,
        Result<Option<Box<BusQueueView>>, Rejection>,
    ),
    Judged(Judged),
    JudgedAgain(tokens::JudgedAgain),
    /// What a link's entity is now, if it is one at all.
    Looked(LinkId, Result<Option<Box<BusQueueView>>, Rejection>),
    LookAgain(LinkId),
    SessionLookedAt(LinkId, Token, Result<(), Rejection>),
    Settled(settle::Settlements, Result<Outcome, Rejection>, Instant),
    /// Nobody waits for it.
    Released,
}

pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) tasks: JoinSet<Done>,
    /// Tells that tokens are to be judged again.
    pub(crate) rule_changes: watch::Receiver<u64>,
    /// How often rules had been changed when tokens were judged again last.
    judged_changes: u64,
    /// Tells that the entity of a link may have changed.
    pub(crate) changes: Arc<Notify>,
    shared: Arc<Shared>,
    origin: Origin,
    /// The connection's among all.
    place: Arc<Place>,
    grants: Grants,
    /// Tokens that were put and are not judged yet, in order. The first one is under way.
    putting: VecDeque<Put>,
    /// When the locks of sessions run out, by link.
    session_ends: BTreeSet<(Timestamp, LinkId)>,
    links: Links,
    /// How many links for answers were attached so far.
    reply_links: u64,
    /// Receivers and replies that may have something to do.
    stirred: BTreeSet<LinkId>,
    /// Receivers that would receive if there were room.
    starved: BTreeSet<LinkId>,
    /// What is left of this turn.
    steps: Steps,
    backlog: Backlog,
    /// Of this turn, by entity.
    settlements: BTreeMap<EntityName, Vec<Settlement>>,
    transactions: Transactions,
    /// Answers to what is under way come here.
    pub(crate) answers: Arc<Answers>,
    /// What this turn has for the broker.
    outbox: Vec<(u64, Command)>,
    under_way: AllUnderWay,
    /// Kept for its room.
    came: Vec<(u64, Reply)>,
    /// Messages whose send is under way and changes that settlements bring, in bytes.
    sending_size_bytes: usize,
    /// Transfers that are not answered.
    sends: usize,
    /// Requests to the broker that are under way, these included.
    requests: usize,
    /// Commands that nobody waits for, and links that were given up while their entity was looked
    /// for.
    forgotten: usize,
    /// Entities of links that are looked for now.
    looks: usize,
    /// When a first token is due.
    token_due: Option<Millis>,
    /// What links and tasks hold.
    account: Account,
    holdings: Holdings,
    /// How much there was when the limits of the connection were set.
    room: Room,
    /// How the connection ended: nothing if it did not, or as it should.
    ended: Option<Error>,
}

/// How much is written at once, about, before more messages are encoded: the client works on what came
/// first meanwhile.
const OUTPUT_SIZE_BYTES_WANTED: usize = 32 * 1024;

/// How often a busy broker is asked again what cannot be left undone: for 5 s.
const BUSY_TRIES: u32 = 50;

/// When those are looked at again who were held back because there was no room.
const STARVED_PAUSE_MS: u64 = 100;

impl Client {
    pub(crate) fn new(shared: Arc<Shared>, origin: Origin, place: Arc<Place>, now: Millis) -> Self {
        // The service's order: some clients take the first one that they know.
        let mechanisms = ["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"];
        let config = Config {
            sasl: Sasl::Server {
                mechanisms: mechanisms.map(Symbol::from_static).to_vec(),
                is_optional: true,
            },
            ..Config::default()
        };
        let timeout = shared.limits.token_timeout.as_millis();
        let timeout = u64::try_from(timeout).unwrap_or(u64::MAX);
        let steps = Steps::of(shared.limits.turn_steps_max);
        Self {
            connection: Connection::server(config, WireLimits::before_trust(), now),
            tasks: JoinSet::new(),
            rule_changes: shared.authority.rules.watch(),
            judged_changes: 0,
            holdings: Holdings::new(Arc::clone(&shared.observer)),
            changes: Arc::default(),
            shared,
            origin,
            place,
            grants: Grants::default(),
            putting: VecDeque::new(),
            links: Links::default(),
            reply_links: 0,
            session_ends: BTreeSet::new(),
            stirred: BTreeSet::new(),
            starved: BTreeSet::new(),
            steps,
            backlog: Backlog::default(),
            settlements: BTreeMap::new(),
            transactions: Transactions::default(),
            answers: Arc::default(),
            outbox: Vec::new(),
            under_way: AllUnderWay::default(),
            came: Vec::new(),
            sending_size_bytes: 0,
            sends: 0,
            requests: 0,
            forgotten: 0,
            looks: 0,
            token_due: Some(Millis(now.0.saturating_add(timeout))),
            account: Account::default(),
            room: Room::Much,
            ended: None,
        }
    }

    /// Hands over what was sent and settled until now, so that what follows comes after it.
    fn hand_over(&mut self) {
        self.flush_settlements();
        self.flush_outbox();
    }

    /// Whether more may be under way.
    fn has_room(&self) -> bool {
        let limits = &self.shared.limits;
        let size_bytes = self.sending_size_bytes + self.account.value(Sum::RequestBytes);
        size_bytes < limits.sending_size_bytes_max
            && self.requests + self.forgotten < limits.requests_max
            && self.may_look()
    }

    /// Whether more entities may be looked for.
    fn may_look(&self) -> bool {
        self.looks < self.shared.limits.looks_max
    }

    /// Whether more may be received for the client.
    fn may_receive(&self) -> bool {
        let limits = &self.shared.limits;
        self.has_room_beside_others()
            && self.account.value(Sum::ReadyBytes) < limits.ready_size_bytes_max
            && self.account.value(Sum::Deliveries) < limits.unsettled_max
    }

    /// Whether the others leave room for what this client wants.
    fn has_room_beside_others(&self) -> bool {
        self.room == Room::Much || self.held_size_bytes() < MODEST_SIZE_BYTES
    }

    /// Finds out how much room there is beside what all others hold, and sees to it that the client
    /// keeps to it.
    fn look_for_room(&mut self) {
        let is_proven = self.token_due.is_none();
        let room = self.shared.memory.room(is_proven);
        if room != self.room {
            self.room = room;
            self.set_wire_limits();
        }
        let modest = match (room, is_proven) {
            (Room::Much, _) | (Room::None, true) => return,
            (Room::None | Room::Gone, false) => UNPROVEN_SIZE_BYTES,
            (Room::Gone, true) => MODEST_SIZE_BYTES,
        };
        if self.connection.is_open() && self.held_size_bytes() > modest {
            self.connection.close(Some(crate::ground::refusal::busy()));
        }
    }

    /// The limits of the protocol for a client that has shown who it is or has not, beside what all
    /// others hold.
    fn set_wire_limits(&mut self) {
        let limits = &self.shared.limits;
        let mut wire = match self.token_due {
            Some(_) => WireLimits::before_trust(),
            None => WireLimits {
                links_max: limits.links_max,
                unsettled_max: limits.unsettled_max,
                discarded_size_max: limits.discarded_size_bytes_max,
                output_size_max: OUTPUT_SIZE_BYTES_WANTED,
                ..WireLimits::default()
            },
        };
        if self.room != Room::Much {
            let begun = self.connection.reassembly_size();
            wire.reassembly_size_max = begun.max(MODEST_SIZE_BYTES as u64);
            wire.reassembly_condition = bus_condition::SERVER_BUSY;
        }
        self.connection.set_limits(wire);
    }

    fn held_size_bytes(&self) -> usize {
        self.connection.held_size()
            + self.links.size_bytes()
            + self.sending_size_bytes
            + self.account.size_bytes()
    }

    /// Tells what the connection holds, with so many bytes that are being written.
    pub(crate) fn tell(&mut self, writing_size_bytes: usize) {
        let [opening, senders, receivers, requests, replies] = self.links.counts();
        let mut now = [0; HELD];
        for (held, value) in [
            (Held::Sessions, self.connection.session_count() as u64),
            (Held::Opening, opening),
            (Held::Senders, senders),
            (Held::Receivers, receivers),
            (Held::Requests, requests),
            (Held::Replies, replies),
            (Held::Credit, self.account.value(Sum::Credit) as u64),
            (Held::UnsettledIn, self.sends as u64),
            (
                Held::UnsettledOut,
                self.account.value(Sum::Deliveries) as u64,
            ),
            (Held::Commands, (self.requests + self.forgotten) as u64),
            (
                Held::Bytes,
                (self.held_size_bytes() + writing_size_bytes) as u64,
            ),
        ] {
            if let Some(place) = now.get_mut(held as usize) {
                *place = value;
            }
        }
        self.holdings.tell(now);
    }

    pub(crate) fn write_timeout(&self) -> Duration {
        self.shared.limits.write_timeout
    }

    pub(crate) fn note_overdue(&mut self, overdue: Overdue) {
        self.shared.observer.instruments.note_overdue(overdue);
    }

    /// The connection has ended, by an error of the socket or otherwise.
    pub(crate) fn note_end(&self, lasted: Duration, broken: Option<io::Error>) {
        let why = match (&self.ended, broken) {
            (_, Some(error)) => {
                self.shared.observer.instruments.broken.increment();
                error.to_string()
            }
            (Some(error), None) => error.to_string(),
            (None, None) => String::new(),
        };
        self.shared.observer.note_closed(&self.origin, lasted, &why);
    }

    pub(crate) fn wants_input(&self) -> bool {
        self.has_room() && self.connection.wants_input()
    }

    pub(crate) fn next_timeout(&self, now: Millis) -> Option<Millis> {
        let expiry = self.grants.next_expiry_s().map(|at_s| {
            let left_ms = at_s
                .saturating_sub(self.shared.clock.now_s())
                .saturating_mul(1000);
            Millis(now.0.saturating_add(left_ms.clamp(100, 3_600_000)))
        });
        let is_starved = !self.starved.is_empty() && self.room != Room::Much;
        let starved = is_starved.then_some(Millis(now.0.saturating_add(STARVED_PAUSE_MS)));
        let own = self.connection.next_timeout();
        let session_end = self.next_session_end(now);
        let transaction = self.transactions.next_due().map(|due| {
            let left = due.saturating_duration_since(Instant::now()).as_millis();
            // What is left of a millisecond is waited for, too.
            let left_ms = u64::try_from(left).unwrap_or(u64::MAX).saturating_add(1);
            Millis(now.0.saturating_add(left_ms))
        });
        let timeouts = [
            own,
            expiry,
            self.token_due,
            session_end,
            starved,
            transaction,
        ];
        timeouts.into_iter().flatten().min()
    }

    pub(crate) fn on_time(&mut self, now: Millis) {
        let was_open = self.connection.is_open();
        let was_closed = self.connection.is_closed();
        self.connection.on_time(now);
        if was_open && !self.connection.is_open() {
            self.note_overdue(Overdue::Idle);
        } else if !was_closed && self.connection.is_closed() && self.ended.is_none() {
            self.note_overdue(Overdue::Handshake);
        }
        if self.token_due.is_some_and(|due| due <= now) {
            self.token_due = None;
            self.note_overdue(Overdue::Token);
            let seconds = self.shared.limits.token_timeout.as_secs();
            let text = format!("The connection was closed: no token was put within {seconds} s.");
            let error = Error::new(condition::UNAUTHORIZED_ACCESS, text);
            self.connection.close(Some(error));
        }
        if self.grants.expire(self.shared.clock.now_s()) {
            self.detach_what_is_not_allowed();
        }
        self.look_at_session_ends();
        let timeout = self.shared.limits.transaction_timeout;
        self.transactions.fail_those_due(timeout);
    }

    /// Tells the client to come back later.
    pub(crate) fn stop(&mut self) {
        let text = "The server is stopping. Please connect again.";
        self.connection
            .close(Some(Error::new(condition::CONNECTION_FORCED, text)));
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::SaslInit {
                mechanism,
                response,
                ..
            } => self.on_sasl(mechanism.as_str(), response.as_deref()),
            Event::SaslResponse { .. } => self.connection.sasl_outcome(SaslCode::Auth),
            Event::Attach { link, attach } => {
                self.steps.charge(ATTACH_STEPS);
                // Its session may be that of a message which was sent before, or settled.
                self.hand_over();
                self.on_attach(link, attach);
            }
            Event::Delivery(delivery) => match self.links.get(&delivery.link) {
                Some(Link::Sender(_)) => self.on_message(&delivery),
                Some(Link::Requests(_)) => self.on_request(&delivery),
                Some(Link::Coordinator) => self.on_control(&delivery),
                // Nothing comes over these.
                Some(Link::Opening(_) | Link::Receiver(_) | Link::Replies(_)) => {}
                None => self.fail_if_transactional(delivery.state.as_ref(), gone),
            },
            Event::Oversized(oversized) => self.on_oversized(oversized),
            Event::Disposition {
                delivery,
                link,
                is_settled,
                state,
                ..
            } => {
                self.stirred.insert(link);
                self.on_disposition(link, delivery, is_settled, state);
            }
            Event::Credit {
                link,
                is_drain,
                properties,
                ..
            } => match properties.is_some_and(|it| it.get("txn-id").is_some()) {
                true => self.refuse_acquisition(link),
                false => self.on_credit(link, is_drain),
            },
            Event::Writable { session } => {
                let links = self.links.range(session.links());
                let before = self.stirred.len();
                self.stirred.extend(links.map(|(link, _)| *link));
                let count = self.stirred.len() - before;
                self.steps.charge(steps_to_look_at(count));
            }
            Event::Detached {
                link, by, error, ..
            } => {
                // Those that were detached here are known no more.
                if by == By::Us && self.links.contains_key(&link) {
                    self.note_broken_rule(Scope::Link, error.as_ref());
                    self.fail_transactions_over(link, error);
                }
                self.forget(link);
            }
            Event::Ended {
                session, by, error, ..
            } => {
                if by == By::Us {
                    self.note_broken_rule(Scope::Session, error.as_ref());
                    let mut links = self.links.range(session.links());
                    if links.any(|(_, link)| link.may_be_in_transactions()) {
                        self.fail_transactions(&error.unwrap_or_else(gone));
                    }
                }
                self.forget_all_of(session);
            }
            Event::Closed { by, error } => {
                if by == By::Us {
                    self.note_broken_rule(Scope::Connection, error.as_ref());
                }
                self.ended = error;
                self.forget_all();
            }
            Event::Opened(open) => {
                self.on_hostname(open.hostname.as_ref().map(Text::as_str));
                let is_proven = self.token_due.is_none();
                let container = open.container_id.as_str();
                self.shared
                    .observer
                    .note_opened(&self.origin, container, is_proven);
            }
            // The connection has answered these.
            Event::Begun { .. } | Event::Available { .. } => {}
            Event::Unmatched { state } => {
                self.fail_if_transactional(Some(&DeliveryState::Transactional(state)), gone);
            }
            // A server asks for none of these.
            Event::SaslChallenge { .. } | Event::Attached { .. } | Event::Drained { .. } => {}
        }
    }

    /// Something ended here, which the client was told with an error.
    fn note_broken_rule(&self, scope: Scope, error: Option<&Error>) {
        let Some(error) = error else {
            return;
        };
        self.shared
            .observer
            .note_refusal(&self.origin, scope, error);
        if error.condition == condition::FRAMING_ERROR || error.condition == condition::DECODE_ERROR
        {
            self.shared.observer.instruments.broken.increment();
        }
    }

    fn on_sasl(&mut self, mechanism: &str, response: Option<&[u8]>) {
        let code = match mechanism {
            // Some clients say EXTERNAL where they mean that tokens will show who they are.
            "ANONYMOUS" | "MSSBCBS" | "EXTERNAL" => SaslCode::Ok,
            "PLAIN" if self.take_password(response.unwrap_or_default()) => SaslCode::Ok,
            _ => SaslCode::Auth,
        };
        if code != SaslCode::Ok {
            let error = Error::new(
                condition::UNAUTHORIZED_ACCESS,
                "wrong name or key, or neither",
            );
            let offered = match mechanism {
                "PLAIN" => Offered::Plain,
                _ => Offered::Other,
            };
            self.shared
                .observer
                .note_denied(&self.origin, offered, &error);
        }
        self.connection.sasl_outcome(code);
    }

    /// The client has shown who it is: it may have more.
    fn trust(&mut self) {
        if self.token_due.take().is_none() {
            return;
        }
        self.place.prove();
        self.set_wire_limits();
    }

    pub(crate) fn on_done(&mut self, done: Result<Done, JoinError>) {
        self.steps.charge(1);
        match done {
            Ok(Done::Opened(link, opened, is_look)) => {
                self.looks = self.looks.saturating_sub(usize::from(is_look));
                self.on_opened(link, opened);
            }
            Ok(Done::Received(link, entity, batch)) => self.on_received(link, entity, batch),
            Ok(Done::Answered(asker, reply)) => {
                self.requests = self.requests.saturating_sub(1);
                if let Some((lock, until)) = reply.renewed {
                    self.on_session_renewed(lock, until);
                }
                self.reply(&asker, reply);
            }
            Ok(Done::Judged(judged)) => self.on_judged(judged),
            Ok(Done::JudgedAgain(judged)) => self.on_judged_again(&judged),
            Ok(Done::Cancelling(cancelling, view)) => self.on_cancelling(*cancelling, view),
            Ok(Done::Looked(link, view)) => {
                self.looks = self.looks.saturating_sub(1);
                self.on_looked(link, view);
            }
            Ok(Done::LookAgain(link)) => self.look(link),
            Ok(Done::SessionLookedAt(link, lock, held)) => {
                self.on_session_looked_at(link, lock, held);
            }
            Ok(Done::Settled(settlements, reply, began)) => {
                self.requests = self.requests.saturating_sub(1);
                self.on_settled(settlements, reply, began.elapsed());
            }
            Ok(Done::Released) => self.forgotten = self.forgotten.saturating_sub(1),
            Err(error) => {
                tracing::error!(%error, "a request of a Service Bus client panicked, which is a bug");
                let text = "The server was unable to process the request.";
                self.connection
                    .close(Some(Error::new(condition::INTERNAL_ERROR, text)));
            }
        }
    }

    /// Detaches a link on our own account.
    fn detach(&mut self, link: LinkId, error: Error) {
        self.shared
            .observer
            .note_refusal(&self.origin, Scope::Link, &error);
        self.fail_transactions_over(link, Some(error.clone()));
        self.connection.detach(link, true, Some(error));
        self.forget(link);
    }

    /// A link is detached here. What its client does over it until it hears of that is lost, and may be
    /// part of any of its transactions.
    fn fail_transactions_over(&mut self, link: LinkId, error: Option<Error>) {
        let link = self.links.get(&link);
        if link.is_some_and(Link::may_be_in_transactions) {
            self.fail_transactions(&error.unwrap_or_else(gone));
        }
    }

    /// A link is gone. Locks of messages hold on, as the service's do; that of a session ends.
    fn forget(&mut self, link: LinkId) {
        self.stirred.remove(&link);
        self.starved.remove(&link);
        self.forget_session_end(link);
        match self.links.remove(link) {
            Some(Link::Receiver(receiver)) => self.close_receiver(*receiver),
            Some(Link::Opening(opening)) => {
                self.forgotten += 1;
                opening.give_up();
            }
            Some(Link::Coordinator) => self.forget_coordinator(link),
            _ => {}
        }
    }

    /// Has a command carried out whose answer nobody waits for: what it gives back would be held for
    /// the whole time of a lock, so that it is tried again if the broker is busy.
    fn submit_and_forget(&mut self, command: BusCommand) {
        self.flush_outbox();
        let broker = self.shared.broker.clone();
        let submitted = Submitted::new(&broker, command.clone());
        self.forgotten += 1;
        self.tasks.spawn(async move {
            let answer = submitted.answer().await;
            if matches!(answer, Err(Rejection::Busy | Rejection::Full)) {
                // Nobody would hear of it.
                let _ = submit_again(&broker, command).await;
            }
            Done::Released
        });
    }

    /// Gives back memory that only a busy connection needs.
    pub(crate) fn shrink(&mut self) {
        self.connection.shrink();
        self.outbox.shrink_to_fit();
        self.came.shrink_to_fit();
        self.backlog.shrink();
        self.under_way.shrink_to_fit();
    }
}

/// Has a command carried out that cannot be left undone, and for which the broker was too busy.
async fn submit_again(broker: &Broker, command: BusCommand) -> Result<Answer, Rejection> {
    let mut refused = Rejection::Busy;
    for _ in 0..BUSY_TRIES {
        tokio::time::sleep(BUSY_PAUSE).await;
        match Submitted::new(broker, command.clone()).answer().await {
            Err(rejection @ (Rejection::Busy | Rejection::Full)) => refused = rejection,
            answer => return answer,
        }
    }
    Err(refused)
}
