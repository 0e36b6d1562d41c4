//! Stores that fail: only "not found" means new.

use std::time::Duration;

use kew_idempotency::{
    Begun, ErrorKind, GuardOptions, Key, OutboxMessage, Record, Scope, Store, StoreError,
    Transaction,
};

use crate::database::{guard, id};

/// Fails in one way.
#[derive(Clone, Copy, Debug)]
enum Broken {
    Looking(ErrorKind),
    Committing(ErrorKind),
}

fn error(kind: ErrorKind) -> StoreError {
    match kind {
        ErrorKind::Refused => StoreError::refused("broken"),
        ErrorKind::TryAgainLater => StoreError::later("broken"),
        ErrorKind::OutcomeUnknown => StoreError::unknown("broken"),
    }
}

impl Store for Broken {
    type Transaction = Self;

    async fn begin(&self, _: &Key) -> Result<Begun<Self>, StoreError> {
        match self {
            Self::Looking(kind) => Err(error(*kind)),
            Self::Committing(_) => Ok(Begun::New(*self)),
        }
    }

    async fn find(&self, _: &Key) -> Result<Option<Record>, StoreError> {
        match self {
            Self::Looking(kind) | Self::Committing(kind) => Err(error(*kind)),
        }
    }

    async fn remove_older_than(&self, _: &Scope, _: Duration, _: u32) -> Result<u64, StoreError> {
        Ok(0)
    }
}

impl Transaction for Broken {
    async fn enqueue(&mut self, _: &OutboxMessage) -> Result<(), StoreError> {
        Ok(())
    }

    async fn commit(self, _: Record) -> Result<(), StoreError> {
        match self {
            Self::Looking(kind) | Self::Committing(kind) => Err(error(kind)),
        }
    }

    async fn roll_back(self) -> Result<(), StoreError> {
        Ok(())
    }
}

const KINDS: [ErrorKind; 3] = [
    ErrorKind::Refused,
    ErrorKind::TryAgainLater,
    ErrorKind::OutcomeUnknown,
];

#[tokio::test]
async fn an_error_of_the_look_up_is_not_new_work() {
    for kind in KINDS {
        let guard = guard(Broken::Looking(kind), GuardOptions::default());
        let mut has_run = false;
        let error = guard
            .run(id("1"), |_| {
                has_run = true;
                Box::pin(async { Ok::<_, StoreError>(()) })
            })
            .await
            .unwrap_err();
        assert_eq!((error.kind(), has_run), (Some(kind), false));
        let error = guard.look_up::<()>(id("1")).await.unwrap_err();
        assert_eq!(error.kind(), Some(kind));
    }
}

#[tokio::test]
async fn an_error_of_the_commit_is_not_an_outcome() {
    for kind in KINDS {
        let guard = guard(Broken::Committing(kind), GuardOptions::default());
        let work = guard.run(id("1"), |_| Box::pin(async { Ok::<_, StoreError>(()) }));
        assert_eq!(work.await.unwrap_err().kind(), Some(kind));
    }
}

#[test]
fn errors_say_what_to_do() {
    let error = StoreError::later("no room").because("the disk is full");
    assert_eq!(
        error.to_string(),
        "try again later: no room: the disk is full"
    );
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(StoreError::unknown("x").to_string(), "outcome unknown: x");
}
