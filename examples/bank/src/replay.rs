//! Peaks of a bank: Monday mornings, Thursday afternoons, and those that nobody foresees.

use std::fs::{File, OpenOptions, create_dir_all};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::audit::Confirmed;
use crate::caller::Order;
use crate::chance::Chance;
use crate::client::Client;

/// A peak to replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Peak {
    /// Steep: what the weekend left, and then a long slope.
    Monday,
    /// A hill: wages and standing orders in the afternoon.
    Thursday,
    /// Nearly everything at once, at a time that nobody knows.
    Burst,
}

impl Peak {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Monday, Self::Thursday, Self::Burst];

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Monday => "Monday morning",
            Self::Thursday => "Thursday afternoon",
            Self::Burst => "an unforeseen burst",
        }
    }

    /// How many calls come in each twentieth of the time, in proportion.
    fn weights(self, chance: &mut Chance) -> [u64; 20] {
        match self {
            Self::Monday => [1, 3, 9, 10, 10, 9, 8, 7, 6, 5, 4, 4, 3, 3, 2, 2, 1, 1, 1, 1],
            Self::Thursday => [
                1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 10, 10, 10, 8, 6, 4, 2, 1, 1,
            ],
            Self::Burst => {
                let mut weights = [1; 20];
                let at = chance.below(20);
                for (slice, weight) in (0..).zip(weights.iter_mut()) {
                    if slice == at {
                        *weight = 120;
                    }
                }
                weights
            }
        }
    }

    /// When each of `count` calls comes, in order.
    pub fn times(self, count: u64, length: Duration, chance: &mut Chance) -> Vec<Duration> {
        let weights = self.weights(chance);
        let all: u64 = weights.iter().sum();
        let slice = length / 20;
        let mut times = Vec::new();
        let (mut begin, mut passed) = (Duration::ZERO, 0);
        for weight in weights {
            let from = count * passed / all;
            passed += weight;
            let calls = count * passed / all - from;
            for number in 0..calls {
                let share = u32::try_from(number * 1_000 / calls).unwrap_or(0);
                times.push(begin + slice * share / 1_000);
            }
            begin += slice;
        }
        times
    }
}

/// How a peak went.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was confirmed.
    pub confirmed: Vec<Confirmed>,
    /// Calls that failed, and were repeated.
    pub failures: u32,
    /// How long the calls took, failures included, in order.
    pub latencies: Vec<Duration>,
}

impl Outcome {
    /// The latency that so many of a hundred calls did not exceed.
    pub fn percentile(&self, percent: usize) -> Duration {
        let place = self.latencies.len() * percent / 100;
        let last = self.latencies.last().copied().unwrap_or_default();
        self.latencies.get(place).copied().unwrap_or(last)
    }
}

/// Replays a peak: each call at its time, at most `callers` at once.
pub async fn replay(
    web: &Client,
    peak: Peak,
    count: u64,
    length: Duration,
    callers: usize,
    chance: &mut Chance,
) -> Outcome {
    let begin = Instant::now();
    let places = Arc::new(Semaphore::new(callers.max(1)));
    let mut calls = JoinSet::new();
    for time in peak.times(count, length, chance) {
        sleep(time.saturating_sub(begin.elapsed())).await;
        let place = places.clone().acquire_owned().await;
        let (order, web) = (Order::any(chance, 20), web.clone());
        calls.spawn(async move {
            let (_place, begin) = (place, Instant::now());
            let failures = order.place(&web).await;
            (order.confirmed, failures, begin.elapsed())
        });
    }
    let mut outcome = Outcome::default();
    while let Some(done) = calls.join_next().await {
        // A call that panicked is missing in the number of confirmed ones.
        let Ok((confirmed, failures, latency)) = done else {
            continue;
        };
        outcome.confirmed.push(confirmed);
        outcome.failures += failures;
        outcome.latencies.push(latency);
    }
    outcome.latencies.sort_unstable();
    outcome
}

/// Opens the file for what is confirmed, before the first call: creates it and its folder if they do not exist.
pub fn open_journal(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

/// Adds what was confirmed, one JSON object a line.
pub fn write_journal(journal: &mut File, confirmed: &[Confirmed]) -> io::Result<()> {
    let mut lines = String::new();
    for one in confirmed {
        lines += &serde_json::to_string(one)?;
        lines.push('\n');
    }
    journal.write_all(lines.as_bytes())
}

/// Reads what was confirmed.
pub fn read_journal(path: &Path) -> io::Result<Vec<Confirmed>> {
    let text = std::fs::read_to_string(path)?;
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(|line| Ok(serde_json::from_str(line)?)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// How many of 500 calls of 10 s come in each half second.
    fn calls_of(peak: Peak, seed: u64) -> [usize; 20] {
        let length = Duration::from_secs(10);
        let times = peak.times(500, length, &mut Chance::new(seed));
        assert_eq!(times.len(), 500, "{peak:?}");
        assert!(times.is_sorted() && times[499] < length);
        let mut slices = [0; 20];
        for time in times {
            slices[usize::try_from(time.as_millis() / 500).unwrap()] += 1;
        }
        slices
    }

    /// The busiest slice, the middle one of several, and how many calls come in it.
    fn busiest(slices: [usize; 20]) -> (usize, usize) {
        let most = *slices.iter().max().unwrap();
        let middle: Vec<usize> = (0..20).filter(|it| slices[*it] == most).collect();
        (middle[middle.len() / 2], most)
    }

    #[test]
    fn every_peak_has_its_calls_in_its_time() {
        // In the morning: soon after the begin, and then less and less.
        let monday = calls_of(Peak::Monday, 7);
        let (at, most) = busiest(monday);
        assert!((2..=5).contains(&at) && most > 50, "{monday:?}");
        assert!(monday[at..].is_sorted_by(|a, b| a + 1 >= *b), "{monday:?}");
        let of_early: usize = monday[..10].iter().sum();
        assert!(of_early > 350, "{monday:?}");
        // In the afternoon: more and more, and the most after the middle, but not at the end.
        let thursday = calls_of(Peak::Thursday, 7);
        let (at, most) = busiest(thursday);
        assert!((11..=14).contains(&at) && most > 50, "{thursday:?}");
        assert!(
            thursday[..at].is_sorted_by(|a, b| *a <= b + 1),
            "{thursday:?}"
        );
        let of_late: usize = thursday[10..].iter().sum();
        assert!(of_late > 300, "{thursday:?}");
        assert!(thursday[19] < most / 4, "{thursday:?}");
    }

    #[test]
    fn a_burst_comes_at_once_and_nobody_knows_when() {
        let bursts: Vec<(usize, usize)> = (0..20)
            .map(|it| busiest(calls_of(Peak::Burst, it)))
            .collect();
        // Nearly all of 500 calls in one slice.
        assert!(bursts.iter().all(|(_, most)| *most > 400), "{bursts:?}");
        let places: BTreeSet<usize> = bursts.iter().map(|(at, _)| *at).collect();
        assert!(places.len() > 8, "{places:?}");
    }

    #[test]
    fn a_journal_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("not/there/journal");
        let mut chance = Chance::new(7);
        let [a, b] = [(); 2].map(|()| Order::any(&mut chance, 20).confirmed);
        for one in [&a, &b] {
            let mut journal = open_journal(&path).unwrap();
            write_journal(&mut journal, std::slice::from_ref(one)).unwrap();
        }
        assert_eq!(read_journal(&path).unwrap(), [a, b]);
    }
}
