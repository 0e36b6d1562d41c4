//! Hostile clients, and honest ones beside them, which must not notice.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode, Map, Symbol, Text, Value};
use kew_amqp::error::Error;
use kew_amqp::frame::{FrameType, write_frame};
use kew_amqp::message::{write_application_properties, write_value};
use kew_amqp::performative::{
    Attach, Begin, DeliveryState, Disposition, Modified, Open, Outcome, Role, Source, Tag, Target,
};
use kew_amqp::{Config, Event, LinkId, Outgoing};
use kew_bus_api::{Limits, WELL_KNOWN_KEY};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::client::{Client, Server, message, token};
use crate::metrics::{Page, until};

const BUSY: &str = "com.microsoft:server-busy";
const TOO_MUCH: &str = "amqp:resource-limit-exceeded";
/// More than the memory of a few links with short names.
const LINKS_BYTES: u64 = 4_000;

/// Sends, receives and completes. Fails if that takes more than some seconds.
pub(crate) async fn work(server: &Server) {
    let working = async {
        let mut client = server.trusted().await;
        let sender = client.sender("spare").await.unwrap();
        let receiver = client.receiver("spare").await.unwrap();
        for _ in 0..5 {
            let sent = client.send(sender, 0, message("honest")).await;
            assert_eq!(sent, DeliveryState::ACCEPTED);
            client.connection.grant(receiver, 1);
            let delivery = client.delivery().await;
            let told = client.tell(&delivery, DeliveryState::ACCEPTED).await;
            assert_eq!(told, DeliveryState::ACCEPTED);
        }
    };
    tokio::time::timeout(Duration::from_secs(20), working)
        .await
        .expect("honest clients continue");
}

pub(crate) fn frame(channel: u16, performative: &impl Encode) -> BytesMut {
    let mut out = BytesMut::new();
    write_frame(&mut out, FrameType::Amqp, channel, |out| {
        performative.encode(out);
    });
    out
}

/// A connection without SASL, up to its open.
pub(crate) async fn opened(server: &Server, open: &Open) -> DuplexStream {
    let mut stream = server.stream();
    let mut said = BytesMut::from(&b"AMQP\0\x01\0\0"[..]);
    said.extend_from_slice(&frame(0, open));
    stream.write_all(&said).await.unwrap();
    stream
}

pub(crate) fn open() -> Open {
    Open {
        container_id: "hostile".into(),
        hostname: None,
        max_frame_size: 65_536,
        channel_max: 65_535,
        idle_time_out: None,
        outgoing_locales: Default::default(),
        incoming_locales: Default::default(),
        offered_capabilities: Default::default(),
        desired_capabilities: Default::default(),
        properties: None,
    }
}

