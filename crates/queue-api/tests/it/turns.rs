//! Pipelined requests, and an honest client beside them. The requests of each turn are counted:
//! nothing here looks at a clock.

use kew_queue_api::Limits;

use crate::client::{Call, Door, call, put};
use crate::metrics::{scrape, sum};

const REQUESTS: usize = 1_000;

async fn check(attack: Call, status: u16) {
    let door = Door::open();
    door.send(call("PUT", "/orders")).await.check_status(201);
    let attacker = &mut door.connect();
    attacker.write(&attack.to_bytes().repeat(REQUESTS)).await;
    door.send(put("orders", "", "honest"))
        .await
        .check_status(201);
    for _ in 0..REQUESTS {
        attacker.answer(false).await.check_status(status);
    }
    let page = scrape(&door).await;
    let most = sum(&page, "kew_http_turn_requests_max", &[]);
    let budget = f64::from(Limits::default().turn_requests_max);
    assert!((most - budget).abs() < 0.5, "{most} requests in a turn");
    let cut = sum(&page, "kew_http_turns_cut_total", &[]);
    assert!(cut >= 100.0, "{cut} turns were cut");
}

#[tokio::test]
async fn refused_requests_delay_no_client() {
    let wrong = call("GET", "/orders/messages").authorization("SharedKey devstoreaccount1:AAAA");
    check(wrong, 403).await;
}

#[tokio::test]
async fn requests_without_credentials_delay_no_client() {
    let health = call("GET", "").target("/health/live").anonymous();
    check(health, 200).await;
}
