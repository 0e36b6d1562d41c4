//! Work is done once, over every database.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kew_idempotency::{
    Answer, ErrorKind, Guard, GuardError, GuardOptions, HandlerFuture, Json, Request, Retention,
    Store, StoreError,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

use crate::database::{Database, Sqlite, guard, id};
use crate::postgres::Postgres;

/// Runs a suite over each database. One that the machine does not have is reported as skipped.
macro_rules! over_each_database {
    ($($name:ident),* $(,)?) => {
        mod over_sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::database::Sqlite::new().await).await;
            })*
        }
        mod over_postgres {
            $(#[tokio::test]
            async fn $name() {
                if let Some(database) = crate::postgres::Postgres::new(stringify!($name)).await {
                    super::$name(database).await;
                }
            })*
        }
    };
}
pub(crate) use over_each_database;

over_each_database!(
    a_repeated_request_gets_the_outcome,
    ids_are_of_a_scope,
    another_request_with_the_same_id_is_refused,
    two_requests_with_one_id_at_once_are_not_mixed_up,
    a_failed_handler_leaves_nothing,
    a_panic_leaves_nothing,
    a_dropped_request_leaves_nothing,
    an_outcome_that_is_too_large_is_rolled_back,
    an_outcome_of_another_type_is_not_new,
    a_handler_that_takes_too_long_is_rolled_back,
    two_deliveries_at_once_are_one,
    other_ids_go_on,
    a_handler_cannot_end_the_transaction,
    a_failed_statement_is_not_passed_over,
    old_records_are_removed,
    unusual_ids_are_kept_apart,
);

type Transaction<D> = <<D as Database>::Store as Store>::Transaction;

/// The work of the tests: one effect.
fn work<D: Database>(
    id: &str,
    outcome: &str,
) -> impl for<'a> FnOnce(&'a mut Transaction<D>) -> HandlerFuture<'a, String, StoreError> + Send + use<D>
{
    let (id, outcome) = (id.to_owned(), outcome.to_owned());
    move |transaction| {
        Box::pin(async move {
            D::affect(transaction, &id).await?;
            Ok(outcome)
        })
    }
}

/// A closure with the type of handlers.
pub(crate) fn handler<D: Database, O, E, F>(handler: F) -> F
where
    F: for<'a> FnOnce(&'a mut Transaction<D>) -> HandlerFuture<'a, O, E> + Send,
{
    handler
}

async fn done<D: Database>(database: &D, name: &str, outcome: &str) -> Answer<String> {
    let work = work::<D>(name, outcome);
    database.guard().run(id(name), work).await.unwrap()
}

async fn a_repeated_request_gets_the_outcome<D: Database>(database: D) {
    let guard = database.guard();
    assert_eq!(guard.look_up::<String>(id("1")).await.unwrap(), None);
    let first = done(&database, "1", "first").await;
    assert_eq!(first, Answer::New("first".to_owned()));
    for _ in 0..3 {
        let again = done(&database, "1", "again").await;
        assert!(again.is_repeated());
        assert_eq!(again.into_outcome(), "first");
    }
    assert_eq!(
        guard.look_up(id("1")).await.unwrap(),
        Some("first".to_owned())
    );
    assert_eq!(database.effects().await, ["1"]);
}

async fn ids_are_of_a_scope<D: Database>(database: D) {
    done(&database, "1", "of tests").await;
    let scope = kew_idempotency::Scope::new("others").unwrap();
    let others = Guard::new(database.store().clone(), scope, GuardOptions::default()).unwrap();
    assert_eq!(others.look_up::<String>(id("1")).await.unwrap(), None);
    let answer = others.run(id("1"), work::<D>("other", "of others")).await;
    assert_eq!(answer.unwrap(), Answer::New("of others".to_owned()));
    assert_eq!(database.effects().await, ["1", "other"]);
}

/// The outcome of one request is never the answer to another.
async fn another_request_with_the_same_id_is_refused<D: Database>(database: D) {
    let guard = database.guard();
    let (withdraw, deposit) = (Request::new(id("1"), b"-10"), Request::new(id("1"), b"+10"));
    let first = guard.run(&withdraw, work::<D>("1", "withdrawn")).await;
    assert_eq!(first.unwrap(), Answer::New("withdrawn".to_owned()));
    let error = guard
        .run(&deposit, work::<D>("2", "deposited"))
        .await
        .unwrap_err();
    assert!(
        matches!(error, GuardError::AnotherRequest { .. }),
        "{error}"
    );
    assert_eq!(error.kind(), Some(ErrorKind::Refused));
    assert!(error.to_string().contains("the id 1 belongs to"), "{error}");
    let error = guard.look_up::<String>(&deposit).await.unwrap_err();
    assert!(
        matches!(error, GuardError::AnotherRequest { .. }),
        "{error}"
    );
    let again = guard.run(&withdraw, work::<D>("1", "again")).await;
    assert_eq!(again.unwrap(), Answer::Repeated("withdrawn".to_owned()));
    assert_eq!(
        guard.look_up(&withdraw).await.unwrap(),
        Some("withdrawn".to_owned())
    );
    // Who has only the id does not compare, and records of such requests are not compared.
    assert!(done(&database, "1", "?").await.is_repeated());
    done(&database, "plain", "done").await;
    let compared = Request::new(id("plain"), b"text");
    let again = guard.run(&compared, work::<D>("plain", "again")).await;
    assert_eq!(again.unwrap(), Answer::Repeated("done".to_owned()));
    assert_eq!(database.effects().await, ["1", "plain"]);
}

