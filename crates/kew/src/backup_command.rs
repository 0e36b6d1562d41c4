//! `kew backup`: copies a data directory, of a running server or of none.

mod failure;
mod holder;
mod meter;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kew_backup::{BackupError, BoxError, Phase, Source, Taken, take};
use kew_log::{BackupPlan, DataDir, FileStorage, Storage as _};
use serde_json::json;

use self::holder::Holder;
pub(crate) use self::meter::Meter;
use crate::cli::{BackupArgs, print_error, print_line};
use crate::queue_command::rfc3339;
use crate::safe_json;

pub(crate) use self::failure::explain_damage;

/// How often the command reports progress to the server.
const TELL_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn run(args: BackupArgs) -> Result<()> {
    let of = args.of;
    let mut holder = Holder::find(of.of.data_dir, of.admin_socket)?;
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
    let mut work = Work::new(meter, args.rate);
    let taken = take(&source, &args.to, &mut |phase, bytes| {
        work.note(&mut holder, phase, bytes)
    });
    let taken = match taken {
        Ok(taken) => taken,
        Err(error) => {
            drop(work);
            // If the files were not kept any more, that is the reason, whatever it looks like.
            if !matches!(error, BackupError::Ended(_)) {
                holder.check()?;
            }
            return Err(failure::explain(error, &data_dir, &args.to));
        }
    };
    drop(work);
    if let Err(error) = holder.note_whole(&taken) {
        // It is whole nevertheless.
        print_error(&error);
    }
    print(&taken, &args.to, of.json)
}

/// The size of everything that the plan names.
fn total_bytes(storage: &FileStorage, plan: &BackupPlan) -> u64 {
    let snapshot = plan.snapshot_name();
    let snapshot = snapshot.and_then(|name| storage.open(&name).ok()?.len().ok());
    let segments = plan.segments.iter().map(|segment| segment.copied_bytes);
    snapshot.unwrap_or(0) + segments.sum::<u64>()
}

/// A backup inside the directory would become a part of it.
fn refuse_inside(to: &Path, data_dir: &Path) -> Result<()> {
    let absolute = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path));
    let (to_absolute, data_dir) = (absolute(to)?, absolute(data_dir)?);
    if to_absolute.starts_with(&data_dir) {
        bail!(
            "the backup directory {} is in the data directory {}: name a directory elsewhere, best on another disk",
            to.display(),
            data_dir.display()
        );
    }
    Ok(())
}

/// What happens beside the copying: it bounds the rate, shows progress, and reports it to the server.
struct Work {
    meter: Meter,
    pace: Pace,
    done_bytes: u64,
    told_at: Instant,
}

impl Work {
    fn new(meter: Meter, rate_mib: u64) -> Self {
        Self {
            meter,
            pace: Pace::new(rate_mib),
            done_bytes: 0,
            told_at: Instant::now(),
        }
    }

    fn note(&mut self, holder: &mut Holder, phase: Phase, bytes: u64) -> Result<(), BoxError> {
        self.done_bytes += bytes;
        self.meter.note(phase, bytes);
        if self.told_at.elapsed() >= TELL_INTERVAL {
            self.told_at = Instant::now();
            holder.tell(self.done_bytes)?;
        }
        if phase == Phase::Copy {
            self.pace.wait(bytes);
        }
        Ok(())
    }
}

/// Bounds a rate. What was not used for a while is not made up for.
struct Pace {
    bytes_per_second: u64,
    free_at: Instant,
}

impl Pace {
    /// `rate_mib` is in MiB a second, 0 for no bound.
    fn new(rate_mib: u64) -> Self {
        Self {
            bytes_per_second: rate_mib << 20,
            free_at: Instant::now(),
        }
    }

    fn wait(&mut self, bytes: u64) {
        if self.bytes_per_second == 0 {
            return;
        }
        let now = Instant::now();
        let took = bytes.saturating_mul(1_000_000) / self.bytes_per_second;
        self.free_at = self.free_at.max(now) + Duration::from_micros(took);
        std::thread::sleep(self.free_at - now);
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

    #[test]
    fn the_pace_is_kept() {
        let begun = Instant::now();
        let mut pace = Pace::new(100);
        for _ in 0..10 {
            pace.wait(1 << 20);
        }
        assert!(begun.elapsed() >= Duration::from_millis(99));
        let mut unbounded = Pace::new(0);
        unbounded.wait(u64::MAX);
    }
}
