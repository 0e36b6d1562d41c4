//! Removes what no message refers to any more.
//!
//! An object is an orphan when it is older than any message that refers to it can be. Nothing else shows it: a crash
//! between store and send, or between settlement and release, leaves the object without a trace. Ages are taken by the
//! clock of the store, so that a machine with a wrong clock sweeps nothing that is young.
//!
//! How old a message can be only its application knows, so a sweep is refused until it says so. A message that is buried
//! can lie for much longer: its object has a mark beside it, and counts from the mark.
//!
//! A day is listed with objects and marks, so an object that stays costs no request of its own. Before an object is
//! removed its mark is looked for once more: the message may have been buried since the listing. The listing stops when
//! it has shown more orphans than may be removed, so neither its requests nor its memory grow with a day of orphans.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::StreamExt as _;
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutPayload};

use crate::check::ClaimCheck;
use crate::error::Error;
use crate::name::{self, File};

/// How far the clocks of senders, which name the days, may be wrong before their objects are swept later.
const CLOCKS: TimeDelta = TimeDelta::days(1);

/// How the names of markers begin.
const MARKER: &str = "sweep-";

/// What one sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many objects it looked at, with marks.
    pub looked_at: u64,
    /// How many orphans it removed, with marks whose objects are gone.
    pub removed: u64,
    /// How many objects it left because their messages were buried: see [`ClaimCheck::keep`].
    pub kept: u64,
    /// Whether there may be more: it stopped at its limit.
    pub has_more: bool,
}

/// What is older than this is removed.
#[derive(Clone, Copy, Debug)]
struct Ages {
    /// Objects.
    stored: DateTime<Utc>,
    /// Objects that are kept, by their marks. `None`: they stay.
    kept: Option<DateTime<Utc>>,
}

/// How far a sweep has come.
#[derive(Debug)]
struct Progress {
    swept: Swept,
    /// How much it removes.
    limit: u64,
}

/// What is not decided yet of a day that is being listed, by the random parts of the names.
///
/// Stores of the clouds list by name, so a mark comes right after its object. There this has at most two more orphans
/// than may be removed, and marks whose objects are gone. A file system lists in any order: there it also has marks whose
/// objects come later, and an object can look like an orphan until its mark comes.
#[derive(Debug, Default)]
struct Listed {
    /// Old objects without a mark, or with one that ended.
    orphans: BTreeSet<u128>,
    /// Marks without an object, and since when they are there.
    marks: BTreeMap<u128, DateTime<Utc>>,
    /// The object that came last: its mark may come next.
    newest: Option<u128>,
}

impl Ages {
    /// Whether an old object is an orphan, by its mark.
    fn has_ended(self, mark: Option<DateTime<Utc>>) -> bool {
        match (mark, self.kept) {
            (None, _) => true,
            (Some(since), Some(before)) => since < before,
            (Some(_), None) => false,
        }
    }
}

impl Progress {
    /// How many more it may remove.
    fn room(&self) -> u64 {
        self.limit.saturating_sub(self.swept.removed)
    }

    /// Whether it may remove one more. If not, it has found more than it may remove.
    fn may_remove(&mut self) -> bool {
        let may = self.room() > 0;
        self.swept.has_more |= !may;
        may
    }
}

impl Listed {
    /// Takes in what the listing shows next. Returns whether it shows that an old object is kept.
    fn add(&mut self, file: File, modified: DateTime<Utc>, ages: Ages) -> bool {
        let (number, mark) = match file {
            File::Object(number) => {
                self.newest = Some(number);
                let mark = self.marks.remove(&number);
                if modified >= ages.stored {
                    return false;
                }
                (number, mark)
            }
            File::Mark(number) => {
                let is_of_newest = self.newest.take() == Some(number);
                if !self.orphans.remove(&number) {
                    // A mark of a young object is not needed.
                    if !is_of_newest {
                        self.marks.insert(number, modified);
                    }
                    return false;
                }
                (number, Some(modified))
            }
        };
        let is_orphan = ages.has_ended(mark);
        if is_orphan {
            self.orphans.insert(number);
        }
        !is_orphan
    }

    /// Whether there are more orphans than `count`, without the object whose mark may come next.
    fn has_more_than(&self, count: u64) -> bool {
        let is_waiting = self
            .newest
            .is_some_and(|number| self.orphans.contains(&number));
        let known = self.orphans.len() - usize::from(is_waiting);
        u64::try_from(known).is_ok_and(|known| known > count)
    }

    /// Hands over an orphan, but not the object whose mark may come next.
    fn take_orphan(&mut self) -> Option<u128> {
        let is_known = |number: &u128| Some(*number) != self.newest;
        let number = self.orphans.iter().copied().find(is_known)?;
        self.orphans.remove(&number);
        Some(number)
    }

    /// Old marks without an object, after all of the day was listed: the objects were removed while their messages were
    /// being buried.
    fn lone_marks(&self, before: DateTime<Utc>) -> impl Iterator<Item = u128> {
        let marks = self.marks.iter();
        let is_old = move |(_, since): &(&u128, &DateTime<Utc>)| **since < before;
        marks.filter(is_old).map(|(number, _)| *number)
    }
}

