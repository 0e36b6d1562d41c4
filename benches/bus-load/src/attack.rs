//! The most expensive known frames and requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bus_load::Client;
use bytes::{Bytes, BytesMut};
use clap::ValueEnum;
use kew_amqp::codec::{Encode, Map, Text};
use kew_amqp::frame::{FrameType, write_frame};
use kew_amqp::message::{
    BATCH_FORMAT, write_application_properties, write_batch, write_data, write_value,
};
use kew_amqp::performative::{
    Attach, Begin, DeliveryState, Detach, Disposition, End, Flow, Received, Role, Source, Tag,
    Target as Terminus, Transfer,
};
use kew_amqp::{Event, Outgoing};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::amqp10::Sender;
use crate::client::{connect, receiver};
use crate::ends::Sending as _;
use crate::many::entity;
use crate::options::{Auth, Bystander, Target};
use crate::token::sign;

/// How much is written at once, about, in bytes.
const CHUNK_SIZE_BYTES: usize = 64 * 1024;
/// Messages of a batch.
const BATCH_COUNT: usize = 1_000;
/// The messages of a busy connection: how many are not settled, and their bytes.
const BUSY_COUNT: usize = 1_000;
const BUSY_SIZE_BYTES: usize = 64;
/// The topic that `bystander.py` gives the expensive rules.
const EXPENSIVE_TOPIC: &str = "bench-rules";
/// How long to wait before reconnecting after the server has ended a connection.
const PAUSE: Duration = Duration::from_millis(10);

/// A message with this body.
pub(crate) fn message(body: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    write_data(&mut out, body);
    out.freeze()
}

/// A kind of attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Attack {
    /// Dispositions of all deliveries without an outcome.
    Dispositions,
    /// Repeatedly the same outcome for all deliveries.
    Outcomes,
    /// Thousands of links that are attached and then ended with their session.
    Links,
    /// The same, and each asks for a message.
    Receivers,
    /// The smallest frames and sessions.
    Frames,
    /// Invalid tokens, pipelined.
    Tokens,
    /// HTTP requests with invalid tokens and long heads, pipelined.
    Requests,
    /// The same to Queue Storage.
    QueueRequests,
    /// No attack: one connection that sends as many messages as it may.
    Busy,
    /// Messages to a topic whose rules take long for each. It comes last: the topic has work for long after the end.
    Rules,
}

impl Attack {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dispositions => "dispositions",
            Self::Outcomes => "outcomes",
            Self::Links => "links",
            Self::Receivers => "receivers",
            Self::Frames => "frames",
            Self::Tokens => "tokens",
            Self::Requests => "requests",
            Self::QueueRequests => "queue-requests",
            Self::Busy => "busy",
            Self::Rules => "rules",
        }
    }

    /// The bytes to repeat.
    fn said(self, target: &Target) -> Result<Vec<u8>> {
        let once = match self {
            Self::Dispositions => [disposition(None), disposition(Some(received()))].concat(),
            Self::Outcomes => disposition(Some(DeliveryState::ACCEPTED)),
            Self::Links => links(0),
            Self::Receivers => links(1),
            Self::Frames => [&b"\0\0\0\x08\x02\0\0\0".repeat(8)[..], &begin(), &end()].concat(),
            Self::Tokens => token_request(),
            Self::Requests => request(&format!("/{}/messages/head", entity(0))),
            Self::QueueRequests => request("/devstoreaccount1/bystander/messages"),
            // It sends messages that are settled, instead of the same bytes.
            Self::Busy => return Ok(Vec::new()),
            Self::Rules => expensive_send(target)?,
        };
        Ok(once.repeat(CHUNK_SIZE_BYTES.div_ceil(once.len())))
    }
}

/// Attackers on a thread of their own, until they are stopped.
pub(crate) struct Attackers {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    sent_bytes: AtomicU64,
}

/// The target of the attack, and its size.
#[derive(Clone)]
struct Plan {
    attack: Attack,
    target: Target,
    queue_address: SocketAddr,
    deliveries: usize,
}

impl Attackers {
    /// Returns when all attackers are about to begin.
    pub(crate) fn start(
        attack: Attack,
        target: &Target,
        queue_address: SocketAddr,
        options: &Bystander,
    ) -> Result<Self> {
        let plan = Plan {
            attack,
            target: target.clone(),
            queue_address,
            deliveries: options.deliveries as usize,
        };
        let shared = Arc::<Shared>::default();
        let (own, count) = (Arc::clone(&shared), options.attackers);
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(attack_all(&plan, count, &own, &ready))
        });
        // An attacker that fails reports why when it is stopped.
        let _ = is_ready.recv();
        Ok(Self { shared, thread })
    }

    pub(crate) fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(self) -> Result<()> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let Ok(result) = self.thread.join() else {
            bail!("the attackers panicked");
        };
        result
    }
}

