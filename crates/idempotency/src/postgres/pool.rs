//! Connections, a few of them, which are opened when they are needed.
//!
//! Everything that is waited for has a limit, because a server can stand still, and a network can swallow answers. A
//! connection whose answer did not come is closed at once, and its transaction ends with it. The library would keep the
//! connection until the answer comes, and the server would keep its locks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::ClientConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, NoTls, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::PostgresOptions;
use super::refusal::{from_commit, from_postgres};
use super::tls::PostgresTls;
use crate::error::StoreError;

/// A parameter of a statement.
pub(super) type Value<'a> = (&'a (dyn ToSql + Sync), Type);

/// Bounds the connections, and keeps those that are free.
#[derive(Debug)]
pub(super) struct Pool {
    config: Config,
    tls: PostgresTls,
    options: PostgresOptions,
    places: Arc<Semaphore>,
    free: Mutex<Vec<Connection>>,
}

/// A connection. Dropping it closes its socket, also if an answer is still to come: the library would wait for it.
#[derive(Debug)]
struct Connection {
    client: Client,
    moves_bytes: AbortHandle,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.moves_bytes.abort();
    }
}

/// A connection in use. Dropping it closes the connection, and the server rolls back what is open on it.
#[derive(Debug)]
pub(super) struct Borrowed {
    connection: Connection,
    pool: Arc<Pool>,
    _place: OwnedSemaphorePermit,
}

impl Borrowed {
    pub(super) fn client(&self) -> &Client {
        &self.connection.client
    }

    /// Runs one statement, and returns its rows.
    pub(super) async fn query(
        &self,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let rows = self.client().query_typed(statement, values);
        self.pool.within(rows).await
    }

    /// Runs one statement, and returns how many rows it changed.
    pub(super) async fn execute(
        &self,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<u64, StoreError> {
        let count = self.client().execute_typed(statement, values);
        self.pool.within(count).await
    }

    /// Rolls back what is open.
    pub(super) async fn roll_back(&self) -> Result<(), StoreError> {
        self.pool
            .within(self.client().batch_execute("ROLLBACK"))
            .await
    }

    /// Rolls back what is open and gives back the connection, or closes it, without making anybody wait for the answer.
    /// Meanwhile it keeps its place among the connections.
    pub(super) fn roll_back_later(self) {
        tokio::spawn(async move {
            if self.roll_back().await.is_ok() {
                self.give_back();
            }
        });
    }

    /// Commits what is open. A commit that has no answer in time may be done. The server's limit for statements does not
    /// hold for it.
    pub(super) async fn commit(&self) -> Result<(), StoreError> {
        let limit = self.pool.options.answer_max;
        match timeout(limit, self.client().batch_execute("COMMIT")).await {
            Ok(answer) => answer.map_err(from_commit),
            Err(_) => Err(StoreError::unknown(format!(
                "PostgreSQL did not answer the commit in {limit:?}"
            ))),
        }
    }

    /// Gives back a connection on which no transaction is open.
    pub(super) fn give_back(self) {
        let Self {
            connection, pool, ..
        } = self;
        if !connection.client.is_closed() {
            pool.free().push(connection);
        }
    }
}

impl Pool {
    pub(super) fn new(mut config: Config, tls: PostgresTls, options: PostgresOptions) -> Self {
        config.ssl_mode(match tls {
            PostgresTls::Off => SslMode::Disable,
            PostgresTls::Required(_) => SslMode::Require,
        });
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(options.connect_max);
        }
        let places = usize::from(options.connections_max.get());
        Self {
            config,
            tls,
            options,
            places: Arc::new(Semaphore::new(places)),
            free: Mutex::new(Vec::new()),
        }
    }

