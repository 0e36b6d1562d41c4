//! The cost of many waiting receivers, in commands of the broker, and that none of them is
//! forgotten.

use kew_amqp::codec::{Map, Symbol, Value};
use kew_amqp::performative::{Attach, DeliveryState, Role, Source, Target};
use kew_amqp::{Event, LinkId};
use kew_bus_api::Limits;
use kew_engine::bus::{BusCommand, BusMessage};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::{Client, Server, message, queue_named};
use crate::rest::request;

/// The smallest possible room for answers, 16 MiB, and enough for links.
fn little_room() -> Limits {
    Limits {
        held_size_bytes_max: 8 << 20,
        ..Limits::default()
    }
}

/// How many commands the broker has decided when no client sends more. Fails if it is more than
/// `most`: then a client sends commands without end.
async fn decided_at_rest(server: &Server, most: u64) -> u64 {
    const PROBES: u64 = 20;
    let mut before = server.decided().await;
    let mut probes = 0;
    loop {
        for _ in 0..PROBES {
            server.view("spare").await;
        }
        probes += PROBES;
        let now = server.decided().await;
        assert!(
            now - probes <= most,
            "{} commands were decided",
            now - probes
        );
        if now - before == PROBES {
            return now;
        }
        before = now;
    }
}

fn receiver_named(name: String, queue: &str) -> Attach {
    let mut attach = Attach::new(name.into(), Role::Receiver);
    attach.source = Some(Source::new(queue.into()));
    attach.target = Some(Target::new("here".into()));
    attach
}

/// Attaches a link that waits for any session, without waiting for its answer.
fn wait_for_session(client: &mut Client, name: String) -> LinkId {
    let mut attach = receiver_named(name, "steps");
    if let Some(source) = &mut attach.source {
        source.filter = Some(Map::build(|map| {
            let filter = Symbol::from_static("com.microsoft:session-filter");
            map.entry(&filter, &Value::Null);
        }));
    }
    let session = client.session.unwrap();
    client.connection.attach(session, attach).unwrap()
}

fn text(body: String) -> BusMessage {
    let mut stored = bytes::BytesMut::new();
    kew_amqp::message::write_data(&mut stored, body.as_bytes());
    BusMessage {
        body: stored.freeze(),
        message_id: None,
        session: None,
        time_to_live_ms: None,
        scheduled_at: None,
    }
}

fn of(session: &str) -> BusMessage {
    BusMessage {
        session: Some(session.into()),
        ..text("x".into())
    }
}

fn send(queue: &str, messages: Vec<BusMessage>) -> BusCommand {
    BusCommand::Send {
        queue: queue_named(queue),
        messages,
    }
}

/// The next link that gets a session.
async fn attached(client: &mut Client) -> LinkId {
    let attached = |event: &Event| match event {
        Event::Attached { link, attach } if attach.source.is_some() => Some(*link),
        _ => None,
    };
    client.until(attached).await
}

#[tokio::test]
async fn idle_receivers_for_whose_first_looks_there_is_no_room_do_not_spin() {
    const RECEIVERS: usize = 300;
    let server = Server::start_with(little_room()).await;
    let mut client = server.trusted().await;
    let mut links = Vec::new();
    for index in 0..RECEIVERS {
        let attach = receiver_named(format!("r{index}"), "jobs");
        links.push(client.attach(attach).await.unwrap().0);
    }
    // All receivers try at once.
    for link in links {
        client.connection.grant(link, 100);
    }
    client.say().await;
    server.waiting(RECEIVERS).await;
    // For each: two reads of its entity, one check for messages, and one receive.
    let most = 4 * RECEIVERS as u64 + 100;
    decided_at_rest(&server, most).await;
    assert_eq!(server.woken(), 0);
    // They are still there.
    server.order(send("jobs", vec![text("hello".into())])).await;
    let delivery = client.delivery().await;
    assert!(delivery.payload.ends_with(b"hello"));
}

