//! The web service confirms what a worker books, and nothing else; and one id stands for one request.

use std::time::Duration;

use hyper::Method;
use kew_bank::client::Client;
use kew_bank::contract::{Answer, Status};
use kew_bank::worker::{ID_REUSED, Worker};
use kew_client::PutOptions;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::database::{Database, id};
use crate::kew::Kew;
use crate::service::{QUEUE, bus, post, queue, storage, web};

/// Calls that a worker could not book, with a part of the error.
fn unbookable() -> Vec<(Value, &'static str)> {
    let with = |name: &str, value: Value| {
        let mut call = json!({"userId": "ann", "accountId": "giro", "amount": "1.00",
            "queueAsXml": true});
        call[name] = value;
        call
    };
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    vec![
        (with("userId", json!("a|b")), "user id"),
        (with("accountId", json!("a\u{1}")), "account id"),
        (with("accountId", json!("x".repeat(65))), "account id"),
        (with("userId", json!("")), "user id"),
        (with("amount", json!("1.001")), "amount"),
        (with("amount", json!("0.00")), "amount"),
        (with("amount", json!("-1.00")), "amount"),
        (with("amount", json!("10000000000.01")), "amount"),
        (with("amount", json!("92233720368547758.07")), "amount"),
        (with("amount", json!("1e3")), "amount"),
        (with("amount", json!(1)), "string"),
        (with("a\u{0}b", json!(1)), "U+0000"),
        (with("a\u{ffff}", json!(1)), "U+FFFF"),
        (with("deep", deep), "nested deeper"),
        (with("queueAsXml", json!("yes")), "boolean"),
    ]
}

#[tokio::test]
async fn what_no_worker_can_book_is_refused_and_not_queued() {
    for service in [storage, bus] {
        let (kew, database) = (Kew::start().await, Database::sqlite().await);
        let queue = queue(&service(&kew));
        let web = web(&database.ledger, queue.clone()).await;
        queue.ensure().await.unwrap();
        let number = id(1).to_string();
        for (call, expected) in unbookable() {
            let insert = post(&web, "/transactions/insert", Some(&number), call.clone());
            let (status, answer) = insert.await;
            assert_eq!((status, answer.status), (400, Status::Failed), "{call}");
            assert!(answer.message.contains(expected), "{answer:?}");
            assert!(answer.message.contains(&number), "{answer:?}");
        }
        for xml in [true, false] {
            let large = json!({"userId": "ann", "accountId": "giro", "amount": "1.00",
                "queueAsXml": xml, "note": "x".repeat(8_200)});
            let (status, _) = post(&web, "/transactions/withdraw", Some(&number), large).await;
            assert_eq!(status, 413);
        }
        for minor in [1_000_000_000_001_i64, i64::MAX, 0, -1, i64::MIN] {
            let body = json!({"contract": "ann/giro", "side": "DR", "amount_minor": minor});
            let path = "/partner/movements";
            let reply = web.call(Method::POST, path, Some(&number), body.to_string());
            let reply = reply.await.unwrap();
            assert_eq!(reply.status, 400, "{minor}");
        }
        assert_eq!(queue.depth().await.unwrap(), Some(0));
        // Nothing of it has taken the id.
        let good = json!({"userId": "ann", "accountId": "giro", "amount": "10000000000",
            "queueAsXml": true, "status": "odd", "tab\tline\n": ["\u{fffe}\u{0}", 1e300]});
        let (status, answer) = post(&web, "/transactions/insert", Some(&number), good).await;
        assert_eq!(status, 202, "{answer:?}");
        let worker = Worker::start(&queue, database.ledger.clone());
        let details = completed(&web, &number).await.details.unwrap();
        assert_eq!(details.unknown.fields["tab\tline\n"][0], "\u{fffe}\u{0}");
        assert_eq!(details.unknown.fields["status"], "odd");
        assert_eq!(worker.state().buried, 0);
        worker.stop().await;
    }
}

async fn completed(web: &Client, id: &str) -> Answer {
    let done = async {
        loop {
            let path = "/transactions/ann/giro";
            let reply = web.call(Method::GET, path, Some(id), "").await.unwrap();
            let answer: Answer = serde_json::from_slice(&reply.body).unwrap();
            if answer.status == Status::Completed {
                return answer;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(60), done).await.unwrap()
}

#[tokio::test]
async fn an_id_that_is_used_again_is_an_error_that_names_the_difference() {
    for database in Database::each("ids that are used again").await {
        let kew = Kew::start().await;
        let queue = queue(&storage(&kew));
        let web = web(&database.ledger, queue.clone()).await;
        let number = id(1).to_string();
        let call = |user: &str, amount: &str| json!({"userId": user, "accountId": "giro", "amount": amount});
        let (insert, withdraw, card) = (
            "/transactions/insert",
            "/transactions/withdraw",
            "/cards/approve",
        );
        let (status, _) = post(&web, insert, Some(&number), call("ann", "5.00")).await;
        assert_eq!(status, 202);
        let others = [
            (
                insert,
                call("ann", "6.00"),
                "its amount is 5.00, and not 6.00",
            ),
            (
                withdraw,
                call("ann", "5.00"),
                "its kind is insert, and not withdrawal",
            ),
            (
                card,
                call("ann", "5.00"),
                "its kind is insert, and not card payment",
            ),
            (insert, call("bob", "5.00"), "its account is not this one"),
        ];
        // First while it is queued, and then when it is booked.
        let mut worker = None;
        for _ in 0..2 {
            for (path, body, expected) in &others {
                let (status, answer) = post(&web, path, Some(&number), body.clone()).await;
                assert_eq!((status, answer.status), (409, Status::Failed), "{answer:?}");
                assert!(answer.message.contains(expected), "{answer:?}");
            }
            let path = "/transactions/bob/giro";
            let reply = web
                .call(Method::GET, path, Some(&number), "")
                .await
                .unwrap();
            assert_eq!(reply.status, 409);
            if worker.is_none() {
                worker = Some(Worker::start(&queue, database.ledger.clone()));
                completed(&web, &number).await;
            }
        }
        let (status, _) = post(&web, insert, Some(&number), call("ann", "5.00")).await;
        assert_eq!(status, 200, "the same request again");
        worker.unwrap().stop().await;
        assert_eq!(database.booked().await, 1);
    }
}

#[tokio::test]
async fn a_worker_moves_a_second_request_with_the_same_id_aside() {
    let (kew, database) = (Kew::start().await, Database::sqlite().await);
    let (client, queue) = (kew.queue_client(), queue(&storage(&kew)));
    queue.ensure().await.unwrap();
    // From other programs, which do not ask the web service.
    for amount in ["5.00", "7.00", "5.00"] {
        let text = format!("ann|giro|{}|{amount}", id(1));
        let put = client.put(QUEUE, &text, PutOptions::default());
        put.await.unwrap();
    }
    let worker = Worker::start(&queue, database.ledger.clone());
    let settled = async {
        while worker.state().buried + worker.state().completed < 3 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(60), settled).await.unwrap();
    let buried = client.peek(&queue.poison(), 32).await.unwrap();
    assert!(!buried.is_empty());
    for message in &buried {
        assert!(message.text.contains(ID_REUSED), "{}", message.text);
        assert!(message.text.contains("its amount is"), "{}", message.text);
    }
    assert_eq!(database.booked().await, 1);
    worker.stop().await;
}
