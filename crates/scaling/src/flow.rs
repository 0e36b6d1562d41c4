//! Rates of one source, from what it reported over time.

use std::collections::VecDeque;
use std::time::Duration;

use crate::numbers::rate_of;
use crate::observation::Reading;
use crate::trend::{Arrived, fall_at_least};

/// Over how long a rate is measured: the longest time with fewer messages than `messages`, but at least `shortest`. Few
/// messages are measured for long, and a change among many is noticed at once.
#[derive(Clone, Copy, Debug)]
struct Window {
    shortest: Duration,
    messages: u64,
}

/// If messages arrive at random, the rate is known to about a twentieth.
const BRIEF: Window = Window {
    shortest: Duration::from_secs(20),
    messages: 400,
};
/// If messages arrive at random, the rate is known to about a fiftieth.
const LONG: Window = Window {
    shortest: Duration::from_secs(60),
    messages: 2500,
};
/// No rate is measured over more than this time.
const WINDOW_MAX: Duration = Duration::from_secs(600);
/// How the rate falls is seen over at most this time.
const TREND_MAX: Duration = Duration::from_secs(1800);
/// Reports that follow each other sooner count as one: frequent looks would make it expensive, and no better.
const TREND_STEP: Duration = Duration::from_secs(9);
/// If the source could not be read, a time without reports that is so many times as long as the longest one before it is a
/// gap.
const TREND_GAP: u32 = 3;

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    arrived: u64,
}

/// Arrivals and completions of one source.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    samples: VecDeque<Sample>,
    /// Fewer of them, and older ones, for the slope.
    trend: VecDeque<Sample>,
    /// Whether the source could not be read since the last of these.
    has_missed: bool,
    fall: Option<f64>,
    last: Option<(Duration, Reading)>,
    completed: Option<(u64, Duration)>,
}

impl Flow {
    /// Adds what the source reported at `at`.
    pub(crate) fn add(&mut self, at: Duration, reading: Reading) {
        // A source counts itself, or others count for it: both begin at other numbers.
        let is_same =
            |(_, last): &(Duration, Reading)| last.arrived.is_some() == reading.arrived.is_some();
        self.last = self.last.filter(is_same);
        if self.last.is_none() {
            self.forget();
        }
        self.completed = self.last.and_then(|(then, last)| {
            let more = reading.completed?.checked_sub(last.completed?)?;
            Some((more, at.saturating_sub(then)))
        });
        match self.arrived(&reading) {
            Some(arrived) => self.push(Sample { at, arrived }),
            None => self.forget(),
        }
        self.last = Some((at, reading));
    }

    /// The source could not be read.
    pub(crate) fn missed(&mut self) {
        self.has_missed = true;
    }

    /// All messages that have arrived: counted by the source, or those that are there and those that were completed.
    fn arrived(&mut self, reading: &Reading) -> Option<u64> {
        let last = self.samples.back().map(|it| it.arrived);
        if let Some(counted) = reading.arrived {
            if last.is_some_and(|last| counted < last) {
                self.forget();
            }
            return Some(counted);
        }
        let completed = reading.completed?;
        let before = self.last.and_then(|(_, last)| last.completed);
        if before.is_some_and(|before| completed < before) {
            self.forget();
            return Some(reading.backlog.saturating_add(completed));
        }
        // A backlog is approximate: a smaller sum does not mean that messages went back.
        let sum = reading.backlog.saturating_add(completed);
        Some(last.map_or(sum, |last| last.max(sum)))
    }

    fn push(&mut self, sample: Sample) {
        self.watch(sample);
        self.samples.push_back(sample);
        let too_old = |it: &Sample| sample.at.saturating_sub(it.at) > WINDOW_MAX;
        while self.samples.len() > 2 && self.samples.front().is_some_and(too_old) {
            self.samples.pop_front();
        }
    }

    /// Messages that arrive each second, or `None` if that is not known.
    pub(crate) fn arrivals(&self) -> Option<f64> {
        let (count, seconds) = self.measured(BRIEF)?;
        Some(count / seconds)
    }

    /// Messages that arrive each second without those that came only briefly, or `None` if that is not known.
    ///
    /// It is measured for long. If far fewer have arrived lately, so that it is no chance, those count.
    pub(crate) fn lasting_arrivals(&self) -> Option<f64> {
        let (count, seconds) = self.measured(LONG)?;
        let (lately, seconds_lately) = self.measured(BRIEF)?;
        let at_most_lately = (lately + 2.0 * lately.sqrt()) / seconds_lately;
        Some((count / seconds).min(at_most_lately))
    }

