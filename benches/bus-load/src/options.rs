//! The command line of the load generator.

use std::net::SocketAddr;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::attack::Attack;

/// Loads a message broker, checks every answer, and prints one line of JSON.
///
/// Only messages with the right settlement count; the first failure ends the run.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) mode: Mode,

    #[command(flatten)]
    pub(crate) target: Target,
}

/// The broker.
#[derive(Clone, Debug, Args)]
pub(crate) struct Target {
    /// Where it listens.
    #[arg(long, global = true, default_value = "127.0.0.1:5672")]
    pub(crate) address: SocketAddr,

    /// The protocol.
    #[arg(long, global = true, value_enum, default_value_t = Protocol::Amqp10)]
    pub(crate) protocol: Protocol,

    /// How to authenticate over AMQP 1.0.
    #[arg(long, global = true, value_enum, default_value_t = Auth::Cbs)]
    pub(crate) auth: Auth,

    /// The user, or the rule with the key for signing tokens.
    #[arg(long, global = true, default_value = "RootManageSharedAccessKey")]
    pub(crate) user: String,

    /// The password, or the key.
    #[arg(
        long,
        global = true,
        default_value = "SAS_KEY_VALUE",
        hide_default_value = true
    )]
    pub(crate) password: String,

    /// When a receiver over AMQP 1.0 settles.
    #[arg(long, global = true, value_enum, default_value_t = Settles::Second)]
    pub(crate) settles: Settles,

    /// Also report CPU time and memory of this server process.
    #[arg(long, global = true)]
    pub(crate) pid: Option<u32>,
}

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// AMQP 1.0.
    Amqp10,
    /// AMQP 0.9.1, with publisher confirms, persistent messages and acknowledgements.
    Amqp091,
    /// The frames of the null stream.
    Null,
}

/// How a client authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Auth {
    /// SASL ANONYMOUS, and a signed token for the whole namespace to `$cbs`.
    Cbs,
    /// SASL PLAIN.
    Plain,
}

/// When a receiver settles: its settlement mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Settles {
    /// Before the broker settles: it sends no confirmation.
    First,
    /// After the broker settles: by then the completion is durable.
    Second,
}

