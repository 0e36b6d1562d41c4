//! The proof: a file that says up to where the log was durable when it was last idle.
//!
//! Without it, the last batch of an idle log has nothing behind it that proves it. The file has two slots of a
//! page each, which are written in turn, so a torn or damaged slot leaves the claim before it. A claim is
//! written only after what it claims was synced. So any claim that validates was true when it was written, and the
//! highest counts, unless a later epoch began before it ([`crate::claims`]).

use std::sync::Arc;

use crate::format::{FORMAT_VERSION, FormatError, check_version, read_u32, read_u64, read_u128};
use crate::recovery::OpenError;
use crate::segment::{create_anew, fill_with_zeros};
use crate::storage::{self, IoFailure, Storage, StorageFile};
use crate::survey::format_error;
use crate::{Epoch, LogId, LogPosition};

pub(crate) const NAME: &str = "proof";
const IN_PREPARATION: &str = "prepare-proof";

const MAGIC: [u8; 8] = *b"KEWPROOF";
const SLOT_SIZE: u64 = 4096;
const SLOTS: u64 = 2;
/// The part of a slot in use, including the checksum. It lies in one sector of the disk.
const CLAIM_SIZE: usize = 68;

/// Where the checksum lies.
const CRC_OFFSET: usize = CLAIM_SIZE - 4;

/// Who writes claims: one open of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) log: LogId,
    pub(crate) epoch: Epoch,
    /// Where the epoch began: the log's end at the open.
    pub(crate) began: LogPosition,
}

/// What a slot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) owner: Owner,
    /// Each claim has the next number, and lies in the slot of that number.
    number: u64,
    /// Everything before this position was durable.
    pub(crate) durable: LogPosition,
}

impl Claim {
    fn encode(&self) -> [u8; CLAIM_SIZE] {
        let mut bytes = [0; CLAIM_SIZE];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.owner.log.partition.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.owner.log.cluster.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.number.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.durable.as_u64().to_le_bytes());
        bytes[48..56].copy_from_slice(&self.owner.epoch.as_u64().to_le_bytes());
        bytes[56..64].copy_from_slice(&self.owner.began.as_u64().to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..CRC_OFFSET]);
        bytes[CRC_OFFSET..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` if nothing was written there yet.
    fn decode(bytes: &[u8; CLAIM_SIZE], slot: u64) -> Result<Option<Self>, FormatError> {
        if *bytes == [0; CLAIM_SIZE] {
            return Ok(None);
        }
        let damaged = FormatError::Damaged("the claim does not match its checksum");
        if bytes[..8] != MAGIC
            || read_u32(bytes, CRC_OFFSET) != crc32c::crc32c(&bytes[..CRC_OFFSET])
        {
            return Err(damaged);
        }
        check_version(read_u32(bytes, 8))?;
        let claim = Self {
            owner: Owner {
                log: LogId {
                    cluster: read_u128(bytes, 16),
                    partition: read_u32(bytes, 12),
                },
                epoch: Epoch::new(read_u64(bytes, 48)),
                began: LogPosition::new(read_u64(bytes, 56)),
            },
            number: read_u64(bytes, 32),
            durable: LogPosition::new(read_u64(bytes, 40)),
        };
        let highest = 1 << 62;
        let makes_sense = claim.number % SLOTS == slot
            && claim.number < highest
            && claim.durable.as_u64() < highest
            && claim.owner.began <= claim.durable
            && claim.owner.epoch < Epoch::LIMIT;
        makes_sense.then_some(Some(claim)).ok_or(damaged)
    }
}

/// The proof in a directory, as it was found.
#[derive(Default)]
pub(crate) struct FoundProof {
    file: Option<Arc<dyn StorageFile>>,
    number: u64,
    /// Which log it is of, as its newest claim says.
    pub(crate) log: Option<LogId>,
    /// The highest position that it claims to have been durable.
    pub(crate) durable: LogPosition,
    /// What its slots say.
    pub(crate) marks: Vec<Claim>,
    /// Damage beyond one slot, which may be torn.
    pub(crate) damage: Option<(u64, FormatError)>,
}

impl FoundProof {
    /// Reads the file. It may be missing.
    pub(crate) fn read(storage: &dyn Storage) -> Result<Self, OpenError> {
        let file = match storage::open(storage, NAME) {
            Err(failure) if failure.source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            opened => opened?,
        };
        let mut found = Self::default();
        let mut invalid = None;
        for slot in 0..SLOTS {
            let offset = slot * SLOT_SIZE;
            let mut bytes = [0; CLAIM_SIZE];
            storage::read_at(&*file, NAME, &mut bytes, offset)?;
            match Claim::decode(&bytes, slot) {
                Ok(Some(claim)) => {
                    if claim.number > found.number {
                        (found.number, found.log) = (claim.number, Some(claim.owner.log));
                    }
                    found.durable = found.durable.max(claim.durable);
                    found.marks.push(claim);
                }
                Ok(None) => {}
                Err(newer @ FormatError::Newer(_)) => {
                    return Err(format_error(NAME, offset, newer));
                }
                Err(damaged) => invalid = Some((offset, damaged)),
            }
        }
        found.damage = invalid.filter(|_| found.marks.is_empty());
        // One that says nothing is made anew.
        found.file = Some(file).filter(|_| found.damage.is_none());
        Ok(found)
    }

    /// Discards it if it is of another log than this one.
    pub(crate) fn of_log(self, log: Option<LogId>) -> Self {
        let is_other = log.is_some() && self.log.is_some() && self.log != log;
        match is_other {
            true => Self {
                damage: Some((0, FormatError::Damaged("it is of another log"))),
                ..Self::default()
            },
            false => self,
        }
    }

    /// Continues the proof, and makes one if there is none. Its name is durable after the next sync of the
    /// directory.
    pub(crate) fn adopt(&self, storage: &dyn Storage, owner: Owner) -> Result<Proof, IoFailure> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => {
                let file = create_anew(storage, IN_PREPARATION)?;
                fill_with_zeros(&*file, IN_PREPARATION, 0, SLOTS * SLOT_SIZE)?;
                storage::sync_data(&*file, IN_PREPARATION)?;
                storage::rename(storage, IN_PREPARATION, NAME)?;
                file
            }
        };
        Ok(Proof {
            file,
            owner,
            number: self.number,
        })
    }
}

/// The proof of an open log.
pub(crate) struct Proof {
    file: Arc<dyn StorageFile>,
    owner: Owner,
    number: u64,
}

impl Proof {
    /// A claim that everything before a position is durable, in the slot that was written less recently.
    pub(crate) fn claim(&mut self, durable: LogPosition) -> WriteClaim {
        self.number += 1;
        let claim = Claim {
            owner: self.owner,
            number: self.number,
            durable,
        };
        WriteClaim {
            file: Arc::clone(&self.file),
            claim,
        }
    }
}

/// Writes a claim and makes it durable.
pub(crate) struct WriteClaim {
    file: Arc<dyn StorageFile>,
    claim: Claim,
}

impl WriteClaim {
    pub(crate) fn run(self) -> Result<(), IoFailure> {
        let mut block = vec![0; 4096];
        block[..CLAIM_SIZE].copy_from_slice(&self.claim.encode());
        let offset = self.claim.number % SLOTS * SLOT_SIZE;
        storage::write_all_at(&*self.file, NAME, &block, offset)?;
        storage::sync_data(&*self.file, NAME)
    }
}

#[cfg(test)]
#[path = "proof_tests.rs"]
mod tests;
