//! `kew scale record`: the arrivals of a group's sources as a load, which a simulation replays.
//!
//! Sources count what has arrived in all, so no message is missed between two looks, nor while a source cannot be read.
//! Messages between two looks are spread evenly over the seconds between them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::observe::Seen;

/// A recording ends with the week in which it began.
const WEEK_SECONDS: u32 = 7 * 24 * 3600;

/// Turns what sources report into lines of `second,arrivals`.
#[derive(Debug, Default)]
pub struct Recorder {
    /// What each source had counted, and in which second.
    counted: BTreeMap<String, (u32, u64)>,
    /// Arrivals of seconds for which a source has not answered yet.
    pending: BTreeMap<u32, u64>,
    /// The end of the last line.
    last: Option<u32>,
    messages: u64,
}

/// What a look has added to a recording.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Recorded {
    /// Lines of the load, each with its end.
    pub lines: String,
    /// Sources that can be read, and count no arrivals.
    pub uncounted: Vec<String>,
    /// Sources that cannot be read, and why.
    pub unreadable: Vec<(String, String)>,
}

impl Recorder {
    /// Whether this second, counted from Monday, 00:00, is after the end of a recording.
    #[must_use]
    pub fn is_over(second: u32) -> bool {
        second >= WEEK_SECONDS
    }

    /// Messages in all lines so far.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Takes a look at this second, counted from Monday, 00:00. Seconds rise.
    pub fn see(&mut self, second: u32, seen: &[Seen]) -> Recorded {
        let mut recorded = Recorded::default();
        for source in seen {
            let name = source.name.clone();
            match &source.reading {
                Err(error) => recorded.unreadable.push((name, error.text.clone())),
                Ok(reading) => match reading.arrived {
                    None => recorded.uncounted.push(name),
                    Some(arrived) => self.count(name, second, arrived),
                },
            }
        }
        // Those that were read until now. A source that was never read has no part in it.
        let complete = seen.iter().filter_map(|it| self.counted.get(&it.name));
        if let Some(until) = complete.map(|(second, _)| *second).min() {
            recorded.lines = self.lines(until);
        }
        recorded
    }

    /// The lines that are still missing, and one for the last second, so that a quiet end counts.
    pub fn finish(&mut self) -> String {
        let mut lines = self.lines(u32::MAX);
        let end = self.counted.values().map(|(second, _)| *second).max();
        if let Some(end) = end.filter(|end| self.last.is_none_or(|last| last < *end)) {
            lines.push_str(&line(end, 0));
        }
        lines
    }

    fn count(&mut self, name: String, second: u32, arrived: u64) {
        let Some((since, before)) = self.counted.insert(name, (second, arrived)) else {
            return;
        };
        // A counter that begins again has at least what it counts now.
        let more = arrived.checked_sub(before).unwrap_or(arrived);
        let seconds = second.saturating_sub(since).max(1);
        let until = |index: u32| {
            let part = u128::from(more) * u128::from(index) / u128::from(seconds);
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        for index in 0..seconds {
            let count = until(index + 1) - until(index);
            if count > 0 {
                // The second in which the look was has only begun.
                *self.pending.entry(since + index).or_default() += count;
            }
        }
    }

    /// Takes the seconds before `until`.
    fn lines(&mut self, until: u32) -> String {
        let later = self.pending.split_off(&until);
        let mut lines = String::new();
        for (second, count) in std::mem::replace(&mut self.pending, later) {
            lines.push_str(&line(second, count));
            self.messages = self.messages.saturating_add(count);
            self.last = Some(second);
        }
        lines
    }
}

fn line(second: u32, count: u64) -> String {
    let mut line = String::new();
    // A text takes whatever is written.
    let _ = writeln!(line, "{second},{count}");
    line
}

#[cfg(test)]
mod tests {
    use kew_scaling::Reading;

    use super::*;
    use crate::observe::ReadError;

    fn seen(name: &str, arrived: Option<u64>) -> Seen {
        let reading = Reading {
            arrived,
            ..Reading::default()
        };
        Seen {
            name: name.to_owned(),
            reading: Ok(reading),
        }
    }

    fn unreadable(name: &str) -> Seen {
        let text = "nobody answers".to_owned();
        Seen {
            name: name.to_owned(),
            reading: Err(ReadError {
                text,
                code: None,
                is_throttled: false,
            }),
        }
    }

    #[test]
    fn messages_are_spread_over_the_seconds_in_which_they_came() {
        let mut recorder = Recorder::default();
        let mut see = |second, arrived| recorder.see(second, &[seen("a", Some(arrived))]).lines;
        assert_eq!(see(100, 5000), "", "what came before does not count");
        assert_eq!(see(103, 5007), "100,2\n101,2\n102,3\n");
        assert_eq!(see(110, 5007), "");
        assert_eq!(see(111, 5008), "110,1\n");
        // The server has started again.
        assert_eq!(see(113, 4), "111,2\n112,2\n");
        assert_eq!(see(120, 4), "");
        assert_eq!(recorder.finish(), "120,0\n");
        assert_eq!(recorder.messages(), 12);
    }

    #[test]
    fn sources_are_added_and_one_that_cannot_be_read_is_waited_for() {
        let mut recorder = Recorder::default();
        recorder.see(0, &[seen("a", Some(0)), seen("b", Some(0))]);
        let recorded = recorder.see(2, &[seen("a", Some(2)), unreadable("b")]);
        assert_eq!(recorded.lines, "");
        let expected = ("b".to_owned(), "nobody answers".to_owned());
        assert_eq!(recorded.unreadable, [expected]);
        let recorded = recorder.see(4, &[seen("a", Some(2)), seen("b", Some(40))]);
        assert_eq!(recorded.lines, "0,11\n1,11\n2,10\n3,10\n");
        let recorded = recorder.see(5, &[seen("a", Some(2)), seen("b", None)]);
        assert_eq!(recorded.uncounted, ["b"]);
        assert_eq!(recorder.finish(), "5,0\n");
    }
}
