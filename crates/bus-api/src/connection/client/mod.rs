//! One client: its links, and its operations in progress.
//!
//! `links` has the kinds of its links, and `parts` one file for each thing that a client keeps. A
//! method that needs only one part belongs to the part. A method that needs several is in
//! `handlers`, with a file for each subject. Nothing in `links` and `parts` knows [`Client`].

mod handlers;
mod links;
mod parts;
mod patience;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use kew_amqp::codec::Symbol;
use kew_amqp::error::{Error, condition};
use kew_amqp::{Config, Connection, Limits as WireLimits, Millis, Sasl};
use kew_broker::Broker;
use kew_listen::Place;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::links::Links;
use self::parts::credentials::Credentials;
use self::parts::done::Done;
use self::parts::load::Load;
use self::parts::orders::Orders;
use self::parts::peer::Peer;
use self::parts::stirred::Stirred;
use self::parts::transactions::Transactions;
use self::parts::turn::Turn;
use crate::ground::origin::Origin;
use crate::ground::refusal::{bus_condition, busy};
use crate::memory::account::Sum;
use crate::memory::holdings::{MODEST_SIZE_BYTES, Room, UNPROVEN_SIZE_BYTES};
use crate::metrics::{HELD, Held, Overdue};
use crate::shared::Shared;

pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) tasks: JoinSet<Done>,
    shared: Arc<Shared>,
    /// Its handle: the broker serves connections in turn.
    broker: Arc<Broker>,
    /// The identity of the client.
    peer: Peer,
    /// The rights of the client.
    pub(crate) credentials: Credentials,
    links: Links,
    /// Which links need attention.
    pub(crate) stirred: Stirred,
    /// How much it may do before others have their turn.
    turn: Turn,
    /// Its commands at the broker.
    pub(crate) orders: Orders,
    /// Its operations in progress, and the memory that they take.
    load: Load,
    transactions: Transactions,
}

/// About how many bytes are written at once before more messages are encoded: the client processes
/// the first ones meanwhile.
const OUTPUT_SIZE_BYTES_WANTED: usize = 32 * 1024;

/// When to look again at links that were held back because there was no room.
const STARVED_PAUSE_MS: u64 = 100;

impl Client {
    pub(crate) fn new(shared: Arc<Shared>, origin: Origin, place: Arc<Place>, now: Millis) -> Self {
        // In the service's order: some clients choose the first one that they know.
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
        let token_due = Millis(now.0.saturating_add(timeout));
        Self {
            connection: Connection::server(config, WireLimits::before_trust(), now),
            tasks: JoinSet::new(),
            peer: Peer::new(origin, place, token_due),
            credentials: Credentials::new(shared.authority.rules.watch()),
            links: Links::default(),
            stirred: Stirred::default(),
            turn: Turn::new(shared.limits.turn_steps_max),
            orders: Orders::default(),
            load: Load::new(Arc::clone(&shared.observer)),
            transactions: Transactions::default(),
            broker: Arc::new(shared.broker.for_source()),
            shared,
        }
    }

    /// Whether more may be received for the client.
    fn may_receive(&self) -> bool {
        self.has_room_beside_others() && self.load.may_receive(&self.shared.limits)
    }

    /// Whether other connections leave room for this client's messages.
    fn has_room_beside_others(&self) -> bool {
        self.load.room == Room::Much || self.held_size_bytes() < MODEST_SIZE_BYTES
    }

    /// Determines how much room other connections leave, and adjusts the client's limits to it.
    fn look_for_room(&mut self) {
        let is_proven = self.peer.is_proven();
        let room = self.shared.memory.room(is_proven);
        if room != self.load.room {
            self.load.room = room;
            self.set_wire_limits();
        }
        let modest = match (room, is_proven) {
            (Room::Much, _) | (Room::None, true) => return,
            (Room::None | Room::Gone, false) => UNPROVEN_SIZE_BYTES,
            (Room::Gone, true) => MODEST_SIZE_BYTES,
        };
        if self.connection.is_open() && self.held_size_bytes() > modest {
            self.connection.close(Some(busy()));
        }
    }