async fn attack_all(
    plan: &Plan,
    count: u32,
    shared: &Arc<Shared>,
    ready: &std::sync::mpsc::Sender<()>,
) -> Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    if plan.attack == Attack::Busy {
        let sender = Sender::connect(&plan.target, &entity(0)).await?;
        let shared = Arc::clone(shared);
        tasks.spawn(async move { send_on(sender, &shared).await });
    }
    let count = match plan.attack {
        Attack::Busy => 0,
        _ => count,
    };
    for _ in 0..count {
        let first = Attacker::connect(plan).await?;
        let (plan, shared) = (plan.clone(), Arc::clone(shared));
        tasks.spawn(async move { keep_on(&plan, first, &shared).await });
    }
    ready
        .send(())
        .context("no receiver waits for the attackers")?;
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// Attacks until the end. Reconnects when the server has ended a connection.
async fn keep_on(plan: &Plan, mut attacker: Attacker, shared: &Shared) -> Result<()> {
    let said = plan.attack.said(&plan.target)?;
    while !shared.is_over.load(Ordering::Relaxed) {
        match attacker.say(&said, shared).await {
            Ok(()) => {}
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                attacker = Attacker::connect(plan).await?;
            }
        }
    }
    Ok(())
}

/// Sends messages until the end, as many at once as the server takes.
async fn send_on(mut sender: Sender, shared: &Shared) -> Result<()> {
    let body = Bytes::from_static(&[b'x'; BUSY_SIZE_BYTES]);
    let mut in_flight = 0;
    while !shared.is_over.load(Ordering::Relaxed) || in_flight > 0 {
        while in_flight < BUSY_COUNT
            && !shared.is_over.load(Ordering::Relaxed)
            && sender.send(body.clone()).await?
        {
            in_flight += 1;
            shared
                .sent_bytes
                .fetch_add(BUSY_SIZE_BYTES as u64, Ordering::Relaxed);
        }
        in_flight -= sender.settled().await?;
    }
    Ok(())
}

/// A connection of an attacker.
enum Attacker {
    Amqp(Box<Client>),
    Http(TcpStream),
}

impl Attacker {
    async fn connect(plan: &Plan) -> Result<Self> {
        let client = match plan.attack {
            Attack::Dispositions | Attack::Outcomes => {
                let mut client = connect(&plan.target).await?;
                take_deliveries(&mut client, plan).await?;
                client
            }
            Attack::Links | Attack::Receivers | Attack::Frames | Attack::Busy => {
                connect(&plan.target).await?
            }
            Attack::Tokens => {
                // With PLAIN the client puts no token, so its first link is the one in the requests.
                let target = Target {
                    auth: Auth::Plain,
                    ..plan.target.clone()
                };
                let mut client = connect(&target).await?;
                client.sender("$cbs").await?;
                let answers = client.receiver("$cbs").await?;
                client.connection.grant(answers, 1_000_000_000);
                client
            }
            Attack::Requests | Attack::Rules => {
                return Ok(Self::Http(TcpStream::connect(plan.target.address).await?));
            }
            Attack::QueueRequests => {
                return Ok(Self::Http(TcpStream::connect(plan.queue_address).await?));
            }
        };
        Ok(Self::Amqp(Box::new(client)))
    }