    /// A connection on which `first` has run. One that was free may be dead; then `first` runs on the next. If one does
    /// not answer at all, the others are given up too: they would not either, and each would cost as much time.
    pub(super) async fn take(self: &Arc<Self>, first: &str) -> Result<Borrowed, StoreError> {
        let wait = self.options.wait_max;
        let place = timeout(wait, self.places.clone().acquire_owned()).await;
        let busy = || {
            let count = self.options.connections_max;
            StoreError::later(format!("all {count} connections were in use for {wait:?}"))
        };
        let gone = |_| StoreError::later("the pool has ended");
        let place = place.map_err(|_| busy())?.map_err(gone)?;
        while let Some(connection) = self.pop() {
            let ran = connection.client.batch_execute(first);
            match timeout(self.options.connect_max, ran).await {
                Ok(Ok(())) => return Ok(self.borrowed(connection, place)),
                Ok(Err(_)) => {}
                Err(_) => self.free().clear(),
            }
        }
        let connection = self.connect().await?;
        self.within(connection.client.batch_execute(first)).await?;
        Ok(self.borrowed(connection, place))
    }

    /// Waits for an answer as long as an answer may take.
    pub(super) async fn within<T, E: Into<StoreError>>(
        &self,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, StoreError> {
        let limit = self.options.answer_max;
        match timeout(limit, answer).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(_) => Err(StoreError::later(format!(
                "PostgreSQL did not answer in {limit:?}"
            ))),
        }
    }

    fn borrowed(self: &Arc<Self>, connection: Connection, place: OwnedSemaphorePermit) -> Borrowed {
        Borrowed {
            connection,
            pool: self.clone(),
            _place: place,
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pop(&self) -> Option<Connection> {
        self.free().pop()
    }

    /// A new connection that is set up, or an error in time.
    async fn connect(&self) -> Result<Connection, StoreError> {
        let limit = self.options.connect_max;
        let connected = timeout(limit, async {
            let connection = self.open().await?;
            let set_up = connection.client.batch_execute(&self.settings()).await;
            set_up.map(|()| connection)
        });
        match connected.await {
            Ok(connected) => connected.map_err(from_postgres),
            Err(_) => Err(StoreError::later(format!(
                "PostgreSQL did not accept a connection in {limit:?}"
            ))),
        }
    }

    async fn open(&self) -> Result<Connection, tokio_postgres::Error> {
        Ok(match &self.tls {
            PostgresTls::Off => {
                let (client, connection) = self.config.connect(NoTls).await?;
                let moves_bytes = serve(connection);
                Connection {
                    client,
                    moves_bytes,
                }
            }
            PostgresTls::Required(config) => {
                let connector = MakeRustlsConnect::new(ClientConfig::clone(config));
                let (client, connection) = self.config.connect(connector).await?;
                let moves_bytes = serve(connection);
                Connection {
                    client,
                    moves_bytes,
                }
            }
        })
    }

    /// A commit is durable when it is answered, no lock is waited for without end, no statement runs without end, and the
    /// server ends a transaction whose client stands still.
    fn settings(&self) -> String {
        let PostgresOptions {
            wait_max,
            statement_max,
            idle_max,
            ..
        } = &self.options;
        let [wait, statement, idle] =
            [wait_max, statement_max, idle_max].map(|it| it.as_millis().clamp(1, MS_MAX));
        format!(
            "SET lock_timeout = {wait}; SET statement_timeout = {statement};
             SET idle_in_transaction_session_timeout = {idle};
             SELECT set_config('synchronous_commit', 'on', false)
             WHERE current_setting('synchronous_commit') = 'off'",
        )
    }
}

/// The longest time that PostgreSQL accepts.
const MS_MAX: u128 = 2_147_483_647;

/// Moves the bytes of a connection until its client is dropped.
fn serve<S, T>(connection: tokio_postgres::Connection<S, T>) -> AbortHandle
where
    tokio_postgres::Connection<S, T>:
        Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
{
    let served = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(target: "kew::idempotency", %error, "a connection to PostgreSQL ended");
        }
    });
    served.abort_handle()
}