#[tokio::test]
async fn idle_receivers_over_http_do_not_spin() {
    const RECEIVERS: usize = 60;
    let server = Server::start_with(little_room()).await;
    let before = server.decided().await;
    let mut streams = Vec::new();
    for _ in 0..RECEIVERS {
        let mut stream = server.stream();
        let request = request("DELETE", "jobs/messages/head", &[], "");
        stream.write_all(request.as_bytes()).await.unwrap();
        streams.push(stream);
    }
    server.waiting(RECEIVERS).await;
    decided_at_rest(&server, before + 4 * RECEIVERS as u64).await;
    assert_eq!(server.woken(), 0);
    for _ in 0..RECEIVERS {
        server.order(send("jobs", vec![text("hello".into())])).await;
    }
    for stream in &mut streams {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

#[tokio::test]
async fn a_receiver_without_room_keeps_its_wake_up() {
    let server = Server::start_with(little_room()).await;
    let large = text("x".repeat((1 << 20) - 64));
    let mut readers = Vec::new();
    // They do not read their answers, which use up the room.
    for _ in 0..15 {
        server.order(send("jobs", vec![large.clone()])).await;
        let mut stream = server.stream();
        let request = request("DELETE", "jobs/messages/head", &[], "");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut first = [0; 1];
        stream.read_exact(&mut first).await.unwrap();
        readers.push(stream);
    }
    let mut client = server.trusted().await;
    let receiver = client.receiver("spare").await.unwrap();
    client.connection.grant(receiver, 10);
    client.say().await;
    server.waiting(1).await;
    let before = decided_at_rest(&server, 500).await;
    server
        .order(send("spare", vec![text("hello".into())]))
        .await;
    decided_at_rest(&server, before + 10).await;
    assert_eq!(server.woken(), 1);
    for reader in &mut readers {
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).await.unwrap();
    }
    assert!(client.delivery().await.payload.ends_with(b"hello"));
}

#[tokio::test]
async fn a_message_of_a_session_wakes_one_of_a_thousand_that_wait_for_any() {
    const LINKS: usize = 1000;
    let server = Server::start().await;
    let mut client = server.trusted().await;
    for index in 0..LINKS {
        wait_for_session(&mut client, format!("s{index}"));
    }
    client.say().await;
    server.waiting(LINKS).await;
    let before = decided_at_rest(&server, 3 * LINKS as u64).await;
    server.order(send("steps", vec![of("a")])).await;
    attached(&mut client).await;
    let after = decided_at_rest(&server, before + 100).await;
    assert_eq!(server.woken(), 1);
    // The messages sent, the probes, the woken receivers, and a read of the link's queue.
    assert!(after - before <= 20 + 10, "{} commands", after - before);
}

#[tokio::test]
async fn a_message_of_a_locked_session_wakes_only_its_holder() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    for id in ["a", "b"] {
        let link = client.session("steps", id).await;
        client.connection.grant(link, 10);
    }
    for index in 0..3 {
        wait_for_session(&mut client, format!("s{index}"));
    }
    client.say().await;
    server.waiting(5).await;
    decided_at_rest(&server, 500).await;
    server.order(send("steps", vec![of("b")])).await;
    client.delivery().await;
    assert_eq!(server.woken(), 1);
}

#[tokio::test]
async fn no_receiver_that_waits_for_a_session_is_forgotten() {
    let server = Server::start().await;
    let mut clients = Vec::new();
    for index in 0..3 {
        let mut client = server.trusted().await;
        wait_for_session(&mut client, format!("s{index}"));
        client.say().await;
        server.waiting(index + 1).await;
        clients.push(client);
    }
    decided_at_rest(&server, 500).await;
    // Two sessions in one command: two of the waiting links get one.
    server
        .order(send("steps", vec![of("a"), of("b"), of("a")]))
        .await;
    let first = attached(&mut clients[0]).await;
    attached(&mut clients[1]).await;
    // A released session with its messages is for the third.
    clients[0].connection.detach(first, true, None);
    clients[0].say().await;
    attached(&mut clients[2]).await;
}

#[tokio::test]
async fn a_waiter_that_goes_away_leaves_its_session_to_the_next() {
    let server = Server::start().await;
    let mut waiting = server.trusted().await;
    let mut gone = server.trusted().await;
    wait_for_session(&mut gone, "gone".into());
    gone.say().await;
    server.waiting(1).await;
    wait_for_session(&mut waiting, "waits".into());
    waiting.say().await;
    server.waiting(2).await;
    decided_at_rest(&server, 500).await;
    drop(gone);
    server.order(send("steps", vec![of("a")])).await;
    attached(&mut waiting).await;
}

#[tokio::test]
async fn messages_reach_receivers_with_credit_also_if_earlier_ones_leave() {
    let server = Server::start().await;
    let mut sending = server.trusted().await;
    let sender = sending.sender("jobs").await.unwrap();
    let mut staying = server.trusted().await;
    let link = staying.receiver("jobs").await.unwrap();
    staying.connection.grant(link, 100);
    staying.say().await;
    server.waiting(1).await;
    for round in 0..20 {
        // It is first in line, and detaches with the message or without.
        let mut leaving = server.trusted().await;
        let link = leaving.receiver("jobs").await.unwrap();
        leaving.connection.grant(link, 1);
        leaving.say().await;
        server.waiting(2).await;
        let body = format!("message {round}");
        let sent = sending.send(sender, 0, message(&body)).await;
        assert_eq!(sent, DeliveryState::ACCEPTED);
        drop(leaving);
        let delivery = staying.delivery().await;
        assert!(delivery.payload.ends_with(body.as_bytes()));
        staying
            .connection
            .settle(delivery.delivery, Some(DeliveryState::ACCEPTED));
        staying.say().await;
        server.waiting(1).await;
    }
}
