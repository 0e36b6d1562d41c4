//! Messages: put, received, changed, deleted.

use std::time::{Duration, SystemTime};

use kew_client::{Error, ErrorKind, PutOptions, QueueClient, QueueMessage, QueueOptions};

use crate::services::{Door, new_name};

/// The largest text.
const TEXT_SIZE_MAX: usize = 64 << 10;

async fn put(client: &QueueClient, queue: &str, text: &str) {
    let put = client.put(queue, text, PutOptions::default()).await;
    put.expect("a message is put");
}

/// The one message of an answer.
fn only(messages: Result<Vec<QueueMessage>, Error>) -> QueueMessage {
    let mut messages = messages.unwrap();
    assert_eq!(messages.len(), 1);
    messages.remove(0)
}

fn receipt(message: &QueueMessage) -> &str {
    &message.receipt.as_ref().expect("it was received").value
}

pub(crate) async fn put_get_and_delete(door: Door) {
    let (client, queue) = door.fresh().await;
    let began = SystemTime::now() - Duration::from_secs(2);
    let put = client.put(&queue, "hello", PutOptions::default()).await;
    let put = put.unwrap();
    let week = Duration::from_hours(7 * 24);
    assert!(put.inserted >= began && put.expires == put.inserted + week);
    let got = only(client.get(&queue, 1, Some(60)).await);
    assert_eq!((&got.id, got.text.as_str()), (&put.id, "hello"));
    assert_eq!((got.dequeue_count, got.inserted), (1, put.inserted));
    let hidden_until = got.receipt.as_ref().unwrap().next_visible;
    assert!(hidden_until > began + Duration::from_secs(60));
    assert_eq!(client.get(&queue, 1, None).await.unwrap(), []);
    client
        .delete_message(&queue, &got.id, receipt(&got))
        .await
        .unwrap();
    let properties = client.queue_properties(&queue).await.unwrap();
    assert_eq!(properties.approximate_message_count, 0);
    // The receipt of the put works too.
    let put = client.put(&queue, "at once", PutOptions::default()).await;
    let put = put.unwrap();
    client
        .delete_message(&queue, &put.id, &put.receipt.value)
        .await
        .unwrap();
    assert_eq!(client.peek(&queue, 1).await.unwrap(), []);
}

pub(crate) async fn texts(door: Door) {
    let (client, queue) = door.fresh().await;
    // In ASCII, because Azurite breaks a character whose bytes come in two pieces.
    let large = "a<&>".repeat(TEXT_SIZE_MAX / 16);
    for text in [
        "",
        " \t ",
        "a <b> & \"c\" 'd' ]]>",
        "é 漢字 😀 \u{202e}",
        "&amp;&#13;",
        &large,
    ] {
        put(&client, &queue, text).await;
        let got = only(client.get(&queue, 1, None).await);
        assert!(
            got.text == text,
            "{text:.20?}... came back as {:.20?}...",
            got.text
        );
        client
            .delete_message(&queue, &got.id, receipt(&got))
            .await
            .unwrap();
    }
    // Nothing is sent.
    let refused = client.put(&queue, "\u{1}", PutOptions::default()).await;
    let refused = refused.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.status()),
        (ErrorKind::Refused, None)
    );
}

pub(crate) async fn a_text_that_is_too_large(door: Door) {
    let (client, queue) = door.fresh().await;
    let text = "x".repeat(TEXT_SIZE_MAX + 1);
    let refused = client.put(&queue, &text, PutOptions::default()).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    assert!(matches!(refused.status(), Some(400 | 413)), "{refused}");
    assert!(refused.code().is_some(), "{refused}");
    put(&client, &queue, &text[1..]).await;
}

pub(crate) async fn delays_and_lives(door: Door) {
    let (client, queue) = door.fresh().await;
    let options = PutOptions {
        visibility_timeout: Some(3_600),
        time_to_live: Some(-1),
    };
    let put = client.put(&queue, "later", options).await.unwrap();
    assert!(put.receipt.next_visible > put.inserted + Duration::from_secs(3_000));
    let century = Duration::from_hours(100 * 365 * 24);
    assert!(put.expires > put.inserted + century, "it never expires");
    assert_eq!(client.peek(&queue, 32).await.unwrap(), []);
    let properties = client.queue_properties(&queue).await.unwrap();
    assert_eq!(properties.approximate_message_count, 1);
    let shown = client
        .update(&queue, &put.id, &put.receipt.value, 0, None)
        .await;
    shown.unwrap();
    assert_eq!(only(client.peek(&queue, 32).await).text, "later");

    let short = PutOptions {
        visibility_timeout: None,
        time_to_live: Some(60),
    };
    let put = client.put(&queue, "short", short).await.unwrap();
    assert_eq!(put.expires, put.inserted + Duration::from_secs(60));
    let wrong = PutOptions {
        visibility_timeout: Some(8 * 24 * 3_600),
        time_to_live: None,
    };
    let refused = client.put(&queue, "x", wrong).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.status()),
        (ErrorKind::Refused, Some(400))
    );
    assert_eq!(refused.code(), Some("OutOfRangeQueryParameterValue"));
}

pub(crate) async fn from_one_to_thirty_two(door: Door) {
    let (client, queue) = door.fresh().await;
    for number in 0..35 {
        put(&client, &queue, &number.to_string()).await;
    }
    let first = client.get(&queue, 32, Some(60)).await.unwrap();
    let second = client.get(&queue, 2, Some(60)).await.unwrap();
    let third = client.get(&queue, 32, Some(60)).await.unwrap();
    let texts = |messages: &[QueueMessage]| {
        messages
            .iter()
            .map(|it| it.text.clone())
            .collect::<Vec<_>>()
    };
    let all: Vec<String> = [texts(&first), texts(&second), texts(&third)].concat();
    assert_eq!((first.len(), second.len(), third.len()), (32, 2, 1));
    let expected: Vec<_> = (0..35).map(|it| it.to_string()).collect();
    assert_eq!(all, expected);
    for count in [0, 33] {
        let refused = client.get(&queue, count, None).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
        assert_eq!(refused.status(), Some(400), "{refused}");
    }
}

