//! A client with any token cannot flood the audit log.

use std::time::Duration;

use kew_bus_api::{AuthorizationRule, Right, Rights};

use crate::audit::{listen, records_with};
use crate::client::{Server, token_by};
use crate::rest::{ask, ask_as};

const REFUSED: usize = 200;
const DONE: usize = 15;

fn count_of(record: &str) -> usize {
    let (_, rest) = record.split_once("count=").unwrap();
    rest.split(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn refusals_are_limited_and_done_acts_are_all_recorded() {
    listen();
    let server = Server::start().await;
    let rights: Rights = [Right::Send].into_iter().collect();
    let rule = AuthorizationRule::generate("sender", rights, 1).unwrap();
    server.add_rule(None, rule.clone()).await.unwrap();
    let token = token_by(
        "sender",
        "sb://localhost/",
        &rule.primary_key,
        u64::MAX >> 12,
    );
    let authorization = [("Authorization", token.as_str())];
    let long = format!("flood{}", "x".repeat(4_000));
    for _ in 0..REFUSED {
        let answer = ask_as(&server, "PUT", &long, &authorization, "").await;
        assert_eq!(answer.status, 401, "{answer:?}");
    }
    for number in 0..DONE {
        let path = format!("done-{number}");
        let created = r#"<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">
            <QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/>
            </content></entry>"#;
        let headers = [("Content-Type", "application/atom+xml")];
        let answer = ask(&server, "PUT", &path, &headers, created).await;
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    // The others are counted within a second.
    let all_told = async {
        loop {
            let told = records_with("entity=\"flood").len();
            let counted = records_with("refusals that have no line of their own");
            let counted: usize = counted.iter().map(|record| count_of(record)).sum();
            // Another test may have some counted, too.
            if told + counted >= REFUSED {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(60), all_told).await;
    let told = told.expect("every refusal is logged or counted");
    assert!(told < REFUSED, "{told} of {REFUSED}");
    for record in records_with("entity=\"flood") {
        assert!(record.len() < 2_000, "{} bytes", record.len());
    }
    assert_eq!(records_with("entity=\"done-").len(), DONE);
}