    /// Sends the bytes once, and reads meanwhile. Gives up at the end: a server that stops reading
    /// delays an attacker, as it should.
    async fn say(&mut self, said: &[u8], shared: &Shared) -> Result<()> {
        let stream = match self {
            Self::Amqp(client) => client.socket().await?,
            Self::Http(stream) => stream,
        };
        let (mut reading, mut writing) = stream.split();
        let mut heard = vec![0; CHUNK_SIZE_BYTES];
        let mut left = said;
        while !left.is_empty() && !shared.is_over.load(Ordering::Relaxed) {
            tokio::select! {
                written = writing.write(left) => {
                    let written = written?;
                    shared.sent_bytes.fetch_add(written as u64, Ordering::Relaxed);
                    left = left.get(written..).unwrap_or_default();
                }
                read = reading.read(&mut heard) => {
                    if read? == 0 {
                        bail!("the server hung up");
                    }
                }
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
        Ok(())
    }
}

/// Receives messages without settling them.
async fn take_deliveries(client: &mut Client, plan: &Plan) -> Result<()> {
    let queue = entity(0);
    let sender = client.sender(&queue).await?;
    let one = message(b"x");
    for number in 0..plan.deliveries.div_ceil(BATCH_COUNT) {
        let count = BATCH_COUNT.min(plan.deliveries - number * BATCH_COUNT);
        let mut batch = BytesMut::new();
        write_batch(&mut batch, std::iter::repeat_n(&one, count));
        while !client.connection.can_send(sender) {
            client.event().await?;
        }
        let outgoing = Outgoing {
            tag: Tag::from([0; 16]),
            message_format: BATCH_FORMAT,
            is_settled: true,
            state: None,
        };
        let parts = [batch.freeze(), Bytes::new()];
        client.connection.send(sender, outgoing, parts)?;
    }
    let receiver = receiver(client, &queue, plan.target.settles).await?;
    let credit = u32::try_from(plan.deliveries)?;
    client.connection.grant(receiver, credit);
    let mut left = plan.deliveries;
    while left > 0 {
        if let Event::Delivery(_) = client.event().await? {
            left -= 1;
        }
    }
    Ok(())
}

fn frame(channel: u16, performative: &impl Encode) -> Vec<u8> {
    let mut out = BytesMut::new();
    write_frame(&mut out, FrameType::Amqp, channel, |out| {
        performative.encode(out);
    });
    out.to_vec()
}

fn disposition(state: Option<DeliveryState>) -> Vec<u8> {
    let disposition = Disposition {
        role: Role::Receiver,
        first: 0,
        last: Some(65_535),
        settled: false,
        state,
        batchable: false,
    };
    frame(0, &disposition)
}

fn received() -> DeliveryState {
    DeliveryState::Received(Received {
        section_number: 0,
        section_offset: 0,
    })
}

fn begin() -> Vec<u8> {
    let begin = Begin {
        remote_channel: None,
        next_outgoing_id: 0,
        incoming_window: 1_000,
        outgoing_window: 1_000,
        handle_max: 8_191,
        offered_capabilities: Default::default(),
        desired_capabilities: Default::default(),
        properties: None,
    };
    frame(1, &begin)
}

fn end() -> Vec<u8> {
    frame(1, &End { error: None })
}

/// A session with links that give this much credit each. Half of them are detached before it ends.
fn links(credit: u32) -> Vec<u8> {
    const LINKS: u32 = 4_000;
    let mut said = begin();
    for handle in 0..LINKS {
        let mut attach = Attach::new(format!("{handle}").into(), Role::Receiver);
        attach.handle = handle;
        attach.source = Some(Source::new(entity(0).into()));
        attach.target = Some(Terminus::new("here".into()));
        said.extend(frame(1, &attach));
    }
    for handle in 0..LINKS {
        let flow = Flow {
            next_incoming_id: Some(0),
            incoming_window: 1_000,
            next_outgoing_id: 0,
            outgoing_window: 1_000,
            handle: Some(handle),
            delivery_count: Some(0),
            link_credit: Some(credit),
            available: None,
            drain: false,
            echo: true,
            properties: None,
        };
        said.extend(frame(1, &flow));
    }
    for handle in 0..LINKS / 2 {
        let detach = Detach {
            handle,
            closed: true,
            error: None,
        };
        said.extend(frame(1, &detach));
    }
    said.extend(end());
    said
}

/// A request to put a token with an invalid signature. The link is the first one of its client.
fn token_request() -> Vec<u8> {
    let mut payload = BytesMut::new();
    let properties = Map::build(|map| {
        map.entry("operation", "put-token");
        map.entry("type", "servicebus.windows.net:sastoken");
        map.entry("name", "sb://localhost/bench");
    });
    write_application_properties(&mut payload, &properties);
    let token = "SharedAccessSignature sr=sb%3A%2F%2Flocalhost%2Fbench&sig=AAAA&se=4000000000&skn=\
                 RootManageSharedAccessKey";
    write_value(&mut payload, &Text::from(token));
    let transfer = Transfer {
        handle: 0,
        delivery_id: Some(0),
        delivery_tag: Some(Tag::from([0; 16])),
        message_format: Some(0),
        settled: Some(true),
        more: false,
        rcv_settle_mode: None,
        state: None,
        resume: false,
        aborted: false,
        batchable: false,
    };
    let mut out = BytesMut::new();
    write_frame(&mut out, FrameType::Amqp, 0, |out| {
        transfer.encode(out);
        out.extend_from_slice(&payload);
    });
    out.to_vec()
}

/// An HTTP request that is refused for its credential, with a head that hardly any limit counts.
fn request(path: &str) -> Vec<u8> {
    let mut request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n");
    for number in 0..60 {
        request += &format!("x-ms-meta-{number}: {}\r\n", "x".repeat(80));
    }
    request += "Authorization: SharedKey devstoreaccount1:AAAA\r\n\r\n";
    request.into_bytes()
}

/// A message with a property that is long enough for the rules of the topic `bench-rules`.
fn expensive_send(target: &Target) -> Result<Vec<u8>> {
    let audience = format!("http://{}/", target.address.ip());
    let token = sign(&audience, &target.user, &target.password)?;
    let property = "a".repeat(30_000);
    let request = format!(
        "POST /{EXPENSIVE_TOPIC}/messages HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n\
         p: \"{property}\"\r\nContent-Length: 1\r\n\r\nx"
    );
    Ok(request.into_bytes())
}
