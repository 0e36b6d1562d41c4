//! The front end of Service Bus, through its door: bytes into a connection, and random clients.
//!
//! Two more harnesses are for other input: the configuration file with queues, and the front-end
//! data that the log stores with a queue.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Map, Symbol, Text, Uuid, Value, write_list, write_map};
use kew_amqp::message::{write_application_properties, write_data, write_value};
use kew_amqp::performative::{
    Attach, DeliveryState, Modified, Outcome, Rejected, Role, Source, Tag, Target,
};
use kew_amqp::{
    Config, Connection, DeliveryId, Event, Limits as WireLimits, LinkId, Millis, Outgoing, Sasl,
    SessionId,
};
use kew_broker::Broker;
use kew_bus_api::{
    BusApi, BusApiOptions, NAMESPACE, Origin, WELL_KNOWN_KEY, WELL_KNOWN_RULE, import, read_config,
};
use kew_engine::bus::{BusCommand, BusQueueOptions};
use kew_engine::{Command, EntityName, Service};
use kew_fuzz::gauge;
use kew_fuzz::mutate::{Input, changes};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::runtime::Runtime;

use crate::wire::{self, End, MEMORY_MAX_BYTES, Mix};
use crate::{INPUT_SIZE_MAX, INPUTS};

const CONFIG: &str = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
    {"Name": "Jobs", "Properties": {"LockDuration": "PT5S", "MaxDeliveryCount": 2,
        "DefaultMessageTimeToLive": "PT1H", "DeadLetteringOnMessageExpiration": true}},
    {"Name": "steps", "Properties": {"RequiresSession": true}},
    {"Name": "once", "Properties": {"RequiresDuplicateDetection": true,
        "DuplicateDetectionHistoryTimeWindow": "PT20S", "ForwardTo": "jobs"}}
]}], "Logging": {"Type": "File"}}}"#;

/// The beginnings of connections: of SASL, of AMQP, of HTTP and of TLS.
const PARTS: [&[u8]; 16] = [
    b"AMQP\x03\x01\0\0",
    b"AMQP\0\x01\0\0",
    b"AMQP\x02\x01\0\0",
    b"\0\0\0\x10\x02\0\0\0\0\x53\x10\xc0\x03\x01\xa1\0",
    b"\0\0\0\x08\x02\0\0\0",
    b"\0\0\0\x12\x02\0\0\0\0\x53\x11\xc0\x05\x04\x40\x43\x43\x43",
    b"\0\0\0\x21\x02\x01\0\0\0\x53\x41\xc0\x14\x02\xa3\x05PLAIN\xa0\x0b\0a\0bcdefgh",
    b"\0\0\0\x1c\x02\x01\0\0\0\x53\x41\xc0\x0f\x01\xa3\x0aANONYMOUS ",
    b"\xff\xff\xff\xff\x02\0\0\0",
    b"\0\x53\x12\xc0",
    b"\0\x53\x14\xd0\0\0\0\x10",
    b"GET /$namespaceinfo HTTP/1.1\r\nHost: localhost\r\n",
    b"PUT /jobs?api-version=2021-05 HTTP/1.1\r\nHost: localhost\r\n",
    b"Authorization: SharedAccessSignature sr=a&sig=b&se=1&skn=c\r\n",
    b"\r\n\r\n",
    b"\x16\x03\x01",
];

/// A front end with three queues, and the runtime that serves it on this thread.
struct Served {
    runtime: Runtime,
    broker: Broker,
    api: BusApi,
}

impl Served {
    fn new() -> Self {
        let runtime = wire::runtime();
        let broker = Broker::start_in_memory().expect("nothing to read");
        let api = runtime.block_on(async {
            let queues = read_config(CONFIG).expect("right");
            import(&broker, queues).await.expect("imported");
            let options = BusApiOptions::default();
            BusApi::open(broker.clone(), options).await.expect("opened")
        });
        Self {
            runtime,
            broker,
            api,
        }
    }

    /// Serves one connection while a client uses its other end, until it has ended.
    fn serve<T>(&self, client: impl AsyncFnOnce(DuplexStream) -> T) -> T {
        self.runtime.block_on(async {
            let (ours, theirs) = wire::connection();
            let origin = Origin {
                peer: wire::PEER,
                is_secure: false,
                public_key: Ok(()),
            };
            let permit = self.api.admit(origin.peer).expect("few are connected");
            let serve = self
                .api
                .serve(theirs, origin, permit, std::future::pending::<()>());
            let both = async { tokio::join!(client(ours), serve).0 };
            let ended = tokio::time::timeout(Duration::from_secs(30), both).await;
            ended.expect("a connection ends when its client has gone")
        })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.broker.stop();
    }
}

