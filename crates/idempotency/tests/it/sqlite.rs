//! What is special about SQLite.

use std::time::Duration;

use kew_idempotency::rusqlite::Connection;
use kew_idempotency::{
    Answer, ErrorKind, GuardOptions, Request, SqliteOptions, SqliteStore, StoreError,
};

use crate::database::{Database, Sqlite, guard, id, open, read_effects};

#[tokio::test]
async fn commits_are_durable() {
    let database = Sqlite::new().await;
    let settings = |connection: &Connection| {
        let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
        Ok::<_, StoreError>((mode, synchronous))
    };
    // 2 is FULL.
    let found = database.store().read(settings).await.unwrap();
    assert_eq!(found, ("wal".to_owned(), 2));
}

/// Two processes, with connections of their own, deliver the same work.
#[tokio::test]
async fn two_stores_of_one_file_do_work_once() {
    let database = Sqlite::new().await;
    let other = open(&database.path()).await;
    let guards = [database.guard(), guard(other, GuardOptions::default())];
    let deliveries = (0..40_usize).map(|n| {
        let guard = guards[n % 2].clone();
        tokio::spawn(async move {
            let name = (n / 4).to_string();
            let work = guard.run(id(&name), |transaction| {
                let name = name.clone();
                Box::pin(async move { Sqlite::affect(transaction, &name).await })
            });
            work.await.map(|it| it.is_repeated())
        })
    });
    let mut new = 0;
    for delivery in deliveries.collect::<Vec<_>>() {
        new += u32::from(!delivery.await.unwrap().unwrap());
    }
    assert_eq!((new, database.effects().await.len()), (10, 10));
}

/// Another writer keeps the file: nothing is known to be new, and the handler does not run.
#[tokio::test]
async fn a_busy_file_is_not_new_work() {
    let database = Sqlite::new().await;
    let options = SqliteOptions {
        busy_timeout: Duration::from_millis(1),
        ..SqliteOptions::default()
    };
    let store = SqliteStore::open(database.path(), options).await.unwrap();
    let guard = guard(store, GuardOptions::default());
    let writer = Connection::open(database.path()).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = guard
        .run(id("1"), |_| {
            Box::pin(async { panic!("the handler runs") as Result<(), StoreError> })
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::TryAgainLater), "{error}");
    writer.execute_batch("ROLLBACK").unwrap();
    let work = guard.run(id("1"), |transaction| {
        Box::pin(async move { Sqlite::affect(transaction, "1").await })
    });
    assert_eq!(work.await.unwrap(), Answer::New(()));
}

#[tokio::test]
async fn a_transaction_is_waited_for_in_vain_for_a_while() {
    let database = Sqlite::new().await;
    let options = SqliteOptions {
        wait_max: Duration::from_millis(1),
        ..SqliteOptions::default()
    };
    let store = SqliteStore::open(database.path(), options).await.unwrap();
    let guard = guard(store, GuardOptions::default());
    let inner = guard.clone();
    let outer = guard.run(id("outer"), |_| {
        Box::pin(async move {
            let error = inner.look_up::<()>(id("inner")).await.unwrap_err();
            assert!(
                error.to_string().contains("other transactions kept"),
                "{error}"
            );
            Ok::<_, StoreError>(())
        })
    });
    outer.await.unwrap();
}

/// A statement ends the transaction by itself, and the handler goes on as if nothing had happened.
#[tokio::test]
async fn what_follows_the_end_of_a_transaction_is_not_committed() {
    let database = Sqlite::new().await;
    let create = |connection: &Connection| {
        connection.execute_batch(
            "CREATE TABLE one (id INTEGER PRIMARY KEY); INSERT INTO one VALUES (1)",
        )?;
        Ok::<_, StoreError>(())
    };
    database.store().write(create).await.unwrap();
    let guard = database.guard();
    let careless = guard.run(id("1"), |transaction| {
        Box::pin(async move {
            let work = |connection: &Connection| {
                connection.execute("INSERT INTO effects VALUES ('before')", [])?;
                let _ = connection.execute("INSERT OR ROLLBACK INTO one VALUES (1)", []);
                let _ = connection.execute("INSERT INTO effects VALUES ('after')", []);
                Ok::<_, StoreError>(())
            };
            let _ = transaction.call(work).await;
            Ok::<_, StoreError>(())
        })
    });
    let error = careless.await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::TryAgainLater), "{error}");
    assert_eq!(database.effects().await, [""; 0]);
}

