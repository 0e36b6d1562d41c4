//! Service Bus in the real binary: what operators can observe, and the limits for hostile clients.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use kew_amqp::codec::Symbol;
use kew_amqp::error::Error;
use kew_amqp::message::write_data;
use kew_amqp::performative::{Attach, DeliveryState, Role, Source, Tag, Target};
use kew_amqp::{Config, Connection, Event, Limits, LinkId, Millis, Outgoing, Sasl, SessionId};
use kew_bus_api::{WELL_KNOWN_KEY, WELL_KNOWN_RULE};
use kew_metrics::read;

use crate::server::{PATIENCE, Server, show};

const QUEUES: &str = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
    {"Name": "jobs"}]}]}}"#;

/// A server with the queue `jobs`, which logs everything.
fn start(place: &Path) -> Server {
    let import = place.join("Config.json");
    std::fs::write(&import, QUEUES).expect("written");
    Server::start_with(|command| {
        command
            .arg("serve")
            .arg("--data-dir")
            .arg(place.join("data"));
        command.args(["--queue-listen", "127.0.0.1:0"]);
        command.args(["--bus-listen", "127.0.0.1:0"]);
        command.args(["--metrics-listen", "127.0.0.1:0"]);
        command.arg("--import").arg(&import);
        command.args(["--log-format", "json"]);
        command.env("KEW_LOG", "info,kew::access=debug");
    })
}

fn address(server: &Server, fact: &str) -> SocketAddr {
    server.facts(fact)[0].parse().expect("an address")
}

/// The sum of the samples with this name that have these labels, perhaps among others.
pub(crate) fn metric(server: &Server, name: &str, labels: &[(&str, &str)]) -> f64 {
    let mut stream = TcpStream::connect(address(server, "KEW_METRICS_LISTEN")).expect("it listens");
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (_, page) = answer.split_once("\r\n\r\n").expect("a head");
    let families = read(page).expect("a page in order");
    let samples = families.values().flat_map(|family| &family.samples);
    let found = samples.filter(|(other, own, _)| {
        let mut labels = labels.iter();
        other == name && labels.all(|(name, value)| own.get(*name).is_some_and(|it| it == value))
    });
    found.fold(0.0, |sum, (_, _, value)| sum + value)
}

/// Waits until a metric has the right value: it is counted independently of the answers to clients.
pub(crate) fn metric_becomes(
    server: &Server,
    name: &str,
    labels: &[(&str, &str)],
    is_right: impl Fn(f64) -> bool,
) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let value = metric(server, name, labels);
        if is_right(value) {
            return;
        }
        assert!(Instant::now() < deadline, "{name} is {value}");
    }
}

/// A client with all rights, one step at a time.
struct Client {
    connection: Connection,
    stream: TcpStream,
    session: SessionId,
}

impl Client {
    fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(address(server, "KEW_BUS_LISTEN")).expect("it listens");
        let patience = Some(Duration::from_secs(30));
        stream.set_read_timeout(patience).expect("a time-out");
        stream.set_nodelay(true).expect("no delay");
        let password = format!("\0{WELL_KNOWN_RULE}\0{WELL_KNOWN_KEY}");
        let config = Config {
            container_id: "canary\ncontainer".into(),
            sasl: Sasl::Client {
                mechanism: Symbol::from_static("PLAIN"),
                initial_response: Some(password.into_bytes().into()),
            },
            ..Config::default()
        };
        let mut connection = Connection::client(config, Limits::default(), Millis(0));
        let mut stream = stream;
        until(&mut connection, &mut stream, |event| {
            matches!(event, Event::Opened(_)).then_some(())
        });
        let session = connection.begin().expect("it is open");
        Self {
            connection,
            stream,
            session,
        }
    }

    fn until<T>(&mut self, pick: impl FnMut(&Event) -> Option<T>) -> T {
        until(&mut self.connection, &mut self.stream, pick)
    }

    fn attach(&mut self, role: Role, queue: &str) -> Result<LinkId, Error> {
        let name = format!("{role:?} {queue}");
        let mut attach = Attach::new(name.into(), role);
        attach.source = Some(Source::new(queue.into()));
        attach.target = Some(Target::new(queue.into()));
        let link = self
            .connection
            .attach(self.session, attach)
            .expect("a link");
        self.until(|event| match event {
            Event::Attached { link: id, attach } if *id == link => {
                (attach.source.is_some() && attach.target.is_some()).then_some(Ok(link))
            }
            Event::Detached {
                link: id, error, ..
            } if *id == link => error.clone().map(Err),
            _ => None,
        })
    }

    fn send(&mut self, link: LinkId, body: &str) {
        while !self.connection.can_send(link) {
            self.until(|event| matches!(event, Event::Credit { .. }).then_some(()));
        }
        let mut payload = bytes::BytesMut::new();
        write_data(&mut payload, body.as_bytes());
        let outgoing = Outgoing {
            tag: Tag::from([7; 16]),
            message_format: 0,
            is_settled: false,
            state: None,
        };
        let parts = [payload.freeze(), bytes::Bytes::new()];
        let sent = self.connection.send(link, outgoing, parts).expect("room");
        let state = self.until(|event| match event {
            Event::Disposition {
                delivery, state, ..
            } if *delivery == sent => state.clone(),
            _ => None,
        });
        assert_eq!(state, DeliveryState::ACCEPTED);
    }
}