/// Up to 64 KiB of anything, from an unauthenticated client.
#[test]
fn unproven_bytes() {
    static ANSWERED: AtomicU64 = AtomicU64::new(0);
    let served = AssertUnwindSafe(Served::new());
    bolero::check!()
        .with_iterations(INPUTS / 20)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let mut input = Input::new(bytes);
            let mix = Mix {
                parts: &PARTS,
                often_from: 240,
                often_max: 500,
                is_changed: true,
            };
            let sent = mix.sent(&mut input);
            let answer = gauge::within(MEMORY_MAX_BYTES, || {
                served.serve(async |stream| {
                    wire::exchange(stream, sent.chunks(997), End::OfSending).await
                })
            });
            ANSWERED.fetch_add(u64::from(!answer.is_empty()), Relaxed);
        });
    assert!(ANSWERED.load(Relaxed) > 0);
}

const ADDRESSES: [&str; 14] = [
    "jobs",
    "JOBS/",
    "steps",
    "once",
    "jobs/$deadletterqueue",
    "jobs/$DeadLetterQueue/$management",
    "jobs/$transfer/$deadletterqueue",
    "jobs/$management",
    "steps/$management",
    "$cbs",
    "$management",
    "sb://h/jobs",
    "absent",
    "",
];

const OPERATIONS: [&str; 16] = [
    "com.microsoft:peek-message",
    "com.microsoft:renew-lock",
    "com.microsoft:schedule-message",
    "com.microsoft:cancel-scheduled-message",
    "com.microsoft:receive-by-sequence-number",
    "com.microsoft:update-disposition",
    "com.microsoft:get-session-state",
    "com.microsoft:set-session-state",
    "com.microsoft:renew-session-lock",
    "com.microsoft:get-message-sessions",
    "com.microsoft:batch-delete-messages",
    "put-token",
    "com.microsoft:add-rule",
    "READ",
    "com.microsoft:",
    "",
];

const FIELDS: [&str; 20] = [
    "operation",
    "from-sequence-number",
    "message-count",
    "session-id",
    "lock-tokens",
    "sequence-numbers",
    "receiver-settle-mode",
    "disposition-status",
    "deadletter-reason",
    "properties-to-modify",
    "session-state",
    "messages",
    "message",
    "skip",
    "top",
    "last-updated-time",
    "enqueued-time-utc",
    "omit-message-body",
    "type",
    "name",
];

const TEXTS: [&str; 10] = [
    "completed",
    "abandoned",
    "suspended",
    "s",
    "sb://localhost/jobs",
    "servicebus.windows.net:sastoken",
    "SharedAccessSignature sr=sb%3a%2f%2flocalhost%2fjobs&sig=AAAA&se=4000000000&skn=RootManageSharedAccessKey",
    "SharedAccessSignature sr=a&sr=b&sig=%ff&se=-1&skn=",
    "e30.e30.e30",
    "",
];

/// A client with the key, and what it remembers.
struct Caller {
    connection: Connection,
    session: Option<SessionId>,
    links: Vec<LinkId>,
    deliveries: Vec<DeliveryId>,
    tokens: Vec<[u8; 16]>,
    answers: u64,
    sent: u64,
}

impl Caller {
    fn new() -> Self {
        let response = format!("\0{WELL_KNOWN_RULE}\0{WELL_KNOWN_KEY}");
        let config = Config {
            sasl: Sasl::Client {
                mechanism: Symbol::from_static("PLAIN"),
                initial_response: Some(Bytes::from(response)),
            },
            ..Config::default()
        };
        Self {
            connection: Connection::client(config, WireLimits::default(), Millis(0)),
            session: None,
            links: Vec::new(),
            deliveries: Vec::new(),
            tokens: Vec::new(),
            answers: 0,
            sent: 0,
        }
    }

    /// Does one thing.
    fn act(&mut self, input: &mut Input<'_>) {
        let pick = usize::from(input.byte());
        let link = self.links.get(pick % self.links.len().max(1)).copied();
        let delivery = self
            .deliveries
            .get(pick % self.deliveries.len().max(1))
            .copied();
        match (input.byte() % 16, link, delivery) {
            (0..=2, ..) => self.attach(input),
            (3..=5, Some(link), _) => {
                let credit = u32::try_from(pick % 40).unwrap_or_default();
                self.connection.grant(link, credit);
            }
            (6..=9, Some(link), _) => self.send(link, input),
            (10 | 11, _, Some(delivery)) => {
                self.connection.update(delivery, outcome(input));
            }
            (12, _, Some(delivery)) => {
                self.connection.settle(delivery, Some(outcome(input)));
            }
            (13, Some(link), _) => drop(self.connection.drain(link)),
            (14, Some(link), _) if pick < 64 => {
                self.connection.detach(link, pick < 48, None);
            }
            (15, ..) if pick < 4 => {
                self.session = self.connection.begin().or(self.session);
            }
            _ => self.attach(input),
        }
    }

