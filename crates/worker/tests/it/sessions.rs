//! Message sessions, at Kew.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kew_client::{BusClient, Message, QueueSettings};
use kew_worker::{
    Ask, Delivery, Failure, Intake as _, Lease as _, Listener, SessionSource, Source as _, Stop,
    Text, handler_fn,
};
use tokio::sync::watch;

use crate::kew::Kew;
use crate::services::receive;
use crate::suite::until;

/// The shortest lock of the service.
const LOCK: Duration = Duration::from_secs(5);

async fn send(client: &BusClient, queue: &str, session: &str, bodies: &[&str]) {
    let sender = client.sender(queue).await.unwrap();
    for body in bodies {
        let message = Message {
            session_id: Some(session.to_owned()),
            ..Message::new((*body).to_owned())
        };
        sender.send(&message).await.unwrap();
    }
}

impl Kew {
    /// With a queue `short` whose sessions have short locks.
    async fn with_short_locks() -> Arc<Self> {
        let kew = Self::start().await;
        let settings = QueueSettings {
            lock_duration: Some(LOCK),
            requires_session: Some(true),
            ..QueueSettings::default()
        };
        kew.admin().create_queue("short", &settings).await.unwrap();
        kew
    }

    fn short(self: &Arc<Self>) -> SessionSource {
        SessionSource::new(self.bus_client(), "ns", "short").lock_duration(LOCK)
    }

    /// Ends the lock of a session, as an operator can.
    async fn break_lock(self: &Arc<Self>, session: &str) {
        let target = format!("$kew/v1/lock/short?session={session}");
        let answer = self.admin().ask("DELETE", &target, None).await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

#[tokio::test]
async fn a_handler_is_stopped_when_its_session_is_lost_and_another_listener_goes_on_in_order() {
    let kew = Kew::with_short_locks().await;
    send(&kew.bus_client(), "short", "s", &["1", "2", "3"]).await;
    let (stopped, is_stopped) = watch::channel(());
    let stopped = Arc::new(Mutex::new(Some(stopped)));
    let hangs = Listener::builder(kew.short(), Text)
        .subscribe(handler_fn(move |_| {
            // It is dropped with the future.
            let until_dropped = stopped.lock().unwrap().take();
            async move {
                let _until_dropped = until_dropped;
                std::future::pending().await
            }
        }))
        .tasks_max(1)
        .build();
    hangs.start(1).unwrap();
    until("it is handled", async || hangs.state().in_flight == 1).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let takes_over = Listener::builder(kew.short(), Text)
        .subscribe(handler_fn(move |delivery: Delivery<String, _>| {
            noted.lock().unwrap().push(delivery.message().clone());
            async { Ok(()) }
        }))
        .build();
    takes_over.start(1).unwrap();
    kew.break_lock("s").await;
    until("the others are handled", async || {
        takes_over.state().completed == 3
    })
    .await;
    assert_eq!(*seen.lock().unwrap(), ["1", "2", "3"]);
    until("the handler is stopped", async || {
        hangs.state().lost_leases == 1
    })
    .await;
    assert!(is_stopped.has_changed().is_err(), "its future was dropped");
    let state = hangs.state();
    assert_eq!(
        (state.stopped_handlers, state.completed, state.buried),
        (1, 0, 0)
    );
}

#[tokio::test]
async fn nothing_is_saved_or_settled_in_a_session_that_is_lost() {
    let kew = Kew::with_short_locks().await;
    send(&kew.bus_client(), "short", "s", &["1"]).await;
    let (go, is_going) = watch::channel(false);
    let calls = Arc::new(Mutex::new(0));
    let called = calls.clone();
    let listener = Listener::builder(kew.short(), Text)
        .subscribe(handler_fn(move |delivery: Delivery<String, _>| {
            let mut is_going = is_going.clone();
            *called.lock().unwrap() += 1;
            async move {
                delivery.save("before").await?;
                is_going.wait_for(|it| *it).await?;
                let refused = delivery.save("after").await.unwrap_err();
                assert!(refused.is_lease_lost(), "{refused}");
                Ok(())
            }
        }))
        .build();
    listener.start(1).unwrap();
    until("it is handled", async || listener.state().in_flight == 1).await;
    kew.break_lock("s").await;
    go.send(true).unwrap();
    until("it could not be deleted", async || {
        listener.state().unsettled == 1
    })
    .await;
    // Its work is done, and it is deleted when it comes back.
    until("it is deleted", async || listener.state().completed == 1).await;
    assert_eq!(
        (*calls.lock().unwrap(), listener.state().lost_leases),
        (1, 1)
    );
    let report = listener.stop(Stop::default()).await;
    assert_eq!(report.dropped_tasks, 0);
    // The state is what was saved under the lock.
    send(&kew.bus_client(), "short", "s", &["2"]).await;
    let mut intake = kew.short().open().await.unwrap();
    let mut leases = intake.receive(ONE).await.unwrap();
    let checkpoint = leases[0].incoming().meta.checkpoint.clone();
    assert_eq!(checkpoint.as_deref(), Some(&b"before"[..]));
    leases[0].complete().await.unwrap();
}

const ONE: Ask = Ask {
    count: 1,
    lease: LOCK,
};

/// As after a settlement without an answer: the next message of the session must not overtake this one.
#[tokio::test]
async fn a_message_that_is_not_settled_for_certain_is_the_next_one_of_its_session() {
    let kew = Kew::start().await;
    send(&kew.bus_client(), "steps", "s", &["1", "2"]).await;
    let source = SessionSource::new(kew.bus_client(), "ns", "steps");
    let mut intake = source.open().await.unwrap();
    let began = Instant::now();
    for (body, completes) in [("1", false), ("1", true), ("2", true)] {
        let mut leases = intake.receive(ONE).await.unwrap();
        assert_eq!(leases[0].incoming().body, body);
        if completes {
            leases[0].complete().await.unwrap();
        }
    }
    // The lock of the session would have lasted for a minute.
    let took = began.elapsed();
    assert!(took < Duration::from_secs(30), "{took:?}");
}

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
