//! `kew scale stop`: stops all instances.

use std::path::Path;

use anyhow::Result;
use kew_scale::{Happened, ProcessTarget, Target as _};

use super::{in_group, read, runtime};
use crate::cli::{print_error, print_line};
use crate::open_files;

/// Locks every state directory first, so that no agent starts instances again.
pub(super) fn stop(file: &Path) -> Result<()> {
    let config = read(file)?;
    open_files::raise();
    runtime()?.block_on(async {
        let mut targets = Vec::new();
        for group in &config.groups {
            let (target, _) = ProcessTarget::open(group).map_err(|error| in_group(group, error))?;
            targets.push((group, target));
        }
        // All of them get the signal before the first is waited for.
        for (_, target) in &mut targets {
            tell(target.set(0));
        }
        for (group, mut target) in targets {
            let mut count = 0;
            while target.running() > 0 {
                let happened = target.changed().await;
                count += happened.iter().filter(|it| is_end(it)).count();
                tell(happened);
            }
            let plural = if count == 1 { "" } else { "s" };
            print_line(&format!("{}: {count} instance{plural} stopped", group.name));
        }
        Ok(())
    })
}

fn is_end(happened: &Happened) -> bool {
    matches!(happened, Happened::Ended { .. })
}

/// What an operator should know beside the result.
fn tell(happened: Vec<Happened>) {
    for happened in happened {
        match happened {
            Happened::Killed(_) => print_error(&anyhow::anyhow!("{happened}")),
            Happened::Failed(error) => print_error(&error.into()),
            Happened::Found(_)
            | Happened::Started(_)
            | Happened::Stopping(_)
            | Happened::Ended { .. }
            | Happened::Delayed(_)
            | Happened::Full => {}
        }
    }
}