    fn attach(&mut self, input: &mut Input<'_>) {
        let Some(session) = self.session else { return };
        let kind = input.byte();
        let role = [Role::Sender, Role::Receiver][usize::from(kind % 2)];
        let address = ADDRESSES[usize::from(input.byte()) % ADDRESSES.len()];
        let mut attach = Attach::new(format!("{}", kind % 32).into(), role);
        let mut source = Source::new(
            if role == Role::Sender {
                "here"
            } else {
                address
            }
            .into(),
        );
        if role == Role::Receiver && kind.is_multiple_of(3) {
            source.filter = Some(Map::build(|map| {
                let filter = Symbol::from_static("com.microsoft:session-filter");
                map.entry(&filter, &value(input));
            }));
        }
        attach.source = (kind < 250).then_some(source);
        let target = if role == Role::Sender {
            address
        } else {
            "here"
        };
        attach.target = (kind < 250).then(|| Target::new(target.into()));
        if let Some(link) = self.connection.attach(session, attach) {
            self.links.push(link);
        }
    }

    /// Sends a message, a request or something like them.
    fn send(&mut self, link: LinkId, input: &mut Input<'_>) {
        let mut out = BytesMut::new();
        let kind = input.byte();
        if kind.is_multiple_of(4) {
            write_data(&mut out, input.piece());
        } else {
            let operation = OPERATIONS[usize::from(input.byte()) % OPERATIONS.len()];
            let extra = value(input);
            let properties = Map::build(|map| {
                map.entry("operation", operation);
                map.entry(FIELDS[usize::from(kind) % FIELDS.len()], &extra);
            });
            write_application_properties(&mut out, &properties);
            if kind % 4 == 1 {
                let text = TEXTS[usize::from(kind / 4) % TEXTS.len()];
                write_value(&mut out, &Text::from(text));
            } else {
                let body = self.body(input);
                write_value(&mut out, &body);
            }
        }
        let mut payload = out.to_vec();
        if kind % 8 == 7 {
            changes(&mut payload, input);
        }
        self.sent += 1;
        let outgoing = Outgoing {
            tag: Tag::from([kind; 16]),
            message_format: if kind % 32 == 9 { 0x8001_3700 } else { 0 },
            is_settled: kind < 32,
            state: None,
        };
        let parts = [Bytes::from(payload), Bytes::new()];
        // There may be no credit.
        let _ = self.connection.send(link, outgoing, parts);
    }

    /// A body whose fields have any type: often the right one.
    fn body(&mut self, input: &mut Input<'_>) -> Map {
        let token = self.tokens.last().copied().unwrap_or_default();
        Map::build(|map| {
            for _ in 0..input.byte() % 6 {
                let field = FIELDS[usize::from(input.byte()) % FIELDS.len()];
                match field {
                    "lock-tokens" => map.entry_with(field, |out| {
                        write_list(out, |list| list.field(&Uuid(token)));
                    }),
                    "messages" => map.entry_with(field, |out| {
                        write_list(out, |list| {
                            list.with(|out| {
                                write_map(out, |map| map.entry("message", &value(input)));
                            });
                        });
                    }),
                    "sequence-numbers" => map.entry_with(field, |out| {
                        let number = i64::from(input.byte() % 8);
                        write_list(out, |list| list.field(&number));
                    }),
                    _ => map.entry(field, &value(input)),
                }
            }
        })
    }

    fn poll(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            self.answers += 1;
            if let Event::Opened(_) = event {
                self.session = self.connection.begin();
            }
            if let Event::Delivery(delivery) = event {
                if let Ok(token) = <[u8; 16]>::try_from(delivery.tag.as_bytes()) {
                    self.tokens.push(token);
                }
                self.deliveries.push(delivery.delivery);
            }
        }
    }
}

fn outcome(input: &mut Input<'_>) -> DeliveryState {
    match input.byte() % 6 {
        0 | 1 => DeliveryState::ACCEPTED,
        2 => Outcome::Released.into(),
        3 => Outcome::Rejected(Rejected { error: None }).into(),
        _ => {
            let annotations = Map::build(|map| map.entry("k", &value(input)));
            Outcome::Modified(Modified {
                delivery_failed: Some(true),
                undeliverable_here: Some(input.byte() < 64),
                message_annotations: (input.byte() < 128).then_some(annotations),
            })
            .into()
        }
    }
}

