//! A replicated log, its owners and their clocks are wrong.

use kew_broker::{AnswerBodies, Answered, Rejection};
use kew_engine::storage::{StorageCommand, StorageOutcome};
use kew_engine::{Command, Outcome, Timestamp};
use kew_log::BootTime;
use kew_log_contract::Mistake;
use kew_planted::{Hook, Seam};

use super::door::answers;
use super::hooks::on;

/// A commit whose answer was lost is asked for again behind whatever is in the log by now.
pub(super) fn retried_at_newer_position() -> Hook {
    makes(Mistake::RetriedAtNewerPosition)
}

/// A commit also acknowledges what was staged behind it.
pub(super) fn agreed_early() -> Hook {
    makes(Mistake::DurableEarly)
}

/// The outcomes of jobs of a former owner are taken by the next one.
pub(super) fn outcome_of_former_log() -> Hook {
    on(Seam::LateOutcomes, |are_taken: &mut bool| *are_taken = true)
}

/// A lease never ends for the one who had it.
pub(super) fn read_without_lease() -> Hook {
    on(Seam::Confirmed, |now: &mut BootTime| *now = BootTime::ZERO)
}

/// The clock of an owner begins at the last event, also if a beat came later.
pub(super) fn clock_behind_last_beat() -> Hook {
    on(
        Seam::RecordedAt,
        |(recorded_at, last_event_at): &mut (Timestamp, Timestamp)| *recorded_at = *last_event_at,
    )
}

/// A fenced owner says of each deletion that waits that it has happened.
pub(super) fn answered_after_fence() -> Hook {
    answers(|command, reply, _| {
        let is_deletion = matches!(command, Command::Storage(StorageCommand::Delete { .. }));
        if is_deletion && matches!(reply, Err(Rejection::Unknown)) {
            *reply = Ok(Answered {
                outcome: Outcome::Storage(StorageOutcome::Deleted),
                bodies: AnswerBodies::Read(Vec::new()),
            });
        }
    })
}

fn makes(mistake: Mistake) -> Hook {
    on(Seam::Model, move |it: &mut Option<Mistake>| {
        *it = Some(mistake);
    })
}
