//! Clients with the most expensive known frames and requests, and honest ones beside them. The
//! steps of each turn are counted: nothing here looks at a clock.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Map, Text};
use kew_amqp::message::{write_application_properties, write_value};
use kew_amqp::performative::{
    Attach, Begin, Close, DeliveryState, Detach, Disposition, End, Flow, Modified, Outcome,
    Received, Role, SenderSettleMode, Source, Tag, Target,
};
use kew_amqp::{Event, Outgoing};
use kew_bus_api::{Limits, Right};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::{Client, Server, message, token_by};
use crate::hostile::{frame, work};
use crate::metrics::{Page, until};
use crate::rules::rule;

/// By how much a turn may exceed its budget: by the largest unit of work that cannot be split. Here
/// that is an answer with 256 messages.
const UNCUT_STEPS_MAX: u64 = 512;

/// Deliveries without an outcome from the attacker.
const DELIVERIES: usize = 2_000;

/// No turn was longer than the limit, and some reached it.
fn check_turns(server: &Server) {
    let page = Page::of(server);
    let budget = u64::from(Limits::default().turn_steps_max);
    let most = page.sum("kew_amqp_turn_steps_max", &[]);
    assert!(most <= budget + UNCUT_STEPS_MAX, "{most} steps in a turn");
    assert!(most >= budget, "{most} steps in a turn");
    assert!(page.sum("kew_amqp_turns_cut_total", &[]) > 0);
}

/// Sends this while an honest client works, then waits until the server has read all of it.
async fn attack(server: &Server, attacker: &mut Client, said: &[u8]) {
    let (mut reading, mut writing) = tokio::io::split(&mut attacker.stream);
    let saying = async {
        writing.write_all(said).await.unwrap();
        // A closed client gets an error; any other is silent at some time.
        writing.shutdown().await.unwrap();
    };
    let hearing = async {
        let mut heard = Vec::new();
        while reading
            .read_buf(&mut heard)
            .await
            .is_ok_and(|size| size > 0)
        {
            heard.clear();
        }
    };
    tokio::join!(saying, hearing, work(server));
    until(server, |page| page.sum("kew_connections_open", &[]) <= 1).await;
    work(server).await;
    check_turns(server);
}

/// The same frame so many times.
fn repeated(frame: &BytesMut, count: usize) -> Vec<u8> {
    frame.repeat(count)
}

/// A client with so many deliveries without an outcome.
async fn with_deliveries(server: &Server) -> Client {
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    let mut is_accepted = 0;
    for number in 0..DELIVERIES {
        while !client.connection.can_send(sender) {
            is_accepted += usize::from(is_verdict(&client.event().await));
        }
        let outgoing = outgoing(number);
        let parts = [message("x"), Bytes::new()];
        client.connection.send(sender, outgoing, parts).unwrap();
    }
    while is_accepted < DELIVERIES {
        is_accepted += usize::from(is_verdict(&client.event().await));
    }
    let receiver = client.receiver("jobs").await.unwrap();
    client.connection.grant(receiver, 60_000);
    for _ in 0..DELIVERIES {
        client.delivery().await;
    }
    client
}

fn is_verdict(event: &Event) -> bool {
    matches!(event, Event::Disposition { .. })
}

fn outgoing(number: usize) -> Outgoing {
    let mut tag = [0; 16];
    tag[..8].copy_from_slice(&(number as u64).to_be_bytes());
    Outgoing {
        tag: Tag::from(tag),
        message_format: 0,
        is_settled: false,
        state: None,
    }
}

fn disposition(settled: bool, state: Option<DeliveryState>) -> BytesMut {
    let disposition = Disposition {
        role: Role::Receiver,
        first: 0,
        last: Some(65_535),
        settled,
        state,
        batchable: false,
    };
    frame(0, &disposition)
}

#[tokio::test]
async fn dispositions_of_all_deliveries_delay_no_client() {
    let received = DeliveryState::Received(Received {
        section_number: 0,
        section_offset: 0,
    });
    for state in [None, Some(received), Some(DeliveryState::ACCEPTED)] {
        let server = Server::start().await;
        let mut attacker = with_deliveries(&server).await;
        // Half a mebibyte.
        let said = repeated(&disposition(false, state), 20_000);
        attack(&server, &mut attacker, &said).await;
    }
}

#[tokio::test]
async fn large_changes_to_all_deliveries_delay_no_client() {
    let server = Server::start().await;
    let mut attacker = with_deliveries(&server).await;
    let changes = Map::build(|map| {
        for number in 0..100 {
            map.entry(format!("n{number}").as_str(), &number);
        }
    });
    let state = DeliveryState::from(Outcome::Modified(Modified {
        delivery_failed: None,
        undeliverable_here: None,
        message_annotations: Some(changes),
    }));
    let said = disposition(true, Some(state));
    attack(&server, &mut attacker, &said).await;
}

fn begin() -> BytesMut {
    frame(
        1,
        &Begin {
            remote_channel: None,
            next_outgoing_id: 0,
            incoming_window: 1,
            outgoing_window: 1,
            handle_max: 10_000,
            offered_capabilities: Default::default(),
            desired_capabilities: Default::default(),
            properties: None,
        },
    )
}

fn attach(role: Role, address: &str, handle: u32) -> BytesMut {
    let mut attach = Attach::new(format!("{address} {handle}").into(), role);
    attach.handle = handle;
    attach.source = Some(Source::new(address.into()));
    attach.target = Some(Target::new(address.into()));
    attach.snd_settle_mode = SenderSettleMode::Unsettled;
    frame(1, &attach)
}