/// Everything that the server sends until it closes the connection.
async fn rest(mut stream: DuplexStream) -> String {
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    let read = tokio::time::timeout(Duration::from_secs(20), reading).await;
    read.expect("it hangs up").unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

async fn error_of(client: &mut Client) -> Error {
    client
        .until(|event| match event {
            Event::Closed { error, .. }
            | Event::Ended { error, .. }
            | Event::Detached { error, .. } => error.clone(),
            _ => None,
        })
        .await
}

fn sum(server: &Server, name: &str) -> u64 {
    Page::of(server).sum(name, &[])
}

#[tokio::test]
async fn thousands_of_half_sent_inputs_are_closed_in_time() {
    let server = Server::start_with(Limits {
        token_timeout: Duration::from_secs(2),
        ..Limits::default()
    })
    .await;
    let mut streams = Vec::new();
    // Half a header, only a header, half a frame of the largest size.
    let half_frame = [b"AMQP\0\x01\0\0".as_slice(), b"\0\0\x20\0\x02\0\0\0\0\0\0"].concat();
    for beginning in [b"AM".as_slice(), b"AMQP\x03\x01\0\0", &half_frame] {
        for _ in 0..700 {
            let mut stream = server.stream();
            stream.write_all(beginning).await.unwrap();
            streams.push(stream);
        }
    }
    work(&server).await;
    let open = |page: &Page| page.sum("kew_connections_open", &[]);
    assert!(open(&Page::of(&server)) >= 2_100);
    until(&server, |page| open(page) == 0).await;
    let page = Page::of(&server);
    let phase = |phase| page.sum("kew_connections_timed_out_total", &[("phase", phase)]);
    assert_eq!(phase("head") + phase("token"), 2_100);
    assert_eq!(page.sum("kew_amqp_held_bytes", &[]), 0);
    drop(streams);
}

#[tokio::test]
async fn frames_sent_byte_by_byte_delay_no_client() {
    let server = Server::start().await;
    let mut slow = server.stream();
    let mut said = BytesMut::from(&b"AMQP\0\x01\0\0"[..]);
    said.extend_from_slice(&frame(0, &open()));
    let (last, others) = said.split_last().unwrap();
    for byte in others {
        slow.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    work(&server).await;
    slow.write_all(&[*last]).await.unwrap();
    let mut answer = [0; 8];
    slow.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"AMQP\0\x01\0\0");
}

#[tokio::test]
async fn clients_without_a_token_get_few_sessions_and_no_links() {
    let server = Server::start().await;
    let mut stream = opened(&server, &open()).await;
    let begin = Begin {
        remote_channel: None,
        next_outgoing_id: 0,
        incoming_window: 1,
        outgoing_window: 1,
        handle_max: 10_000,
        offered_capabilities: Default::default(),
        desired_capabilities: Default::default(),
        properties: None,
    };
    for channel in 0..65 {
        stream.write_all(&frame(channel, &begin)).await.unwrap();
    }
    let answer = rest(stream).await;
    assert!(
        answer.contains(TOO_MUCH) && answer.contains("64 sessions"),
        "{answer}"
    );

    let mut stream = opened(&server, &open()).await;
    stream.write_all(&frame(0, &begin)).await.unwrap();
    // Each is refused, and the client does not read the refusal.
    for handle in 0..200 {
        let mut attach = Attach::new(format!("{handle}").into(), Role::Sender);
        attach.handle = handle;
        attach.source = Some(Source::new("here".into()));
        attach.target = Some(Target::new("jobs".into()));
        if stream.write_all(&frame(0, &attach)).await.is_err() {
            break;
        }
    }
    let answer = rest(stream).await;
    assert!(answer.contains("amqp:unauthorized-access"), "{answer}");
    assert!(answer.contains("faster than it reads refusals"), "{answer}");
    work(&server).await;
    until(&server, |page| page.sum("kew_amqp_sessions", &[]) == 0).await;
}

#[tokio::test]
async fn an_idle_time_out_of_a_millisecond_is_refused() {
    let server = Server::start().await;
    let stream = opened(
        &server,
        &Open {
            idle_time_out: Some(1),
            ..open()
        },
    )
    .await;
    let answer = rest(stream).await;
    assert!(answer.contains("amqp:not-allowed"), "{answer}");
}

#[tokio::test]
async fn credit_of_any_size_takes_no_memory() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    let idle = client.receiver("jobs").await.unwrap();
    client.connection.grant(idle, 0);
    for _ in 0..3 {
        client.send(sender, 0, message("x")).await;
    }
    assert_eq!(sum(&server, "kew_amqp_unsettled"), 0);
    let greedy = client.receiver("JOBS").await.unwrap();
    client.connection.grant(greedy, u32::MAX);
    for _ in 0..3 {
        assert_eq!(client.delivery().await.link, greedy);
    }
    until(&server, |page| {
        page.sum("kew_amqp_credit", &[]) == u64::from(u32::MAX >> 1) - 3
    })
    .await;
    work(&server).await;
}

/// Sends parts of a message, and never the last.
async fn send_part(client: &mut Client, sender: LinkId, size: usize) {
    client.can_send(sender).await;
    let mut transfer = kew_amqp::performative::Transfer {
        handle: 0,
        delivery_id: Some(0),
        delivery_tag: Some(Tag::from([1; 16])),
        message_format: Some(0),
        settled: Some(false),
        more: true,
        rcv_settle_mode: None,
        state: None,
        resume: false,
        aborted: false,
        batchable: false,
    };
    client.say().await;
    let mut left = size;
    while left > 0 {
        let part = left.min(60_000);
        let mut out = BytesMut::new();
        write_frame(&mut out, FrameType::Amqp, 0, |out| {
            transfer.encode(out);
            out.extend_from_slice(&vec![0; part]);
        });
        client.stream.write_all(&out).await.unwrap();
        transfer.delivery_id = None;
        transfer.delivery_tag = None;
        left -= part;
    }
}

