//! More connections than the limit: those without an authentic request give way.

use std::net::SocketAddr;

use kew_queue_api::Limits;

use crate::client::{Door, Wire, call, message, put};

const CONNECTIONS_MAX: usize = 8;
/// More than the server keeps, but no more than may be closed at once.
const SILENT: usize = 50;

fn open() -> Door {
    Door::with_limits(Limits {
        connections_max: CONNECTIONS_MAX,
        ..Limits::default()
    })
}

fn peer(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

/// Connections that begin a head and stop.
async fn fall_silent(count: usize, connect: impl Fn() -> Wire) -> Vec<Wire> {
    let mut silent = Vec::new();
    for _ in 0..count {
        let mut wire = connect();
        wire.write(b"GET / HT").await;
        silent.push(wire);
        tokio::task::yield_now().await;
    }
    silent
}

#[tokio::test]
async fn silent_connections_lock_no_client_out() {
    let door = open();
    let known = &mut door.connect();
    known.send(call("PUT", "/orders")).await.check_status(201);
    // A request whose body has not arrived is authentic too.
    let slow = &mut door.connect();
    slow.write(&put("orders", "", "x").head()).await;
    let mut all = Vec::new();
    for _ in 0..3 {
        all.extend(fall_silent(SILENT, || door.connect()).await);
        for _ in 0..20 {
            let one = put("orders", "", "x");
            door.send(one).await.check_status(201);
        }
    }
    assert!(door.connection_count() <= CONNECTIONS_MAX);
    for wire in &mut all[..2 * SILENT] {
        assert!(wire.is_closed().await);
    }
    // An authentic client keeps its connection, idle or not.
    slow.write(message("x").as_bytes()).await;
    slow.answer(false).await.check_status(201);
    let get = call("GET", "/orders?comp=metadata");
    let answer = known.send(get).await;
    let count = answer.header("x-ms-approximate-messages-count");
    assert_eq!(count, Some("61"));
}

#[tokio::test]
async fn a_client_with_many_connections_gives_way_first() {
    let door = open();
    let few = &mut door.connect_from(peer("192.0.2.1:1"));
    few.write(b"GET / HT").await;
    let crowd = || door.connect_from(peer("192.0.2.2:1"));
    let mut crowd = fall_silent(SILENT, crowd).await;
    let more = &mut door.connect_from(peer("192.0.2.3:1"));
    more.write(b"GET / HT").await;
    assert!(crowd[0].is_closed().await);
    for wire in [few, more] {
        wire.write(b"TP/1.1\r\nHost: h\r\n\r\n").await;
        wire.answer(false).await.check_status(400);
    }
}

#[tokio::test]
async fn where_all_are_known_one_more_is_turned_away() {
    let door = open();
    door.send(call("PUT", "/orders")).await.check_status(201);
    let mut known = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        let mut wire = door.connect();
        wire.send(put("orders", "", "x")).await.check_status(201);
        known.push(wire);
    }
    let one = put("orders", "", "x");
    door.send(one.clone()).await.check_error(503, "ServerBusy");
    for wire in &mut known {
        wire.send(one.clone()).await.check_status(201);
    }
    known.pop();
    // Its end has to be noticed first.
    while door.connection_count() == CONNECTIONS_MAX {
        tokio::task::yield_now().await;
    }
    door.send(one).await.check_status(201);
}
