//! Messages are sent after the commit: all of them, in order, by any number of pumps.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kew_idempotency::{
    ErrorKind, GuardError, Holder, OutboxMessage, OutboxStore, Publish, PublishError, Pump,
    PumpOptions, StoreError, Transaction as _,
};
use tokio::sync::{Notify, oneshot};

use crate::database::{Database, Sqlite, id};
use crate::guard::over_each_database;
use crate::steps::Steps;

over_each_database!(
    committed_messages_are_sent_in_order,
    what_is_rolled_back_is_not_sent,
    a_message_that_waits_is_not_replaced,
    a_failed_message_keeps_its_place,
    one_destination_does_not_stop_another,
    a_crash_at_every_await_loses_no_message,
    two_pumps_keep_the_order,
    a_pump_that_stands_still_loses_its_lease,
    a_batch_is_bounded_in_bytes,
);

/// Keeps what it accepts, after the answers that it was told to give first.
#[derive(Clone, Debug, Default)]
struct Receiver(Arc<Received>);

#[derive(Debug, Default)]
struct Received {
    accepted: Mutex<Vec<String>>,
    answers: Mutex<VecDeque<(&'static str, ErrorKind)>>,
    came: Notify,
}

impl Receiver {
    fn accepted(&self) -> Vec<String> {
        self.0.accepted.lock().unwrap().clone()
    }

