//! Messages: send, receive, peek, update, delete, clear.

use std::time::{Duration, Instant};

use azure_core::Result;
use azure_core::time::OffsetDateTime;
use azure_storage_queue::QueueClient;
use azure_storage_queue::models::{
    QueueClientPeekMessagesOptions, QueueClientReceiveMessagesOptions,
    QueueClientSendMessageOptions, QueueClientUpdateMessageOptions, QueueMessage, ReceivedMessage,
    SentMessage,
};

use crate::kew::{Door, eventually, refused};
use crate::queues::count_of;

const LIMIT: usize = 65536;
const FOREIGN_ID: &str = "00000000-0000-0000-0000-000000000000";
/// A receipt in the right form that belongs to no message.
const FOREIGN_RECEIPT: &str = "AAAAAAAAAAAAAAAAAAAAAA==";

fn message(text: &str) -> QueueMessage {
    QueueMessage {
        message_text: Some(text.to_owned()),
    }
}

pub async fn try_send(
    queue: &QueueClient,
    text: &str,
    delay: Option<i32>,
    life: Option<i32>,
) -> Result<SentMessage> {
    let options = QueueClientSendMessageOptions {
        visibility_timeout: delay,
        message_time_to_live: life,
        ..Default::default()
    };
    let sent = queue
        .send_message(message(text).try_into()?, Some(options))
        .await?;
    sent.into_model()?.into_message()
}

pub async fn send(queue: &QueueClient, text: &str) -> SentMessage {
    try_send(queue, text, None, None).await.unwrap()
}

pub async fn try_receive(
    queue: &QueueClient,
    count: i32,
    seconds: i32,
) -> Result<Vec<ReceivedMessage>> {
    let options = QueueClientReceiveMessagesOptions {
        number_of_messages: Some(count),
        visibility_timeout: Some(seconds),
        ..Default::default()
    };
    let received = queue.receive_messages(Some(options)).await?;
    Ok(received.into_model()?.items.unwrap_or_default())
}

pub async fn receive(queue: &QueueClient, count: i32) -> Vec<ReceivedMessage> {
    try_receive(queue, count, 600).await.unwrap()
}

pub async fn try_peek(queue: &QueueClient, count: i32) -> Result<Vec<(String, i64)>> {
    let options = QueueClientPeekMessagesOptions {
        number_of_messages: Some(count),
        ..Default::default()
    };
    let peeked = queue.peek_messages(Some(options)).await?.into_model()?;
    Ok(peeked
        .items
        .unwrap_or_default()
        .into_iter()
        .map(|peeked| {
            (
                peeked.message_text.unwrap_or_default(),
                peeked.dequeue_count.unwrap(),
            )
        })
        .collect())
}

pub async fn peek(queue: &QueueClient) -> Vec<String> {
    let peeked = try_peek(queue, 32).await.unwrap();
    peeked.into_iter().map(|(text, _)| text).collect()
}

/// Returns the new receipt and the time when the message becomes visible.
pub async fn change(
    queue: &QueueClient,
    id: &str,
    receipt: &str,
    text: Option<&str>,
    seconds: i32,
) -> Result<(String, String)> {
    let options = QueueClientUpdateMessageOptions {
        queue_message: text.map(|text| message(text).try_into()).transpose()?,
        ..Default::default()
    };
    let updated = queue
        .update_message(id, receipt, seconds, Some(options))
        .await?;
    let header = |name: &'static str| {
        updated
            .headers()
            .get_optional_string(&name.into())
            .expect("a header")
    };
    Ok((header("x-ms-popreceipt"), header("x-ms-time-next-visible")))
}

async fn delete(queue: &QueueClient, id: &str, receipt: &str) -> Result<()> {
    queue.delete_message(id, receipt, None).await.map(drop)
}

fn token(sent: &SentMessage) -> (&str, &str) {
    (
        sent.message_id.as_deref().unwrap(),
        sent.pop_receipt.as_deref().unwrap(),
    )
}

fn lease(received: &ReceivedMessage) -> (&str, &str) {
    (
        received.message_id.as_deref().unwrap(),
        received.pop_receipt.as_deref().unwrap(),
    )
}

fn text(received: &ReceivedMessage) -> &str {
    received.message_text.as_deref().unwrap_or_default()
}