impl ClaimCheck {
    /// Removes objects that no message can refer to any more, at most `limit` of them: those that are older than
    /// [`ClaimCheckOptions::message_life`](crate::ClaimCheckOptions::message_life) and
    /// [`ClaimCheckOptions::send_time_max`](crate::ClaimCheckOptions::send_time_max) together, and an hour. An object of
    /// a buried message that was [kept](ClaimCheck::keep) stays for
    /// [`ClaimCheckOptions::buried_life`](crate::ClaimCheckOptions::buried_life) longer. A mark whose object is gone is removed
    /// when it is as old as an orphan.
    ///
    /// Refused without a `message_life`. Call it once a day or so, in one process for each folder, and again while
    /// [`Swept::has_more`].
    ///
    /// It looks only at folders whose day is that long ago, and lists them until it has found more than `limit` orphans. It
    /// can run at any time, also while messages are checked in and out. In a folder of the file system it also removes
    /// unfinished writes, and days that are empty.
    pub async fn sweep(&self, limit: u32) -> Result<Swept, Error> {
        let ages = self.ages().await?;
        let mut progress = Progress {
            swept: Swept::default(),
            limit: limit.into(),
        };
        for day in self.days(ages.stored).await? {
            if progress.swept.has_more {
                break;
            }
            self.sweep_day(&day, ages, &mut progress).await?;
        }
        let swept = progress.swept;
        tracing::info!(
            target: "kew::claim_check",
            looked_at = swept.looked_at,
            removed = swept.removed,
            kept = swept.kept,
            "swept"
        );
        Ok(swept)
    }

    /// By the clock of the store: an object is written to read it.
    async fn ages(&self) -> Result<Ages, Error> {
        let Some(orphan_age) = self.options.orphan_age() else {
            return Err(Error::invalid(
                "a sweep must know how long messages live, also as dead letters: set ClaimCheckOptions::message_life",
            ));
        };
        let marker = format!("{MARKER}{}", name::random()?);
        let path = self.prefix.clone().join(marker.as_str());
        let objects = &self.store.objects;
        self.within(&marker, objects.put(&path, PutPayload::from_static(b"")))
            .await?;
        let found = self.within(&marker, objects.head(&path)).await;
        self.within(&marker, objects.delete(&path)).await?;
        let now = found?.last_modified;
        let before = |age| {
            let age = TimeDelta::from_std(age).unwrap_or(TimeDelta::MAX);
            now.checked_sub_signed(age)
                .unwrap_or(DateTime::<Utc>::MIN_UTC)
        };
        // A message that is sent again at the end of this time lives as long as any other.
        let kept_for = |buried_life: Duration| buried_life.saturating_add(orphan_age);
        Ok(Ages {
            stored: before(orphan_age),
            kept: self.options.buried_life.map(kept_for).map(before),
        })
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
        ages: Ages,
        progress: &mut Progress,
    ) -> Result<(), Error> {
        let Some(folder) = day.filename() else {
            return Ok(());
        };
        let listed = self.sweep_objects(day, folder, ages, progress).await?;
        if progress.swept.has_more {
            return Ok(());
        }
        for number in listed.lone_marks(ages.stored) {
            if !progress.may_remove() {
                return Ok(());
            }
            let is_removed = self.remove_mark(&name::in_day(folder, number)).await?;
            progress.swept.removed += u64::from(is_removed);
        }
        if let Some(root) = &self.store.folder {
            let folder: PathBuf = day
                .parts()
                .fold(root.to_path_buf(), |path, part| path.join(part.as_ref()));
            let tidied = tokio::task::spawn_blocking(move || tidy(&folder, ages.stored)).await;
            progress.swept.removed += tidied
                .map_err(Error::unavailable)?
                .map_err(Error::unavailable)?;
        }
        Ok(())
    }

    /// Lists a day and removes its orphans. Returns what is left at the end of the listing: marks.
    async fn sweep_objects(
        &self,
        day: &Path,
        folder: &str,
        ages: Ages,
        progress: &mut Progress,
    ) -> Result<Listed, Error> {
        let mut entries = self.store.objects.list(Some(day));
        let mut listed = Listed::default();
        while !progress.swept.has_more {
            let next = async { entries.next().await.transpose() };
            let Some(found) = self.within("list of a day", next).await? else {
                listed.newest = None;
                self.remove_orphans(&mut listed, folder, ages, progress)
                    .await?;
                break;
            };
            progress.swept.looked_at += 1;
            if let Some(file) = found.location.filename().and_then(name::file_of) {
                let is_kept = listed.add(file, found.last_modified, ages);
                progress.swept.kept += u64::from(is_kept);
            }
            // Some may turn out to be kept. Then there is room for more, and the listing goes on.
            if listed.has_more_than(progress.room()) {
                self.remove_orphans(&mut listed, folder, ages, progress)
                    .await?;
            }
        }
        Ok(listed)
    }

    async fn remove_orphans(
        &self,
        listed: &mut Listed,
        folder: &str,
        ages: Ages,
        progress: &mut Progress,
    ) -> Result<(), Error> {
        while let Some(number) = listed.take_orphan() {
            if !progress.may_remove() {
                return Ok(());
            }
            let name = name::in_day(folder, number);
            self.remove(&name, ages, &mut progress.swept).await?;
        }
        Ok(())
    }

    /// Removes an orphan, unless its message was buried since the day was listed.
    async fn remove(&self, name: &str, ages: Ages, swept: &mut Swept) -> Result<(), Error> {
        let mark = self.kept_since(name).await?;
        if !ages.has_ended(mark) {
            swept.kept += 1;
            return Ok(());
        }
        if mark.is_some() {
            // First: a crash after it leaves an object that counts as any other.
            self.delete(&name::mark_of(name)).await?;
        }
        let path = self.path(name);
        match self.within(name, self.store.objects.delete(&path)).await {
            Ok(()) => swept.removed += 1,
            // It was released meanwhile.
            Err(Error::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Removes the mark of an object that does not exist. Returns whether it was there.
    async fn remove_mark(&self, object: &str) -> Result<bool, Error> {
        let path = self.path(object);
        match self.within(object, self.store.objects.head(&path)).await {
            Ok(_) => Ok(false),
            Err(Error::Missing { .. }) => {
                self.delete(&name::mark_of(object)).await?;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }
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
