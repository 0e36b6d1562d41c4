//! Pages of queues, and the namespace.

use std::sync::Arc;

use kew_log::MemoryStorage;

use super::{ask, create};
use crate::client::Server;

/// A server with two queues.
async fn two_queues() -> Server {
    let server = Server::start_on(Arc::new(MemoryStorage::new())).await;
    for path in ["/Jobs", "/steps"] {
        create(&server, path, "").await.check(201);
    }
    server
}

/// The texts between two others.
pub(super) fn between<'a>(text: &'a str, begin: &str, end: &str) -> Vec<&'a str> {
    let parts = text.split(begin).skip(1);
    parts.map(|part| part.split_once(end).unwrap().0).collect()
}

#[tokio::test]
async fn pages_lead_to_each_other_until_all_were_shown() {
    let server = two_queues().await;
    for number in 0..250 {
        let path = format!("/Queue-{number:03}");
        create(&server, &path, "").await.check(201);
    }
    let mut found = Vec::new();
    let mut target = "/$Resources/queues?api-version=2021-05".to_owned();
    let mut pages = 0;
    loop {
        let page = ask("GET", &target).of(&server).await.check(200);
        let content_type = "content-type: application/atom+xml;type=feed;charset=utf-8";
        assert!(page.head.contains(content_type), "{}", page.head);
        pages += 1;
        let (head, _) = page.body.split_once("<entry>").unwrap();
        let entries = between(&page.body, "<entry>", "</entry>");
        for entry in entries {
            let name = between(entry, "<title type=\"text\">", "<")[0];
            let id = format!("<id>http://ns.example:5300/{name}?api-version=2021-05</id>");
            assert!(entry.contains(&id), "{entry}");
            assert!(entry.contains("<QueueDescription "));
            found.push(name.to_owned());
        }
        let links = between(head, "<link rel=\"", "\" />");
        assert!(links[0].starts_with("self\" href=\"http://ns.example:5300/$Resources/queues?"));
        let Some(next) = links.get(1) else { break };
        assert_eq!(links.len(), 2);
        let next = next
            .strip_prefix("next\" href=\"http://ns.example:5300")
            .unwrap();
        target = next.replace("&amp;", "&");
        let expected = format!(
            "/$Resources/queues?%24skip={}&%24top=100&api-version=2021-05",
            pages * 100
        );
        assert_eq!(target, expected);
    }
    assert_eq!((pages, found.len()), (3, 252));
    let mut expected: Vec<_> = (0..250)
        .map(|number| format!("Queue-{number:03}"))
        .collect();
    expected.insert(0, "Jobs".to_owned());
    expected.push("steps".to_owned());
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_page_has_the_requested_entries() {
    let server = two_queues().await;
    for (query, names, links) in [
        ("", vec!["Jobs", "steps"], 1),
        ("$skip=1", vec!["steps"], 1),
        ("%24skip=0&%24top=1", vec!["Jobs"], 2),
        ("$skip=2&$top=1", vec![], 1),
        ("$top=100000", vec!["Jobs", "steps"], 1),
    ] {
        let target = format!("/$resources/Queues?{query}");
        let page = ask("GET", &target).of(&server).await.check(200);
        let found = between(&page.body, "<title type=\"text\">", "<");
        assert_eq!(found[0], "Queues");
        assert_eq!(found[1..], names, "{query}");
        let (head, _) = page.body.split_once("<entry>").unwrap_or((&page.body, ""));
        assert_eq!(between(head, "<link", ">").len(), links, "{query}");
    }
    for query in ["$skip=-1", "$skip=x", "$top=0", "$top=4294967296"] {
        let target = format!("/$Resources/queues?{query}");
        let refused = ask("GET", &target).of(&server).await;
        let (name, _) = query.split_once('=').unwrap();
        refused.check_refused(400, 40_000, name);
    }
}

#[tokio::test]
async fn there_are_no_topics_at_first() {
    let server = Server::start().await;
    let page = ask("GET", "/$Resources/topics?$skip=0&$top=100")
        .of(&server)
        .await;
    let page = page.check(200);
    assert!(page.body.contains("<title type=\"text\">Topics</title>"));
    assert!(!page.body.contains("<entry"));
    for path in [
        "/t",
        "/t/Subscriptions",
        "/t/Subscriptions/s",
        "/t/subscriptions/s/rules/r",
    ] {
        let read = ask("GET", path).of(&server).await;
        read.check_refused(404, 40_400, "could not be found");
        let delete = ask("DELETE", path).of(&server).await;
        delete.check_refused(404, 40_400, "could not be found");
    }
    ask("GET", "/$Resources/relays")
        .of(&server)
        .await
        .check_refused(404, 40_400, "relays");
}

#[tokio::test]
async fn the_namespace_has_its_name_and_tier() {
    let server = Server::start().await;
    let read = ask("GET", "/$namespaceinfo?api-version=2021-05")
        .of(&server)
        .await;
    let read = read.check(200);
    assert_eq!(read.text("Name"), "sbemulatorns");
    assert_eq!(read.text("MessagingSKU"), "Premium");
    assert_eq!(read.text("MessagingUnits"), "1");
    assert_eq!(read.text("NamespaceType"), "Messaging");
    assert_eq!(read.text("CreatedTime"), read.text("ModifiedTime"));
    assert!(
        read.body
            .contains("<content type=\"application/xml\"><NamespaceInfo ")
    );
    let refused = ask("PUT", "/$namespaceinfo").of(&server).await.check(405);
    assert!(refused.head.contains("allow: GET"), "{}", refused.head);
}
