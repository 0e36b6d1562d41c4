//! All calls, through the web service, the queue and a worker, on both services.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use kew_bank::client::Client;
use kew_bank::contract::{Answer, Status};
use kew_bank::ledger::Ledger;
use kew_bank::partner::{Receipt, ReceiptState};
use kew_bank::queue::{Queue, Service};
use kew_bank::transaction::Decision;
use kew_bank::web::{Bank, Limits, router, serve};
use kew_bank::worker::Worker;
use kew_client::{BusAdmin, PutOptions, QueueAccount, QueueClient, QueueOptions, Retry};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use crate::database::{Database, id};
use crate::kew::Kew;

pub(crate) const QUEUE: &str = "bank-transactions";

/// As long as a lock of Service Bus must be.
const WORKER_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn storage(kew: &Arc<Kew>) -> Service {
    Service::Storage(kew.queue_client())
}

pub(crate) fn bus(kew: &Arc<Kew>) -> Service {
    Service::Bus {
        client: kew.bus_client(),
        admin: kew.admin(),
    }
}

pub(crate) fn queue(service: &Service) -> Queue {
    Queue::of(service.clone(), QUEUE, WORKER_TIMEOUT)
}

/// The web service on a port of its own.
pub(crate) async fn web(ledger: &Ledger, queue: Queue) -> Client {
    serving(Bank::new(ledger.clone(), queue)).await
}

async fn serving(bank: Bank) -> Client {
    serving_shared(Arc::new(bank)).await
}

pub(crate) async fn serving_shared(bank: Arc<Bank>) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(serve(listener, router(bank), Limits::default(), pending()));
    Client::new(&url).unwrap()
}

pub(crate) async fn post(web: &Client, path: &str, id: Option<&str>, body: Value) -> (u16, Answer) {
    let reply = web.call(Method::POST, path, id, body.to_string()).await;
    let reply = reply.unwrap();
    let body = String::from_utf8_lossy(&reply.body);
    let answer = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
    (reply.status, answer)
}

async fn look_up(web: &Client, id: &str) -> Answer {
    let path = "/transactions/ann/giro";
    let reply = web.call(Method::GET, path, Some(id), "").await.unwrap();
    serde_json::from_slice(&reply.body).unwrap()
}

