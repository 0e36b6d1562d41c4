//! `kew restore`: verifies a backup, and makes a new data directory of it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, anyhow, bail};
use kew_backup::{Backup, Phase, Progress, stated_size_bytes};
use kew_broker::{PartitionOptions, Restore};
use kew_log::Restoring;
use serde_json::json;

use crate::backup_command::{Meter, explain_damage, size};
use crate::cli::{RestoreArgs, print_error, print_line};
use crate::tls_command::quoted;
use crate::{holders, safe_json};

pub(crate) fn run(args: &RestoreArgs) -> Result<()> {
    let from = &args.from;
    let (backup, restore) = verify(from, args.json)?;
    let Some(data_dir) = args.data_dir.as_deref().filter(|_| !args.verify_only) else {
        return print("verified", &backup, &restore, from, args);
    };
    let restoring = Restoring::begin(data_dir)
        .map_err(holders::of_data_dir)
        .context("nothing was restored")?;
    let unfinished = || {
        format!(
            "the restore into {} has not finished: run it again",
            data_dir.display()
        )
    };
    let meter = Meter::new(args.json, "restored", backup.manifest().size_bytes());
    let reused_bytes = match restore.is_copying() {
        true => restoring.clear().map(|()| 0).with_context(unfinished)?,
        false => backup
            .copy_to(&restoring.log_path(), &metered(meter))
            .with_context(unfinished)?,
    };
    let counts = restore.counts();
    begin_anew(restore, &restoring).with_context(unfinished)?;
    restoring.finish().with_context(unfinished)?;
    hint_at_root(data_dir);
    print_restored(&backup, (counts, reused_bytes), data_dir, args)
}

/// Reads all of a backup, and everything that a start would read, as it would.
fn verify(from: &Path, json: bool) -> Result<(Backup, Restore)> {
    let size_bytes = stated_size_bytes(from).map_err(|error| explain_damage(error, from))?;
    let meter = Mutex::new(Some(Meter::new(json, "verified", size_bytes)));
    let meter = Arc::new(meter);
    let shown = Arc::clone(&meter);
    let progress: Arc<dyn Progress> = Arc::new(move |phase, bytes| {
        let phase = match phase {
            Phase::Check => Phase::Copy,
            phase @ (Phase::Copy | Phase::Reuse | Phase::Verify) => phase,
        };
        let mut meter = shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(meter) = &mut *meter {
            meter.note(phase, bytes);
        }
        Ok(())
    });
    let backup = Backup::open(from, &progress);
    // What follows reads the same bytes again.
    *meter.lock().unwrap_or_else(PoisonError::into_inner) = None;
    let backup = backup.map_err(|error| explain_damage(error, from))?;
    let restore = Restore::read(backup.view())
        .with_context(|| format!("cannot use the backup {}", from.display()))?;
    let (found, stated) = (restore.position().as_u64(), backup.manifest().position);
    if found != stated {
        bail!(
            "the backup {} ends at log position {found}, and its manifest says {stated}: use another copy of it",
            from.display()
        );
    }
    Ok((backup, restore))
}

fn metered(meter: Meter) -> Arc<dyn Progress> {
    let meter = Mutex::new(meter);
    Arc::new(move |phase, bytes| {
        let mut meter = meter.lock().unwrap_or_else(PoisonError::into_inner);
        meter.note(phase, bytes);
        Ok(())
    })
}

/// A server under another user cannot read files that root has made.
fn hint_at_root(data_dir: &Path) {
    if rustix::process::geteuid().is_root() {
        print_error(&anyhow!(
            "the restored files belong to root: if the server runs as another user, give them to it first: \
             chown -R USER {}",
            quoted(&data_dir.display().to_string())
        ));
    }
}

fn begin_anew(restore: Restore, restoring: &Restoring) -> Result<()> {
    let mut entropy = [0; 24];
    getrandom::fill(&mut entropy).context("cannot get random bytes from the operating system")?;
    let (salt, secret) = entropy.split_at(8);
    let salt = u64::from_le_bytes(salt.try_into().expect("split at 8"));
    let secret = secret.try_into().expect("24 less 8 is 16");
    let storage = restoring.storage()?;
    Ok(restore.carry_out(Arc::new(storage), PartitionOptions::default(), salt, secret)?)
}

fn print_restored(
    backup: &Backup,
    ((queues, messages), reused_bytes): ((usize, u64), u64),
    data_dir: &Path,
    args: &RestoreArgs,
) -> Result<()> {
    let manifest = backup.manifest();
    if args.json {
        print_line(&safe_json::to_string(&json!({
            "restored": {
                "data_dir": data_dir.display().to_string(),
                "taken_at": manifest.taken_at,
                "position": manifest.position,
                "queues": queues,
                "messages": messages,
                "reused_bytes": reused_bytes,
            }
        }))?);
        return Ok(());
    }
    if reused_bytes > 0 {
        print_line(&format!(
            "{} were there from an earlier run",
            size(reused_bytes)
        ));
    }
    print_line(&format!(
        "restored the state of {}: {queues} queues, {messages} messages",
        manifest.taken_at
    ));
    print_line(
        "receipts and locks from before are invalid; messages that were deleted since then are back",
    );
    print_line(&format!(
        "certificates are not part of a backup: copy them, or run kew tls init; then: kew serve --data-dir {}",
        quoted(&data_dir.display().to_string())
    ));
    Ok(())
}

fn print(
    what: &str,
    backup: &Backup,
    restore: &Restore,
    from: &Path,
    args: &RestoreArgs,
) -> Result<()> {
    let manifest = backup.manifest();
    let (queues, messages) = restore.counts();
    if args.json {
        print_line(&safe_json::to_string(&json!({
            what: {
                "from": from.display().to_string(),
                "taken_at": manifest.taken_at,
                "position": manifest.position,
                "files": manifest.files.len(),
                "size_bytes": manifest.size_bytes(),
                "queues": queues,
                "messages": messages,
            }
        }))?);
        return Ok(());
    }
    print_line(&format!(
        "sound: the state of {}, up to log position {}: {queues} queues, {messages} messages; {} files, {}",
        manifest.taken_at,
        manifest.position,
        manifest.files.len(),
        size(manifest.size_bytes()),
    ));
    Ok(())
}
