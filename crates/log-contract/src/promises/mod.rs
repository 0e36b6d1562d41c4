//! The promises of every log to its owner and its followers.
//!
//! A check has no knowledge of the kind of log. It returns what a log did that it had promised not to do.

mod bodies;
mod commits;
mod copies;
mod ends;
mod following;
mod link;
mod order;
mod room;

use crate::broken::{Broken, Checked};
use crate::{Mistake, Subject};

/// Makes an empty log.
pub(crate) type Make<'a> = &'a dyn Fn() -> Box<dyn Subject>;

/// A check of a promise on logs that are made for it.
pub type Check = fn(&dyn Fn() -> Box<dyn Subject>) -> Result<(), Broken>;

/// One promise.
#[derive(Debug)]
pub struct Promise {
    /// Its number in `docs/core.md`.
    pub number: u8,
    /// Its name, as a test has it.
    pub name: &'static str,
    /// Its check.
    pub check: Check,
    /// A log that makes this mistake does not pass the check.
    pub mistake: Mistake,
    /// The check says these words then.
    pub words: &'static str,
    /// Other mistakes that the check notices, with their words.
    pub others: &'static [(Mistake, &'static str)],
}

const fn by(
    number: u8,
    name: &'static str,
    check: Check,
    (mistake, words): (Mistake, &'static str),
) -> Promise {
    Promise {
        number,
        name,
        check,
        mistake,
        words,
        others: &[],
    }
}

impl Promise {
    const fn and(self, others: &'static [(Mistake, &'static str)]) -> Self {
        Self { others, ..self }
    }
}

/// All promises, in order.
pub const PROMISES: [Promise; 24] = [
    by(
        1,
        "batches_are_whole",
        commits::batches_are_whole,
        (Mistake::HalfBatch, "no batch ends there"),
    ),
    by(
        2,
        "durable_is_followed",
        commits::durable_is_followed,
        (Mistake::DurableEarly, "is lost, and durable is"),
    ),
    by(
        3,
        "only_complete_moves_durable",
        commits::only_complete_moves_durable,
        (Mistake::DurableInAppend, "moves durable"),
    ),
    by(
        4,
        "batches_and_beats_move_end",
        commits::batches_and_beats_move_end,
        (Mistake::MarkMovesEnd, "a mark moves the end"),
    ),
    by(
        5,
        "one_commit_is_out",
        commits::one_commit_is_out,
        (Mistake::TwoCommits, "2 commits are out"),
    ),
    by(
        6,
        "reservations_serve_once",
        room::reservations_serve_once,
        (Mistake::ReservationUsedTwice, "a reservation serves again"),
    ),
    by(
        7,
        "no_batch_is_above_the_limit",
        room::no_batch_is_above_the_limit,
        (Mistake::LimitGrows, "the limit was"),
    ),
    by(
        8,
        "jobs_lead_to_room",
        room::jobs_lead_to_room,
        (Mistake::NeverPrepared, "has no room after all jobs"),
    ),
    by(
        9,
        "times_never_go_back",
        commits::times_never_go_back,
        (Mistake::BeatLeftOut, "the times are"),
    ),
    by(
        10,
        "bodies_are_read",
        bodies::bodies_are_read,
        (
            Mistake::BodyGoneAfterTrim,
            "cannot be read after its commit",
        ),
    ),
    by(
        11,
        "old_handles_read_or_are_gone",
        bodies::old_handles_read_or_are_gone,
        (Mistake::BodyRecycled, "reads another one"),
    ),
    by(
        12,
        "snapshots_wait_for_durable",
        bodies::snapshots_wait_for_durable,
        (Mistake::SnapshotAtOnce, "counts before durable"),
    ),
    by(
        13,
        "what_is_live_stays",
        bodies::what_is_live_stays,
        (Mistake::GoneBehindOne, "cannot be read behind one snapshot"),
    ),
    by(
        14,
        "jobs_run_in_any_order",
        order::jobs_run_in_any_order,
        (Mistake::OrderCounts, "no batch ends there"),
    ),
    by(
        15,
        "nothing_follows_an_end",
        ends::nothing_follows_an_end,
        (Mistake::GoesOnAfterEnd, "continues after its end"),
    ),
    by(
        16,
        "pieces_come_in_order_and_once",
        following::pieces_come_in_order_and_once,
        (Mistake::PieceRepeated, "came behind"),
    ),
    by(
        17,
        "current_has_all",
        following::current_has_all,
        (Mistake::CurrentEarly, "a follower is current, and has"),
    ),
    by(
        18,
        "old_epochs_are_fenced",
        ends::old_epochs_are_fenced,
        (Mistake::OldEpochAccepted, "is not fenced"),
    ),
    by(
        19,
        "former_owners_are_fenced",
        ends::former_owners_are_fenced,
        (Mistake::VoidApplied, "a batch of a former owner"),
    ),
    by(
        20,
        "a_lost_answer_is_settled",
        link::a_lost_answer_is_settled,
        (Mistake::LostCountsAsFailed, "is followed, and durable is"),
    ),
    by(
        21,
        "a_late_duplicate_changes_nothing",
        link::a_late_duplicate_changes_nothing,
        (Mistake::RetriedAtNewerPosition, "is followed 2 times"),
    )
    .and(&[(Mistake::PlaceLeftOut, "a late request repeats a batch")]),
    by(
        22,
        "owners_do_not_overlap",
        link::owners_do_not_overlap,
        (Mistake::LeaseFromAnswer, "while the log is owned until"),
    )
    .and(&[(Mistake::MarginLeftOut, "while the log is owned until")]),
    by(
        23,
        "a_slow_follower_gets_the_same",
        following::a_slow_follower_gets_the_same,
        (Mistake::GapSkipped, "gets other batches"),
    ),
    by(
        24,
        "a_copy_that_differs_is_reported",
        copies::a_copy_that_differs_is_reported,
        (Mistake::NotCompared, "and its copy differs from"),
    ),
];

impl Promise {
    /// The promise of a name.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn named(name: &str) -> &'static Self {
        let found = PROMISES.iter().find(|promise| promise.name == name);
        found.unwrap_or_else(|| panic!("no promise has the name {name}"))
    }

    /// Why it cannot be checked on a log, if so.
    pub fn skipped(&self, subject: &dyn Subject) -> Option<&'static str> {
        let mut skips = subject.skips().iter();
        let skip = skips.find(|(number, _)| *number == self.number);
        skip.map(|(_, why)| *why)
    }

    /// Checks it on a kind of log, unless it is skipped there.
    pub fn check(&self, make: Make<'_>) -> Checked {
        match self.skipped(&*make()) {
            Some(_) => Ok(()),
            None => (self.check)(make),
        }
    }
}
