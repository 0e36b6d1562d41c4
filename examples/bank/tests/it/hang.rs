//! A PostgreSQL that stands still delays each call by a stated time, and nothing for longer.

use std::time::Duration;

use hyper::Method;
use kew_bank::client::Client;
use kew_bank::contract::{Answer, Status};
use kew_bank::ledger::Ledger;
use kew_idempotency::tokio_postgres::config::Host;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::database::id;
use crate::kew::Kew;
use crate::server::Server;
use crate::service::{post, queue, storage, web};
use crate::skip::skip;
use crate::url::url;

/// What the README states for a call, and for the page.
const CALL_MAX: Duration = Duration::from_secs(15);
const PAGE_MAX: Duration = Duration::from_secs(5);

/// Sends a signal to all processes of a server. The one that starts others comes first.
fn signal_all(server: &Server, signal: Signal) -> Vec<Pid> {
    let config = server.config("postgres");
    let Host::Unix(folder) = &config.get_hosts()[0] else {
        panic!("the server has a socket in its folder");
    };
    let file = folder.join("data/postmaster.pid");
    let text = std::fs::read_to_string(file).unwrap();
    let first: i32 = text.lines().next().unwrap().parse().unwrap();
    let mut all = children_of(first);
    all.insert(0, Pid::from_raw(first).unwrap());
    for pid in &all {
        // A child may have ended by itself.
        let _ = kill_process(*pid, signal);
    }
    all
}

/// All processes of a server, stopped until this is dropped.
struct Frozen(Vec<Pid>);

impl Frozen {
    fn new(server: &Server) -> Self {
        // Again for those that were started in between.
        signal_all(server, Signal::STOP);
        Self(signal_all(server, Signal::STOP))
    }
}

fn children_of(parent: i32) -> Vec<Pid> {
    let mut all = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        // PID (NAME) STATE PARENT …
        let after = stat.rsplit_once(')').map_or("", |(_, it)| it);
        if after.split_whitespace().nth(1) == Some(&parent.to_string()) {
            all.extend(Pid::from_raw(pid));
        }
    }
    all
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = kill_process(*pid, Signal::CONT);
        }
    }
}

async fn insert(web: &Client, number: u8) -> (u16, Answer) {
    let call = json!({"userId": "ann", "accountId": "giro", "amount": "1.00"});
    let id = id(number).to_string();
    post(web, "/transactions/insert", Some(&id), call).await
}

/// Calls until it is confirmed.
async fn confirmed(web: &Client, number: u8) {
    let confirmed = async {
        while insert(web, number).await.1.status != Status::Succeeded {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(60), confirmed).await.unwrap();
}

#[tokio::test]
async fn a_server_that_stands_still_or_dies_does_not_stop_the_web_service() {
    let Some(mut server) = Server::start().await else {
        let test = "a PostgreSQL that stands still";
        return skip(test, "there is no PostgreSQL", "install postgresql");
    };
    let place = url(&server, "postgres");
    let ledger = Ledger::open(&place).await.unwrap();
    let kew = Kew::start().await;
    let web = web(&ledger, queue(&storage(&kew))).await;
    // So that there are connections, which stand still too.
    let mut calls = JoinSet::new();
    for number in 0..20 {
        let web = web.clone();
        calls.spawn(async move { confirmed(&web, number).await });
    }
    calls.join_all().await;

    let frozen = Frozen::new(&server);
    let begin = Instant::now();
    let mut calls = JoinSet::new();
    for number in 100..120 {
        let web = web.clone();
        calls.spawn(async move {
            let (status, answer) = insert(&web, number).await;
            assert_eq!((status, answer.status), (503, Status::Failed), "{answer:?}");
        });
    }
    let opening = tokio::spawn(async move { Ledger::open(&place).await });
    // The page waits for nobody, and its state not long.
    for path in ["/", "/state", "/state"] {
        let asked = Instant::now();
        let reply = web.call(Method::GET, path, None, "").await.unwrap();
        assert_eq!(reply.status, 200);
        assert!(asked.elapsed() < PAGE_MAX, "{path}: {:?}", asked.elapsed());
        if path == "/state" {
            let state: Value = serde_json::from_slice(&reply.body).unwrap();
            let trouble = state["trouble"][0].as_str().unwrap_or_default();
            assert!(trouble.starts_with("the store: "), "{state}");
            assert_eq!(state["depth"], 20, "what answers is shown");
        }
    }
    calls.join_all().await;
    assert!(begin.elapsed() < CALL_MAX, "{:?}", begin.elapsed());
    let opened = opening.await.unwrap();
    assert!(opened.is_err_and(|error| Ledger::can_open_later(&error)));

    drop(frozen);
    confirmed(&web, 100).await;
    signal_all(&server, Signal::KILL);
    server.crash();
    let (status, _) = insert(&web, 101).await;
    assert_eq!(status, 503);
    server.restart().await;
    confirmed(&web, 101).await;
}
