//! `kew backup`: copies a data directory, of a running server or of none.

mod failure;
mod holder;
mod meter;
mod pace;
mod session;

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, bail};
use kew_backup::{BackupError, BoxError, Phase, Progress, Source, Taken, take};
use kew_log::{BackupPlan, DataDir, FileStorage, PageDamage, PageFileDamage, Storage as _};
use serde_json::json;

use self::holder::Holder;
pub(crate) use self::meter::Meter;
use self::pace::Pace;
use crate::cli::{BackupArgs, print_error, print_line};
use crate::queue_command::rfc3339;
use crate::safe_json;

pub(crate) use self::failure::explain_damage;

pub(crate) fn run(args: BackupArgs) -> Result<()> {
    let of = args.of;
    let holder = Holder::find(of.of.data_dir, of.admin_socket)?;
    let data_dir = holder.data_dir().to_owned();
    refuse_inside(&args.to, &data_dir)?;
    let storage = FileStorage::read_only(DataDir::log_path(&data_dir))
        .with_context(|| format!("cannot read the data directory {}", data_dir.display()))?;
    let plan = holder.plan().clone();
    let taken_at = holder.taken_at();
    let id = DataDir::id_of(&data_dir)?;
    let source = Source {
        storage: &storage,
        plan: &plan,
        data_dir_id: &id,
        taken_at: &rfc3339(taken_at),
        kew: env!("CARGO_PKG_VERSION"),
    };
    let meter = Meter::new(of.json, "copied", total_bytes(&storage, &plan));
    let work = Arc::new(Work::new(holder, meter, args.rate));
    let progress: Arc<dyn Progress> = Arc::clone(&work) as Arc<dyn Progress>;
    let taken = take(&source, &args.to, &progress);
    work.end_meter();
    let taken = match taken {
        Ok(taken) => taken,
        Err(error) => {
            // If the files were not kept any more, that is the reason, whatever it looks like.
            if !matches!(error, BackupError::Ended(_) | BackupError::NotSynced { .. }) {
                work.lock().holder.check()?;
            }
            return Err(failure::explain(error, &data_dir, &args.to));
        }
    };
    if let Err(error) = work.lock().holder.note_whole(&taken) {
        // It is whole nevertheless.
        print_error(&error);
    }
    for damage in &taken.mended {
        print_error(&anyhow!(mended(damage)));
    }
    if let Some(why) = &taken.not_removed {
        print_error(&anyhow!(
            "the new backup is whole, but files of an earlier one are left, which the next run removes: {why}"
        ));
    }
    hint_at_root(&data_dir, &args.to);
    print(&taken, &args.to, of.json)
}

/// What a damaged file of the source means.
fn mended(damage: &PageFileDamage) -> String {
    let PageDamage { file, offset, what } = &damage.first;
    let more = match damage.places {
        1 => String::new(),
        places => format!(" (and at {} other places)", places - 1),
    };
    format!(
        "the new backup is whole, but the data directory is not: {file} is damaged at byte {offset}{more}: {what}. \
         The backup has this from the other copy of these pages. Check the disk of the data directory; the server \
         writes the pages again after its next scrub (see: kew log damage)"
    )
}

/// Files that root has made are of no use to another user, under which the server may run.
fn hint_at_root(data_dir: &Path, to: &Path) {
    let owner = std::fs::metadata(data_dir).map_or(0, |it| it.uid());
    if rustix::process::geteuid().is_root() && owner != 0 {
        print_error(&anyhow!(
            "the backup belongs to root, and the data directory to user {owner}: to let that user read it and \
             take the next one, run: chown -R {owner} {}",
            crate::tls_command::quoted(&to.display().to_string())
        ));
    }
}

/// The size of everything that the plan names.
fn total_bytes(storage: &FileStorage, plan: &BackupPlan) -> u64 {
    let snapshot = plan.snapshot_name();
    let snapshot = snapshot.and_then(|name| storage.open(&name).ok()?.len().ok());
    let pages = plan.pages.iter().map(|pages| pages.copied_bytes);
    let segments = plan.segments.iter().map(|segment| segment.copied_bytes);
    snapshot.unwrap_or(0) + pages.chain(segments).sum::<u64>()
}