    /// By how many messages a second their rate falls in each second, at the least: below 0 if it may grow. `None` if
    /// that cannot be said.
    pub(crate) fn fall(&self) -> Option<f64> {
        self.fall
    }

    fn watch(&mut self, sample: Sample) {
        let is_soon = |it: &Sample| sample.at.saturating_sub(it.at) < TREND_STEP;
        if self.trend.back().is_some_and(is_soon) {
            return;
        }
        if std::mem::take(&mut self.has_missed) && self.is_long(sample.at) {
            // How arrivals were spread over it is not known, so no line through it says anything.
            self.trend.clear();
        }
        self.trend.push_back(sample);
        let too_old = |it: &Sample| sample.at.saturating_sub(it.at) > TREND_MAX;
        while self.trend.front().is_some_and(too_old) {
            self.trend.pop_front();
        }
        let later = self.trend.iter().skip(1);
        let arrived = self.trend.iter().zip(later).map(|(from, until)| Arrived {
            ago: sample.at.saturating_sub(until.at).as_secs_f64(),
            seconds: until.at.saturating_sub(from.at).as_secs_f64(),
            messages: rate_of(until.arrived.saturating_sub(from.arrived)),
        });
        self.fall = fall_at_least(arrived);
    }

    /// Whether far more time has passed since the last report of the trend than between any two of them. Looks that become
    /// rarer look the same.
    fn is_long(&self, at: Duration) -> bool {
        let later = self.trend.iter().skip(1);
        let between = self.trend.iter().zip(later);
        let longest = between.map(|(from, until)| until.at.saturating_sub(from.at));
        let since_last = self.trend.back().map(|it| at.saturating_sub(it.at));
        // Of one report, nothing is known.
        longest
            .max()
            .zip(since_last)
            .is_some_and(|(longest, since)| since > longest * TREND_GAP)
    }

    fn forget(&mut self) {
        self.samples.clear();
        self.trend.clear();
        self.fall = None;
    }

    /// How many messages arrived in how many seconds.
    fn measured(&self, window: Window) -> Option<(f64, f64)> {
        let last = self.samples.back()?;
        let mut first = None;
        for sample in self.samples.iter().rev().skip(1) {
            let is_short = last.at.saturating_sub(sample.at) <= window.shortest;
            let is_quiet = last.arrived.saturating_sub(sample.arrived) < window.messages;
            if first.is_some() && !is_short && !is_quiet {
                break;
            }
            first = Some(sample);
        }
        let first = first?;
        let seconds = last.at.saturating_sub(first.at).as_secs_f64();
        let count = rate_of(last.arrived.saturating_sub(first.arrived));
        (seconds > 0.0).then_some((count, seconds))
    }

    /// Messages that were completed between the last two reports, and the time between them.
    pub(crate) fn completed(&self) -> Option<(u64, Duration)> {
        self.completed
    }