fn flow(handle: u32, credit: u32) -> BytesMut {
    frame(
        1,
        &Flow {
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
        },
    )
}

fn detach(handle: u32) -> BytesMut {
    let detach = Detach {
        handle,
        closed: true,
        error: None,
    };
    frame(1, &detach)
}

#[tokio::test]
async fn empty_frames_delay_no_client() {
    let server = Server::start().await;
    let mut attacker = server.trusted().await;
    // The smallest possible frames, and then the smallest sessions.
    let mut said = repeated(&BytesMut::from(&b"\0\0\0\x08\x02\0\0\0"[..]), 50_000);
    let session = [begin(), frame(1, &End { error: None })].concat();
    said.extend_from_slice(&session.repeat(5_000));
    attack(&server, &mut attacker, &said).await;
}

#[tokio::test]
async fn thousands_of_links_and_their_end_delay_no_client() {
    const LINKS: u32 = 3_000;
    let server = Server::start().await;
    let mut attacker = server.trusted().await;
    let mut said = Vec::from(&begin()[..]);
    for handle in 0..LINKS {
        said.extend_from_slice(&attach(Role::Receiver, "jobs", handle));
    }
    // Whether they were answered or not.
    for _ in 0..5 {
        for handle in 0..LINKS {
            said.extend_from_slice(&flow(handle, 10));
        }
    }
    for handle in 0..LINKS / 3 {
        said.extend_from_slice(&detach(handle));
    }
    said.extend_from_slice(&frame(1, &End { error: None }));
    // The rest of them go with the connection.
    said.extend_from_slice(&begin());
    for handle in 0..LINKS {
        said.extend_from_slice(&attach(Role::Sender, "jobs", handle));
    }
    said.extend_from_slice(&frame(0, &Close { error: None }));
    attack(&server, &mut attacker, &said).await;
    until(&server, |page| page.sum("kew_amqp_links", &[]) == 0).await;
}

/// A request to `$cbs` to put a token for an audience.
fn put(audience: &str, token: &str) -> Bytes {
    let mut payload = BytesMut::new();
    let properties = Map::build(|map| {
        map.entry("operation", "put-token");
        map.entry("type", "jwt");
        map.entry("name", audience);
    });
    write_application_properties(&mut payload, &properties);
    write_value(&mut payload, &Text::from(token));
    payload.freeze()
}

/// Attaches a number of receivers, and waits until they are attached.
async fn attach_many(client: &mut Client, count: usize) {
    for number in 0..count {
        let mut attach = Attach::new(format!("{number}").into(), Role::Receiver);
        attach.source = Some(Source::new("jobs".into()));
        attach.target = Some(Target::new("here".into()));
        let session = client.session.unwrap();
        client.connection.attach(session, attach).unwrap();
    }
    let mut left = count;
    while left > 0 {
        left -= usize::from(matches!(client.event().await, Event::Attached { .. }));
    }
}

#[tokio::test]
async fn checking_all_tokens_and_links_again_delays_no_client() {
    const TOKENS: usize = 1_000;
    const LINKS: usize = 1_000;
    let server = Server::start().await;
    let signing = rule("r", &[Right::Listen]);
    server.add_rule(None, signing.clone()).await.unwrap();
    let mut attacker = server.connect("ANONYMOUS", None);
    attacker.begun().await;
    let requests = attacker.sender("$cbs").await.unwrap();
    let replies = attacker.receiver("$cbs").await.unwrap();
    attacker.connection.grant(replies, 2_000);
    let good = token_by(
        "r",
        "sb://localhost/jobs",
        &signing.primary_key,
        4_000_000_000,
    );
    let mut answered = 0;
    for number in 0..TOKENS {
        while !attacker.connection.can_send(requests) {
            answered += usize::from(matches!(attacker.event().await, Event::Delivery(_)));
        }
        // These name no entity that would have to exist.
        let request = put(&format!("jobs/${number}"), &good);
        let parts = [request, Bytes::new()];
        let outgoing = outgoing(number);
        attacker.connection.send(requests, outgoing, parts).unwrap();
    }
    while answered < TOKENS {
        answered += usize::from(matches!(attacker.event().await, Event::Delivery(_)));
    }
    attach_many(&mut attacker, LINKS).await;
    // Every token is judged again, and every link checked.
    server.remove_rule(None, "r").await.unwrap();
    work(&server).await;
    let mut detached = 0;
    while detached < LINKS {
        detached += usize::from(matches!(attacker.event().await, Event::Detached { .. }));
    }
    check_turns(&server);
}

#[tokio::test]
async fn pipelined_requests_delay_no_client() {
    const REQUESTS: usize = 2_000;
    let server = Server::start().await;
    let mut stream = server.stream();
    let request = "GET /jobs HTTP/1.1\r\nHost: h\r\n\r\n";
    let last = "GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let said = request.repeat(REQUESTS) + last;
    let (mut reading, mut writing) = tokio::io::split(&mut stream);
    let saying = async { writing.write_all(said.as_bytes()).await.unwrap() };
    let hearing = async {
        let mut heard = String::new();
        reading.read_to_string(&mut heard).await.unwrap();
        heard.matches("HTTP/1.1 401 ").count()
    };
    let ((), refused, ()) = tokio::join!(saying, hearing, work(&server));
    assert_eq!(refused, REQUESTS);
    let page = Page::of(&server);
    let most = page.sum("kew_http_turn_requests_max", &[]);
    assert_eq!(most, u64::from(Limits::default().http_turn_requests_max));
    let cut = page.sum("kew_http_turns_cut_total", &[]);
    assert!(cut >= 100, "{cut}");
}
