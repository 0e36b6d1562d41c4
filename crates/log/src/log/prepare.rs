//! The next segment, which is prepared before the log needs it.

use crate::format::{SegmentHeader, record_size_bytes};
use crate::job::{Prepare, Prepared};
use crate::segment::{Blank, MakeError, Source};
use crate::storage::IoFailure;

use super::SegmentLog;

/// The segment after the active one.
pub(super) enum Successor {
    /// To be prepared by the next job.
    Wanted,
    Preparing {
        may_take_ballast: bool,
    },
    Ready(Blank),
    /// The disk is full.
    NoSpace,
}

impl SegmentLog {
    pub(super) fn next_prepare(&mut self) -> Option<Prepare> {
        let may_take_ballast = self.is_prepare_due()?;
        self.successor = Successor::Preparing { may_take_ballast };
        let wanted_bytes = self.wanted_capacity_bytes();
        let recycled = self.recycled.iter();
        let mut recycled = recycled.map(|recycled| recycled.capacity_bytes);
        let source = match recycled.rposition(|capacity_bytes| capacity_bytes >= wanted_bytes) {
            Some(fitting) => Source::Recycled(self.recycled.remove(fitting)),
            None => Source::Fresh,
        };
        let capacity_bytes = match &source {
            Source::Recycled(recycled) => recycled.capacity_bytes,
            Source::Fresh => self.next_capacity_bytes(),
        };
        let number = self.active.header.number + 1;
        let header = SegmentHeader {
            log: self.id,
            number,
            epoch: self.epoch,
            // It is made before it is known where the log leaves the active one.
            first: None,
            capacity_bytes,
            salt: self.salts.of(self.epoch, number),
            durable: self.durable,
        };
        Some(Prepare {
            header,
            source,
            may_take_ballast,
        })
    }

    pub(super) fn next_capacity_bytes(&self) -> u64 {
        if let Some(capacity_bytes) = self.drain_capacity_bytes() {
            return capacity_bytes;
        }
        if self.prepare_smallest {
            return self.options.segment_size_first_bytes;
        }
        let doubled = self.active.header.capacity_bytes.saturating_mul(2);
        let usual_bytes = doubled.clamp(
            self.options.segment_size_first_bytes,
            self.options.segment_size_max_bytes,
        );
        usual_bytes.max(self.wanted_capacity_bytes())
    }

    /// The size of a segment with room for the batch that waits for one. 0 if none waits.
    fn wanted_capacity_bytes(&self) -> u64 {
        match self.wanted_room_bytes {
            0 => 0,
            least => self.options.segment_size_for(record_size_bytes(least)),
        }
    }

    pub(super) fn prepare_done(&mut self, prepared: Prepared) -> Option<IoFailure> {
        let is_draining = self.is_draining();
        let may_take_ballast = matches!(
            self.successor,
            Successor::Preparing {
                may_take_ballast: true
            }
        );
        self.tidying.note_free(prepared.free_bytes);
        match prepared.result {
            Ok(segment) => {
                self.successor = Successor::Ready(segment);
                self.prepare_smallest = false;
                self.prepared_while_draining(true);
            }
            Err(MakeError::Unfinished(failure)) if failure.is_no_descriptor() => {
                self.successor = Successor::Wanted;
                self.is_short_of_descriptors = true;
            }
            Err(MakeError::Unfinished(failure)) if failure.is_no_space() && is_draining => {
                // A segment for settlements may use the reserved space.
                self.successor = match may_take_ballast {
                    true => Successor::NoSpace,
                    false => Successor::Wanted,
                };
                self.prepared_while_draining(false);
            }
            Err(MakeError::Unfinished(failure)) if failure.is_no_space() => {
                // A smaller segment may fit, and takes messages until there is more space. It does not help
                // a large batch.
                let smallest_bytes = self.options.segment_size_first_bytes;
                let was_smallest = self.next_capacity_bytes() == smallest_bytes
                    || self.wanted_capacity_bytes() > smallest_bytes;
                self.wanted_room_bytes = 0;
                self.prepare_smallest = true;
                self.successor = Successor::Wanted;
                if was_smallest {
                    self.begin_draining();
                }
            }
            Err(error) => return Some(error.into_failure()),
        }
        None
    }
}
