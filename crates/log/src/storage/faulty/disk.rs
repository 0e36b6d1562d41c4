//! Names, files and faults of the disk in memory, and what a power cut does to them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use super::inode::Inode;
use super::{Fault, Operation, Repeat, os_error};

#[derive(Clone, Debug)]
pub(super) struct PlannedFault {
    pub(super) from_call: u64,
    pub(super) fault: Fault,
    pub(super) repeat: Repeat,
}

#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Create(String, u64),
    Rename(String, String),
    Remove(String),
}

/// How much of a write the disk takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Full,
    Short,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) next_inode: u64,
    pub(super) names: BTreeMap<String, u64>,
    pub(super) durable_names: BTreeMap<String, u64>,
    pub(super) pending_names: Vec<NameChange>,
    pub(super) calls: u64,
    pub(super) failed_calls: u64,
    pub(super) faults: Vec<PlannedFault>,
    pub(super) power_off_at_call: Option<u64>,
    pub(super) capacity_bytes: Option<u64>,
}

impl Disk {
    /// Counts the call and says how it goes.
    pub(super) fn begin(&mut self, operation: Operation) -> io::Result<Outcome> {
        let call = self.calls;
        self.calls += 1;
        if self.power_off_at_call.is_some_and(|off| call >= off) {
            self.failed_calls += 1;
            return Err(io::Error::other("the power is off"));
        }
        let due = self
            .faults
            .iter()
            .position(|planned| call >= planned.from_call && planned.fault.applies_to(operation));
        let Some(index) = due else {
            return Ok(Outcome::Full);
        };
        let fault = self.faults[index].fault;
        if self.faults[index].repeat == Repeat::Once {
            self.faults.remove(index);
        }
        match fault {
            Fault::ShortWrite => Ok(Outcome::Short),
            _ => {
                self.failed_calls += 1;
                Err(os_error(fault))
            }
        }
    }

    pub(super) fn new_inode(&mut self) -> u64 {
        let number = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(number, Inode::default());
        number
    }

    pub(super) fn inode(&mut self, number: u64) -> &mut Inode {
        self.inodes
            .get_mut(&number)
            .expect("a file that is open is kept")
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.names
            .values()
            .map(|inode| self.inodes[inode].size_bytes)
            .sum()
    }

    /// A new process sees the names as they are now and has nothing open.
    pub(super) fn restart(&mut self) {
        self.faults.clear();
        self.power_off_at_call = None;
        for inode in self.inodes.values_mut() {
            inode.open = Arc::default();
        }
        self.forget_lost_inodes();
    }

    pub(super) fn forget_lost_inodes(&mut self) {
        let created = self.pending_names.iter().filter_map(|change| match change {
            NameChange::Create(_, number) => Some(*number),
            NameChange::Rename(..) | NameChange::Remove(_) => None,
        });
        let named: BTreeSet<u64> = self
            .names
            .values()
            .chain(self.durable_names.values())
            .copied()
            .chain(created)
            .collect();
        self.inodes
            .retain(|number, inode| named.contains(number) || Arc::strong_count(&inode.open) > 1);
    }

    pub(super) fn lose_names(&mut self, choice: &mut dyn FnMut(u32) -> u32) {
        let mode = choice(3);
        let mut names = std::mem::take(&mut self.durable_names);
        // What follows a lost change of the same name is lost with it.
        let mut lost = BTreeSet::new();
        for change in self.pending_names.drain(..) {
            let touched = match &change {
                NameChange::Create(name, _) | NameChange::Remove(name) => vec![name.clone()],
                NameChange::Rename(from, to) => vec![from.clone(), to.clone()],
            };
            let kept = !touched.iter().any(|name| lost.contains(name))
                && match mode {
                    0 => false,
                    1 => true,
                    _ => choice(2) == 1,
                };
            if !kept {
                lost.extend(touched);
                continue;
            }
            match change {
                NameChange::Create(name, number) => {
                    names.insert(name, number);
                }
                NameChange::Rename(from, to) => {
                    if let Some(number) = names.remove(&from) {
                        names.insert(to, number);
                    }
                }
                NameChange::Remove(name) => {
                    names.remove(&name);
                }
            }
        }
        self.durable_names = names.clone();
        self.names = names;
    }
}