/// Waits until the transaction is done.
async fn completed(web: &Client, id: &str) -> Answer {
    let done = async {
        loop {
            let answer = look_up(web, id).await;
            if answer.status != Status::Proceed {
                return answer;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    let answer = timeout(Duration::from_secs(60), done).await.unwrap();
    assert_eq!(answer.status, Status::Completed, "{answer:?}");
    answer
}

#[tokio::test]
async fn transactions_go_from_proceed_to_completed() {
    for database in Database::each("the calls").await {
        for service in [storage, bus] {
            let kew = Kew::start().await;
            let queue = queue(&service(&kew));
            transactions_are_booked(&database, queue, self::queue(&service(&kew))).await;
            database
                .run("DELETE FROM kew_outcomes; DELETE FROM transactions; DELETE FROM balances;")
                .await;
        }
    }
}

async fn transactions_are_booked(database: &Database, queue: Queue, for_web: Queue) {
    let web = web(&database.ledger, for_web).await;
    let [insert, withdrawal] = [id(1), id(2)].map(|it| it.to_string());
    assert_eq!(look_up(&web, &insert).await.status, Status::Proceed);

    // The queue does not exist yet. Nothing is booked before a worker runs.
    let body = json!({"userId": "ann", "accountId": "giro", "amount": "100.00", "note": [1]});
    let (status, answer) = post(&web, "/transactions/insert", Some(&insert), body.clone()).await;
    assert_eq!(
        (status, answer.status),
        (202, Status::Succeeded),
        "{answer:?}"
    );
    assert_eq!(answer.unknown["note"], json!([1]), "it comes back");
    assert_eq!(look_up(&web, &insert).await.status, Status::Proceed);
    // Repeated before it is booked: queued twice, booked once.
    let (_, answer) = post(&web, "/transactions/insert", Some(&insert), body.clone()).await;
    assert_eq!(answer.status, Status::Succeeded);
    let xml = json!({"userId": "ann", "accountId": "giro", "amount": "30.50",
        "queueAsXml": true, "note": {"a": "<&>"}});
    let (_, answer) = post(&web, "/transactions/withdraw", Some(&withdrawal), xml).await;
    assert_eq!(answer.status, Status::Succeeded);

    let worker = Worker::start(&queue, database.ledger.clone());
    let note = |answer: &Answer| answer.details.clone().unwrap().unknown.fields["note"].clone();
    assert_eq!(note(&completed(&web, &insert).await), json!([1]));
    assert_eq!(
        note(&completed(&web, &withdrawal).await),
        json!({"a": "<&>"})
    );
    let (status, answer) = post(&web, "/transactions/insert", Some(&insert), body).await;
    assert_eq!((status, answer.status), (200, Status::Completed));
    assert_eq!(answer.details.unwrap().amount.to_string(), "100.00");
    let report = worker.stop().await;
    assert_eq!(report.dropped_tasks, 0);
    let balance = database.balance("ann|giro").await;
    assert_eq!(balance.map(|it| it.to_string()).as_deref(), Some("69.50"));
    assert_eq!(database.booked().await, 2);
}

#[tokio::test]
async fn a_request_needs_a_message_id_and_a_body() {
    let (kew, database) = (Kew::start().await, Database::sqlite().await);
    let web = web(&database.ledger, queue(&storage(&kew))).await;
    let body = json!({"userId": "ann", "accountId": "giro", "amount": "1.00"});
    for bad in [
        None,
        Some(""),
        Some("7"),
        Some("6F9619FF8B86D011B42D00C04FC964FF"),
    ] {
        for path in [
            "/transactions/insert",
            "/transactions/withdraw",
            "/cards/approve",
        ] {
            let (status, answer) = post(&web, path, bad, body.clone()).await;
            assert_eq!((status, answer.status), (400, Status::Failed), "{bad:?}");
            assert_eq!(answer.message, "MessageId invalid");
        }
        let reply = web
            .call(Method::GET, "/transactions/ann/giro", bad, "")
            .await;
        assert_eq!(reply.unwrap().status, 400);
    }
    let id = id(1).to_string();
    let insert = async |body: Value| post(&web, "/transactions/insert", Some(&id), body).await;
    let (status, answer) =
        insert(json!({"userId": "a|b", "accountId": "giro", "amount": "1"})).await;
    assert_eq!(status, 400);
    for named in ["a|b", "giro", &id] {
        assert!(answer.message.contains(named), "{}", answer.message);
    }
    let (status, answer) = insert(json!({"userId": "ann"})).await;
    assert_eq!(status, 400);
    assert!(answer.message.contains("accountId"), "{}", answer.message);
    let large = json!({"userId": "ann", "accountId": "giro", "amount": "1", "queueAsXml": true,
        "note": "x".repeat(9_000)});
    let (status, answer) = insert(large.clone()).await;
    assert_eq!((status, answer.status), (413, Status::Failed));
    let larger = json!({"note": "x".repeat(17_000)});
    assert_eq!(insert(larger).await.0, 413);
    assert_eq!(look_up(&web, &id).await.status, Status::Proceed);
}

#[tokio::test]
async fn a_partner_uses_its_own_words() {
    let (kew, database) = (Kew::start().await, Database::sqlite().await);
    let queue = queue(&storage(&kew));
    let web = web(&database.ledger, self::queue(queue.service())).await;
    let id = id(1).to_string();
    let movement =
        json!({"contract": "ann/giro", "side": "CR", "amount_minor": 1230, "ref": {"x": 1}});
    let post = async |id: Option<&str>, body: &Value| -> Receipt {
        let reply = web.call(Method::POST, "/partner/movements", id, body.to_string());
        serde_json::from_slice(&reply.await.unwrap().body).unwrap()
    };
    let receipt = post(Some(&id), &movement).await;
    assert_eq!(receipt.state, ReceiptState::Accepted, "{receipt:?}");
    assert_eq!(receipt.unknown["ref"], json!({"x": 1}));
    let refused = post(None, &movement).await;
    assert_eq!(
        (refused.state, refused.text.as_str()),
        (ReceiptState::Error, "MessageId invalid")
    );
    let worker = Worker::start(&queue, database.ledger.clone());
    completed(&web, &id).await;
    let receipt = post(Some(&id), &movement).await;
    assert_eq!(receipt.state, ReceiptState::Done);
    assert_eq!(receipt.balance_minor, Some(1230));
    assert_eq!(receipt.unknown["ref"], json!({"x": 1}), "stored and back");
    worker.stop().await;
}

#[tokio::test]
async fn card_payments_do_not_wait_for_the_queue() {
    let database = Database::sqlite().await;
    // Nothing listens there any more.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = gone.local_addr().unwrap().port();
    drop(gone);
    let account = QueueAccount::parse(&format!(
        "DefaultEndpointsProtocol=http;AccountName=bank;AccountKey=AAAA;\
         QueueEndpoint=http://127.0.0.1:{port}/bank;"
    ));
    let options = QueueOptions {
        retry: Retry {
            retries: 0,
            ..Retry::default()
        },
        ..QueueOptions::default()
    };
    let client = QueueClient::new(account.unwrap(), options).unwrap();
    let web = web(&database.ledger, queue(&Service::Storage(client))).await;
    database
        .ledger
        .book(&crate::database::transaction(1, "50.00"))
        .await
        .unwrap();
    let [paid, unpaid, queued] = [id(2), id(3), id(4)].map(|it| it.to_string());
    let body = json!({"userId": "ann", "accountId": "giro", "amount": "40.00"});
    let (status, answer) = post(&web, "/transactions/insert", Some(&queued), body.clone()).await;
    assert_eq!((status, answer.status), (503, Status::Failed), "{answer:?}");
    for named in ["ann", "giro", &queued] {
        assert!(answer.message.contains(named), "{}", answer.message);
    }
    for (id, decision) in [(&paid, Decision::Booked), (&unpaid, Decision::Declined)] {
        let (status, answer) = post(&web, "/cards/approve", Some(id), body.clone()).await;
        assert_eq!((status, answer.status), (200, Status::Completed));
        assert_eq!(answer.details.unwrap().decision, decision);
    }
    // The page shows the trouble and the balance.
    let state = web.call(Method::GET, "/state", None, "").await.unwrap();
    let state: Value = serde_json::from_slice(&state.body).unwrap();
    assert_eq!(
        state["balances"],
        json!([{"account": "ann|giro", "balance": "10.00"}])
    );
    assert!(
        state["trouble"][0]
            .as_str()
            .unwrap()
            .starts_with("the queue: "),
        "{state}"
    );
}

#[tokio::test]
async fn a_message_that_is_not_a_transaction_moves_aside_with_the_reason() {
    let (kew, database) = (Kew::start().await, Database::sqlite().await);
    let (client, poison) = (kew.queue_client(), format!("{QUEUE}-poison"));
    let queue = queue(&storage(&kew));
    queue.ensure().await.unwrap();
    queue.ensure().await.unwrap();
    let good = format!("ann|giro|{}|5.00", id(1));
    for body in ["ann|giro|5.00", "<Order/>", "ann|giro|7|5.00|x", &good] {
        client
            .put(QUEUE, body, PutOptions::default())
            .await
            .unwrap();
    }
    let worker = Worker::start(&queue, database.ledger.clone());
    let all = async {
        while worker.state().buried < 3 || worker.state().completed < 1 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(60), all).await.unwrap();
    let buried = client.peek(&poison, 32).await.unwrap();
    let texts: Vec<&str> = buried.iter().map(|it| it.text.as_str()).collect();
    for expected in ["has 3 fields", "has 5 fields", "the root is Order"] {
        assert!(texts.iter().any(|it| it.contains(expected)), "{texts:?}");
    }
    assert!(texts.iter().all(|it| it.contains("MalformedPayload")));
    assert_eq!(database.booked().await, 1);
    let report = worker.report("w-1");
    assert_eq!((report.completed, report.buried), (1, 3));
    database.ledger.report(report.clone()).await.unwrap();
    assert_eq!(database.ledger.reports(60).await.unwrap(), [report]);
    worker.stop().await;
}

#[tokio::test]
async fn the_dead_letters_of_service_bus_have_the_reason() {
    let (kew, database) = (Kew::start().await, Database::sqlite().await);
    let queue = queue(&bus(&kew));
    queue.ensure().await.unwrap();
    queue.ensure().await.unwrap();
    let admin: BusAdmin = kew.admin();
    let settings = admin.queue(QUEUE).await.unwrap().settings;
    assert_eq!(settings.lock_duration, Some(WORKER_TIMEOUT));
    let sender = kew.bus_client().sender(QUEUE).await.unwrap();
    sender
        .send(&kew_client::Message::new("ann|giro|5.00".to_owned()))
        .await
        .unwrap();
    let worker = Worker::start(&queue, database.ledger.clone());
    let buried = async {
        while worker.state().buried < 1 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(60), buried).await.unwrap();
    let state = admin.queue(QUEUE).await.unwrap().state;
    assert_eq!(
        (state.dead_letter_count, state.active_count),
        (Some(1), Some(0))
    );
    assert_eq!(database.booked().await, 0);
    worker.stop().await;
}

#[tokio::test]
async fn a_bank_without_its_stores_shows_the_page_and_confirms_nothing() {
    let kew = Kew::start().await;
    let web = serving(Bank::without_stores(queue(&storage(&kew)))).await;
    let page = web.call(Method::GET, "/", None, "").await.unwrap();
    assert_eq!(page.status, 200);
    let state = web.call(Method::GET, "/state", None, "").await.unwrap();
    let state = String::from_utf8_lossy(&state.body).into_owned();
    assert!(state.contains("the store is not open yet"), "{state}");
    let body = json!({"userId": "ann", "accountId": "giro", "amount": "1.00"});
    let id = id(1).to_string();
    for path in ["/transactions/insert", "/cards/approve"] {
        let (status, answer) = post(&web, path, Some(&id), body.clone()).await;
        assert_eq!((status, answer.status), (503, Status::Failed));
        assert!(answer.message.contains("not open yet"), "{answer:?}");
    }
}
