//! Books a transfer once, although its message comes twice.
//!
//! Run it with `cargo run -p kew-idempotency --example transfer`. The messages come from a list here; a worker takes
//! them from a queue and settles each one after `run` has returned.
#![expect(clippy::print_stdout, reason = "the example shows what it does")]

use kew_idempotency::rusqlite::{Connection, params};
use kew_idempotency::{
    BusinessId, Guard, GuardError, GuardOptions, Json, Request, Scope, SqliteOptions, SqliteStore,
    StoreError,
};

/// The body of a message.
#[derive(Clone)]
struct Transfer {
    id: &'static str,
    from: &'static str,
    to: &'static str,
    cents: i64,
}

/// What is recorded, and returned when the message comes again.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Booked {
    balance_of_sender_cents: i64,
}

/// Why a transfer is not booked.
#[derive(Debug, thiserror::Error)]
enum TransferError {
    #[error("{0} does not have {1} cents")]
    NotEnough(&'static str, i64),
    /// The database: the message is delivered again.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("bank.sqlite");
    let store = SqliteStore::open(path, SqliteOptions::default()).await?;
    store
        .write(|connection: &Connection| {
            connection.execute_batch(
                "CREATE TABLE accounts (name TEXT PRIMARY KEY, cents INTEGER NOT NULL) STRICT;
                 INSERT INTO accounts VALUES ('ann', 1000), ('bob', 0)",
            )?;
            Ok::<_, StoreError>(())
        })
        .await?;
    let guard = Guard::new(store, Scope::new("transfers")?, GuardOptions::default())?;

    let transfer = |id, cents| Transfer {
        id,
        from: "ann",
        to: "bob",
        cents,
    };
    // The second message is the first one, delivered again. The last one is another transfer with the id of the first.
    for transfer in [
        transfer("t-1", 700),
        transfer("t-1", 700),
        transfer("t-2", 700),
        transfer("t-1", 1),
    ] {
        let (id, text) = (BusinessId::new(transfer.id)?, transfer.id);
        // With a queue, the body of the message.
        let Transfer {
            from, to, cents, ..
        } = transfer;
        let request = Request::new(&id, format!("{from}|{to}|{cents}").as_bytes());
        let booked = guard.run(request, |transaction| {
            Box::pin(transaction.call(move |connection| book(connection, &transfer)))
        });
        match booked.await {
            Ok(answer) if answer.is_repeated() => println!("{text} was booked before: {answer:?}"),
            Ok(answer) => println!("{text} is booked: {answer:?}"),
            Err(GuardError::Handler(error @ TransferError::NotEnough(..))) => {
                println!("{text} is rejected: {error}");
            }
            Err(error @ GuardError::AnotherRequest { .. }) => {
                println!("{text} is rejected: {error}")
            }
            // Nothing is booked, or the answer of the commit is lost: leave the message to its next delivery.
            Err(error) => return Err(error.into()),
        }
    }
    let removed = guard.remove_expired(10_000).await?;
    println!("{removed} old records were removed");
    Ok(())
}

/// The work: two changes that happen together, or not at all.
fn book(connection: &Connection, transfer: &Transfer) -> Result<Json<Booked>, TransferError> {
    let Transfer {
        from, to, cents, ..
    } = *transfer;
    let change = |statement, name| {
        let changed = connection.execute(statement, params![name, cents]);
        changed.map_err(StoreError::from)
    };
    let withdraw = "UPDATE accounts SET cents = cents - ?2 WHERE name = ?1 AND cents >= ?2";
    if change(withdraw, from)? == 0 {
        return Err(TransferError::NotEnough(from, cents));
    }
    change("UPDATE accounts SET cents = cents + ?2 WHERE name = ?1", to)?;
    let balance_of_sender_cents = connection
        .query_row(
            "SELECT cents FROM accounts WHERE name = ?1",
            [from],
            |row| row.get(0),
        )
        .map_err(StoreError::from)?;
    Ok(Json(Booked {
        balance_of_sender_cents,
    }))
}