async fn two_requests_with_one_id_at_once_are_not_mixed_up<D: Database>(database: D) {
    let deliveries = (0..8_u8).map(|n| {
        let (guard, name) = (database.guard(), format!("request {}", n % 2));
        let (request, work) = (
            Request::new(id("1"), name.as_bytes()),
            work::<D>(&name, &name),
        );
        tokio::spawn(async move { (name, guard.run(request, work).await) })
    });
    let (mut outcomes, mut refused) = (Vec::new(), 0);
    for delivery in deliveries.collect::<Vec<_>>() {
        let (name, answer) = delivery.await.unwrap();
        match answer {
            Ok(answer) => {
                assert_eq!(answer.into_outcome(), name);
                outcomes.push(name);
            }
            Err(GuardError::AnotherRequest { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((outcomes.len(), refused), (4, 4));
    assert_eq!(database.effects().await, outcomes[..1]);
}

async fn a_failed_handler_leaves_nothing<D: Database>(database: D) {
    let fail = handler::<D, String, String, _>(|transaction| {
        Box::pin(async move {
            D::affect(transaction, "1")
                .await
                .map_err(|error| error.to_string())?;
            Err("no money".to_owned())
        })
    });
    for _ in 0..2 {
        let error = database.guard().run(id("1"), fail).await.unwrap_err();
        assert_eq!(error.kind(), None);
        assert!(matches!(error, GuardError::Handler(why) if why == "no money"));
    }
    assert_eq!(database.effects().await, [""; 0]);
    assert!(!done(&database, "1", "done").await.is_repeated());
}

async fn a_panic_leaves_nothing<D: Database>(database: D) {
    let panic = handler::<D, (), StoreError, _>(|transaction| {
        Box::pin(async move {
            D::affect(transaction, "1").await?;
            panic!("a bug of the handler");
        })
    });
    let guard = database.guard();
    let ended = tokio::spawn(async move { guard.run(id("1"), panic).await }).await;
    assert!(ended.unwrap_err().is_panic());
    assert_eq!(database.effects().await, [""; 0]);
    assert!(!done(&database, "1", "done").await.is_repeated());
}

async fn a_dropped_request_leaves_nothing<D: Database>(database: D) {
    let (affected, is_affected) = tokio::sync::oneshot::channel();
    let stand = handler::<D, (), StoreError, _>(move |transaction| {
        Box::pin(async move {
            D::affect(transaction, "1").await?;
            affected.send(()).unwrap();
            std::future::pending().await
        })
    });
    let guard = database.guard();
    let running = tokio::spawn(async move { guard.run(id("1"), stand).await });
    is_affected.await.unwrap();
    running.abort();
    running.await.unwrap_err();
    // Another delivery waits until the database has seen the end of the first one.
    assert!(!done(&database, "1", "done").await.is_repeated());
    assert_eq!(database.effects().await, ["1"]);
}

async fn an_outcome_that_is_too_large_is_rolled_back<D: Database>(database: D) {
    let options = GuardOptions {
        outcome_size_max_bytes: 10,
        ..GuardOptions::default()
    };
    let guard = guard(database.store().clone(), options);
    let error = guard
        .run(id("1"), work::<D>("1", "12345678901"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Refused));
    assert_eq!(
        error.to_string(),
        "the outcome has 11 bytes; 10 are allowed"
    );
    assert_eq!(database.effects().await, [""; 0]);
    guard
        .run(id("1"), work::<D>("1", "1234567890"))
        .await
        .unwrap();
}

async fn an_outcome_of_another_type_is_not_new<D: Database>(database: D) {
    done(&database, "1", "text").await;
    let count = handler::<D, Json<u32>, StoreError, _>(|transaction| {
        Box::pin(async move {
            D::affect(transaction, "1").await?;
            Ok(Json(1))
        })
    });
    let error = database.guard().run(id("1"), count).await.unwrap_err();
    assert!(matches!(error, GuardError::OutcomeUnreadable(_)), "{error}");
    assert_eq!(database.effects().await, ["1"]);
}

async fn a_handler_that_takes_too_long_is_rolled_back<D: Database>(database: D) {
    let options = GuardOptions {
        time_max: Duration::from_millis(1),
        ..GuardOptions::default()
    };
    let stand = handler::<D, (), StoreError, _>(|transaction| {
        Box::pin(async move {
            let _ = D::affect(transaction, "1").await;
            std::future::pending().await
        })
    });
    let guard = guard(database.store().clone(), options);
    let error = guard.run(id("1"), stand).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::TryAgainLater));
    assert_eq!(error.to_string(), "the handler took longer than 1 ms");
    assert!(!done(&database, "1", "done").await.is_repeated());
    assert_eq!(database.effects().await, ["1"]);
}

async fn two_deliveries_at_once_are_one<D: Database>(database: D) {
    let handlers = AtomicU32::new(0);
    let deliver = async || {
        handlers.fetch_add(1, Ordering::Relaxed);
        done(&database, "1", "done").await
    };
    let (a, b, c) = tokio::join!(deliver(), deliver(), deliver());
    let answers = [a, b, c];
    let new = answers.iter().filter(|it| !it.is_repeated()).count();
    assert_eq!((handlers.into_inner(), new), (3, 1));
    assert!(answers.into_iter().all(|it| it.into_outcome() == "done"));
    assert_eq!(database.effects().await, ["1"]);
}

async fn other_ids_go_on<D: Database>(database: D) {
    let names: Vec<String> = (0..20).map(|n| n.to_string()).collect();
    let deliveries = names.iter().map(|name| {
        let (guard, work) = (database.guard(), work::<D>(name, "done"));
        let id = id(name);
        tokio::spawn(async move { guard.run(id, work).await.map(Answer::into_outcome) })
    });
    for delivery in deliveries.collect::<Vec<_>>() {
        assert_eq!(delivery.await.unwrap().unwrap(), "done");
    }
    let mut effects = database.effects().await;
    effects.sort_by_key(|it| it.parse::<u32>().unwrap());
    assert_eq!(effects, names);
}

/// What a handler says by mistake is never half of the work.
async fn a_handler_cannot_end_the_transaction<D: Database>(database: D) {
    for statement in ["COMMIT", "ROLLBACK", "ROLLBACK; BEGIN", "COMMIT; BEGIN"] {
        let say = handler::<D, (), StoreError, _>(|transaction| {
            Box::pin(async move {
                // The handler passes over every error.
                let _ = D::say(transaction, statement).await;
                let _ = D::affect(transaction, statement).await;
                Ok(())
            })
        });
        let error = database.guard().run(id(statement), say).await.unwrap_err();
        let kind = error.kind();
        assert_eq!(kind, Some(ErrorKind::TryAgainLater), "{statement}: {error}");
        let found = database.guard().look_up::<()>(id(statement)).await.unwrap();
        assert_eq!(found, None, "{statement}");
    }
    // The store still works.
    assert!(!done(&database, "1", "done").await.is_repeated());
}

async fn a_failed_statement_is_not_passed_over<D: Database>(database: D) {
    let careless = handler::<D, (), StoreError, _>(|transaction| {
        Box::pin(async move {
            D::affect(transaction, "1").await?;
            D::say(transaction, "CREATE TABLE kew_outcomes (id integer)")
                .await
                .unwrap_err();
            Ok(())
        })
    });
    let ran = database.guard().run(id("1"), careless).await;
    let found = database.guard().look_up::<()>(id("1")).await.unwrap();
    let effects = database.effects().await;
    // SQLite undoes the statement, and PostgreSQL the transaction. Effect and record go together.
    match ran {
        Ok(_) => assert_eq!((found, effects.len()), (Some(()), 1)),
        Err(error) => {
            assert_eq!(error.kind(), Some(ErrorKind::TryAgainLater), "{error}");
            assert_eq!((found, effects.len()), (None, 0));
        }
    }
}

async fn old_records_are_removed<D: Database>(database: D) {
    const DAY: Duration = Duration::from_hours(24);
    let guard = database.guard();
    for name in ["1", "2", "3"] {
        done(&database, name, "done").await;
    }
    database.age(29 * DAY).await;
    assert_eq!(guard.remove_expired(9).await.unwrap(), 0);
    done(&database, "young", "done").await;
    database.age(2 * DAY).await;
    let forever = GuardOptions {
        retention: Retention::Forever,
        ..GuardOptions::default()
    };
    let keeper = crate::database::guard(database.store().clone(), forever);
    assert_eq!(keeper.remove_expired(9).await.unwrap(), 0);
    assert_eq!(guard.remove_expired(2).await.unwrap(), 2);
    assert_eq!(guard.remove_expired(2).await.unwrap(), 1);
    assert!(done(&database, "young", "again").await.is_repeated());
    // This is why records must be kept for longer than work can be delivered again.
    assert!(!done(&database, "1", "again").await.is_repeated());
}

async fn unusual_ids_are_kept_apart<D: Database>(database: D) {
    let long = "é".repeat(127);
    let ids = [
        "a",
        "A",
        "a ",
        "ä",
        "a\u{308}",
        "user|account|7",
        "'; --",
        "%",
        "\\x41",
        &long,
    ];
    for name in ids {
        assert!(!done(&database, name, name).await.is_repeated(), "{name}");
    }
    for name in ids {
        assert_eq!(
            done(&database, name, "?").await,
            Answer::Repeated(name.to_owned())
        );
    }
}

#[tokio::test]
async fn retention_is_longer_than_redelivery() {
    let database = Sqlite::new().await;
    let scope = kew_idempotency::Scope::new("tests").unwrap();
    let options = |keep| GuardOptions {
        retention: Retention::Limited {
            redelivery_max: Duration::from_secs(10),
            keep: Duration::from_secs(keep),
        },
        ..GuardOptions::default()
    };
    let new = |keep| Guard::new(database.store().clone(), scope.clone(), options(keep));
    let error = new(10).unwrap_err();
    assert!(error.to_string().contains("keep them longer"), "{error}");
    assert!(new(11).is_ok());
}

/// How a delivery goes.
#[derive(Clone, Copy, Debug)]
enum Course {
    Done,
    Failed,
    TooLarge,
    Dropped,
}

fn delivery() -> impl Strategy<Value = (u8, Course)> {
    let course = prop_oneof![
        3 => Just(Course::Done),
        1 => Just(Course::Failed),
        1 => Just(Course::TooLarge),
        1 => Just(Course::Dropped),
    ];
    (0..3_u8, course)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any deliveries of a few ids at the same time: each effect happens at most once, and once after the last delivery.
    #[test]
    fn sqlite_does_all_work_once(deliveries in proptest::collection::vec(delivery(), 1..12)) {
        runtime().block_on(async {
            all_at_once(&Sqlite::new().await, &deliveries, "").await;
        });
    }
}

#[tokio::test]
async fn postgres_does_all_work_once() {
    let Some(database) = Postgres::new("postgres_does_all_work_once").await else {
        return;
    };
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = proptest::collection::vec(delivery(), 1..12);
    for round in 0..24 {
        let deliveries = strategy.new_tree(&mut runner).unwrap().current();
        all_at_once(&database, &deliveries, &format!("round {round}, ")).await;
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

async fn all_at_once<D: Database>(database: &D, deliveries: &[(u8, Course)], prefix: &str) {
    let running = deliveries.iter().map(|(number, course)| {
        let (guard, name, course) = (database.guard(), format!("{prefix}{number}"), *course);
        tokio::spawn(async move { deliver::<D>(guard, name, course).await })
    });
    let mut new = 0;
    for delivery in running.collect::<Vec<_>>() {
        new += u32::from(delivery.await.unwrap());
    }
    let before = database.effects().await;
    let mut names: Vec<String> = deliveries
        .iter()
        .map(|(n, _)| format!("{prefix}{n}"))
        .collect();
    names.sort();
    names.dedup();
    let ours = |effects: &[String]| effects.iter().filter(|it| names.contains(it)).count();
    // One that was dropped may have been committed, and nobody was told.
    let dropped = deliveries
        .iter()
        .filter(|(_, course)| matches!(course, Course::Dropped));
    let told = usize::try_from(new).unwrap();
    assert!(
        (told..=told + dropped.count()).contains(&ours(&before)),
        "{before:?} {told}"
    );
    for name in &names {
        assert!(database.happened(name).await <= 1, "{name}");
        done(database, name, "done").await;
        assert_eq!(database.happened(name).await, 1, "{name}");
    }
}

/// Whether the work was done now.
async fn deliver<D: Database>(guard: Guard<D::Store>, name: String, course: Course) -> bool {
    let work = handler::<D, String, StoreError, _>(|transaction| {
        let name = name.clone();
        Box::pin(async move {
            D::affect(transaction, &name).await?;
            match course {
                Course::Done | Course::Dropped => Ok("done".to_owned()),
                Course::Failed => Err(StoreError::refused("by the test")),
                Course::TooLarge => Ok("x".repeat(70_000)),
            }
        })
    });
    let run = guard.run(id(&name), work);
    match course {
        Course::Dropped => {
            // Nothing can be said about one that is dropped, but that it did not happen by half.
            let mut run = std::pin::pin!(run);
            let polled =
                std::future::poll_fn(|context| std::task::Poll::Ready(run.as_mut().poll(context)));
            matches!(polled.await, std::task::Poll::Ready(Ok(Answer::New(_))))
        }
        Course::Done | Course::Failed | Course::TooLarge => {
            matches!(run.await, Ok(Answer::New(_)))
        }
    }
}
