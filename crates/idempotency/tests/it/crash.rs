//! A crash at every await of a delivery. The next delivery finds the work done or does it, once.

use kew_idempotency::{Answer, GuardOptions, OutboxMessage, OutboxStore, StoreError, Transaction};

use crate::database::{Database, Sqlite, guard, id};
use crate::postgres::Postgres;
use crate::steps::{Stepped, Steps};

/// One delivery: two effects and a message, and then the settlement of the message that was delivered.
async fn deliver<D: Database>(store: D::Store, steps: &Steps) -> Result<bool, StoreError> {
    let guard = guard(Stepped(store, steps.clone()), GuardOptions::default());
    let work = guard.run(id("1"), |transaction| {
        Box::pin(async move {
            let steps = transaction.1.clone();
            steps.during(D::affect(&mut transaction.0, "debit")).await?;
            steps
                .during(D::affect(&mut transaction.0, "credit"))
                .await?;
            let message = OutboxMessage::new("mails", "mail-1", "booked");
            transaction.enqueue(&message).await?;
            Ok::<_, StoreError>("booked".to_owned())
        })
    });
    let answer = work
        .await
        .map_err(|error| StoreError::refused(error.to_string()))?;
    // Settled here.
    steps.step().await;
    let is_new = matches!(answer, Answer::New(_));
    assert_eq!(answer.into_outcome(), "booked");
    Ok(is_new)
}

/// After any crash: the effects are all there or all absent, the next delivery succeeds, and the one after it repeats.
async fn check<D: Database>(database: &D, was_new: Option<bool>, step: usize) {
    let before = database.effects().await;
    assert!(
        before.is_empty() || before == ["debit", "credit"],
        "step {step}: {before:?}"
    );
    let never = Steps::new(usize::MAX);
    let is_new = deliver::<D>(database.store().clone(), &never)
        .await
        .unwrap();
    // A run that was answered was committed.
    assert!(!(is_new && was_new.is_some()), "step {step}");
    assert_eq!(is_new, before.is_empty(), "step {step}");
    assert!(
        !deliver::<D>(database.store().clone(), &never)
            .await
            .unwrap()
    );
    assert_eq!(database.effects().await, ["debit", "credit"], "step {step}");
    let pending = database.store().pending("mails", 9).await.unwrap();
    assert_eq!(pending.len(), 1, "step {step}");
}

/// The delivery is cancelled, and the process goes on.
#[tokio::test]
async fn sqlite_survives_a_cancellation_at_every_await() {
    let mut step = 0;
    loop {
        let database = Sqlite::new().await;
        let steps = Steps::new(step);
        let ended = steps
            .run(deliver::<Sqlite>(database.store().clone(), &steps))
            .await;
        let ended = ended.map(|answer| answer.unwrap());
        check(&database, ended, step).await;
        if ended == Some(true) {
            break;
        }
        step += 1;
    }
    assert!(step >= 16, "{step}");
}

/// The process is killed: another one finds the files as they are. Not while a statement runs, because a copy of files
/// that change is not what a killed process leaves; `kill` does that.
#[tokio::test]
async fn sqlite_survives_a_kill_between_all_statements() {
    let mut step = 0;
    loop {
        let database = Sqlite::new().await;
        let steps = Steps::new(step);
        let mut running = Box::pin(deliver::<Sqlite>(database.store().clone(), &steps));
        let ended = steps.run(&mut running).await.map(|answer| answer.unwrap());
        // An operation that was stopped in the middle ends first: what it answers, no process sees.
        let copy = match step % 3 {
            1 => None,
            _ => Some(database.copy()),
        };
        drop(running);
        if let Some(copy) = copy {
            let survivor = Sqlite::open(copy).await;
            check(&survivor, ended, step).await;
        }
        if ended == Some(true) {
            break;
        }
        step += 1;
    }
    assert!(step >= 16, "{step}");
}

#[tokio::test]
async fn postgres_survives_a_cancellation_at_every_await() {
    let mut step = 0;
    loop {
        let Some(database) = Postgres::new(&format!("cancelled_{step}")).await else {
            return;
        };
        let steps = Steps::new(step);
        let delivery = Box::pin(deliver::<Postgres>(database.store().clone(), &steps));
        let ended = steps.run(delivery).await;
        let ended = ended.map(|answer| answer.unwrap());
        // The next delivery waits until the server has seen the end of this one.
        let never = Steps::new(usize::MAX);
        let is_new = deliver::<Postgres>(database.store().clone(), &never)
            .await
            .unwrap();
        assert!(!(is_new && ended.is_some()), "step {step}");
        check(&database, Some(true), step).await;
        if ended == Some(true) {
            break;
        }
        step += 1;
    }
    assert!(step >= 16, "{step}");
}
