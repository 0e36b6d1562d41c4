//! Loads: how many messages arrive in each second.

use crate::numbers::whole_of;
use crate::simulate::chance::Chance;
use crate::week::{Day, TimeOfWeek};

const HOUR: u32 = 3600;

/// A load, recorded or made up.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Its name.
    pub name: String,
    /// When it begins.
    pub begins: TimeOfWeek,
    /// Messages that arrive in each second.
    pub arrivals: Vec<u32>,
}

/// Between the points (second, messages a second), along straight lines. Before the first and after the last: constant.
fn along(points: &[(u32, f64)], second: u32) -> f64 {
    let after = points.iter().position(|point| point.0 > second);
    let before = after.map_or(points.last(), |at| {
        at.checked_sub(1).and_then(|it| points.get(it))
    });
    let after = after.and_then(|at| points.get(at));
    match (before, after) {
        (Some(before), Some(after)) => {
            let part = f64::from(second - before.0) / f64::from(after.0 - before.0);
            before.1 + part * (after.1 - before.1)
        }
        (Some(only), None) | (None, Some(only)) => only.1,
        (None, None) => 0.0,
    }
}

impl Load {
    /// `seconds` of messages that arrive at random, `rate(second)` of them each second.
    pub fn random(
        name: &str,
        begins: TimeOfWeek,
        seconds: u32,
        seed: u64,
        rate: impl Fn(u32) -> f64,
    ) -> Self {
        let mut chance = Chance::new(seed);
        let arrivals = (0..seconds).map(|second| chance.arrivals(rate(second)));
        Self {
            name: name.to_owned(),
            begins,
            arrivals: arrivals.collect(),
        }
    }

    /// `seconds` of messages that arrive evenly, `rate(second)` of them each second.
    pub fn even(name: &str, begins: TimeOfWeek, seconds: u32, rate: impl Fn(u32) -> f64) -> Self {
        let mut owed = 0.0;
        let arrivals = (0..seconds).map(|second| {
            owed += rate(second);
            // A sum of rates may lack its last digits.
            let count = whole_of(owed + 1e-6);
            owed -= f64::from(count);
            count
        });
        Self {
            name: name.to_owned(),
            begins,
            arrivals: arrivals.collect(),
        }
    }

    /// Monday, 06:00 to 12:00. Few messages arrive until 08:00. Within ten minutes they become 150 a second, the work of
    /// the weekend. From 09:30 they become fewer.
    #[must_use]
    pub fn monday_morning(seed: u64) -> Self {
        let points = [
            (0, 0.5),
            (2 * HOUR, 2.0),
            (2 * HOUR + 600, 150.0),
            (3 * HOUR + 1800, 150.0),
            (5 * HOUR, 60.0),
            (6 * HOUR, 40.0),
        ];
        let begins = TimeOfWeek::new(Day::Monday, 6, 0);
        Self::random("monday-morning", begins, 6 * HOUR, seed, |second| {
            along(&points, second)
        })
    }

    /// Thursday, 12:00 to 18:00: the payroll. 20 messages arrive each second. From 14:00 to 17:00, a package of 8,000
    /// arrives every quarter of an hour, within 20 s.
    #[must_use]
    pub fn thursday_afternoon(seed: u64) -> Self {
        let begins = TimeOfWeek::new(Day::Thursday, 12, 0);
        Self::random("thursday-afternoon", begins, 6 * HOUR, seed, |second| {
            let is_package =
                (2 * HOUR..5 * HOUR).contains(&second) && (107..127).contains(&(second % 900));
            if is_package { 420.0 } else { 20.0 }
        })
    }

    /// Four hours without messages, but for 4,000 within 10 s in each half hour.
    #[must_use]
    pub fn burst(seed: u64) -> Self {
        let begins = TimeOfWeek::new(Day::Wednesday, 1, 0);
        Self::random("burst", begins, 4 * HOUR, seed, |second| {
            let is_burst = (1017..1027).contains(&(second % 1800));
            if is_burst { 400.0 } else { 0.0 }
        })
    }

    /// A day from midnight: 5 messages a second at 03:00, and 125 at 15:00, along a sine.
    #[must_use]
    pub fn diurnal(seed: u64) -> Self {
        let begins = TimeOfWeek::new(Day::Tuesday, 0, 0);
        Self::random("diurnal", begins, 24 * HOUR, seed, |second| {
            let day = f64::from(second) / f64::from(24 * HOUR);
            65.0 - 60.0 * (std::f64::consts::TAU * (day - 0.125)).cos()
        })
    }

    /// The four loads that the agent is judged by.
    #[must_use]
    pub fn all(seed: u64) -> [Self; 4] {
        [
            Self::monday_morning(seed),
            Self::thursday_afternoon(seed),
            Self::burst(seed),
            Self::diurnal(seed),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_load_has_its_rate() {
        let begins = TimeOfWeek::new(Day::Monday, 0, 0);
        for rate in [0.01, 0.3, 1.0, 16.8] {
            let load = Load::even("even", begins, 10_000, |_| rate);
            let sum: u32 = load.arrivals.iter().sum();
            assert!(
                (f64::from(sum) - rate * 1e4).abs() <= 1.0,
                "{sum} at {rate}"
            );
        }
    }

    #[test]
    fn a_line_leads_through_its_points() {
        let points = [(10, 1.0), (20, 3.0)];
        let found = [0, 10, 15, 20, 99].map(|second| along(&points, second));
        assert_eq!(found, [1.0, 1.0, 2.0, 3.0, 3.0]);
    }
}