    /// Whether messages were there, or had arrived, at the last report.
    pub(crate) fn is_busy(&self) -> bool {
        let mut samples = self.samples.iter().rev().map(|it| it.arrived);
        let arrived = samples.next().zip(samples.next());
        let backlog = self.last.map_or(0, |(_, reading)| reading.backlog);
        backlog > 0 || arrived.is_some_and(|(now, before)| now > before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(readings: impl IntoIterator<Item = (u64, Reading)>) -> Flow {
        looks(
            readings
                .into_iter()
                .map(|(at, reading)| (at, Some(reading))),
        )
    }

    /// At some of them, the source could not be read.
    fn looks(looks: impl IntoIterator<Item = (u64, Option<Reading>)>) -> Flow {
        let mut flow = Flow::default();
        for (at, reading) in looks {
            match reading {
                Some(reading) => flow.add(Duration::from_secs(at), reading),
                None => flow.missed(),
            }
        }
        flow
    }

    fn arrived(count: u64) -> Reading {
        let arrived = Some(count);
        Reading {
            arrived,
            ..Reading::default()
        }
    }

    #[test]
    fn few_messages_are_measured_for_long() {
        // One each second, with a gap at the end: 90 in 100 s.
        let flow = flow((0..=10).map(|i| (i * 10, arrived((i * 10).min(90)))));
        assert_eq!(flow.arrivals(), Some(0.9));
    }

    #[test]
    fn many_messages_are_measured_briefly() {
        // A hundred each second, and two hundred since 20 s.
        let at = |i: u64| (i * 10, arrived(i * 1000 + i.saturating_sub(8) * 1000));
        assert_eq!(flow((0..=10).map(at)).arrivals(), Some(200.0));
    }

    #[test]
    fn a_burst_that_is_over_does_not_count() {
        let at = |i: u64| (i * 10, arrived(if i < 3 { 0 } else { 10_000 }));
        assert_eq!(flow((0..=10).map(at)).arrivals(), Some(0.0));
        // Nor one that has just begun count as lasting.
        let at = |i: u64| (i * 10, arrived(if i < 10 { 0 } else { 10_000 }));
        let flow = flow((0..=10).map(at));
        assert_eq!(flow.arrivals(), Some(500.0));
        assert_eq!(flow.lasting_arrivals(), Some(10_000.0 / 60.0));
    }

    #[test]
    fn a_counter_may_begin_again() {
        let flow = flow([
            (0, arrived(5000)),
            (10, arrived(6000)),
            (20, arrived(0)),
            (30, arrived(50)),
        ]);
        assert_eq!(flow.arrivals(), Some(5.0));
    }

    #[test]
    fn arrivals_follow_from_the_backlog_and_completions() {
        let reading = |backlog, completed| Reading {
            backlog,
            completed: Some(completed),
            ..Reading::default()
        };
        let flow = flow([(0, reading(10, 0)), (10, reading(30, 80))]);
        assert_eq!(flow.arrivals(), Some(10.0));
        assert_eq!(flow.completed(), Some((80, Duration::from_secs(10))));
        assert!(flow.is_busy());
    }

    #[test]
    fn counters_of_different_origins_are_not_compared() {
        // A busy server names the queue on its page, then not, then again. Meanwhile its instances count.
        let page = |arrived, backlog| Reading {
            backlog,
            arrived: Some(arrived),
            completed: Some(arrived - backlog),
            ..Reading::default()
        };
        let instances = |completed, backlog| Reading {
            backlog,
            completed: Some(completed),
            ..Reading::default()
        };
        let readings = [
            (0, page(1_000_000, 0)),
            (10, page(1_000_000, 0)),
            (20, instances(40, 0)),
            (30, instances(60, 10)),
            (40, page(1_000_100, 30)),
            (50, page(1_000_150, 0)),
        ];
        let flow = |count: usize| flow(readings[..count].iter().copied());
        // Nothing is known from one report.
        for changed in [3, 5] {
            assert_eq!(flow(changed).arrivals(), None);
            assert_eq!(flow(changed).lasting_arrivals(), None);
            assert_eq!(flow(changed).completed(), None);
        }
        assert_eq!(flow(4).arrivals(), Some(3.0));
        assert_eq!(flow(6).arrivals(), Some(5.0));
        let seconds = Duration::from_secs(10);
        assert_eq!(flow(4).completed(), Some((20, seconds)));
        assert_eq!(flow(6).completed(), Some((80, seconds)));
    }

    /// A look each second costs no more than one each ten seconds, in memory and in time.
    #[test]
    fn frequent_looks_do_not_make_the_slope_expensive() {
        let flow = flow((0..4000).map(|second| (second, arrived(second * 5))));
        assert!(
            (180..=201).contains(&flow.trend.len()),
            "{}",
            flow.trend.len()
        );
        assert!(flow.samples.len() <= 602, "{}", flow.samples.len());
        assert!(flow.fall().is_some());
    }

    /// 20 messages a second, and each minute 0.6 fewer.
    fn falling(second: u64) -> Reading {
        arrived(20 * second - second * second / 200)
    }

    /// The source could not be read meanwhile. Two reports in a row may be missing.
    #[test]
    fn a_gap_ends_the_slope() {
        let falls = |missing: u64, until| {
            let missed = 1010..1010 + 10 * missing;
            let look = |second| {
                let reading = (!missed.contains(&second)).then(|| falling(second));
                (second, reading)
            };
            let flow = looks((0..=until).step_by(10).map(look));
            flow.fall().is_some_and(|it| it > 0.0)
        };
        assert!(falls(0, 1010) && falls(2, 1030));
        assert!(!falls(3, 1040) && !falls(3, 1490));
        // It begins again after the gap, and needs as long as at first.
        assert!(falls(3, 2000));
    }

    /// After an announcement, the agent looks often, and then again as rarely as its file says.
    #[test]
    fn looks_that_become_rarer_are_no_gap() {
        let often = (0..=900).step_by(9);
        let rarely = (960..=1200).step_by(60);
        let readings = often.chain(rarely).map(|it| (it, falling(it)));
        for count in [102, 103, 106] {
            let flow = flow(readings.clone().take(count));
            assert!(flow.fall().is_some_and(|it| it > 0.0), "{count}");
        }
    }

    #[test]
    fn without_a_counter_no_rate_is_known() {
        let reading = Reading {
            backlog: 3,
            ..Reading::default()
        };
        let flow = flow([(0, reading), (10, reading)]);
        assert_eq!(flow.arrivals(), None);
        assert!(flow.is_busy());
    }
}