pub async fn send_and_receive_answer_with_everything(door: Door) {
    let queue = door.fresh().await;
    let sent = send(&queue, "text").await;
    let inserted = sent.insertion_time.unwrap();
    assert!((OffsetDateTime::now_utc() - inserted).whole_seconds().abs() < 20);
    let week = Duration::from_secs(7 * 24 * 3600);
    assert_eq!(sent.expiration_time, Some(inserted + week));
    assert_eq!(sent.time_next_visible, Some(inserted));
    let received = try_receive(&queue, 1, 60).await.unwrap().remove(0);
    assert_eq!(received.message_id, sent.message_id);
    assert_eq!(received.message_text.as_deref(), Some("text"));
    assert_eq!(received.dequeue_count, Some(1));
    assert_eq!(received.insertion_time, sent.insertion_time);
    assert_eq!(received.expiration_time, sent.expiration_time);
    assert_ne!(received.pop_receipt, sent.pop_receipt);
    let hidden = received.time_next_visible.unwrap() - OffsetDateTime::now_utc();
    assert!((hidden.whole_seconds() - 60).abs() < 20);
}

pub async fn texts(door: Door) {
    let queue = door.fresh().await;
    for text in [
        "<a href=\"x\" b='y'>&amp; &lt; &#65; ]]> <![CDATA[x]]> <!-- c --></a>",
        "äöü ß 中文 العربية 🐦🦆 𝄞 e\u{301} \u{10fffd}",
        "one\ntwo\n\nthree\n",
        "a+b %2B %zz ?&=#",
        "{\"a\": [1, 2.5, null]}",
        "inner  white   space",
        "",
        &"x".repeat(LIMIT),
        &"<".repeat(LIMIT),
        &"🐦".repeat(LIMIT / 4),
    ] {
        let sent = send(&queue, text).await;
        assert_eq!(peek(&queue).await, [text]);
        let (id, receipt) = token(&sent);
        change(&queue, id, receipt, Some(text), 0).await.unwrap();
        let received = receive(&queue, 1).await.remove(0);
        assert_eq!(self::text(&received), text);
        let (id, receipt) = lease(&received);
        delete(&queue, id, receipt).await.unwrap();
    }
}

pub async fn texts_that_do_not_fit(door: Door) {
    let queue = door.fresh().await;
    let sent = send(&queue, "small").await;
    let (id, receipt) = token(&sent);
    for text in ["x".repeat(LIMIT + 1), "中".repeat(LIMIT / 3 + 1)] {
        refused(
            try_send(&queue, &text, None, None).await,
            413,
            "RequestBodyTooLarge",
        );
        refused(
            change(&queue, id, receipt, Some(&text), 0).await,
            413,
            "RequestBodyTooLarge",
        );
    }
    assert_eq!(peek(&queue).await, ["small"]);
}

pub async fn time_to_live(door: Door) {
    let queue = door.fresh().await;
    let endless = try_send(&queue, "x", None, Some(-1)).await.unwrap();
    assert_eq!(
        endless.expiration_time.unwrap().unix_timestamp(),
        253_402_300_799
    );
    let long = try_send(&queue, "x", None, Some(i32::MAX)).await.unwrap();
    let life = long.expiration_time.unwrap() - long.insertion_time.unwrap();
    assert_eq!(life.whole_seconds(), i64::from(i32::MAX));
    for life in [0, -2] {
        let result = try_send(&queue, "x", None, Some(life)).await;
        refused(result, 400, "InvalidQueryParameterValue");
    }
    queue.clear(None).await.unwrap();
    try_send(&queue, "x", None, Some(1)).await.unwrap();
    eventually("it expires", || async {
        peek(&queue).await.is_empty().then_some(())
    })
    .await;
}

pub async fn a_delay(door: Door) {
    let queue = door.fresh().await;
    let began = Instant::now();
    let sent = try_send(&queue, "later", Some(1), None).await.unwrap();
    let delay = sent.time_next_visible.unwrap() - sent.insertion_time.unwrap();
    assert_eq!(delay.whole_seconds(), 1);
    eventually("it is visible", || async {
        receive(&queue, 32).await.pop()
    })
    .await;
    assert!(
        began.elapsed() > Duration::from_millis(900),
        "it came too early"
    );
    for delay in [-1, 604_801] {
        let result = try_send(&queue, "x", Some(delay), Some(-1)).await;
        refused(result, 400, "OutOfRangeQueryParameterValue");
    }
    let result = try_send(&queue, "x", Some(10), Some(10)).await;
    refused(result, 400, "InvalidQueryParameterValue");
}

pub async fn receive_from_one_to_thirty_two(door: Door) {
    let queue = door.fresh().await;
    for number in 0..35 {
        send(&queue, &number.to_string()).await;
    }
    let mut received = Vec::new();
    for (count, expected) in [(1, 1), (32, 32), (32, 2), (32, 0)] {
        let batch = receive(&queue, count).await;
        assert_eq!(batch.len(), expected);
        received.extend(batch.iter().map(|one| text(one).to_owned()));
    }
    let sent: Vec<_> = (0..35).map(|number| number.to_string()).collect();
    assert_eq!(received, sent);
    for count in [0, 33] {
        refused(
            try_receive(&queue, count, 600).await,
            400,
            "OutOfRangeQueryParameterValue",
        );
        refused(
            try_peek(&queue, count).await,
            400,
            "OutOfRangeQueryParameterValue",
        );
    }
    for seconds in [0, 604_801] {
        refused(
            try_receive(&queue, 1, seconds).await,
            400,
            "OutOfRangeQueryParameterValue",
        );
    }
}

