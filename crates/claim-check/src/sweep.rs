//! Removes what no message refers to any more.
//!
//! An object is an orphan when it is older than any message that refers to it can be. Nothing else shows it: a crash
//! between store and send, or between settlement and release, leaves the object without a trace. Ages are taken by the
//! clock of the store, so that a machine with a wrong clock sweeps nothing that is young.

use std::io::ErrorKind;
use std::path::PathBuf;

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::StreamExt as _;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt as _, PutPayload};

use crate::check::ClaimCheck;
use crate::error::Error;
use crate::name;

/// How far the clocks of senders, which name the days, may be wrong before their objects are swept later.
const CLOCKS: TimeDelta = TimeDelta::days(1);

/// How the names of markers begin.
const MARKER: &str = "sweep-";

/// What one sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many objects it looked at.
    pub looked_at: u64,
    /// How many orphans it removed.
    pub removed: u64,
    /// Whether there may be more: it stopped at its limit.
    pub has_more: bool,
}

impl ClaimCheck {
    /// Removes objects that are older than [`ClaimCheckOptions::orphan_age`](crate::ClaimCheckOptions::orphan_age), at
    /// most `limit` of them. Call it once a day or so, in one process for each folder, and again while
    /// [`Swept::has_more`].
    ///
    /// It looks only at folders whose day is that long ago. It can run at any time, also while messages are checked in
    /// and out. In a folder of the file system it also removes unfinished writes, and days that are empty.
    pub async fn sweep(&self, limit: u32) -> Result<Swept, Error> {
        let before = self.swept_before().await?;
        let mut swept = Swept::default();
        for day in self.days(before).await? {
            if swept.has_more {
                break;
            }
            self.sweep_day(&day, before, limit, &mut swept).await?;
        }
        tracing::info!(
            target: "kew::claim_check",
            looked_at = swept.looked_at,
            removed = swept.removed,
            "swept"
        );
        Ok(swept)
    }

    /// What was stored before this time is an orphan. By the clock of the store: an object is written to read it.
    async fn swept_before(&self) -> Result<DateTime<Utc>, Error> {
        let marker = format!("{MARKER}{}", name::random()?);
        let path = self.prefix.clone().join(marker.as_str());
        let objects = &self.store.objects;
        self.within(&marker, objects.put(&path, PutPayload::from_static(b"")))
            .await?;
        let found = self.within(&marker, objects.head(&path)).await;
        self.within(&marker, objects.delete(&path)).await?;
        let age = TimeDelta::from_std(self.options.orphan_age).unwrap_or(TimeDelta::MAX);
        let now = found?.last_modified;
        Ok(now
            .checked_sub_signed(age)
            .unwrap_or(DateTime::<Utc>::MIN_UTC))
    }

    /// The folders of days that can have orphans. Removes markers of sweeps that did not come to their end.
    async fn days(&self, before: DateTime<Utc>) -> Result<Vec<Path>, Error> {
        let objects = &self.store.objects;
        let listed = objects.list_with_delimiter(Some(&self.prefix));
        let listed = self.within("list of days", listed).await?;
        for found in listed.objects {
            let name = found.location.filename().unwrap_or_default();
            if found.last_modified < before && name.starts_with(MARKER) {
                let delete = objects.delete(&found.location);
                self.within(name, delete).await?;
            }
        }
        let last = before.checked_add_signed(CLOCKS).unwrap_or(before);
        let is_old = |path: &Path| {
            path.filename()
                .and_then(name::day_of)
                .is_some_and(|day| day <= last.date_naive())
        };
        Ok(listed.common_prefixes.into_iter().filter(is_old).collect())
    }

    async fn sweep_day(
        &self,
        day: &Path,
        before: DateTime<Utc>,
        limit: u32,
        swept: &mut Swept,
    ) -> Result<(), Error> {
        let mut listed = self.store.objects.list(Some(day));
        loop {
            let next = async { listed.next().await.transpose() };
            let Some(found) = self.within("list of a day", next).await? else {
                break;
            };
            swept.looked_at += 1;
            if !is_orphan(&found, before) {
                continue;
            }
            if swept.removed >= u64::from(limit) {
                swept.has_more = true;
                return Ok(());
            }
            let object = found.location.as_ref().to_owned();
            let delete = self.store.objects.delete(&found.location);
            match self.within(&object, delete).await {
                Ok(()) => swept.removed += 1,
                // It was released meanwhile.
                Err(Error::Missing { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(folder) = &self.store.folder {
            let folder: PathBuf = day
                .parts()
                .fold(folder.to_path_buf(), |path, part| path.join(part.as_ref()));
            let tidied = tokio::task::spawn_blocking(move || tidy(&folder, before)).await;
            swept.removed += tidied
                .map_err(Error::unavailable)?
                .map_err(Error::unavailable)?;
        }
        Ok(())
    }
}

fn is_orphan(found: &ObjectMeta, before: DateTime<Utc>) -> bool {
    found.last_modified < before && found.location.filename().is_some_and(name::is_random)
}

/// Removes unfinished writes of a day, which are not listed as objects, and the folder if nothing is left in it.
/// Returns how many files it removed.
fn tidy(folder: &std::path::Path, before: DateTime<Utc>) -> std::io::Result<u64> {
    let mut removed = 0;
    let mut is_empty = true;
    let entries = match std::fs::read_dir(folder) {
        // Another sweep removed it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let modified: DateTime<Utc> = match entry.metadata() {
            // It was released meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            metadata => metadata?.modified()?.into(),
        };
        let is_unfinished = entry.file_name().to_str().is_some_and(name::is_unfinished);
        if is_unfinished && modified < before {
            match std::fs::remove_file(entry.path()) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => removed += 1,
            }
        } else {
            is_empty = false;
        }
    }
    if is_empty {
        // A sender may have written into it since.
        let _ = std::fs::remove_dir(folder);
    }
    Ok(removed)
}