/// What to measure.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Mode {
    /// Sends with settlement, receives under a lock, completes: as fast as possible.
    Cycle(Cycle),
    /// Publishes to a topic with settlement, receives each copy under a lock, completes it: as fast as possible.
    FanOut(FanOut),
    /// Sends messages that stay in the queue, each with a number that rises by one.
    Fill(Fill),
    /// Sends, receives and completes behind the messages of `fill`, whose count stays the same.
    BacklogCycle(BacklogCycle),
    /// Receives the messages of `fill` in their order, and completes all, or all but some.
    Drain(Drain),
    /// The time from the sender's settlement to the arrival at a waiting receiver.
    Latency(Latency),
    /// Opens connections and holds them; reports the server's memory for each.
    IdleConnections(Idle),
    /// Sends a message to each of many queues; reports the server's memory.
    Entities(Entities),
    /// Fills many sessions, and drains them with a few receivers.
    Sessions(Sessions),
    /// Honest clients of each protocol, alone and beside attackers. Needs two queues of `config`.
    Bystander(Bystander),
    /// Declares a durable queue over AMQP 0.9.1, anew.
    Declare(Declare),
    /// Declares a durable exchange with durable queues over AMQP 0.9.1, anew: a topic for `fan-out`.
    DeclareExchange(DeclareExchange),
    /// Prints a configuration file with the queues that the other modes use, for `kew serve --import`.
    Config(Config),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Cycle {
    /// The queue.
    #[arg(long, default_value = "bench")]
    pub(crate) queue: String,

    #[command(flatten)]
    pub(crate) pace: Pace,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct FanOut {
    /// The topic, or the exchange.
    #[arg(long, default_value = "bench-topic")]
    pub(crate) topic: String,

    /// How many subscriptions get each message: the first ones.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    pub(crate) matching: u32,

    #[command(flatten)]
    pub(crate) pace: Pace,
}

/// How fast messages go, and for how long.
#[derive(Clone, Debug, Args)]
pub(crate) struct Pace {
    /// Sends that may wait for their settlement, and the credit of a receiver. Each queue or
    /// subscription holds at most ten times as many messages.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) in_flight: u32,

    /// Bytes of body.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(16..=65_536))]
    pub(crate) size: u32,

    /// Length of the measurement in seconds.
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub(crate) seconds: f64,

    /// Seconds to run before the measurement, which are not counted.
    #[arg(long, default_value_t = 0.5, value_parser = seconds)]
    pub(crate) warmup: f64,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Fill {
    /// The queue.
    #[arg(long, default_value = "bench")]
    pub(crate) queue: String,

    /// The number of the first message.
    #[arg(long, default_value_t = 0)]
    pub(crate) first: u64,

    /// How many messages; 0 for no limit.
    #[arg(long, default_value_t = 0)]
    pub(crate) count: u64,

    /// End after so many seconds; 0 for no limit.
    #[arg(long, default_value_t = 0.0, value_parser = seconds)]
    pub(crate) seconds: f64,

    /// Messages of a transfer.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4_000))]
    pub(crate) batch: u32,

    /// Transfers that may wait for their settlement.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) in_flight: u32,

    /// Bytes of body.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=65_536))]
    pub(crate) size: u32,

    /// Spread the messages over so many sessions, in turn.
    #[arg(long)]
    pub(crate) sessions: Option<u64>,

    /// Schedule the messages so many days ahead, a millisecond apart.
    #[arg(long)]
    pub(crate) days_ahead: Option<u64>,

    /// The server is killed meanwhile. That ends the run, and is no failure.
    #[arg(long)]
    pub(crate) until_lost: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct BacklogCycle {
    /// The queue.
    #[arg(long, default_value = "bench")]
    pub(crate) queue: String,

    /// The number of the next message to send.
    #[arg(long)]
    pub(crate) first: u64,

    /// The number of the oldest message in the queue, which arrives first.
    #[arg(long)]
    pub(crate) oldest: u64,

    /// Cycles in progress.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) in_flight: u32,

    /// Bytes of body.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=65_536))]
    pub(crate) size: u32,

    /// Length of the measurement in seconds.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    pub(crate) seconds: f64,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Drain {
    /// The queue.
    #[arg(long, default_value = "bench")]
    pub(crate) queue: String,

    /// The number of the oldest message in the queue, which arrives first.
    #[arg(long, default_value_t = 0)]
    pub(crate) oldest: u64,

    /// How many messages the queue has. More are a failure.
    #[arg(long)]
    pub(crate) count: u64,

    /// Defer each so many-th message instead of completing it; 0 for none.
    #[arg(long, default_value_t = 0)]
    pub(crate) keep_every: u64,

    /// Receive and delete, without locks and settlements.
    #[arg(long, conflicts_with = "keep_every")]
    pub(crate) delete: bool,

    /// Credit, and so the messages that may be locked at a time.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) credit: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Latency {
    /// The queue.
    #[arg(long, default_value = "bench")]
    pub(crate) queue: String,

    /// How many messages, one after another.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: u32,

    /// Bytes of body.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(16..=65_536))]
    pub(crate) size: u32,

    /// Pause between two messages, in milliseconds.
    #[arg(long, default_value_t = 2)]
    pub(crate) pause_ms: u64,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Idle {
    /// How many connections.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) count: u32,

    /// The kind of connections.
    #[arg(long, value_enum, default_value_t = Idling::Trusted)]
    pub(crate) state: Idling,

    /// The queue of receivers.
    #[arg(long, default_value = "bench")]
    pub(crate) queue: String,

    /// How long to hold them after all are open, in seconds.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    pub(crate) seconds: f64,
}

/// The state of an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Idling {
    /// Open, with a session, and authenticated.
    Trusted,
    /// And a receiver with credit, which waits.
    Receiving,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Entities {
    /// How many queues: `entity-00000` and so on.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: u32,

    /// Bytes of body.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(16..=65_536))]
    pub(crate) size: u32,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Sessions {
    /// The queue, which requires sessions.
    #[arg(long, default_value = "bench-sessions")]
    pub(crate) queue: String,

    /// How many sessions.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: u32,

    /// Messages of each.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) messages: u32,

    /// Receivers, each with a connection of its own.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) receivers: u32,

    /// Bytes of body.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(16..=65_536))]
    pub(crate) size: u32,

    /// A receiver that gets nothing for this long, in seconds, has stalled, and the run fails.
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub(crate) stall: f64,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Bystander {
    /// Where Queue Storage is: `http://HOST:PORT/ACCOUNT`.
    #[arg(long, default_value = "http://127.0.0.1:10001/devstoreaccount1")]
    pub(crate) queue: String,

    /// One attack, or several of these; all of them by default.
    #[arg(long, value_enum)]
    pub(crate) attack: Vec<Attack>,

    /// Attackers, each with a connection of its own.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) attackers: u32,

    /// Messages that each of them has received and not settled.
    #[arg(long, default_value_t = 60_000, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) deliveries: u32,

    /// Length of each measurement in seconds.
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub(crate) seconds: f64,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Declare {
    /// The queue.
    #[arg(long, default_value = "bench")]
    pub(crate) queue: String,

    /// How it is kept.
    #[arg(long, value_enum, default_value_t = QueueType::Classic)]
    pub(crate) queue_type: QueueType,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DeclareExchange {
    /// The exchange.
    #[arg(long, default_value = "bench-topic")]
    pub(crate) topic: String,

    /// How it chooses queues.
    #[arg(long, value_enum, default_value_t = ExchangeType::Topic)]
    pub(crate) exchange_type: ExchangeType,

    #[command(flatten)]
    pub(crate) subscriptions: Subscriptions,
}

/// How an exchange of RabbitMQ chooses queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExchangeType {
    /// By the routing key.
    Topic,
    /// By the header `color`.
    Headers,
}

/// The subscriptions of a topic.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Subscriptions {
    /// How many there are.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=2_000))]
    pub(crate) subscriptions: u32,

    /// How many of them get the messages of `fan-out`: the first ones. If not all do, each has a filter.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=2_000))]
    pub(crate) matching: u32,
}

/// How RabbitMQ keeps a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum QueueType {
    /// On one node.
    Classic,
    /// Replicated, here to no other node.
    Quorum,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Config {
    /// How many more queues, for `entities`.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub(crate) entities: u32,

    /// Of the topic `bench-topic`, which is there if there are any.
    #[command(flatten)]
    pub(crate) subscriptions: Subscriptions,
}

/// A duration. No mode runs so long that a peer would need heartbeats.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=100.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0 to 100".to_owned()),
    }
}
