//! A PostgreSQL server that stops answering: everything that waits for it ends, in time and with the right kind.

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use kew_idempotency::tokio_postgres::Config;
use kew_idempotency::{
    Answer, ErrorKind, Guard, GuardError, GuardOptions, PostgresOptions, PostgresStore,
    PostgresTls, StoreError,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use crate::database::{Database as _, guard, id};
use crate::postgres::Postgres;

/// Much more than all of the limits below together, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between the store and the server. It passes on what the store says, and can keep what the server answers.
struct Proxy {
    folder: tempfile::TempDir,
    is_stalled: watch::Sender<bool>,
    /// Whether a rollback stalls the server.
    stalls_at_rollback: Arc<AtomicBool>,
    open: Arc<AtomicUsize>,
}

impl Proxy {
    fn start(server: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let is_stalled = watch::Sender::new(false);
        let open = Arc::new(AtomicUsize::new(0));
        let stalls_at_rollback = Arc::new(AtomicBool::new(false));
        let (stalls, at_rollback) = (is_stalled.clone(), stalls_at_rollback.clone());
        let count = open.clone();
        tokio::spawn(async move {
            while let Ok((store, _)) = listener.accept().await {
                let (server, stalls, count) = (server.clone(), stalls.clone(), count.clone());
                let at_rollback = at_rollback.clone();
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    pass(store, server, stalls, at_rollback).await;
                    count.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self {
            folder,
            is_stalled,
            stalls_at_rollback,
            open,
        }
    }

    fn stall(&self, is_stalled: bool) {
        self.is_stalled.send_replace(is_stalled);
    }

    fn config(&self, database: &str) -> Config {
        let mut config = Config::new();
        config.host_path(self.folder.path()).user("kew");
        config.dbname(database).port(5432);
        config
    }
}

/// Moves bytes until the store closes its end.
async fn pass(
    store: UnixStream,
    server: PathBuf,
    stalls: watch::Sender<bool>,
    at_rollback: Arc<AtomicBool>,
) {
    let server = UnixStream::connect(server).await.unwrap();
    let (mut from_store, mut to_store) = store.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let mut stalled = stalls.subscribe();
    let answers = async move {
        let mut bytes = vec![0; 8 << 10];
        while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
            if stalled.wait_for(|it| !it).await.is_err()
                || to_store.write_all(&bytes[..count]).await.is_err()
            {
                return;
            }
        }
    };
    let answers = tokio::spawn(answers);
    let mut bytes = vec![0; 8 << 10];
    while let Ok(count @ 1..) = from_store.read(&mut bytes).await {
        let said = &bytes[..count];
        let is_rollback = said.windows(8).any(|it| it == b"ROLLBACK");
        if is_rollback && at_rollback.load(Ordering::SeqCst) {
            stalls.send_replace(true);
        }
        if to_server.write_all(said).await.is_err() {
            break;
        }
    }
    answers.abort();
}

/// Short limits, each of its own length.
fn options() -> PostgresOptions {
    PostgresOptions {
        wait_max: Duration::from_millis(400),
        connect_max: Duration::from_millis(600),
        statement_max: Duration::from_millis(800),
        answer_max: Duration::from_millis(1_000),
        ..PostgresOptions::default()
    }
}

async fn connect(proxy: &Proxy, database: &str) -> Guard<PostgresStore> {
    connect_with(proxy, database, options()).await
}

async fn connect_with(
    proxy: &Proxy,
    database: &str,
    options: PostgresOptions,
) -> Guard<PostgresStore> {
    let connecting = async || {
        let config = proxy.config(database);
        let connected = PostgresStore::connect(config, PostgresTls::Off, options).await;
        connected.map_err(|error| Some(error.kind()))
    };
    guard(until_done(connecting).await, GuardOptions::default())
}

/// What a server does that answers. On a busy machine it can take longer than the limits.
async fn until_done<T>(work: impl AsyncFn() -> Result<T, Option<ErrorKind>>) -> T {
    let done = async {
        loop {
            match work().await {
                Ok(done) => return done,
                Err(kind) => assert_eq!(kind, Some(ErrorKind::TryAgainLater)),
            }
        }
    };
    in_time(done).await
}

/// What ends in time.
async fn in_time<T>(future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, future).await;
    done.expect("a server that does not answer is waited for without end")
}

/// A database behind a proxy, and the guard of a store without one.
async fn stalling(test: &str) -> Option<(Postgres, Proxy)> {
    let database = Postgres::new(test).await?;
    let proxy = Proxy::start(Postgres::socket());
    Some((database, proxy))
}

async fn book(guard: &Guard<PostgresStore>, name: &str) -> Result<Answer<()>, Option<ErrorKind>> {
    let effect = name.to_owned();
    let work = guard.run(id(name), |transaction| {
        Box::pin(async move { Postgres::affect(transaction, &effect).await })
    });
    work.await.map_err(|error| match error {
        GuardError::Handler(error) => Some(error.kind()),
        other => other.kind(),
    })
}

#[tokio::test]
async fn a_connection_that_is_not_answered_is_given_up() {
    let Some((_database, proxy)) = stalling("not_answered").await else {
        return;
    };
    proxy.stall(true);
    let config = proxy.config("t_not_answered");
    let connecting = PostgresStore::connect(config, PostgresTls::Off, options());
    let error = in_time(connecting).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TryAgainLater, "{error}");
    assert!(error.to_string().contains("600ms"), "{error}");
}

/// Each try costs little time and leaves no connection behind, and afterwards all is well.
#[tokio::test]
async fn a_server_that_stalls_is_tried_again() {
    let Some((database, proxy)) = stalling("stalls").await else {
        return;
    };
    let guard = connect(&proxy, "t_stalls").await;
    // Several connections are free when it begins.
    let many = (0..8).map(|n| {
        let guard = guard.clone();
        tokio::spawn(async move {
            let name = format!("before {n}");
            while let Err(kind) = book(&guard, &name).await {
                assert_eq!(kind, Some(ErrorKind::TryAgainLater));
            }
        })
    });
    for done in many.collect::<Vec<_>>() {
        done.await.unwrap();
    }
    proxy.stall(true);
    let all_closed = async || {
        let closed = async {
            while proxy.open.load(Ordering::SeqCst) > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        in_time(closed).await;
    };
    for _ in 0..2 {
        let error = in_time(book(&guard, "1")).await.unwrap_err();
        assert_eq!(error, Some(ErrorKind::TryAgainLater));
        // One that does not answer is enough: the other seven are not tried one after the other.
        all_closed().await;
        let looked_up = in_time(guard.look_up::<()>(id("1"))).await.unwrap_err();
        assert_eq!(looked_up.kind(), Some(ErrorKind::TryAgainLater));
        let removed = in_time(guard.remove_expired(9)).await.unwrap_err();
        assert_eq!(removed.kind(), ErrorKind::TryAgainLater);
    }
    all_closed().await;
    proxy.stall(false);
    let answer = until_done(async || book(&guard, "1").await).await;
    assert_eq!(answer, Answer::New(()));
    assert_eq!(database.happened("1").await, 1);
}

/// The answer of the commit does not come: the next delivery finds out.
#[tokio::test]
async fn a_commit_that_is_not_answered_is_unknown_and_not_repeated() {
    let Some((database, proxy)) = stalling("unanswered_commit").await else {
        return;
    };
    let guard = connect(&proxy, "t_unanswered_commit").await;
    // The record is written first, and its answer does not come either: that is not yet the commit.
    let stalls = proxy.is_stalled.clone();
    let work = guard.run(id("1"), |transaction| {
        Box::pin(async move {
            Postgres::affect(transaction, "1").await?;
            stalls.send_replace(true);
            Ok::<_, StoreError>(())
        })
    });
    let error = in_time(work).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::TryAgainLater), "{error}");
    proxy.stall(false);
    assert_eq!(database.happened("1").await, 0);

    let statement = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
         'BEGIN PERFORM pg_sleep(3); RETURN NULL; END';
         CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED
         FOR EACH ROW EXECUTE FUNCTION slow()";
    until_done(async || {
        let create = guard.run(id("create"), |transaction| {
            Box::pin(async move {
                let client = transaction.client();
                Ok::<_, StoreError>(client.batch_execute(statement).await?)
            })
        });
        create.await.map_err(|error| error.kind())
    })
    .await;
    // The commit takes three seconds: longer than a statement may, and than the store waits for its answer.
    let committed = async {
        loop {
            match book(&guard, "1").await.unwrap_err() {
                Some(ErrorKind::OutcomeUnknown) => return,
                kind => assert_eq!(kind, Some(ErrorKind::TryAgainLater)),
            }
        }
    };
    in_time(committed).await;
    // Until the server has ended it, its key is locked: it is not known to be new.
    let answer = until_done(async || book(&guard, "1").await).await;
    assert_eq!(answer, Answer::Repeated(()));
    assert_eq!(database.happened("1").await, 1);
}

