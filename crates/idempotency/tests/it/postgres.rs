//! What is special about PostgreSQL.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kew_idempotency::tokio_postgres::{self, NoTls};
use kew_idempotency::{
    Answer, ErrorKind, GuardOptions, HandlerFuture, OutboxMessage, OutboxStore, PostgresOptions,
    PostgresStore, PostgresTls, PostgresTransaction, StoreError, Transaction as _,
};
use tokio::sync::OnceCell;

use crate::database::{Database, guard, id};
use crate::server::Server;
use crate::skip::skip;

/// One server for all tests. It ends with the process of the tests.
static SHARED: OnceCell<Option<Server>> = OnceCell::const_new();

/// Numbers the work of `age`, which is done each time.
static AGED: AtomicU32 = AtomicU32::new(0);

/// A database of a server.
#[derive(Clone, Debug)]
pub(crate) struct Postgres {
    store: PostgresStore,
}

/// Says that a test is skipped.
#[track_caller]
fn absent(test: &str) {
    skip(test, "there is no PostgreSQL", "install postgresql");
}

impl Postgres {
    /// A new database. `None`: the machine has no server, and the test is skipped.
    pub(crate) async fn new(test: &str) -> Option<Self> {
        let Some(server) = SHARED.get_or_init(Server::start).await else {
            absent(test);
            return None;
        };
        Some(Self::of(server, &format!("t_{}", test.replace(' ', "_"))).await)
    }

    /// The socket of the server, once there is a database.
    pub(crate) fn socket() -> std::path::PathBuf {
        let server = SHARED.get().and_then(Option::as_ref);
        server.expect("it has a database").socket()
    }

    /// A new database of a server.
    async fn of(server: &Server, name: &str) -> Self {
        say(server, "postgres", &format!("CREATE DATABASE {name}")).await;
        say(
            server,
            name,
            "CREATE TABLE effects (number bigserial, id text NOT NULL)",
        )
        .await;
        Self {
            store: connect(server, name).await.unwrap(),
        }
    }
}

/// Runs statements on a connection of its own.
async fn say(server: &Server, database: &str, statements: &str) {
    let (client, connection) = server.config(database).connect(NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute(statements).await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
}

async fn connect(server: &Server, database: &str) -> Result<PostgresStore, StoreError> {
    let config = server.config(database);
    PostgresStore::connect(config, PostgresTls::Off, PostgresOptions::default()).await
}

impl Database for Postgres {
    type Store = PostgresStore;

    fn store(&self) -> &PostgresStore {
        &self.store
    }

    fn affect<'a>(
        transaction: &'a mut PostgresTransaction,
        id: &str,
    ) -> HandlerFuture<'a, (), StoreError> {
        let id = id.to_owned();
        Box::pin(async move {
            let insert = "INSERT INTO effects (id) VALUES ($1)";
            transaction.client().execute(insert, &[&id]).await?;
            Ok(())
        })
    }

    fn say<'a>(
        transaction: &'a mut PostgresTransaction,
        statement: &'static str,
    ) -> HandlerFuture<'a, (), StoreError> {
        Box::pin(async move { Ok(transaction.client().batch_execute(statement).await?) })
    }

    async fn effects(&self) -> Vec<String> {
        let rows = guard(self.store.clone(), GuardOptions::default());
        let read = rows.run(id("reading"), |transaction| {
            Box::pin(async move {
                let query = "SELECT id FROM effects ORDER BY number";
                let rows = transaction.client().query(query, &[]).await?;
                let effects = rows.iter().map(|row| row.get::<_, String>(0)).collect();
                // Rolled back, as an error.
                Err::<(), _>(Read::Effects(effects))
            })
        });
        match read.await.unwrap_err() {
            kew_idempotency::GuardError::Handler(Read::Effects(effects)) => effects,
            other => panic!("{other:?}"),
        }
    }

    async fn age(&self, by: Duration) {
        let seconds = by.as_secs();
        let work = guard(self.store.clone(), GuardOptions::default());
        let name = format!("aging {}", AGED.fetch_add(1, Ordering::Relaxed));
        let age = work.run(id(&name), |transaction| {
            Box::pin(async move {
                let statements = format!(
                    "UPDATE kew_outcomes SET recorded_at = recorded_at - interval '{seconds} s';
                     UPDATE kew_outbox_leases SET until = until - interval '{seconds} s'"
                );
                Ok::<_, StoreError>(transaction.client().batch_execute(&statements).await?)
            })
        });
        age.await.unwrap();
    }
}

