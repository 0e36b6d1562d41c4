//! Queues: create, delete, list, metadata, count.

use std::collections::HashMap;

use azure_storage_queue::QueueClient;
use azure_storage_queue::models::{
    ListQueuesIncludeType, QueueClientCreateOptions, QueueClientGetPropertiesResultHeaders,
    QueueServiceClientListQueuesOptions,
};
use futures::TryStreamExt;

use crate::kew::{Door, name_of, new_name, refused};

fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

async fn metadata_of(queue: &QueueClient) -> HashMap<String, String> {
    queue
        .get_properties(None)
        .await
        .unwrap()
        .metadata()
        .unwrap()
}

pub async fn count_of(queue: &QueueClient) -> i64 {
    let properties = queue.get_properties(None).await.unwrap();
    properties
        .approximate_messages_count()
        .unwrap()
        .expect("a count")
}

pub async fn create_and_delete(door: Door) {
    let queue = door.absent();
    assert_eq!(queue.create(None).await.unwrap().status(), 201);
    queue.delete(None).await.unwrap();
    refused(queue.get_properties(None).await, 404, "QueueNotFound");
    refused(queue.delete(None).await, 404, "QueueNotFound");
    queue.create(None).await.unwrap();
    assert_eq!(count_of(&queue).await, 0);
}

pub async fn create_again(door: Door) {
    let queue = door.absent();
    let with = |pairs: &[(&str, &str)]| {
        Some(QueueClientCreateOptions {
            metadata: Some(map(pairs)),
            ..Default::default()
        })
    };
    assert_eq!(
        queue
            .create(with(&[("colour", "green")]))
            .await
            .unwrap()
            .status(),
        201
    );
    assert_eq!(
        queue
            .create(with(&[("colour", "green")]))
            .await
            .unwrap()
            .status(),
        204
    );
    for other in [
        &[("colour", "blue")][..],
        &[],
        &[("colour", "green"), ("size", "1")],
    ] {
        refused(queue.create(with(other)).await, 409, "QueueAlreadyExists");
    }
    assert_eq!(metadata_of(&queue).await, map(&[("colour", "green")]));
}

pub async fn exists(door: Door) {
    let queue = door.absent();
    assert!(!queue.exists().await.unwrap());
    queue.create(None).await.unwrap();
    assert!(queue.exists().await.unwrap());
}

pub async fn names_that_are_not_allowed(door: Door) {
    let long = "a".repeat(64);
    for (names, code) in [
        (&["ab", &long][..], "OutOfRangeInput"),
        (
            &["Abc", "a--b", "-abc", "abc-", "a_b", "aüb"],
            "InvalidResourceName",
        ),
    ] {
        for name in names {
            let queue = door.service().queue_client(name).unwrap();
            refused(queue.create(None).await, 400, code);
        }
    }
}

pub async fn metadata(door: Door) {
    let queue = door.fresh().await;
    let given = map(&[("foobar", "a  b"), ("_x1", "y"), ("signs", "a=b;c,d/e")]);
    queue.set_metadata(&given, None).await.unwrap();
    assert_eq!(metadata_of(&queue).await, given);
    let options = QueueServiceClientListQueuesOptions {
        prefix: Some(name_of(&queue)),
        include: Some(vec![ListQueuesIncludeType::Metadata]),
        ..Default::default()
    };
    let listed: Vec<_> = door
        .service()
        .list_queues(Some(options))
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    assert_eq!(listed[0].metadata.as_ref(), Some(&given));
    queue.set_metadata(&HashMap::new(), None).await.unwrap();
    assert_eq!(metadata_of(&queue).await, HashMap::new());
    let full = map(&[("k", &"v".repeat(8191))]);
    queue.set_metadata(&full, None).await.unwrap();
    let over = map(&[("k", &"v".repeat(8192))]);
    refused(
        queue.set_metadata(&over, None).await,
        400,
        "MetadataTooLarge",
    );
    let bad = map(&[("1bad", "v")]);
    refused(queue.set_metadata(&bad, None).await, 400, "InvalidMetadata");
    assert_eq!(metadata_of(&queue).await, full);
}

pub async fn list_in_pages(door: Door) {
    let prefix = format!("{}-", new_name());
    for end in ["3", "1", "6", "5", "0", "4", "2"] {
        let queue = door
            .service()
            .queue_client(&format!("{prefix}{end}"))
            .unwrap();
        queue.create(None).await.unwrap();
    }
    let expected: Vec<_> = (0..7).map(|end| format!("{prefix}{end}")).collect();
    for size in [1, 2, 7, 5000] {
        let options = QueueServiceClientListQueuesOptions {
            prefix: Some(prefix.clone()),
            maxresults: Some(size),
            ..Default::default()
        };
        let listed: Vec<_> = door
            .service()
            .list_queues(Some(options))
            .unwrap()
            .try_collect()
            .await
            .unwrap();
        let names: Vec<_> = listed
            .into_iter()
            .map(|queue| queue.name.unwrap())
            .collect();
        assert_eq!(names, expected, "in pages of {size}");
    }
    for odd in ["a+b", "a b", "a%2Bb", "a/b", "ä", "a=b&c=d", "'"] {
        let options = QueueServiceClientListQueuesOptions {
            prefix: Some(odd.to_owned()),
            ..Default::default()
        };
        let listed: Vec<_> = door
            .service()
            .list_queues(Some(options))
            .unwrap()
            .try_collect()
            .await
            .unwrap();
        assert!(listed.is_empty(), "with {odd}");
    }
}