fn value(input: &mut Input<'_>) -> Value {
    match input.byte() % 12 {
        0 => Value::Null,
        1 => Value::Boolean(true),
        2 | 3 => Value::Long(i64::from(input.byte()) - 3),
        4 => Value::Int(i32::from(input.byte())),
        5 => Value::Uint(u32::MAX),
        6 => Value::Ulong(input.number()),
        7 => Value::Binary(Bytes::copy_from_slice(input.piece())),
        8 => Value::Uuid(Uuid([input.byte(); 16])),
        9 => Value::Timestamp(kew_amqp::codec::Timestamp(i64::from(input.byte()))),
        10 => {
            let mut out = BytesMut::new();
            write_data(&mut out, input.piece());
            Value::Binary(out.freeze())
        }
        _ => Value::String(Text::from(TEXTS[usize::from(input.byte()) % TEXTS.len()])),
    }
}

/// A client with the key attaches, sends, requests, settles and detaches in any order. It waits at
/// most `patience` for the server's answers to its open, and then continues without them.
async fn operations(mut stream: DuplexStream, bytes: &[u8], patience: Duration) -> u64 {
    let mut input = Input::new(bytes);
    let mut caller = Caller::new();
    while !caller.connection.is_closed() {
        caller.poll();
        let output = caller.connection.take_output(Millis(0));
        if !output.is_empty() {
            if stream.write_all(&output).await.is_err() {
                break;
            }
            continue;
        }
        // Valid input gets its answer soon; for invalid input the client does not wait.
        let quiet = match caller.answers {
            0..3 => patience,
            _ => Duration::ZERO,
        };
        let read = stream.read_buf(caller.connection.input());
        match tokio::time::timeout(quiet, read).await {
            Ok(Ok(0) | Err(_)) => break,
            Ok(Ok(_)) => caller.connection.fed(Millis(0)),
            Err(_) if input.is_empty() => break,
            Err(_) => {
                for _ in 0..1 + input.byte() % 4 {
                    caller.act(&mut input);
                }
            }
        }
    }
    caller.answers
}

/// How long ordinary clients wait, of which there are many.
const BRIEF: Duration = Duration::from_millis(20);
/// How long a client waits that must succeed, also on a busy machine.
const LONG: Duration = Duration::from_secs(1);

#[test]
fn operations_of_clients() {
    static ANSWERS: AtomicU64 = AtomicU64::new(0);
    let served = AssertUnwindSafe(Served::new());
    bolero::check!()
        .with_iterations(INPUTS / 40)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes: &[u8]| {
            let answers = served.serve(async |stream| operations(stream, bytes, BRIEF).await);
            ANSWERS.fetch_add(answers, Relaxed);
        });
    assert!(ANSWERS.load(Relaxed) > 100, "no client was admitted");
    // The next client is served.
    let answers = served.serve(async |stream| operations(stream, &[0; 40], LONG).await);
    assert!(answers > 3, "{answers}");
}

/// The configuration file of the emulator.
#[test]
fn imported_file() {
    static READ: AtomicU64 = AtomicU64::new(0);
    bolero::check!()
        .with_iterations(INPUTS)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let mut input = Input::new(bytes);
            let mut text = CONFIG.as_bytes().to_vec();
            if input.byte().is_multiple_of(8) {
                text = input.rest().to_vec();
            } else {
                changes(&mut text, &mut input);
            }
            let text = String::from_utf8_lossy(&text);
            let read = gauge::within(256 << 10, || read_config(&text));
            READ.fetch_add(u64::from(read.is_ok()), Relaxed);
        });
    assert!(READ.load(Relaxed) > 0);
}

const DESCRIPTION: &str = r#"{"version": 1, "name": "Jobs", "user_metadata": "m", "forward_to": "X",
    "rules": [], "support_ordering": false, "duplicate_window_ms": 20000}"#;

/// The front-end data that the log stores with a queue, written by an attacker with access to the
/// disk.
#[test]
fn description() {
    let served = AssertUnwindSafe(Served::new());
    bolero::check!()
        .with_iterations(INPUTS / 20)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let mut input = Input::new(bytes);
            let mut description = DESCRIPTION.as_bytes().to_vec();
            changes(&mut description, &mut input);
            served.runtime.block_on(async {
                let queue = EntityName {
                    service: Service::ServiceBus,
                    account: NAMESPACE.into(),
                    name: "jobs".into(),
                };
                let options = BusQueueOptions {
                    description: description.into(),
                    ..BusQueueOptions::default()
                };
                let update = BusCommand::UpdateQueue { queue, options };
                let updated = served.broker.submit(Command::Bus(update));
                assert!(updated.await.is_ok());
                // It is read at the start: accepted, or refused with an error.
                let options = BusApiOptions::default();
                let _ = BusApi::open(served.broker.clone(), options).await;
            });
        });
}
