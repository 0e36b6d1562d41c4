//! Many links in one session, whose window takes few messages.

use std::collections::BTreeMap;

use std::time::Duration;

use kew_amqp::Config;
use kew_amqp::performative::{Attach, DeliveryState, Role, SenderSettleMode, Source, Target};
use kew_bus_api::Limits;

use crate::client::{Client, Server, message};

const LINKS: usize = 20;
const EACH: u32 = 5;

/// A link that receives and deletes.
async fn take(client: &mut Client, name: usize) -> kew_amqp::LinkId {
    let mut attach = Attach::new(format!("link {name}").into(), Role::Receiver);
    attach.source = Some(Source::new("jobs".into()));
    attach.target = Some(Target::new("here".into()));
    attach.snd_settle_mode = SenderSettleMode::Settled;
    client.attach(attach).await.unwrap().0
}

/// Each message arrives, and no link has its last one before all others have had one.
#[tokio::test]
async fn links_that_wait_for_room_in_their_session_take_turns() {
    let server = Server::start().await;
    let mut sending = server.trusted().await;
    let sender = sending.sender("jobs").await.unwrap();
    for _ in 0..LINKS * EACH as usize {
        sending.send(sender, 0, message("x")).await;
    }
    let narrow = Config {
        incoming_window: 1,
        ..Config::default()
    };
    let mut client = server.trusted_with(narrow).await;
    let mut links = Vec::new();
    for name in 0..LINKS {
        links.push(take(&mut client, name).await);
    }
    for link in links {
        assert!(client.connection.grant(link, EACH));
    }
    let mut received = BTreeMap::<_, u32>::new();
    for _ in 0..LINKS * EACH as usize {
        let link = client.delivery().await.link;
        let count = received.entry(link).or_default();
        *count += 1;
        assert!(*count < EACH || received.len() == LINKS, "{received:?}");
    }
    assert!(received.values().all(|count| *count == EACH));
}

/// A client tells its outcomes without settling, and gives no more credit. Only when the server settles is there room for
/// the next messages.
#[tokio::test]
async fn what_the_server_settles_makes_room_in_the_session() {
    let server = Server::start_with(Limits {
        unsettled_max: 3,
        ..Limits::default()
    })
    .await;
    let mut sending = server.trusted().await;
    let sender = sending.sender("jobs").await.unwrap();
    for _ in 0..9 {
        sending.send(sender, 0, message("x")).await;
    }
    let mut client = server.trusted().await;
    let receiver = client.receiver("jobs").await.unwrap();
    assert!(client.connection.grant(receiver, 9));
    for _ in 0..3 {
        let mut some = Vec::new();
        for _ in 0..3 {
            let next = tokio::time::timeout(Duration::from_secs(20), client.delivery()).await;
            some.push(next.expect("there is room").delivery);
        }
        for delivery in some {
            assert!(client.connection.update(delivery, DeliveryState::ACCEPTED));
        }
    }
}