/// The outcome is known: its connection alone waits for the end of the rollback.
#[tokio::test]
async fn a_stored_outcome_does_not_wait_for_the_rollback() {
    let Some((database, proxy)) = stalling("unanswered_rollback").await else {
        return;
    };
    let options = PostgresOptions {
        connections_max: const { NonZeroU16::new(1).unwrap() },
        answer_max: 100 * PATIENCE,
        ..options()
    };
    let guard = connect_with(&proxy, "t_unanswered_rollback", options).await;
    let answer = until_done(async || book(&guard, "1").await).await;
    assert_eq!(answer, Answer::New(()));
    proxy.stalls_at_rollback.store(true, Ordering::SeqCst);
    let answer = until_done(async || book(&guard, "1").await).await;
    assert_eq!(answer, Answer::Repeated(()));
    // The store has no other connection, and this one is not free.
    let error = in_time(book(&guard, "2")).await.unwrap_err();
    assert_eq!(error, Some(ErrorKind::TryAgainLater));
    proxy.stalls_at_rollback.store(false, Ordering::SeqCst);
    proxy.stall(false);
    let answer = until_done(async || book(&guard, "2").await).await;
    assert_eq!(answer, Answer::New(()));
    assert_eq!(database.effects().await, ["1", "2"]);
}

