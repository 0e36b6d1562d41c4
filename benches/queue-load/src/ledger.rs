//! The file of acknowledged operations, and its comparison with a queue's content.
//!
//! A line is a letter and the marker of a message: `P` for an acknowledged put, `d` for a requested
//! delete, `D` for an acknowledged delete.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// The length of the marker at the beginning of a text that identifies a message.
pub(crate) const MARKER_LENGTH: usize = 32;

/// The marker in a message's text.
pub(crate) fn marker(text: &str) -> String {
    text.chars().take(MARKER_LENGTH).collect()
}

/// Appends lines to the ledger at `path`.
pub(crate) fn append(path: &Path, lines: &[String]) -> Result<()> {
    let mut options = OpenOptions::new();
    let file = options.create(true).append(true).open(path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    let mut writer = BufWriter::new(file);
    for line in lines {
        writeln!(writer, "{line}")?;
    }
    writer.flush()?;
    Ok(())
}

/// The result of comparing a ledger with the messages in a queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    put_count: usize,
    deleted_count: usize,
    found_count: usize,
    duplicate_count: usize,
    unacknowledged_count: usize,
    lost_count: usize,
    resurrected_count: usize,
}

impl Verdict {
    pub(crate) fn is_clean(&self) -> bool {
        self.lost_count == 0 && self.resurrected_count == 0
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "verify acknowledged_puts={} acknowledged_deletes={} found={} twice={} \
             unacknowledged_found={} LOST={} RESURRECTED={}",
            self.put_count,
            self.deleted_count,
            self.found_count,
            self.duplicate_count,
            self.unacknowledged_count,
            self.lost_count,
            self.resurrected_count
        )
    }
}

/// Compares the ledger at `path` with the markers in the queue.
pub(crate) fn verify(path: &Path, found: &[String]) -> Result<Verdict> {
    File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    compare(&std::fs::read_to_string(path)?, found)
}

fn compare(ledger: &str, found: &[String]) -> Result<Verdict> {
    let (mut put, mut asked, mut deleted) = (HashSet::new(), HashSet::new(), HashSet::new());
    for line in ledger.lines() {
        let _ = match line.split_once(' ') {
            Some(("P", marker)) => put.insert(marker),
            Some(("d", marker)) => asked.insert(marker),
            Some(("D", marker)) => deleted.insert(marker),
            _ => bail!("a line of the ledger is not one: {line}"),
        };
    }
    let distinct: HashSet<&str> = found.iter().map(String::as_str).collect();
    let is_lost = |marker: &&&str| !asked.contains(**marker) && !distinct.contains(**marker);
    Ok(Verdict {
        put_count: put.len(),
        deleted_count: deleted.len(),
        found_count: distinct.len(),
        duplicate_count: found.len() - distinct.len(),
        unacknowledged_count: distinct.difference(&put).count(),
        lost_count: put.iter().filter(is_lost).count(),
        resurrected_count: deleted.intersection(&distinct).count(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_resurrections_are_counted() {
        // 1 is deleted and reappeared, 2 is lost, 3 may be deleted, 4 is there, 5 was never
        // answered.
        let ledger = "P 1\nP 2\nP 3\nP 4\nd 1\nD 1\nd 3\n";
        let found = ["1", "4", "4", "5"].map(String::from);
        let verdict = compare(ledger, &found).expect("well formed");
        assert_eq!((verdict.lost_count, verdict.resurrected_count), (1, 1));
        assert_eq!(
            (verdict.duplicate_count, verdict.unacknowledged_count),
            (1, 1)
        );
        assert!(!verdict.is_clean());
        assert!(compare("X 1\n", &found).is_err());
    }
}