pub async fn peek_changes_nothing(door: Door) {
    let queue = door.fresh().await;
    send(&queue, "text").await;
    for _ in 0..2 {
        assert_eq!(try_peek(&queue, 1).await.unwrap(), [("text".to_owned(), 0)]);
    }
    assert_eq!(receive(&queue, 1).await[0].dequeue_count, Some(1));
    assert!(peek(&queue).await.is_empty());
}

pub async fn stale_receipts(door: Door) {
    let queue = door.fresh().await;
    send(&queue, "text").await;
    let first = try_receive(&queue, 1, 1).await.unwrap().remove(0);
    let second = eventually("it is visible", || async { receive(&queue, 1).await.pop() }).await;
    assert_eq!(second.dequeue_count, Some(2));
    let (id, stale) = lease(&first);
    refused(delete(&queue, id, stale).await, 404, "MessageNotFound");
    refused(
        change(&queue, id, stale, Some("stolen"), 0).await,
        404,
        "MessageNotFound",
    );
    let (id, receipt) = lease(&second);
    delete(&queue, id, receipt).await.unwrap();
    refused(delete(&queue, id, receipt).await, 404, "MessageNotFound");
}

pub async fn update(door: Door) {
    let queue = door.fresh().await;
    let sent = send(&queue, "old").await;
    let (id, receipt) = token(&sent);
    let (held, _) = change(&queue, id, receipt, Some("new"), 60).await.unwrap();
    assert!(receive(&queue, 1).await.is_empty());
    refused(
        change(&queue, id, receipt, Some("x"), 0).await,
        404,
        "MessageNotFound",
    );
    let (kept, visible) = change(&queue, id, &held, None, 0).await.unwrap();
    assert!(visible.ends_with(" GMT"), "{visible}");
    assert_eq!(peek(&queue).await, ["new"]);
    let (emptied, _) = change(&queue, id, &kept, Some(""), 0).await.unwrap();
    assert_eq!(peek(&queue).await, [""]);
    for seconds in [-1, 604_801] {
        let result = change(&queue, id, &emptied, Some("x"), seconds).await;
        refused(result, 400, "OutOfRangeQueryParameterValue");
    }
    assert_eq!(
        receive(&queue, 1).await[0].expiration_time,
        sent.expiration_time
    );
}

pub async fn receipts_and_ids_that_are_none(door: Door) {
    let queue = door.fresh().await;
    let sent = send(&queue, "text").await;
    let (id, receipt) = token(&sent);
    refused(
        delete(&queue, id, "invalid").await,
        400,
        "InvalidQueryParameterValue",
    );
    refused(
        delete(&queue, id, FOREIGN_RECEIPT).await,
        404,
        "MessageNotFound",
    );
    refused(
        delete(&queue, FOREIGN_ID, receipt).await,
        404,
        "MessageNotFound",
    );
    refused(
        delete(&queue, "not-a-guid", receipt).await,
        404,
        "MessageNotFound",
    );
    delete(&queue, id, receipt).await.unwrap();
}

pub async fn clear(door: Door) {
    let queue = door.fresh().await;
    send(&queue, "held").await;
    let held = receive(&queue, 1).await.remove(0);
    try_send(&queue, "later", Some(600), None).await.unwrap();
    assert_eq!(count_of(&queue).await, 2);
    queue.clear(None).await.unwrap();
    assert_eq!(count_of(&queue).await, 0);
    let (id, receipt) = lease(&held);
    refused(delete(&queue, id, receipt).await, 404, "MessageNotFound");
}

pub async fn every_operation_on_an_absent_queue(door: Door) {
    let queue = door.absent();
    refused(
        try_send(&queue, "x", None, None).await,
        404,
        "QueueNotFound",
    );
    refused(try_receive(&queue, 1, 1).await, 404, "QueueNotFound");
    refused(try_peek(&queue, 1).await, 404, "QueueNotFound");
    refused(queue.clear(None).await, 404, "QueueNotFound");
    refused(
        queue.set_metadata(&Default::default(), None).await,
        404,
        "QueueNotFound",
    );
    refused(
        delete(&queue, FOREIGN_ID, FOREIGN_RECEIPT).await,
        404,
        "QueueNotFound",
    );
    let result = change(&queue, FOREIGN_ID, FOREIGN_RECEIPT, Some("x"), 0).await;
    refused(result, 404, "QueueNotFound");
}