/// What the handler of `effects` returns, so that nothing is recorded.
#[derive(Debug)]
enum Read {
    Effects(Vec<String>),
    Failed(#[expect(dead_code, reason = "it is printed")] StoreError),
}

impl From<tokio_postgres::Error> for Read {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// One transaction takes its place in the order first, and is committed last.
#[tokio::test]
async fn a_late_commit_is_neither_lost_nor_removed_unsent() {
    let Some(database) = Postgres::new("a_late_commit").await else {
        return;
    };
    let guard = database.guard();
    let (enqueued, is_enqueued) = tokio::sync::oneshot::channel();
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let slow = tokio::spawn({
        let guard = guard.clone();
        async move {
            let work = guard.run(id("slow"), |transaction| {
                Box::pin(async move {
                    transaction
                        .enqueue(&OutboxMessage::new("q", "slow", ""))
                        .await?;
                    enqueued.send(()).unwrap();
                    gone.await.unwrap();
                    Ok::<_, StoreError>(())
                })
            });
            work.await.unwrap()
        }
    });
    is_enqueued.await.unwrap();
    let quick = guard.run(id("quick"), |transaction| {
        Box::pin(async move {
            transaction
                .enqueue(&OutboxMessage::new("q", "quick", ""))
                .await
        })
    });
    quick.await.unwrap();
    let store = database.store();
    let holder = kew_idempotency::Holder::new().unwrap();
    assert!(
        store
            .lease("q", &holder, Duration::from_secs(60))
            .await
            .unwrap()
    );
    let pending = store.pending("q", 9).await.unwrap();
    assert_eq!(pending.len(), 1);
    go.send(()).unwrap();
    assert_eq!(slow.await.unwrap(), Answer::New(()));
    assert!(
        store
            .remove_sent("q", &holder, &[pending[0].sequence])
            .await
            .unwrap()
    );
    let left = store.pending("q", 9).await.unwrap();
    assert_eq!(left[0].message.id, "slow");
    assert!(left[0].sequence < pending[0].sequence);
}

/// The server ends in the middle of work, and comes back.
#[tokio::test]
async fn a_server_that_crashes_costs_nothing_and_doubles_nothing() {
    let Some(mut server) = Server::start().await else {
        absent("a_server_that_crashes");
        return;
    };
    let database = Postgres::of(&server, "crashes").await;
    let guard = database.guard();
    let (affected, is_affected) = tokio::sync::oneshot::channel();
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn({
        let guard = guard.clone();
        async move {
            let work = guard.run(id("1"), |transaction| {
                Box::pin(async move {
                    Postgres::affect(transaction, "1").await?;
                    affected.send(()).unwrap();
                    gone.await.unwrap();
                    Ok::<_, StoreError>("done".to_owned())
                })
            });
            work.await
        }
    });
    is_affected.await.unwrap();
    server.crash();
    go.send(()).unwrap();
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::TryAgainLater), "{error}");
    // It is not there, which does not mean that the work is new.
    let absent = guard.look_up::<String>(id("1")).await.unwrap_err();
    assert_eq!(absent.kind(), Some(ErrorKind::TryAgainLater), "{absent}");
    let never = guard.run(id("1"), |_| {
        Box::pin(async { panic!("the handler runs without a database") })
    });
    let error: kew_idempotency::GuardError<StoreError> =
        never.await.map(|it: Answer<()>| it).unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::TryAgainLater), "{error}");

    server.restart().await;
    assert_eq!(database.effects().await, [""; 0]);
    for expected in [
        Answer::New("done".to_owned()),
        Answer::Repeated("done".to_owned()),
    ] {
        let work = guard.run(id("1"), |transaction| {
            Box::pin(async move {
                Postgres::affect(transaction, "1").await?;
                Ok::<_, StoreError>("done".to_owned())
            })
        });
        assert_eq!(work.await.unwrap(), expected);
    }
    assert_eq!(database.effects().await, ["1"]);
}

#[tokio::test]
async fn programs_that_start_together_create_the_tables_once() {
    let Some(server) = SHARED.get_or_init(Server::start).await else {
        absent("programs_that_start_together");
        return;
    };
    say(server, "postgres", "CREATE DATABASE together").await;
    let opened = tokio::join!(
        connect(server, "together"),
        connect(server, "together"),
        connect(server, "together"),
    );
    opened.0.unwrap();
    opened.1.unwrap();
    opened.2.unwrap();
    say(server, "together", "UPDATE kew_idempotency SET version = 3").await;
    let error = connect(server, "together").await.unwrap_err();
    assert!(error.to_string().contains("version 3"), "{error}");
}

