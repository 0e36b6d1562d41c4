//! What is wrong with damaged messages of topics.

use std::collections::BTreeSet;

use kew_broker::ScrubReport;
use kew_engine::Effect;
use kew_engine::bus::DeadLetterCause;
use kew_planted::{Hook, Seam};

use super::hooks::{dropped, on};

/// A scrub lists one of the copies that have a damaged body.
pub(super) fn one_copy_listed() -> Hook {
    on(Seam::Scrubbed, |report: &mut ScrubReport| {
        let mut places = BTreeSet::new();
        (report.bodies).retain(|body| places.insert((body.file.clone(), body.offset)));
    })
}

/// What a rule cannot look at ends in its topic: nobody finds it among the failed transfers.
pub(super) fn waiting_lost() -> Hook {
    dropped(|_, effect| match effect {
        Effect::Arrived { message, .. } => {
            message.record.cause == Some(DeadLetterCause::BodyDamaged)
        }
        _ => false,
    })
}