/// A statement of a handler that hangs at the server keeps neither its lock nor its handler.
#[tokio::test]
async fn a_statement_that_hangs_is_ended_by_the_server() {
    let Some((database, proxy)) = stalling("hanging").await else {
        return;
    };
    let guard = connect(&proxy, "t_hanging").await;
    let sleeps = || {
        guard.run(id("1"), |transaction| {
            Box::pin(async move {
                Postgres::affect(transaction, "1").await?;
                let client = transaction.client();
                Ok::<_, StoreError>(client.batch_execute("SELECT pg_sleep(600)").await?)
            })
        })
    };
    let ended = async {
        // The handler's own error, from the database.
        while !sleeps().await.unwrap_err().to_string().contains("57014") {}
    };
    in_time(ended).await;
    let answer = until_done(async || book(&guard, "1").await).await;
    assert_eq!(answer, Answer::New(()));
    // The same with a handler whose future was dropped.
    let dropped = tokio::time::timeout(Duration::from_millis(100), {
        guard.run(id("2"), |transaction| {
            Box::pin(async move {
                let client = transaction.client();
                Ok::<_, StoreError>(client.batch_execute("SELECT pg_sleep(600)").await?)
            })
        })
    });
    dropped.await.unwrap_err();
    let again = until_done(async || book(&guard, "2").await).await;
    assert_eq!(again, Answer::New(()));
    assert_eq!(database.effects().await, ["1", "2"]);
}

/// Two workers with connections of their own get the same request at once: one effect, and one outcome.
#[tokio::test]
async fn two_workers_with_the_same_request_do_it_once() {
    let Some((database, proxy)) = stalling("two_workers").await else {
        return;
    };
    let workers = [connect(&proxy, "t_two_workers").await, database.guard()];
    let deliveries = (0..20_usize).map(|n| {
        let guard = workers[n % 2].clone();
        tokio::spawn(async move {
            let name = (n / 4).to_string();
            let mine = n.to_string();
            loop {
                let work = guard.run(id(&name), |transaction| {
                    let (name, mine) = (name.clone(), mine.clone());
                    Box::pin(async move {
                        Postgres::affect(transaction, &name).await?;
                        Ok::<_, StoreError>(mine)
                    })
                });
                match work.await {
                    Ok(answer) => return (name, answer.into_outcome()),
                    Err(error) => assert_eq!(error.kind(), Some(ErrorKind::TryAgainLater)),
                }
            }
        })
    });
    let mut outcomes = std::collections::BTreeMap::new();
    for delivery in deliveries.collect::<Vec<_>>() {
        let (name, outcome) = delivery.await.unwrap();
        let first = outcomes.entry(name).or_insert_with(|| outcome.clone());
        assert_eq!(*first, outcome);
    }
    let mut effects = database.effects().await;
    effects.sort();
    assert_eq!(effects, ["0", "1", "2", "3", "4"]);
}

#[tokio::test]
async fn limits_that_contradict_each_other_are_refused() {
    let options = PostgresOptions {
        answer_max: Duration::from_secs(10),
        ..PostgresOptions::default()
    };
    let error = PostgresStore::connect(Config::new(), PostgresTls::Off, options)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(
        error.to_string().contains("make answer_max longer"),
        "{error}"
    );
}