/// All places are taken: who waits in vain is told to try again.
#[tokio::test]
async fn connections_are_bounded() {
    let Some(database) = Postgres::new("bounded").await else {
        return;
    };
    let server = SHARED.get().and_then(Option::as_ref).unwrap();
    let options = PostgresOptions {
        connections_max: std::num::NonZeroU16::MIN,
        wait_max: Duration::from_millis(50),
        ..PostgresOptions::default()
    };
    let config = server.config("t_bounded");
    let store = PostgresStore::connect(config, PostgresTls::Off, options)
        .await
        .unwrap();
    let guard = Arc::new(guard(store, GuardOptions::default()));
    let inner = guard.clone();
    let outer = guard.run(id("outer"), |transaction| {
        Box::pin(async move {
            Postgres::affect(transaction, "outer").await?;
            let error = inner.look_up::<()>(id("inner")).await.unwrap_err();
            assert!(error.to_string().contains("all 1 connections"), "{error}");
            assert_eq!(error.kind(), Some(ErrorKind::TryAgainLater));
            Ok::<_, StoreError>(())
        })
    });
    outer.await.unwrap();
    assert_eq!(database.effects().await, ["outer"]);
}

/// A process that stands still with a lock is not waited for without end.
#[tokio::test]
async fn a_lock_that_is_kept_is_waited_for_in_vain_for_a_while() {
    let Some(_database) = Postgres::new("kept").await else {
        return;
    };
    let server = SHARED.get().and_then(Option::as_ref).unwrap();
    let options = PostgresOptions {
        wait_max: Duration::from_millis(200),
        idle_max: Duration::from_secs(1),
        ..PostgresOptions::default()
    };
    let config = server.config("t_kept");
    let store = PostgresStore::connect(config, PostgresTls::Off, options)
        .await
        .unwrap();
    let guard = guard(store, GuardOptions::default());
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let standing = tokio::spawn({
        let guard = guard.clone();
        async move {
            let work = guard.run(id("1"), |_| {
                Box::pin(async move {
                    begun.send(()).unwrap();
                    std::future::pending::<Result<(), StoreError>>().await
                })
            });
            work.await
        }
    });
    has_begun.await.unwrap();
    let again = || async {
        let work = guard.run(id("1"), |transaction| {
            Box::pin(async move { Postgres::affect(transaction, "1").await })
        });
        work.await
    };
    let error = again().await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::TryAgainLater), "{error}");
    // The server ends the transaction that stands still.
    let mut tries = 0;
    while let Err(error) = again().await {
        assert_eq!(error.kind(), Some(ErrorKind::TryAgainLater), "{error}");
        tries += 1;
        assert!(tries < 500, "{error}");
    }
    standing.abort();
}

#[tokio::test]
async fn a_server_that_is_absent_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = tokio_postgres::Config::new();
    config.host_path(folder.path()).user("kew");
    let options = PostgresOptions::default();
    let error = PostgresStore::connect(config, PostgresTls::Off, options)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TryAgainLater, "{error}");
}

/// The certificate is checked, and the connection is encrypted.
#[tokio::test]
async fn tls_is_verified() {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (pair.cert.pem(), pair.signing_key.serialize_pem());
    let Some(server) = Server::start_tls(&certificate, &key).await else {
        absent("tls_is_verified");
        return;
    };
    let tls = PostgresTls::required(Some(certificate.as_bytes())).unwrap();
    let connect = |tls| {
        let options = PostgresOptions::default();
        Box::pin(PostgresStore::connect(server.tcp_config(), tls, options))
    };
    let store = connect(tls).await.unwrap();
    let guard = guard(store, GuardOptions::default());
    let is_encrypted = guard.run(id("1"), |transaction| {
        Box::pin(async move {
            let query = "SELECT ssl::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
            let row = transaction.client().query_one(query, &[]).await?;
            Ok::<_, StoreError>(row.get::<_, String>(0))
        })
    });
    assert_eq!(is_encrypted.await.unwrap(), Answer::New("true".to_owned()));

    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let tls = PostgresTls::required(Some(other.cert.pem().as_bytes())).unwrap();
    let error = connect(tls).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    // A server without TLS is refused, and not spoken to in plain text.
    if let Some(plain) = SHARED.get_or_init(Server::start).await {
        let tls = PostgresTls::required(Some(certificate.as_bytes())).unwrap();
        let options = PostgresOptions::default();
        let refused = PostgresStore::connect(plain.config("postgres"), tls, options).await;
        assert!(refused.is_err());
    }
    let unreadable = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(PostgresTls::required(Some(unreadable)).is_err());
}