pub(crate) async fn peek_changes_nothing(door: Door) {
    let (client, queue) = door.fresh().await;
    put(&client, &queue, "x").await;
    for _ in 0..3 {
        let peeked = only(client.peek(&queue, 32).await);
        assert_eq!((peeked.dequeue_count, &peeked.receipt), (0, &None));
    }
    assert_eq!(only(client.get(&queue, 1, None).await).dequeue_count, 1);
}

pub(crate) async fn update(door: Door) {
    let (client, queue) = door.fresh().await;
    put(&client, &queue, "first").await;
    let got = only(client.get(&queue, 1, Some(60)).await);
    let kept = client
        .update(&queue, &got.id, receipt(&got), 120, None)
        .await
        .unwrap();
    assert_ne!(kept.value, receipt(&got));
    assert!(kept.next_visible > SystemTime::now() + Duration::from_secs(60));
    let changed = client
        .update(&queue, &got.id, &kept.value, 0, Some("<second>"))
        .await
        .unwrap();
    let again = only(client.get(&queue, 1, Some(60)).await);
    assert_eq!((again.text.as_str(), again.dequeue_count), ("<second>", 2));
    assert_ne!(receipt(&again), changed.value);
    assert_eq!(again.inserted, got.inserted);
}

pub(crate) async fn stale_receipts(door: Door) {
    let (client, queue) = door.fresh().await;
    put(&client, &queue, "x").await;
    let got = only(client.get(&queue, 1, Some(60)).await);
    let shown = client.update(&queue, &got.id, receipt(&got), 0, None).await;
    shown.unwrap();
    let again = only(client.get(&queue, 1, Some(60)).await);
    let stale = [
        client
            .delete_message(&queue, &got.id, receipt(&got))
            .await
            .unwrap_err(),
        client
            .update(&queue, &got.id, receipt(&got), 0, None)
            .await
            .unwrap_err(),
    ];
    for refused in stale {
        assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
        let codes = [Some("PopReceiptMismatch"), Some("MessageNotFound")];
        assert!(codes.contains(&refused.code()), "{refused}");
    }
    client
        .delete_message(&queue, &again.id, receipt(&again))
        .await
        .unwrap();
    let gone = client
        .delete_message(&queue, &again.id, receipt(&again))
        .await;
    let gone = gone.unwrap_err();
    assert_eq!(
        (gone.status(), gone.code()),
        (Some(404), Some("MessageNotFound"))
    );
}

pub(crate) async fn clear(door: Door) {
    let (client, queue) = door.fresh().await;
    for _ in 0..5 {
        put(&client, &queue, "x").await;
    }
    client.get(&queue, 2, Some(60)).await.unwrap();
    client.clear(&queue).await.unwrap();
    let properties = client.queue_properties(&queue).await.unwrap();
    assert_eq!(properties.approximate_message_count, 0);
    client.clear_once(&queue).await.unwrap();
}

pub(crate) async fn every_operation_on_an_absent_queue(door: Door) {
    let (client, queue) = (door.client(), new_name());
    let options = PutOptions::default();
    // In the form of a real one, which Azurite asks for first.
    let (id, receipt) = ("00000000-0000-4000-8000-000000000000", "AgAAAAMAAAAAAAAA");
    let refusals = [
        client.put(&queue, "x", options).await.map(drop),
        client.get(&queue, 1, None).await.map(drop),
        client.peek(&queue, 1).await.map(drop),
        client.update(&queue, id, receipt, 0, None).await.map(drop),
        client.delete_message(&queue, id, receipt).await,
        client.clear(&queue).await,
        client.queue_properties(&queue).await.map(drop),
        client.set_metadata(&queue, &[]).await,
        client.access_policies(&queue).await.map(drop),
        client.set_access_policies(&queue, &[]).await,
        client.delete_queue(&queue).await,
    ];
    for (number, refused) in refusals.into_iter().enumerate() {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Some("QueueNotFound"), "{number}: {refused}");
        assert_eq!(refused.kind(), ErrorKind::Refused);
        assert_eq!(refused.status(), Some(404));
    }
}

pub(crate) async fn side_by_side_on_few_connections(door: Door) {
    let options = QueueOptions {
        connections_max: 4,
        ..door.options()
    };
    let client = QueueClient::new(door.account(), options).unwrap();
    let queue = new_name();
    client.create_queue(&queue, &[]).await.unwrap();
    let texts: Vec<_> = (0..200).map(|it| it.to_string()).collect();
    let puts = texts
        .iter()
        .map(|it| client.put(&queue, it, PutOptions::default()));
    let puts = futures_util::future::join_all(puts).await;
    assert!(puts.iter().all(Result::is_ok));
    let properties = client.queue_properties(&queue).await.unwrap();
    assert_eq!(properties.approximate_message_count, 200);
    let mut got = Vec::new();
    loop {
        let messages = client.get(&queue, 32, Some(60)).await.unwrap();
        if messages.is_empty() {
            break;
        }
        got.extend(messages.into_iter().map(|it| it.text));
    }
    let number = |it: &String| it.parse::<u32>().unwrap();
    got.sort_by_key(number);
    assert_eq!(got, texts);
}
