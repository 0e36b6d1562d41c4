//! Connections, a few of them, which are opened when they are needed.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::ClientConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
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
    free: Mutex<Vec<Client>>,
}

/// A connection in use. Dropping it closes the connection, and the server rolls back what is open on it.
#[derive(Debug)]
pub(super) struct Borrowed {
    client: Client,
    pool: Arc<Pool>,
    _place: OwnedSemaphorePermit,
}

impl Borrowed {
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Runs one statement, and returns its rows.
    pub(super) async fn query(
        &self,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let rows = self.client.query_typed(statement, values);
        self.pool.within(rows).await
    }

    /// Runs one statement, and returns how many rows it changed.
    pub(super) async fn execute(
        &self,
        statement: &str,
        values: &[Value<'_>],
    ) -> Result<u64, StoreError> {
        let count = self.client.execute_typed(statement, values);
        self.pool.within(count).await
    }

    /// Rolls back what is open.
    pub(super) async fn roll_back(&self) -> Result<(), StoreError> {
        self.pool
            .within(self.client.batch_execute("ROLLBACK"))
            .await
    }

    /// Commits what is open. A commit that has no answer in time may be done.
    pub(super) async fn commit(&self) -> Result<(), StoreError> {
        let limit = self.pool.options.answer_max;
        match timeout(limit, self.client.batch_execute("COMMIT")).await {
            Ok(answer) => answer.map_err(from_commit),
            Err(_) => Err(StoreError::unknown(format!(
                "PostgreSQL did not answer the commit in {limit:?}"
            ))),
        }
    }

    /// Gives back a connection on which no transaction is open.
    pub(super) fn give_back(self) {
        let Self { client, pool, .. } = self;
        if !client.is_closed() {
            let mut free = pool.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.push(client);
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
            config.connect_timeout(options.wait_max);
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

    /// A connection on which `first` has run. One that was free may be dead; then `first` runs on the next.
    pub(super) async fn take(self: &Arc<Self>, first: &str) -> Result<Borrowed, StoreError> {
        let wait = self.options.wait_max;
        let place = timeout(wait, self.places.clone().acquire_owned()).await;
        let busy = || {
            let count = self.options.connections_max;
            StoreError::later(format!("all {count} connections were in use for {wait:?}"))
        };
        let gone = |_| StoreError::later("the pool has ended");
        let place = place.map_err(|_| busy())?.map_err(gone)?;
        while let Some(client) = self.pop() {
            if self.within(client.batch_execute(first)).await.is_ok() {
                return Ok(self.borrowed(client, place));
            }
        }
        let client = self.connect().await?;
        self.within(client.batch_execute(first)).await?;
        Ok(self.borrowed(client, place))
    }

    /// Waits for an answer as long as an answer may take.
    async fn within<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, StoreError> {
        match timeout(self.options.answer_max, answer).await {
            Ok(answer) => answer.map_err(from_postgres),
            Err(_) => Err(self.no_answer()),
        }
    }

    fn no_answer(&self) -> StoreError {
        let limit = self.options.answer_max;
        StoreError::later(format!("PostgreSQL did not answer in {limit:?}"))
    }

    fn borrowed(self: &Arc<Self>, client: Client, place: OwnedSemaphorePermit) -> Borrowed {
        Borrowed {
            client,
            pool: self.clone(),
            _place: place,
        }
    }

    fn pop(&self) -> Option<Client> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.pop()
    }

    async fn connect(&self) -> Result<Client, StoreError> {
        let wait = self.options.wait_max;
        let client = match &self.tls {
            PostgresTls::Off => {
                let (client, connection) = timeout(wait, self.config.connect(NoTls))
                    .await
                    .map_err(|_| self.no_connection())?
                    .map_err(from_postgres)?;
                serve(connection);
                client
            }
            PostgresTls::Required(config) => {
                let connector = MakeRustlsConnect::new(ClientConfig::clone(config));
                let (client, connection) = timeout(wait, self.config.connect(connector))
                    .await
                    .map_err(|_| self.no_connection())?
                    .map_err(from_postgres)?;
                serve(connection);
                client
            }
        };
        self.within(client.batch_execute(&self.settings())).await?;
        Ok(client)
    }

    fn no_connection(&self) -> StoreError {
        let wait = self.options.wait_max;
        StoreError::later(format!(
            "PostgreSQL did not accept a connection in {wait:?}"
        ))
    }

    /// A commit is durable when it is answered, no lock is waited for without end, and the server ends a transaction
    /// whose client stands still.
    fn settings(&self) -> String {
        format!(
            "SET lock_timeout = {}; SET idle_in_transaction_session_timeout = {};
             SELECT set_config('synchronous_commit', 'on', false)
             WHERE current_setting('synchronous_commit') = 'off'",
            self.options.wait_max.as_millis().clamp(1, MS_MAX),
            self.options.idle_max.as_millis().clamp(1, MS_MAX),
        )
    }
}

/// The longest time that PostgreSQL accepts.
const MS_MAX: u128 = 2_147_483_647;

/// Moves the bytes of a connection until its client is dropped.
fn serve<S, T>(connection: tokio_postgres::Connection<S, T>)
where
    tokio_postgres::Connection<S, T>:
        Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
{
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(target: "kew::idempotency", %error, "a connection to PostgreSQL ended");
        }
    });
}
