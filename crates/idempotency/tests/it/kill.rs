//! A process that works on a SQLite file is killed at random moments.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use kew_idempotency::rusqlite::Connection;
use kew_idempotency::{OutboxMessage, OutboxStore as _, StoreError, Transaction as _};

use crate::database::{Database as _, Sqlite, guard, id, open, read_effects};

/// The folder of the database, for the process that is killed.
const FOLDER: &str = "KEW_IDEMPOTENCY_KILL_FOLDER";

/// Where that process begins.
const FIRST: &str = "KEW_IDEMPOTENCY_KILL_FIRST";

const ROUNDS: u32 = 10;

/// Not a test, but the process that is killed: it delivers work until it ends, and says what is done.
#[tokio::test]
async fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let first: u32 = std::env::var(FIRST).unwrap().parse().unwrap();
    let store = open(&Path::new(&folder).join("db")).await;
    let guard = guard(store, Default::default());
    for number in first.. {
        let name = number.to_string();
        let work = guard.run(id(&name), |transaction| {
            let name = name.clone();
            Box::pin(async move {
                Sqlite::affect(transaction, &name).await?;
                let message = OutboxMessage::new("q", name.as_str(), name.as_str());
                transaction.enqueue(&message).await?;
                Ok::<_, StoreError>(name)
            })
        });
        let answer = work.await.unwrap();
        assert_eq!(answer.into_outcome(), name);
        // In one write, so that a line is whole or absent.
        let mut out = std::io::stdout().lock();
        out.write_all(format!("\ndone {name}\n").as_bytes())
            .unwrap();
        out.flush().unwrap();
    }
}

/// Starts the process, and kills it after so many pieces of work. Returns the last one that it has settled.
fn killed_after(count: u32, folder: &Path, first: u32) -> u32 {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["kill::child", "--exact", "--nocapture"]);
    command.env(FOLDER, folder).env(FIRST, first.to_string());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut settled = first;
    for line in lines {
        if let Some(number) = line.unwrap().strip_prefix("done ") {
            settled = number.parse().unwrap();
        }
        if settled >= first + count {
            // The process goes on until the signal is there, somewhere in the next piece of work.
            let _ = child.kill();
        }
    }
    child.wait().unwrap();
    settled
}

#[tokio::test]
async fn a_killed_process_does_no_work_twice_and_loses_none() {
    let database = Sqlite::new().await;
    let folder = database.path().parent().unwrap().to_owned();
    let mut settled = 0;
    for round in 0..ROUNDS {
        // A few are delivered again, as if their settlement was lost.
        let first = settled.max(3) - 3;
        let folder = folder.clone();
        let killed = move || killed_after(3 + round * 7 % 11, &folder, first);
        let last = tokio::task::spawn_blocking(killed).await.unwrap();
        assert!(last > settled, "round {round}");
        settled = last;
    }
    let effects = database.store().read(read_effects).await.unwrap();
    let numbers: Vec<u32> = effects.iter().map(|it| it.parse().unwrap()).collect();
    // All that was settled, and perhaps one that was committed and not settled.
    let count = u32::try_from(numbers.len()).unwrap();
    assert!(
        count == settled + 1 || count == settled + 2,
        "{count} {settled}"
    );
    assert_eq!(numbers, (0..count).collect::<Vec<_>>());
    let pending = database.store().pending("q", 10_000).await.unwrap();
    assert!(pending.iter().map(|it| &it.message.id).eq(&effects));
    let check = |connection: &Connection| {
        let found: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        Ok::<_, StoreError>(found)
    };
    assert_eq!(database.store().read(check).await.unwrap(), "ok");
}
