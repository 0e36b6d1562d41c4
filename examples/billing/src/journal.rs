//! What was submitted: a file of lines, each written before or after a step.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

/// A package that is or was to be submitted. Its transactions follow from seed, number and count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Its number.
    pub number: u32,
    /// How many transactions it has.
    pub count: u32,
    /// How many each part has.
    pub part_size: u32,
    /// What its transactions are made of.
    pub seed: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// Will be submitted. It may be in the queue, or not.
    Begins(Order, u64),
    /// The queue has it.
    Submitted(u32, u64),
}

/// What is known of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The package.
    pub order: Order,
    /// When it was begun, in milliseconds since 1970.
    pub begun_ms: u64,
    /// When the queue had it. None: it has to be submitted again.
    pub submitted_ms: Option<u64>,
}

/// The file.
#[derive(Debug)]
pub struct Journal(PathBuf);

/// The file as its only customer has it: locked until this is dropped, or its program has ended.
#[derive(Debug)]
pub struct Writer(File);

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

impl Journal {
    /// In the folder for data.
    pub fn of(data: &Path) -> Self {
        Self(data.join("journal"))
    }

    /// All packages by number. A last line that was torn by a crash is ignored: what it says did not happen yet.
    pub fn read(&self) -> Result<BTreeMap<u32, Entry>> {
        let mut entries = BTreeMap::new();
        if !self.0.exists() {
            return Ok(entries);
        }
        let path = self.0.display();
        let text =
            std::fs::read_to_string(&self.0).with_context(|| format!("cannot read {path}"))?;
        for line in text.split_inclusive('\n').filter(|it| it.ends_with('\n')) {
            let read = serde_json::from_str(line);
            match read.with_context(|| format!("{path} has a line that cannot be read: {line}"))? {
                Line::Begins(order, begun_ms) => {
                    let entry = Entry {
                        order,
                        begun_ms,
                        submitted_ms: None,
                    };
                    if let Some(other) = entries.insert(order.number, entry) {
                        bail!("{path}: package {} began twice: {other:?}", order.number);
                    }
                }
                Line::Submitted(number, at_ms) => {
                    let entry = entries.get_mut(&number);
                    let entry = entry.with_context(|| format!("{path}: {number} never began"))?;
                    entry.submitted_ms = Some(at_ms);
                }
            }
        }
        Ok(entries)
    }

    /// Opens it to append, without a torn last line. Only one customer at a time may: two would give packages the same
    /// numbers. Read it afterwards.
    pub fn write(&self) -> Result<Writer> {
        if let Some(folder) = self.0.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let path = self.0.display();
        let file = OpenOptions::new().create(true).append(true).open(&self.0);
        let file = file.with_context(|| format!("cannot write {path}"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("another customer writes {path}: wait until it has submitted its packages")
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {path}"));
            }
        }
        let all = std::fs::read(&self.0)?;
        let whole = all
            .iter()
            .rposition(|it| *it == b'\n')
            .map_or(0, |it| it + 1);
        file.set_len(u64::try_from(whole)?)?;
        Ok(Writer(file))
    }
}

/// A process that starts a program shares its open files with the child until that begins. So closing the file may not
/// end the lock yet.
impl Drop for Writer {
    fn drop(&mut self) {
        // If it fails, the lock ends with the last of those who have the file.
        let _ = self.0.unlock();
    }
}

impl Writer {
    /// A package will be submitted. Returns after the disk has it.
    pub fn begin(&mut self, order: Order) -> Result<()> {
        self.add(&Line::Begins(order, now_ms()))
    }

    /// The queue has it.
    pub fn submitted(&mut self, number: u32) -> Result<()> {
        self.add(&Line::Submitted(number, now_ms()))
    }

    fn add(&mut self, line: &Line) -> Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        self.0.write_all(text.as_bytes())?;
        self.0.sync_all()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_did_not_happen() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::of(folder.path());
        assert!(journal.read().unwrap().is_empty());
        let order = |number| Order {
            number,
            count: 10,
            part_size: 3,
            seed: 1,
        };
        let mut writer = journal.write().unwrap();
        writer.begin(order(1)).unwrap();
        writer.submitted(1).unwrap();
        writer.begin(order(2)).unwrap();
        drop(writer);
        let path = folder.path().join("journal");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}{{\"subm")).unwrap();
        for number in [3, 4] {
            let read = journal.read().unwrap();
            assert_eq!(read[&1].order, order(1));
            assert!(read[&1].submitted_ms.is_some());
            assert_eq!(read[&2].submitted_ms, None);
            journal.write().unwrap().begin(order(number)).unwrap();
        }
        assert_eq!(journal.read().unwrap().len(), 4);
    }

    #[test]
    fn only_one_customer_writes_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::of(folder.path());
        let mut writer = journal.write().unwrap();
        let error = journal.write().unwrap_err().to_string();
        assert!(error.starts_with("another customer writes "), "{error}");
        let order = Order {
            number: 7,
            count: 10,
            part_size: 3,
            seed: 1,
        };
        writer.begin(order).unwrap();
        // As a child has it that does not run its program yet.
        let _shared = writer.0.try_clone().unwrap();
        drop(writer);
        // Two customers of an earlier version could do this: the number stands for two packages.
        journal.write().unwrap().begin(order).unwrap();
        let error = journal.read().unwrap_err().to_string();
        assert!(error.contains("package 7 began twice"), "{error}");
    }
}
