//! The memory of request heads, for all connections together.

use kew_queue_api::Limits;

use crate::client::{Door, Wire, call, put};

/// A head without its end, slightly larger than this size.
fn begun(size_bytes: usize) -> Vec<u8> {
    let text = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}", "x".repeat(size_bytes));
    text.into_bytes()
}

fn open() -> Door {
    Door::with_limits(Limits {
        in_flight_size_bytes_max: 100_000,
        unproven_heads_size_bytes_max: 100_000,
        ..Limits::default()
    })
}

/// Gives the server time to read the bytes.
async fn read_all() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

async fn check_turned_away(wire: &mut Wire) {
    let answer = wire.answer(false).await;
    answer.check_error(503, "ServerBusy");
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert!(wire.is_closed().await);
}

#[tokio::test]
async fn long_heads_of_unauthenticated_clients_take_no_room_from_the_others() {
    let door = open();
    // It is known from now on.
    let known = &mut door.connect();
    known.send(call("PUT", "/orders")).await.check_status(201);
    // One belongs to a request in progress: its body has not arrived.
    let slow = put("orders", "", "x").header("X-Long", &"x".repeat(40_000));
    let first = &mut door.connect();
    first.write(&slow.head()).await;
    let second = &mut door.connect();
    second.write(&begun(40_000)).await;
    read_all().await;
    for _ in 0..3 {
        let third = &mut door.connect();
        third.write(&begun(60_000)).await;
        check_turned_away(third).await;
    }
    // Short heads are not affected, nor are their requests.
    let wire = &mut door.connect();
    wire.send(put("orders", "", "x")).await.check_status(201);
    // Nor is an authentic client, with bodies and heads that take nearly all the room.
    known
        .send(put("orders", "", &"x".repeat(60_000)))
        .await
        .check_status(201);
    let long = put("orders", "", "x").header("X-Long", &"x".repeat(60_000));
    known.send(long).await.check_status(201);
    first.write(crate::client::message("x").as_bytes()).await;
    first.answer(false).await.check_status(201);
}

#[tokio::test]
async fn long_heads_of_the_known_share_the_budget_of_bodies() {
    let door = open();
    let mut wires = [door.connect(), door.connect()];
    for (wire, queue) in wires.iter_mut().zip(["/one", "/two"]) {
        wire.send(call("PUT", queue)).await.check_status(201);
    }
    let [first, second] = &mut wires;
    first.write(&begun(60_000)).await;
    read_all().await;
    second.write(&begun(60_000)).await;
    check_turned_away(second).await;
    // Unauthenticated clients have separate room.
    let stranger = &mut door.connect();
    let long = call("PUT", "/orders").header("X-Long", &"x".repeat(60_000));
    stranger.send(long).await.check_status(201);
}

#[tokio::test]
async fn the_memory_of_heads_is_freed() {
    let door = open();
    let wire = &mut door.connect();
    let long = call("DELETE", "/Orders").header("X-Long", &"x".repeat(60_000));
    for _ in 0..20 {
        // If it did not free its part, the second of these would find no room.
        wire.send(long.clone()).await.check_status(400);
        door.send(long.clone()).await.check_status(400);
    }
    let pipeline: Vec<u8> = (0..50)
        .flat_map(|_| call("DELETE", "/Orders").to_bytes())
        .collect();
    for _ in 0..20 {
        wire.write(&pipeline).await;
        for _ in 0..50 {
            wire.answer(false).await.check_status(400);
        }
    }
    wire.send(long.clone()).await.check_status(400);
    // A connection that breaks frees its part too.
    for _ in 0..20 {
        let other = &mut door.connect();
        other.write(&begun(60_000)).await;
        other.finish().await;
        assert!(other.is_closed().await);
    }
    wire.send(long).await.check_status(400);
}
