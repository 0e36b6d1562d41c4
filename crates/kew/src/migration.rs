//! Brings a data directory of the format before to the present one, once, before anything else uses it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use kew_broker::{MigrateError, Migrated, OldPartition, PartitionOptions};
use kew_log::{Migrating, OpenError};

use crate::holders;

/// Does nothing if there is no directory, or one of the present format.
pub(crate) fn migrate_if_old(path: &Path) -> Result<()> {
    let begun = Migrating::begin(path).map_err(holders::of_data_dir);
    let begun = begun.with_context(|| format!("cannot use the data directory {}", path.display()));
    let Some(migrating) = begun? else {
        return Ok(());
    };
    tracing::info!(
        "the data directory {} has format 1: making a log of format 2 of it",
        path.display()
    );
    let migrated = migrate(&migrating).with_context(|| {
        format!(
            "cannot bring the data directory {} to format 2; nothing in it was changed",
            path.display()
        )
    })?;
    migrating.finish().with_context(|| {
        format!(
            "cannot finish bringing the data directory {} to format 2: the next start goes on",
            path.display()
        )
    })?;
    report(migrated);
    Ok(())
}

fn migrate(migrating: &Migrating) -> Result<Migrated> {
    let mut entropy = [0; 8];
    getrandom::fill(&mut entropy).context("cannot get random bytes from the operating system")?;
    let options = PartitionOptions::default();
    let old = OldPartition::read(&migrating.old_storage()?, &options).map_err(explain)?;
    let written = old.write_to(
        Arc::new(migrating.new_storage()?),
        &options,
        u64::from_le_bytes(entropy),
    );
    written.map_err(|error| match error {
        MigrateError::Log(error) => explain(error),
        error => error.into(),
    })
}

fn report(migrated: Migrated) {
    tracing::info!(
        queues = migrated.queues,
        messages = migrated.messages,
        bodies = migrated.bodies,
        "the data directory has format 2"
    );
    if migrated.damaged > 0 {
        tracing::warn!(
            bodies = migrated.damaged,
            "damaged bodies were copied with their damage: kew log repair lists them"
        );
    }
}

/// Only the version that wrote a log can repair it.
fn explain(error: OpenError) -> anyhow::Error {
    match error {
        error @ OpenError::Corrupt { .. } => {
            anyhow!("{error}: repair it with the version of Kew that has written it")
        }
        error => error.into(),
    }
}
