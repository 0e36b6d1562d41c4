//! Queues: created, described, listed, deleted.

use kew_client::ErrorKind;

use crate::services::{Door, new_name};

pub(crate) fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

pub(crate) async fn create_and_delete(door: Door) {
    let (client, queue) = (door.client(), new_name());
    let metadata = pairs(&[("owner", "me"), ("a_b", "x = y")]);
    assert!(client.create_queue(&queue, &metadata).await.unwrap());
    assert!(!client.create_queue(&queue, &metadata).await.unwrap());
    let other = client.create_queue(&queue, &[]).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Refused);
    assert_eq!(other.code(), Some("QueueAlreadyExists"));
    assert_eq!(other.status(), Some(409));
    assert!(other.request_id().is_some());
    client.delete_queue(&queue).await.unwrap();
    let gone = client.delete_queue(&queue).await.unwrap_err();
    assert_eq!(
        (gone.status(), gone.code()),
        (Some(404), Some("QueueNotFound"))
    );
    let wrong = client.create_queue("no", &[]).await.unwrap_err();
    assert_eq!(
        (wrong.kind(), wrong.status()),
        (ErrorKind::Refused, Some(400))
    );
}

pub(crate) async fn metadata(door: Door) {
    let (client, queue) = door.fresh().await;
    let read = async || client.queue_properties(&queue).await.unwrap();
    assert_eq!(read().await.metadata, []);
    let several = pairs(&[("Zeta", "1"), ("alpha_1", "two words"), ("alpha10", "")]);
    client.set_metadata(&queue, &several[..2]).await.unwrap();
    assert_eq!(
        read().await.metadata,
        pairs(&[("alpha_1", "two words"), ("zeta", "1")])
    );
    client
        .set_metadata(&queue, &pairs(&[("a", "b")]))
        .await
        .unwrap();
    assert_eq!(read().await.metadata, pairs(&[("a", "b")]));
    client.set_metadata(&queue, &[]).await.unwrap();
    assert_eq!(read().await.metadata, []);
    assert_eq!(read().await.approximate_message_count, 0);
}

pub(crate) async fn lists_with_metadata(door: Door) {
    let (client, prefix) = (door.client(), new_name());
    for end in ["c", "a", "b"] {
        let metadata = pairs(&[("end", end)]);
        let name = format!("{prefix}-x-{end}");
        client.create_queue(&name, &metadata).await.unwrap();
    }
    let prefix = format!("{prefix}-x");
    let (queues, next) = client.list_queues(&prefix, true, None).await.unwrap();
    let names: Vec<_> = queues.iter().map(|it| it.name.clone()).collect();
    assert_eq!(names, ["a", "b", "c"].map(|end| format!("{prefix}-{end}")));
    assert_eq!(queues[1].metadata, pairs(&[("end", "b")]));
    assert_eq!(next, None);
    let (queues, _) = client.list_queues(&prefix, false, None).await.unwrap();
    assert!(queues.iter().all(|it| it.metadata.is_empty()));
    let none = client.list_queues("nothing-begins-so", false, None).await;
    assert_eq!(none.unwrap(), (Vec::new(), None));
}

/// One queue more than a page has.
pub(crate) async fn lists_in_pages(door: Door) {
    const QUEUES: usize = 1_001;
    let (client, prefix) = (door.client(), format!("{}-page", new_name()));
    let names: Vec<_> = (0..QUEUES).map(|it| format!("{prefix}-{it:04}")).collect();
    // One after the other, because Azurite lists queues by their age, and sorts each page.
    for name in &names {
        assert!(client.create_queue(name, &[]).await.unwrap());
    }
    let (first, marker) = client.list_queues(&prefix, false, None).await.unwrap();
    let marker = marker.expect("there is another page");
    let second = client.list_queues(&prefix, false, Some(&marker)).await;
    let (second, end) = second.unwrap();
    assert_eq!((first.len(), second.len(), end), (1_000, 1, None));
    let listed: Vec<_> = first.into_iter().chain(second).map(|it| it.name).collect();
    assert_eq!(listed, names);
    let deleted = names.iter().map(|name| client.delete_queue(name));
    let deleted = futures_util::future::join_all(deleted).await;
    assert!(deleted.iter().all(Result::is_ok));
}
