//! Message sessions, at Kew.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kew_client::Message;
use kew_worker::{Delivery, Failure, Listener, SessionSource, Stop, Text, handler_fn};

use crate::kew::Kew;
use crate::services::receive;
use crate::suite::until;

#[tokio::test]
async fn messages_of_a_session_come_in_order_with_its_state() {
    let kew = Kew::start().await;
    let client = kew.bus_client();
    let sender = client.sender("steps").await.unwrap();
    for number in 0..20 {
        let message = Message {
            session_id: Some(format!("s{}", number % 2)),
            ..Message::new(number.to_string())
        };
        sender.send(&message).await.unwrap();
    }
    let seen = Arc::new(Mutex::new([Vec::new(), Vec::new()]));
    let noted = seen.clone();
    let source = SessionSource::new(client.clone(), "ns", "steps");
    let source = source.session_idle(Duration::from_millis(20));
    let listener = Listener::builder(source, Text)
        .subscribe(handler_fn(move |delivery: Delivery<String, _>| {
            let noted = noted.clone();
            async move {
                let number: usize = delivery.message().parse()?;
                if number == 6 && delivery.attempt() == 1 {
                    return Err(Failure::new("again").retry_after(Duration::from_millis(5)));
                }
                let before = delivery.checkpoint().map_or(0, |it| it.len());
                delivery.save(vec![0; before + 1]).await?;
                noted.lock().unwrap()[number % 2].push((number, before));
                Ok(())
            }
        }))
        .build();
    listener.start(2).unwrap();
    until("all are handled", async || listener.state().completed == 20).await;
    let expected = |first: usize| (0..10).map(|it| (first + 2 * it, it)).collect::<Vec<_>>();
    assert_eq!(*seen.lock().unwrap(), [expected(0), expected(1)]);
    let report = listener.stop(Stop::default()).await;
    assert_eq!(report.dropped_tasks, 0);
}

#[tokio::test]
async fn a_session_without_messages_is_given_back() {
    let kew = Kew::start().await;
    let client = kew.bus_client();
    let source = SessionSource::new(client.clone(), "ns", "steps");
    let source = source.session_idle(Duration::from_millis(1_300));
    let listener = Listener::builder(source, Text)
        .subscribe(handler_fn(|_| async { Ok(()) }))
        .tasks_max(1)
        .build();
    listener.start(1).unwrap();
    let sender = client.sender("steps").await.unwrap();
    let began = Instant::now();
    for number in 0..3 {
        let message = Message {
            session_id: Some(format!("s{number}")),
            ..Message::new("x")
        };
        sender.send(&message).await.unwrap();
        // The one task is free for the next session long before the lock of this one ends, after a minute.
        until("it is handled", async || {
            listener.state().completed == number + 1
        })
        .await;
    }
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_stop_returns_the_message_and_its_session() {
    let kew = Kew::start().await;
    let client = kew.bus_client();
    let sender = client.sender("steps").await.unwrap();
    let message = Message {
        session_id: Some("s".to_owned()),
        ..Message::new("x")
    };
    sender.send(&message).await.unwrap();
    let hangs = Listener::builder(SessionSource::new(client.clone(), "ns", "steps"), Text)
        .subscribe(handler_fn(|_| std::future::pending()))
        .build();
    hangs.start(1).unwrap();
    until("it is handled", async || hangs.state().in_flight == 1).await;
    let began = Instant::now();
    let at_once = Stop {
        finish_within: Duration::ZERO,
        return_within: Duration::from_secs(30),
    };
    let report = hangs.stop(at_once).await;
    assert_eq!((report.returned, report.dropped_tasks), (1, 0));
    let source = SessionSource::new(client, "ns", "steps");
    assert_eq!(receive(source, Text).await, "x");
    // The lock of the session would have lasted for a minute.
    let took = began.elapsed();
    assert!(took < Duration::from_secs(30), "{took:?}");
}