#[tokio::test]
async fn a_message_that_never_ends_is_cut_off() {
    let server = Server::start_with(Limits {
        discarded_size_bytes_max: 4 << 20,
        ..Limits::default()
    })
    .await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    send_part(&mut client, sender, 5 << 20).await;
    let error = error_of(&mut client).await;
    assert_eq!(error.condition, "amqp:link:message-size-exceeded");
    // The link stays until its client has learned of that.
    until(&server, |page| {
        page.sum("kew_amqp_held_bytes", &[]) < LINKS_BYTES
    })
    .await;
    work(&server).await;
}

/// Attaches links for answers without putting a token. Returns why the server closed the
/// connection, if it did.
async fn stranger_with_links(
    server: &Server,
    count: usize,
    name_size: usize,
) -> (Client, Option<Error>) {
    let mut client = server.connect("ANONYMOUS", None);
    client.begun().await;
    let session = client.session.unwrap();
    for index in 0..count {
        let name = format!("{index:0name_size$}");
        let mut attach = Attach::new(name.as_str().into(), Role::Receiver);
        attach.source = Some(Source::new("$cbs".into()));
        attach.target = Some(Target::new(name.as_str().into()));
        client.connection.attach(session, attach).unwrap();
        let answer = client.until(|event| match event {
            Event::Attached { .. } => Some(None),
            Event::Closed { error, .. } => Some(error.clone()),
            _ => None,
        });
        if let Some(error) = answer.await {
            return (client, Some(error));
        }
    }
    (client, None)
}

#[tokio::test]
async fn links_and_their_names_are_counted_for_clients_without_a_token_too() {
    let server = Server::start_with(Limits {
        held_size_bytes_max: 2 << 20,
        ..Limits::default()
    })
    .await;
    let held = |page: &Page| page.sum("kew_amqp_held_bytes", &[]);
    let (mut modest, closed) = stranger_with_links(&server, 1, 10).await;
    assert!(closed.is_none(), "{closed:?}");
    // Clients without a token have a quarter of the limit: above it, each of them with more than 8
    // KiB is closed.
    let (greedy, closed) = stranger_with_links(&server, 64, 4_000).await;
    assert_eq!(closed.unwrap().condition, BUSY);
    drop(greedy);
    until(&server, |page| held(page) < LINKS_BYTES).await;
    // Links of an authenticated client count too.
    let token = token("sb://localhost/", WELL_KNOWN_KEY, 60);
    assert_eq!(modest.put_token("sb://localhost/", &token).await, 202);
    let before = held(&Page::of(&server));
    let session = modest.session.unwrap();
    let mut links = Vec::new();
    for role in [Role::Sender, Role::Receiver] {
        for index in 0..10 {
            let mut attach = Attach::new(format!("{index:04000}").into(), role);
            attach.source = Some(Source::new("jobs".into()));
            attach.target = Some(Target::new("jobs".into()));
            links.push(modest.connection.attach(session, attach).unwrap());
        }
    }
    modest.say().await;
    // The protocol stores each name once, and the receiving link once more.
    until(&server, |page| {
        held(page) >= before + 30 * 4_000 - LINKS_BYTES
    })
    .await;
    for link in links {
        modest.connection.detach(link, true, None);
    }
    modest.say().await;
    // The answers to these links are held until their client reads them.
    let reading = async {
        loop {
            modest.event().await;
        }
    };
    tokio::select! {
        _ = until(&server, |page| held(page) <= before) => {}
        () = reading => {}
    }
    drop(modest);
    until(&server, |page| held(page) == 0).await;
}

#[tokio::test]
async fn links_that_wait_for_sessions_are_counted() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let session = client.session.unwrap();
    let mut links = Vec::new();
    for name in ["one", "two"] {
        let mut attach = Attach::new(name.into(), Role::Receiver);
        let mut source = Source::new("steps".into());
        source.filter = Some(Map::build(|map| {
            let filter = Symbol::from_static("com.microsoft:session-filter");
            map.entry(&filter, &Value::Null);
        }));
        attach.source = Some(source);
        attach.target = Some(Target::new("here".into()));
        let long = "x".repeat(20_000);
        attach.properties = Some(Map::build(|map| {
            map.entry(&Symbol::from_static("x"), &Text::from(long))
        }));
        links.push(client.connection.attach(session, attach).unwrap());
    }
    client.say().await;
    let held = |page: &Page| page.sum("kew_amqp_held_bytes", &[]);
    until(&server, |page| {
        (40_000..40_000 + LINKS_BYTES).contains(&held(page))
    })
    .await;
    for link in links {
        client.connection.detach(link, true, None);
    }
    client.say().await;
    until(&server, |page| held(page) == 0).await;
    work(&server).await;
}

