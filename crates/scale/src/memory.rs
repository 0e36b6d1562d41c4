//! What the running agent tells an operator who asks: its last look, and what it did before, and why.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Decisions and events that are remembered, the newest ones.
const REMEMBERED_MAX: usize = 40;

/// What an agent remembers. Clones share it.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Mutex<Remembered>>);

#[derive(Debug)]
struct Remembered {
    began: Instant,
    looks: u64,
    last: Option<Last>,
    before: VecDeque<(Instant, String)>,
}

#[derive(Debug)]
struct Last {
    at: Instant,
    lines: Vec<String>,
    is_whole: bool,
}

/// What an operator learns.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Told {
    /// Whether the last look could read everything.
    pub is_whole: bool,
    /// Lines, each with its end.
    pub text: String,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Remembered {
            began: Instant::now(),
            looks: 0,
            last: None,
            before: VecDeque::new(),
        })))
    }

    fn with<R>(&self, change: impl FnOnce(&mut Remembered) -> R) -> R {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What a look has found, in words, and whether it could read everything.
    pub(crate) fn looked(&self, lines: Vec<String>, is_whole: bool) {
        let last = Last {
            at: Instant::now(),
            lines,
            is_whole,
        };
        self.with(|it| {
            it.looks += 1;
            it.last = Some(last);
        });
    }

    /// What the agent decided, or what happened.
    pub(crate) fn noted(&self, what: String) {
        let noted = (Instant::now(), what);
        self.with(|it| {
            if it.before.len() == REMEMBERED_MAX {
                it.before.pop_front();
            }
            it.before.push_back(noted);
        });
    }

    /// What the agent of a group has seen last, and did before, the newest first.
    #[must_use]
    pub fn tell(&self, group: &str) -> Told {
        let now = Instant::now();
        self.with(|it| {
            let mut text = format!("group {group}\n");
            let mut add = |line: &str| {
                // A text takes whatever is written.
                let _ = writeln!(text, "  {line}");
            };
            let runs = seconds(now - it.began);
            match &it.last {
                None => add(&format!(
                    "the agent has run for {runs}, and has not looked yet"
                )),
                Some(last) => {
                    let ago = seconds(now - last.at);
                    add(&format!("the agent has run for {runs}"));
                    add(&format!("look {}, {ago} ago:", it.looks));
                    last.lines.iter().for_each(|it| add(&format!("  {it}")));
                }
            }
            // Numbers of the look can be older than an event, and then differ from it.
            let looked_at = it.last.as_ref().map(|it| it.at);
            let is_since = |(at, _): &&(Instant, String)| looked_at.is_some_and(|it| *at >= it);
            let mut events = it.before.iter().rev().peekable();
            for (title, is_of) in [("since that look", true), ("before", false)] {
                let mut is_first = true;
                while let Some((at, what)) = events.next_if(|it| is_since(it) == is_of) {
                    if std::mem::take(&mut is_first) {
                        add(&format!("what it did {title}, the newest first:"));
                    }
                    add(&format!("  {} ago: {what}", seconds(now - *at)));
                }
            }
            Told {
                is_whole: it.last.as_ref().is_some_and(|it| it.is_whole),
                text,
            }
        })
    }
}

/// A time as a person says it.
fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}
