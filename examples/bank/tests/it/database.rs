//! The stores that tests run on: SQLite always, and PostgreSQL where the machine has it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use kew_bank::ledger::Ledger;
use kew_bank::money::Money;
use kew_bank::names::{AccountKey, TransactionId};
use kew_bank::transaction::{Transaction, Unknown};
use kew_idempotency::StoreError;
use kew_idempotency::rusqlite::Connection;
use kew_idempotency::tokio_postgres::NoTls;
use tempfile::TempDir;
use tokio::sync::{OnceCell, oneshot};

use crate::server::Server;
use crate::skip::skip;
use crate::url::url;

/// One server for all tests. It ends with the process of the tests.
static SHARED: OnceCell<Option<Server>> = OnceCell::const_new();

static COUNT: AtomicU32 = AtomicU32::new(0);

/// New stores.
pub(crate) struct Database {
    pub(crate) ledger: Ledger,
    /// The name of the database on the server.
    name: Option<String>,
    _folder: Option<TempDir>,
}

impl Database {
    pub(crate) async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bank.sqlite");
        let ledger = Ledger::open(path.to_str().unwrap()).await.unwrap();
        Self {
            ledger,
            name: None,
            _folder: Some(folder),
        }
    }

    async fn postgres(server: &Server) -> Self {
        let name = format!("bank_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        run_on_server(server, "postgres", &format!("CREATE DATABASE {name}")).await;
        let ledger = Ledger::open(&url(server, &name)).await.unwrap();
        Self {
            ledger,
            name: Some(name),
            _folder: None,
        }
    }

    /// One of each kind.
    pub(crate) async fn each(test: &str) -> Vec<Self> {
        let mut all = vec![Self::sqlite().await];
        match SHARED.get_or_init(Server::start).await {
            Some(server) => all.push(Self::postgres(server).await),
            None => skip(
                &format!("{test} on PostgreSQL"),
                "there is no PostgreSQL",
                "install postgresql",
            ),
        }
        all
    }

    /// Changes the stores behind the bank's back.
    pub(crate) async fn run(&self, statement: &'static str) {
        match (&self.ledger, &self.name) {
            (Ledger::Sqlite(store), _) => {
                let run = move |connection: &Connection| {
                    Ok::<_, StoreError>(connection.execute_batch(statement)?)
                };
                store.write(run).await.unwrap();
            }
            (Ledger::Postgres(_), name) => {
                let server = SHARED.get().unwrap().as_ref().unwrap();
                run_on_server(server, name.as_ref().unwrap(), statement).await;
            }
        }
    }

    /// Holds the stores in SQLite, so that all other work on them waits until the guard is dropped.
    pub(crate) async fn hold(&self) -> mpsc::Sender<()> {
        let Ledger::Sqlite(store) = &self.ledger else {
            panic!("PostgreSQL is not held");
        };
        let (guard, is_dropped) = mpsc::channel::<()>();
        let (held, is_held) = oneshot::channel();
        let wait = move |_: &Connection| {
            let _ = held.send(());
            let _ = is_dropped.recv();
            Ok::<_, StoreError>(())
        };
        let store = store.clone();
        tokio::spawn(async move { store.write(wait).await });
        is_held.await.unwrap();
        guard
    }

    pub(crate) async fn balance(&self, key: &str) -> Option<Money> {
        let balances = self.ledger.balances(1_000).await.unwrap();
        let found = balances.into_iter().find(|it| it.key == key);
        found.map(|it| it.balance)
    }

    /// How many transactions were booked.
    pub(crate) async fn booked(&self) -> usize {
        self.ledger.transactions(0, 1_000).await.unwrap().len()
    }
}

async fn run_on_server(server: &Server, database: &str, statement: &str) {
    let (client, connection) = server.config(database).connect(NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute(statement).await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
}

pub(crate) fn id(number: u8) -> TransactionId {
    TransactionId::from_random([number; 16])
}

pub(crate) fn key() -> AccountKey {
    AccountKey::new("ann", "giro").unwrap()
}

pub(crate) fn transaction(number: u8, amount: &str) -> Transaction {
    Transaction {
        key: key(),
        id: id(number),
        amount: amount.parse().unwrap(),
        unknown: Unknown::default(),
    }
}