#[tokio::test]
async fn parts_of_messages_have_a_bound_over_all_connections() {
    let server = Server::start_with(Limits {
        held_size_bytes_max: 2 << 20,
        ..Limits::default()
    })
    .await;
    let mut clients = Vec::new();
    let mut refused = 0;
    for _ in 0..6 {
        let mut client = server.trusted().await;
        let sender = client.sender("jobs").await.unwrap();
        let before = sum(&server, "kew_amqp_held_bytes");
        send_part(&mut client, sender, 700_000).await;
        if before > 2 << 20 {
            let error = error_of(&mut client).await;
            assert_eq!(error.condition, BUSY);
            refused += 1;
        } else {
            until(&server, |page| {
                page.sum("kew_amqp_held_bytes", &[]) >= before + 600_000
            })
            .await;
        }
        clients.push(client);
    }
    assert_eq!(refused, 3);
    // Small requests still succeed, and closed connections free their memory.
    work(&server).await;
    drop(clients);
    until(&server, |page| page.sum("kew_amqp_held_bytes", &[]) == 0).await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_gets_few_messages() {
    const MESSAGES: usize = 400;
    let ready_size_bytes_max = 256 << 10;
    let server = Server::start_with(Limits {
        ready_size_bytes_max,
        ..Limits::default()
    })
    .await;
    let mut honest = server.trusted().await;
    let sender = honest.sender("jobs").await.unwrap();
    let body = "x".repeat(16 << 10);
    for _ in 0..MESSAGES {
        honest.send(sender, 0, message(&body)).await;
    }
    // It reads one frame of each session, and 40 links want a thousand messages each.
    let mut greedy = server
        .trusted_with(Config {
            incoming_window: 1,
            frame_size_max: 512,
            ..Config::default()
        })
        .await;
    for number in 0..40 {
        let session = greedy.connection.begin().unwrap();
        let mut attach = Attach::new(format!("{number}").into(), Role::Receiver);
        attach.source = Some(Source::new("jobs".into()));
        attach.target = Some(Target::new("here".into()));
        let link = greedy.connection.attach(session, attach).unwrap();
        greedy
            .until(|event| {
                matches!(event, Event::Attached { link: id, .. } if *id == link).then_some(())
            })
            .await;
        greedy.connection.grant(link, 1_000);
        greedy.say().await;
    }
    // Up to twice the limit and a batch of a mebibyte, and the messages that the sessions have
    // begun to send.
    let most = 2 * ready_size_bytes_max as u64 + (1 << 20) + 40 * (17 << 10);
    let held = "kew_amqp_held_bytes";
    until(&server, |page| page.sum(held, &[]) > 100 << 10).await;
    for _ in 0..20 {
        work(&server).await;
        assert!(sum(&server, held) < most, "{}", sum(&server, held));
    }
    let receiver = honest.receiver("jobs").await.unwrap();
    honest.connection.grant(receiver, 1_000);
    // The greedy client keeps its messages; the others arrive here.
    for _ in 0..MESSAGES / 2 {
        honest.delivery().await;
    }
    drop(greedy);
}

#[tokio::test]
async fn dispositions_of_unknown_deliveries_are_ignored() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let receiver = client.receiver("jobs").await.unwrap();
    client.connection.grant(receiver, 1);
    client.say().await;
    for round in 0..2_000_u32 {
        let disposition = Disposition {
            role: Role::Receiver,
            first: round.wrapping_mul(77_777),
            last: Some(round.wrapping_mul(77_777).wrapping_add(0x7fff_0000)),
            settled: round % 2 == 0,
            state: Some(DeliveryState::ACCEPTED),
            batchable: false,
        };
        let said = frame(0, &disposition);
        client.stream.write_all(&said).await.unwrap();
    }
    let sender = client.sender("jobs").await.unwrap();
    client.send(sender, 0, message("still there")).await;
    let delivery = client.delivery().await;
    assert_eq!(
        client.tell(&delivery, DeliveryState::ACCEPTED).await,
        DeliveryState::ACCEPTED
    );
    work(&server).await;
}