fn until<T>(
    connection: &mut Connection,
    stream: &mut TcpStream,
    mut pick: impl FnMut(&Event) -> Option<T>,
) -> T {
    let mut buffer = [0; 16 << 10];
    loop {
        while let Some(event) = connection.poll_event() {
            if let Some(found) = pick(&event) {
                return found;
            }
        }
        let output = connection.take_output(Millis(0));
        stream.write_all(&output).expect("it reads");
        let size = stream.read(&mut buffer).expect("an answer in time");
        assert!(size > 0, "the server hung up");
        connection.feed(&buffer[..size], Millis(0));
    }
}

#[test]
fn operators_see_connections_messages_and_refusals_and_no_secret() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(place.path());
    let mut client = Client::connect(&server);
    let sender = client.attach(Role::Sender, "jobs").expect("a queue");
    let refused = client
        .attach(Role::Receiver, "absent")
        .expect_err("no queue");
    assert_eq!(refused.condition, "amqp:not-found");
    for _ in 0..3 {
        client.send(sender, "canary-body");
    }
    let bus = [("protocol", "bus")];
    for (name, labels, expected) in [
        ("kew_connections_open", &bus[..], 1.0),
        ("kew_bus_queues", &[], 1.0),
        ("kew_bus_messages_sent_total", &[], 3.0),
        (
            "kew_bus_queue_messages",
            &[("queue", "jobs"), ("state", "active")],
            3.0,
        ),
        ("kew_amqp_links", &[("kind", "sender")], 1.0),
        (
            "kew_amqp_refusals_total",
            &[("scope", "attach"), ("code", "amqp:not-found")],
            1.0,
        ),
    ] {
        metric_becomes(&server, name, labels, |value| {
            (value - expected).abs() < 0.1
        });
    }
    drop(client);
    server.log_with(&["connection closed"]);
    let log = server.terminate();
    let events: Vec<serde_json::Value> = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|event: &serde_json::Value| event["target"] == "kew::access")
        .collect();
    let find = |message: &str| {
        let found = events.iter().find(|event| event["message"] == message);
        found.unwrap_or_else(|| panic!("no {message:?} in {log}"))
    };
    let opened = find("connection opened");
    assert_eq!(opened["container"], "canary\ncontainer");
    assert!(
        opened["peer"]
            .as_str()
            .is_some_and(|peer| peer.starts_with("127.0.0.1:"))
    );
    assert_eq!(find("refused")["code"], "amqp:not-found");
    for secret in [WELL_KNOWN_KEY, "canary-body"] {
        assert!(!log.contains(secret), "{log}");
    }
}

/// How many begin to send something and continue byte by byte.
const DRIBBLERS: usize = 1000;

/// The memory that they may use: 24 KiB each.
const MEMORY_MAX_KIB: u64 = 24 * DRIBBLERS as u64;

#[test]
fn dribblers_take_little_memory_and_honest_clients_are_served() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = start(place.path());
    let mut honest = Client::connect(&server);
    let sender = honest.attach(Role::Sender, "jobs").expect("a queue");
    let memory = server.peak_memory_kib();
    let bus = address(&server, "KEW_BUS_LISTEN");
    let mut dribblers = Vec::new();
    for _ in 0..DRIBBLERS {
        let mut stream = TcpStream::connect(bus).expect("it listens");
        // Half of an open of the largest size.
        stream
            .write_all(b"AMQP\0\x01\0\0\0\0\x20\0\x02\0\0\0")
            .expect("it reads");
        stream.write_all(&[0; 4_096]).expect("it reads");
        // A client that continues before it is served is delayed if too many wait for service.
        stream.read_exact(&mut [0; 8]).expect("the header");
        dribblers.push(stream);
    }
    let mut sent = 0;
    for round in 0..10 {
        for stream in &mut dribblers {
            // The server may have closed it meanwhile, as it should.
            let _ = stream.write_all(&[round]);
        }
        honest.send(sender, "honest");
        sent += 1;
    }
    let more_kib = server.peak_memory_kib() - memory;
    let open = metric(&server, "kew_connections_open", &[("protocol", "bus")]);
    let held = metric(&server, "kew_amqp_held_bytes", &[]);
    show(&format!(
        "dribblers={DRIBBLERS} sent={sent} connections_open={open} held_bytes={held} memory_kib={more_kib}"
    ));
    assert!(more_kib < MEMORY_MAX_KIB, "{more_kib} KiB");
    // Each is closed 20 s after it connected, whatever it sends.
    let deadline = Instant::now() + Duration::from_secs(60);
    while metric(&server, "kew_connections_open", &[("protocol", "bus")]) > 1.5 {
        assert!(Instant::now() < deadline, "connections stay open");
        honest.send(sender, "honest");
        std::thread::sleep(Duration::from_millis(100));
    }
    metric_becomes(
        &server,
        "kew_connections_timed_out_total",
        &[("phase", "head")],
        |timed_out| timed_out >= DRIBBLERS as f64,
    );
    drop(dribblers);
    server.terminate();
}