#[tokio::test]
async fn a_panic_on_the_thread_reaches_the_caller_and_not_the_store() {
    let database = Sqlite::new().await;
    let store = database.store().clone();
    let write = tokio::spawn(async move {
        store
            .write(|connection: &Connection| -> Result<(), StoreError> {
                connection.execute("INSERT INTO effects VALUES ('1')", [])?;
                panic!("a bug");
            })
            .await
    });
    assert!(write.await.unwrap_err().is_panic());
    // Nothing is open: a writer of another process is not kept out.
    let writer = Connection::open(database.path()).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE; ROLLBACK").unwrap();
    assert_eq!(database.effects().await, [""; 0]);
}

/// Its process goes on, and begins no other transaction.
#[tokio::test]
async fn a_dropped_transaction_lets_others_write() {
    let database = Sqlite::new().await;
    let (affected, is_affected) = tokio::sync::oneshot::channel();
    let guard = database.guard();
    let running = tokio::spawn(async move {
        let stand = guard.run(id("1"), |transaction| {
            Box::pin(async move {
                Sqlite::affect(transaction, "1").await?;
                affected.send(()).unwrap();
                std::future::pending::<Result<(), StoreError>>().await
            })
        });
        stand.await
    });
    is_affected.await.unwrap();
    running.abort();
    running.await.unwrap_err();
    let writer = Connection::open(database.path()).unwrap();
    // The thread is about to roll back.
    writer.busy_timeout(Duration::from_secs(60)).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE; ROLLBACK").unwrap();
}

#[tokio::test]
async fn reads_do_not_write() {
    let database = Sqlite::new().await;
    let read = |connection: &Connection| {
        connection.execute("INSERT INTO effects VALUES ('1')", [])?;
        read_effects(connection)
    };
    assert_eq!(database.store().read(read).await.unwrap(), ["1"]);
    assert_eq!(database.effects().await, [""; 0]);
}

#[tokio::test]
async fn tables_of_version_1_are_brought_up_to_date() {
    let database = Sqlite::new().await;
    let old = |connection: &Connection| {
        connection.execute_batch(
            "INSERT INTO kew_outcomes (scope, id, outcome, recorded_at_ms) VALUES ('tests', '1', x'64', 0);
             ALTER TABLE kew_outcomes DROP COLUMN fingerprint; UPDATE kew_idempotency SET version = 1",
        )?;
        Ok::<_, StoreError>(())
    };
    database.store().write(old).await.unwrap();
    for _ in 0..2 {
        let guard = guard(open(&database.path()).await, GuardOptions::default());
        let request = Request::new(id("1"), b"compared with nothing");
        let found = guard.look_up::<String>(request).await.unwrap();
        assert_eq!(found.as_deref(), Some("d"));
    }
}

#[tokio::test]
async fn tables_of_another_version_are_refused() {
    let database = Sqlite::new().await;
    let change = |connection: &Connection| {
        connection.execute("UPDATE kew_idempotency SET version = 3", [])?;
        Ok::<_, StoreError>(())
    };
    database.store().write(change).await.unwrap();
    let error = SqliteStore::open(database.path(), SqliteOptions::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("version 3"), "{error}");
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("absent/db");
    let error = SqliteStore::open(path, SqliteOptions::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TryAgainLater, "{error}");
    let path = folder.path().join("text");
    std::fs::write(&path, "this is not a database, but a text of some length").unwrap();
    let error = SqliteStore::open(path, SqliteOptions::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
}