    /// Sets the limits of the protocol, by whether the client is authenticated and by the memory of
    /// all connections.
    fn set_wire_limits(&mut self) {
        let limits = &self.shared.limits;
        let mut wire = match self.peer.is_proven() {
            false => WireLimits::before_trust(),
            true => WireLimits {
                links_max: limits.links_max,
                unsettled_max: limits.unsettled_max,
                discarded_size_max: limits.discarded_size_bytes_max,
                output_size_max: OUTPUT_SIZE_BYTES_WANTED,
                ..WireLimits::default()
            },
        };
        if self.load.room != Room::Much {
            let begun = self.connection.reassembly_size();
            wire.reassembly_size_max = begun.max(MODEST_SIZE_BYTES as u64);
            wire.reassembly_condition = bus_condition::SERVER_BUSY;
        }
        self.connection.set_limits(wire);
    }

    fn held_size_bytes(&self) -> usize {
        self.connection.held_size() + self.links.size_bytes() + self.load.size_bytes()
    }

    /// Reports the memory of the connection, with the bytes that are being written.
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
            (Held::Credit, self.load.account.value(Sum::Credit) as u64),
            (Held::UnsettledIn, self.load.sends as u64),
            (
                Held::UnsettledOut,
                self.load.account.value(Sum::Deliveries) as u64,
            ),
            (Held::Commands, self.load.commands() as u64),
            (
                Held::Bytes,
                (self.held_size_bytes() + writing_size_bytes) as u64,
            ),
        ] {
            if let Some(place) = now.get_mut(held as usize) {
                *place = value;
            }
        }
        self.load.holdings.tell(now);
    }

    pub(crate) fn write_timeout(&self) -> Duration {
        self.shared.limits.write_timeout
    }

    pub(crate) fn note_overdue(&mut self, overdue: Overdue) {
        self.shared.observer.instruments.note_overdue(overdue);
    }

    /// The connection has ended, with an error of the socket or without.
    pub(crate) fn note_end(&self, lasted: Duration, broken: Option<io::Error>) {
        let why = match (&self.peer.ended, broken) {
            (_, Some(error)) => {
                self.shared.observer.instruments.broken.increment();
                error.to_string()
            }
            (Some(error), None) => error.to_string(),
            (None, None) => String::new(),
        };
        self.shared
            .observer
            .note_closed(&self.peer.origin, lasted, &why);
    }

    pub(crate) fn wants_input(&self) -> bool {
        self.load.has_room(&self.shared.limits) && self.connection.wants_input()
    }

    pub(crate) fn next_timeout(&self, now: Millis) -> Option<Millis> {
        let expiry = self.credentials.grants.next_expiry_s().map(|at_s| {
            let left_ms = at_s
                .saturating_sub(self.shared.clock.now_s())
                .saturating_mul(1000);
            Millis(now.0.saturating_add(left_ms.clamp(100, 3_600_000)))
        });
        let is_starved = !self.stirred.starved.is_empty() && self.load.room != Room::Much;
        let starved = is_starved.then_some(Millis(now.0.saturating_add(STARVED_PAUSE_MS)));
        let own = self.connection.next_timeout();
        let session_end = self.stirred.next_session_end(now, self.shared.clock);
        let transaction = self.transactions.next_due().map(|due| {
            let left = due.saturating_duration_since(Instant::now()).as_millis();
            // A part of a millisecond counts as a whole one.
            let left_ms = u64::try_from(left).unwrap_or(u64::MAX).saturating_add(1);
            Millis(now.0.saturating_add(left_ms))
        });
        let timeouts = [
            own,
            expiry,
            self.peer.token_due(),
            session_end,
            starved,
            transaction,
        ];
        timeouts.into_iter().flatten().min()
    }

    /// Tells the client to reconnect later.
    pub(crate) fn stop(&mut self) {
        let text = "The server is stopping. Please connect again.";
        self.connection
            .close(Some(Error::new(condition::CONNECTION_FORCED, text)));
    }

    /// Frees memory that only a busy connection needs.
    pub(crate) fn shrink(&mut self) {
        self.connection.shrink();
        self.orders.shrink();
        self.turn.backlog.shrink();
    }
}
