//! Small worlds on the model, by their seeds.

use kew_log_contract::{Happened, Mistake, run_world};

/// How many worlds there are.
const SEEDS: u64 = 1_000;

/// Among how many one shows a mistake. Of a lease that is too long little is seen: an owner has to rest at the right
/// moment.
const SEEDS_MAX: u64 = 20_000;

#[test]
fn what_is_acknowledged_is_followed_once_by_all_members() {
    let mut all = Happened::default();
    for seed in 0..SEEDS {
        let happened = run_world(seed, None);
        let happened = happened.unwrap_or_else(|broken| panic!("seed {seed}: {broken:?}"));
        all += happened;
    }
    assert!(all.counts().all(|(_, count)| count > 100), "{all:?}");
    let late = all.late_commits.min(all.late_renewals);
    assert!(late > 1_000, "{all:?}");
}

#[test]
fn a_seed_gives_the_same_world_each_time() {
    for seed in 0..20 {
        // With a hash of all steps and of what is followed.
        let (one, other) = (run_world(seed, None), run_world(seed, None));
        assert_eq!(one.unwrap(), other.unwrap());
    }
}

/// Mistakes show in some world.
#[test]
fn a_mistake_shows() {
    for (mistake, words) in [
        (Mistake::LostCountsAsFailed, "is Refused, and followed"),
        (Mistake::RetriedAtNewerPosition, "is Acknowledged"),
        (Mistake::PlaceLeftOut, "is Acknowledged"),
        (Mistake::LeaseFromAnswer, "trusts its lease"),
        (Mistake::NotCompared, "its follower continues"),
        (Mistake::DurableEarly, "is Acknowledged"),
    ] {
        let noticed = (0..SEEDS_MAX).any(|seed| {
            let broken = run_world(seed, Some(mistake)).err();
            broken.is_some_and(|broken| format!("{broken:?}").contains(words))
        });
        assert!(noticed, "no world notices {mistake:?}");
    }
}