/// One disposition of many deliveries, with a large change to each: more than fits into a command.
#[tokio::test]
async fn large_changes_to_many_messages_are_made_in_parts() {
    const MESSAGES: usize = 400;
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    for _ in 0..MESSAGES {
        client.send(sender, 0, message("x")).await;
    }
    let receiver = client.receiver("jobs").await.unwrap();
    client.connection.grant(receiver, 1_000);
    for _ in 0..MESSAGES {
        client.delivery().await;
    }
    client.connection.grant(receiver, 0);
    client.say().await;
    let large = "y".repeat(30_000);
    let state = DeliveryState::from(Outcome::Modified(Modified {
        delivery_failed: Some(true),
        undeliverable_here: Some(false),
        message_annotations: Some(Map::build(|map| map.entry("why", large.as_str()))),
    }));
    let disposition = Disposition {
        role: Role::Receiver,
        first: 0,
        last: Some(u32::try_from(MESSAGES).unwrap() - 1),
        settled: true,
        state: Some(state),
        batchable: false,
    };
    let said = frame(0, &disposition);
    client.stream.write_all(&said).await.unwrap();
    let abandoned = [("outcome", "abandon"), ("code", "")];
    until(&server, |page| {
        page.sum("kew_bus_settlements_total", &abandoned) == MESSAGES as u64
    })
    .await;
    work(&server).await;
}

#[tokio::test]
async fn unread_answers_are_limited() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let node = "jobs/$management";
    let requests = client.sender(node).await.unwrap();
    // It never grants credit.
    let replies = client.receiver(node).await.unwrap();
    let mut payload = BytesMut::new();
    let properties = Map::build(|map| map.entry("operation", "com.microsoft:get-message-sessions"));
    write_application_properties(&mut payload, &properties);
    write_value(&mut payload, &Text::from("no map"));
    let payload = payload.freeze();
    let mut error = None;
    for number in 0..200_u8 {
        while error.is_none() && !client.connection.can_send(requests) {
            if let Event::Detached {
                link, error: why, ..
            } = client.event().await
            {
                assert_eq!(link, replies);
                error = why;
            }
        }
        if error.is_some() {
            break;
        }
        let outgoing = Outgoing {
            tag: Tag::from([number; 16]),
            message_format: 0,
            is_settled: true,
            state: None,
        };
        let parts = [payload.clone(), Bytes::new()];
        client.connection.send(requests, outgoing, parts).unwrap();
        client.say().await;
    }
    let error = match error {
        Some(error) => error,
        None => error_of(&mut client).await,
    };
    assert_eq!(error.condition, TOO_MUCH);
    until(&server, |page| {
        page.sum("kew_amqp_held_bytes", &[]) < LINKS_BYTES
    })
    .await;
    let refused = [("scope", "link"), ("code", TOO_MUCH)];
    assert_eq!(
        Page::of(&server).sum("kew_amqp_refusals_total", &refused),
        1
    );
    work(&server).await;
}

#[tokio::test]
async fn a_client_that_never_reads_is_closed() {
    let server = Server::start_with(Limits {
        write_timeout: Duration::from_millis(500),
        ..Limits::default()
    })
    .await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    let body = "x".repeat(60_000);
    for _ in 0..10 {
        client.send(sender, 0, message(&body)).await;
    }
    let receiver = client.receiver("jobs").await.unwrap();
    client.connection.grant(receiver, 1_000);
    client.say().await;
    work(&server).await;
    let answer = [("phase", "answer")];
    until(&server, |page| {
        page.sum("kew_connections_timed_out_total", &answer) == 1
            && page.sum("kew_connections_open", &[]) == 0
            && page.sum("kew_amqp_held_bytes", &[]) == 0
    })
    .await;
}

#[tokio::test]
async fn attached_and_detached_links_leave_nothing() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    for round in 0..100 {
        let mut links = Vec::new();
        for number in 0..10 {
            let name = format!("{round}-{number}");
            let mut attach = Attach::new(name.into(), Role::Receiver);
            attach.source = Some(Source::new("jobs".into()));
            attach.target = Some(Target::new("here".into()));
            let session = client.session.unwrap();
            links.push(client.connection.attach(session, attach).unwrap());
        }
        for link in &links {
            client.connection.detach(*link, true, None);
        }
        client.say().await;
    }
    // Its refusal comes behind all of them.
    client.receiver("absent").await.unwrap_err();
    work(&server).await;
    until(&server, |page| {
        page.sum("kew_amqp_links", &[]) == 0 && page.sum("kew_amqp_commands", &[]) == 0
    })
    .await;
}