/// A backup inside the directory would become a part of it.
fn refuse_inside(to: &Path, data_dir: &Path) -> Result<()> {
    let (to_resolved, data_dir) = (resolved(to)?, resolved(data_dir)?);
    if to_resolved.starts_with(&data_dir) {
        bail!(
            "the backup directory {} is in the data directory {}: name a directory elsewhere, best on another disk",
            to.display(),
            data_dir.display()
        );
    }
    Ok(())
}

/// Where a path leads, through all links. What does not exist yet will be made of plain directories.
fn resolved(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let mut resolved = PathBuf::new();
    for component in absolute.components() {
        match component {
            // What is resolved so far has no links, so the directory above it is the one before it.
            Component::ParentDir => drop(resolved.pop()),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) | Component::Normal(_) => {
                let name: &OsStr = component.as_os_str();
                resolved.push(name);
                if let Ok(real) = resolved.canonicalize() {
                    resolved = real;
                }
            }
        }
    }
    Ok(resolved)
}

/// What happens beside the copying: it bounds the rate, shows progress, and notes it for the server.
struct Work(Mutex<Parts>);

struct Parts {
    holder: Holder,
    /// `None` at the end.
    meter: Option<Meter>,
    pace: Pace,
    done_bytes: u64,
}

impl Work {
    fn new(holder: Holder, meter: Meter, rate_mib: u64) -> Self {
        Self(Mutex::new(Parts {
            holder,
            meter: Some(meter),
            pace: Pace::new(rate_mib, Instant::now()),
            done_bytes: 0,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Parts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_meter(&self) {
        self.lock().meter = None;
    }
}

impl Progress for Work {
    fn note(&self, phase: Phase, bytes: u64) -> Result<(), BoxError> {
        let mut parts = self.lock();
        parts.done_bytes += bytes;
        if let Some(meter) = &mut parts.meter {
            meter.note(phase, bytes);
        }
        parts.holder.note(parts.done_bytes)?;
        let pause = parts.pace.pause_after(bytes, Instant::now());
        drop(parts);
        std::thread::sleep(pause);
        Ok(())
    }
}

fn print(taken: &Taken, to: &Path, json: bool) -> Result<()> {
    let manifest = &taken.manifest;
    if json {
        print_line(&safe_json::to_string(&json!({
            "backup": {
                "to": to.display().to_string(),
                "taken_at": manifest.taken_at,
                "position": manifest.position,
                "files": manifest.files.len(),
                "size_bytes": manifest.size_bytes(),
                "copied_bytes": taken.copied_bytes,
                "reused_bytes": taken.reused_bytes,
                "source_damage": taken.mended.iter().map(|damage| json!({
                    "file": damage.first.file,
                    "offset": damage.first.offset,
                    "what": damage.first.what,
                    "places": damage.places,
                })).collect::<Vec<_>>(),
            }
        }))?);
        return Ok(());
    }
    print_line(&format!(
        "{} holds the state of {}, up to log position {}: {} files, {}; {} were copied now",
        to.display(),
        manifest.taken_at,
        manifest.position,
        manifest.files.len(),
        size(manifest.size_bytes()),
        size(taken.copied_bytes),
    ));
    Ok(())
}

/// A size for people.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        _ => format!("{} MiB", bytes.div_ceil(1 << 20)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_inside_the_data_directory_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let data_dir = place.path().join("data");
        std::fs::create_dir(&data_dir).unwrap();
        for inside in ["data", "data/backup", "data/backup/of/today"] {
            let refused = refuse_inside(&place.path().join(inside), &data_dir);
            assert!(refused.is_err(), "{inside}");
        }
        refuse_inside(&place.path().join("database"), &data_dir).unwrap();
    }

    /// A link leads into the data directory, and the directory behind it does not exist yet.
    #[test]
    fn a_link_does_not_hide_that_a_backup_is_inside_the_data_directory() {
        let place = tempfile::tempdir().unwrap();
        let data_dir = place.path().join("data");
        std::fs::create_dir(&data_dir).unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&data_dir, &link).unwrap();
        for inside in [
            "link",
            "link/new",
            "link/a/b",
            "new/../link/a",
            "link/../data/x",
        ] {
            let refused = refuse_inside(&place.path().join(inside), &data_dir);
            assert!(refused.is_err(), "{inside}");
            refuse_inside(&place.path().join(inside), &link).unwrap_err();
        }
        for outside in ["link/../new", "new/data", "data/../new"] {
            refuse_inside(&place.path().join(outside), &data_dir).unwrap();
        }
    }
}