    /// The next message for this destination gets an error.
    fn fail(&self, destination: &'static str, kind: ErrorKind) {
        self.0
            .answers
            .lock()
            .unwrap()
            .push_back((destination, kind));
    }
}

impl Publish for Receiver {
    async fn publish(&self, message: &OutboxMessage) -> Result<(), PublishError> {
        tokio::task::yield_now().await;
        let failure = {
            let mut answers = self.0.answers.lock().unwrap();
            let at = answers
                .iter()
                .position(|(to, _)| *to == message.destination);
            at.and_then(|at| answers.remove(at)).map(|(_, kind)| kind)
        };
        let accept = || {
            self.0.accepted.lock().unwrap().push(message.id.clone());
            self.0.came.notify_one();
        };
        match failure {
            None => {
                accept();
                Ok(())
            }
            Some(ErrorKind::Refused) => Err(PublishError::refused("no such queue")),
            Some(ErrorKind::TryAgainLater) => Err(PublishError::later("busy")),
            Some(ErrorKind::OutcomeUnknown) => {
                accept();
                Err(PublishError::unknown("no answer"))
            }
        }
    }
}

/// Commits these messages, in one transaction.
async fn send<D: Database>(database: &D, destination: &str, names: &[&str]) {
    let (work, messages) = (id(&names.join(" ")), messages(destination, names));
    let enqueue = database.guard();
    let enqueue = enqueue.run(work, |transaction| {
        Box::pin(async move {
            for message in &messages {
                transaction.enqueue(message).await?;
            }
            Ok::<_, StoreError>(())
        })
    });
    enqueue.await.unwrap();
}

fn messages(destination: &str, names: &[&str]) -> Vec<OutboxMessage> {
    let message = |name: &&str| OutboxMessage::new(destination, *name, format!("body of {name}"));
    names.iter().map(message).collect()
}

fn pump<S: OutboxStore>(store: &S, receiver: &Receiver) -> Pump<S, Receiver> {
    let options = PumpOptions {
        batch_size: 2,
        first_delay: Duration::from_millis(1),
        delay_max: Duration::from_millis(5),
        ..PumpOptions::default()
    };
    Pump::new(store.clone(), receiver.clone(), options).unwrap()
}

async fn committed_messages_are_sent_in_order<D: Database>(database: D) {
    let receiver = Receiver::default();
    let pump = pump(database.store(), &receiver);
    assert_eq!(pump.run_once().await.unwrap().sent, 0);
    send(&database, "q", &["1", "2", "3"]).await;
    send(&database, "q", &["4", "5"]).await;
    let pumped = pump.run_once().await.unwrap();
    assert_eq!(
        (pumped.sent, pumped.failures.len(), pumped.held_by_others),
        (5, 0, 0)
    );
    assert_eq!(receiver.accepted(), ["1", "2", "3", "4", "5"]);
    assert_eq!(pump.run_once().await.unwrap().sent, 0);
    assert_eq!(database.store().destinations(9).await.unwrap(), [""; 0]);
}

async fn what_is_rolled_back_is_not_sent<D: Database>(database: D) {
    let guard = database.guard();
    let failed = guard.run(id("1"), |transaction| {
        Box::pin(async move {
            transaction
                .enqueue(&OutboxMessage::new("q", "1", ""))
                .await?;
            Err::<(), _>(StoreError::refused("by the test"))
        })
    });
    failed.await.unwrap_err();
    let receiver = Receiver::default();
    assert_eq!(
        pump(database.store(), &receiver)
            .run_once()
            .await
            .unwrap()
            .sent,
        0
    );
}

/// Two different messages with one id: a queue that detects duplicates would drop the second one.
async fn a_message_that_waits_is_not_replaced<D: Database>(database: D) {
    send(&database, "q", &["1"]).await;
    let guard = database.guard();
    let second = guard.run(id("second"), |transaction| {
        Box::pin(async move {
            transaction
                .enqueue(&OutboxMessage::new("q", "1", "other"))
                .await
        })
    });
    let GuardError::Handler(error) = second.await.unwrap_err() else {
        panic!("another error")
    };
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(
        error.to_string().contains("1 for q is already waiting"),
        "{error}"
    );
    send(&database, "other", &["1"]).await;
}

async fn a_failed_message_keeps_its_place<D: Database>(database: D) {
    for kind in [
        ErrorKind::Refused,
        ErrorKind::TryAgainLater,
        ErrorKind::OutcomeUnknown,
    ] {
        let receiver = Receiver::default();
        let pump = pump(database.store(), &receiver);
        let names = ["1", "2", "3"].map(|n| format!("{n} {kind:?}"));
        let names = names.each_ref().map(String::as_str);
        send(&database, "q", &names).await;
        receiver.fail("q", kind);
        let pumped = pump.run_once().await.unwrap();
        assert_eq!(pumped.sent, 0, "{kind:?}");
        let [(destination, error)] = &pumped.failures[..] else {
            panic!("{pumped:?}")
        };
        assert_eq!((destination.as_str(), error.kind()), ("q", kind));
        assert_eq!(pump.run_once().await.unwrap().sent, 3);
        let mut accepted = receiver.accepted();
        if kind == ErrorKind::OutcomeUnknown {
            // It had been accepted, and was sent again with the same id.
            assert_eq!(accepted.remove(0), names[0]);
        }
        assert_eq!(accepted, names);
    }
}

async fn one_destination_does_not_stop_another<D: Database>(database: D) {
    let receiver = Receiver::default();
    send(&database, "bad", &["1", "2"]).await;
    send(&database, "good", &["3"]).await;
    receiver.fail("bad", ErrorKind::Refused);
    let pumped = pump(database.store(), &receiver).run_once().await.unwrap();
    assert_eq!((pumped.sent, pumped.failures.len()), (1, 1));
    assert_eq!(receiver.accepted(), ["3"]);
    // Another pump is not kept out.
    let other = Receiver::default();
    assert_eq!(
        pump(database.store(), &other)
            .run_once()
            .await
            .unwrap()
            .sent,
        2
    );
}

/// A publisher with steps: the crash strikes before, during and after each message.
struct Stepped(Receiver, Steps);

impl Publish for Stepped {
    async fn publish(&self, message: &OutboxMessage) -> Result<(), PublishError> {
        self.1.during(self.0.publish(message)).await
    }
}

async fn a_crash_at_every_await_loses_no_message<D: Database>(database: D) {
    let mut step = 0;
    loop {
        let names = ["1", "2", "3"].map(|n| format!("{n} of step {step}"));
        let names = names.each_ref().map(String::as_str);
        send(&database, "q", &names).await;
        let (receiver, steps) = (Receiver::default(), Steps::new(step));
        let options = PumpOptions {
            batch_size: 2,
            ..PumpOptions::default()
        };
        let stepped = Stepped(receiver.clone(), steps.clone());
        let crashing = Pump::new(database.store().clone(), stepped, options).unwrap();
        let ended = steps.run(crashing.run_once()).await;
        // The next pump waits for the end of the lease.
        let next = pump(database.store(), &receiver);
        if ended.is_none() {
            assert_eq!(
                next.run_once().await.unwrap().held_by_others,
                1,
                "step {step}"
            );
            database.age(Duration::from_secs(61)).await;
        }
        next.run_once().await.unwrap();
        let accepted = receiver.accepted();
        let mut once: Vec<&String> = Vec::new();
        for name in &accepted {
            if !once.contains(&name) {
                once.push(name);
            }
        }
        assert_eq!(once, names, "step {step}: {accepted:?}");
        assert!(accepted.len() <= 3 + 2, "step {step}: {accepted:?}");
        assert_eq!(database.store().pending("q", 9).await.unwrap(), []);
        if let Some(pumped) = ended {
            assert_eq!((pumped.unwrap().sent, accepted.len()), (3, 3));
            break;
        }
        step += 1;
    }
    assert_eq!(step, 9);
}

async fn two_pumps_keep_the_order<D: Database>(database: D) {
    let names: Vec<String> = (0..30).map(|n| format!("{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    send(&database, "q", &names).await;
    let receiver = Receiver::default();
    let pumps = [(); 2].map(|()| pump(database.store(), &receiver));
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let stopped = || {
        let mut stopped = stopped.clone();
        async move {
            stopped.wait_for(|stopped| *stopped).await.unwrap();
        }
    };
    let watch = async {
        while receiver.accepted().len() < names.len() {
            receiver.0.came.notified().await;
        }
        stop.send(true).unwrap();
    };
    tokio::join!(pumps[0].run(stopped()), pumps[1].run(stopped()), watch);
    assert_eq!(receiver.accepted(), names);
    assert_eq!(database.store().pending("q", 9).await.unwrap(), []);
}

async fn a_pump_that_stands_still_loses_its_lease<D: Database>(database: D) {
    let store = database.store();
    send(&database, "q", &["1", "2"]).await;
    let [slow, quick] = [(); 2].map(|()| Holder::new().unwrap());
    let minute = Duration::from_secs(60);
    assert!(store.lease("q", &slow, minute).await.unwrap());
    assert!(store.lease("q", &slow, minute).await.unwrap());
    assert!(!store.lease("q", &quick, minute).await.unwrap());
    assert!(store.lease("other", &quick, minute).await.unwrap());
    let pending = store.pending("q", 9).await.unwrap();
    let numbers = [pending[0].sequence, pending[1].sequence];
    assert!(!store.remove_sent("q", &quick, &numbers).await.unwrap());

    database.age(minute).await;
    // Its time is over, though no other pump has come.
    assert!(!store.remove_sent("q", &slow, &numbers).await.unwrap());
    assert!(store.lease("q", &quick, minute).await.unwrap());
    assert!(!store.lease("q", &slow, minute).await.unwrap());
    store.release("q", &slow).await.unwrap();
    assert!(!store.lease("q", &slow, minute).await.unwrap());
    assert!(!store.remove_sent("q", &slow, &numbers).await.unwrap());
    // Numbers of another destination are left alone.
    assert!(store.lease("other", &quick, minute).await.unwrap());
    assert!(store.remove_sent("other", &quick, &numbers).await.unwrap());
    assert_eq!(store.pending("q", 9).await.unwrap(), pending);
    assert!(store.remove_sent("q", &quick, &numbers[..1]).await.unwrap());
    assert_eq!(store.pending("q", 9).await.unwrap(), pending[1..]);
    store.release("q", &quick).await.unwrap();
    assert!(store.lease("q", &slow, minute).await.unwrap());
}

async fn a_batch_is_bounded_in_bytes<D: Database>(database: D) {
    for n in 0..6 {
        let guard = database.guard();
        let name = n.to_string();
        let large = guard.run(id(&name), |transaction| {
            let message = OutboxMessage::new("q", name.as_str(), vec![n; 1 << 20]);
            Box::pin(async move { transaction.enqueue(&message).await })
        });
        large.await.unwrap();
    }
    let store = database.store();
    assert_eq!(store.pending("q", 99).await.unwrap().len(), 4);
    assert_eq!(store.pending("q", 1).await.unwrap().len(), 1);
    let receiver = Receiver::default();
    assert_eq!(pump(store, &receiver).run_once().await.unwrap().sent, 6);
    assert_eq!(receiver.accepted(), ["0", "1", "2", "3", "4", "5"]);
}

/// A commit of this process is sent at once, and a stop ends the pump.
#[tokio::test]
async fn a_running_pump_is_woken_and_stopped() {
    let database = Sqlite::new().await;
    let receiver = Receiver::default();
    let options = PumpOptions {
        poll_interval: Duration::from_hours(1),
        ..PumpOptions::default()
    };
    let pump = Pump::new(database.store().clone(), receiver.clone(), options).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(async move {
        pump.run(async { stopped.await.unwrap() }).await;
    });
    for name in ["1", "2", "3"] {
        send(&database, "q", &[name]).await;
        receiver.0.came.notified().await;
    }
    stop.send(()).unwrap();
    running.await.unwrap();
    assert_eq!(receiver.accepted(), ["1", "2", "3"]);
    // What was accepted before the stop was removed.
    assert_eq!(database.store().pending("q", 9).await.unwrap(), []);
}

/// A receiver that does not answer is left after its time, and the message is sent again.
#[tokio::test]
async fn a_message_has_a_limit_of_time() {
    struct Silent;
    impl Publish for Silent {
        async fn publish(&self, _: &OutboxMessage) -> Result<(), PublishError> {
            std::future::pending().await
        }
    }
    let database = Sqlite::new().await;
    send(&database, "q", &["1"]).await;
    let options = PumpOptions {
        publish_time_max: Duration::from_millis(1),
        ..PumpOptions::default()
    };
    let pump = Pump::new(database.store().clone(), Silent, options).unwrap();
    let pumped = pump.run_once().await.unwrap();
    assert_eq!(pumped.failures[0].1.kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(database.store().pending("q", 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn options_of_pumps_are_checked() {
    let store = Sqlite::new().await;
    let new = |options| Pump::new(store.store().clone(), Receiver::default(), options);
    let refused = new(PumpOptions {
        lease_time: Duration::from_secs(20),
        ..PumpOptions::default()
    });
    assert!(refused.unwrap_err().to_string().contains("make it longer"));
    let refused = new(PumpOptions {
        batch_size: 0,
        ..PumpOptions::default()
    });
    assert!(refused.is_err());
}
