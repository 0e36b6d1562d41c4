//! What imports of messages share: the lines of the input, what was sent so far, and an end that says so.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::signal::unix::{SignalKind, signal};

use crate::input::Input;
use crate::portable::Record;
use crate::queue_command::{Failure, note};

/// How many wrong lines a dry run shows.
const WRONG_LINES_MAX: u64 = 20;

/// The lines of the input from one on. Empty lines count and hold no message.
pub(crate) struct Lines {
    input: Input,
    from_line: u64,
    /// Of the last line that was read.
    pub(crate) number: u64,
}

impl Lines {
    pub(crate) fn open(path: Option<&Path>, from_line: u64) -> Result<Self, Failure> {
        Ok(Self {
            input: Input::open(path)?.of_records(),
            from_line,
            number: 0,
        })
    }

    /// The next message: `make` turns a record into it, or says what is wrong with it.
    pub(crate) fn next<T>(
        &mut self,
        make: impl FnOnce(Record) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        self.next_or_wrong(|line| Record::read(line).and_then(make))?
            .transpose()
    }

    /// What `make` reads of the next line, with a wrong line apart from an input that cannot be read: after a wrong
    /// line comes the next one.
    pub(crate) fn next_or_wrong<T>(
        &mut self,
        make: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Option<Result<T, Failure>>, Failure> {
        loop {
            let Some(line) = self.input.line_or_wrong()? else {
                if self.number < self.from_line && self.from_line > 1 {
                    let (number, from_line) = (self.number, self.from_line);
                    note(&format!(
                        "there are only {number} lines: none from line {from_line} on"
                    ));
                }
                return Ok(None);
            };
            self.number += 1;
            if self.number < self.from_line {
                continue;
            }
            let line = match line {
                Ok(line) if line.trim_ascii().is_empty() => continue,
                Ok(line) => line,
                Err(too_long) => return Ok(Some(Err(too_long))),
            };
            return Ok(Some(make(&line).map_err(|what| self.wrong(&what))));
        }
    }

    /// What is wrong with the last line.
    pub(crate) fn wrong(&self, what: &str) -> Failure {
        Failure::Usage(format!("{}: {what}", self.input.place()))
    }

    /// Reads all lines, shows the wrong ones, and counts the right ones.
    pub(crate) fn check<T>(
        self,
        make: impl Fn(Record) -> Result<T, String>,
    ) -> Result<u64, Failure> {
        self.check_lines(|line| Record::read(line).and_then(&make))
    }

    /// The same for lines of any kind.
    pub(crate) fn check_lines<T>(
        mut self,
        mut make: impl FnMut(&[u8]) -> Result<T, String>,
    ) -> Result<u64, Failure> {
        let (mut right, mut wrong) = (0_u64, 0_u64);
        while let Some(line) = self.next_or_wrong(&mut make)? {
            match line {
                Ok(_) => right += 1,
                Err(failure) => {
                    wrong += 1;
                    if wrong <= WRONG_LINES_MAX {
                        note(&failure.message());
                    }
                }
            }
        }
        match wrong {
            0 => Ok(right),
            _ => Err(Failure::Usage(format!(
                "{wrong} lines are wrong and {right} are right; nothing was sent"
            ))),
        }
    }
}

/// What was sent so far.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) sent: u64,
    /// The first line that is not sent.
    next_line: u64,
    /// A send has begun, and its outcome is not known yet.
    is_sending: bool,
    is_interrupted: bool,
}

/// What was sent so far, for the command and for a signal that ends it.
#[derive(Clone, Debug)]
pub(crate) struct SharedProgress(Arc<Mutex<Progress>>);

impl SharedProgress {
    pub(crate) fn new(next_line: u64) -> Self {
        Self(Arc::new(Mutex::new(Progress {
            sent: 0,
            next_line,
            is_sending: false,
            is_interrupted: false,
        })))
    }

    pub(crate) fn get(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends `count` messages, those of some lines, and learns their outcome.
    pub(crate) fn send(
        &self,
        lines: RangeInclusive<u64>,
        count: u64,
        send: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.get().is_sending = true;
        let sent = send();
        let mut progress = self.get();
        progress.is_sending = false;
        let last = *lines.end();
        if let Err(failure) = sent {
            return Err(progress.failed(failure, Some(lines)));
        }
        progress.sent += count;
        progress.next_line = last + 1;
        match progress.is_interrupted {
            true => Err(progress.interrupted()),
            false => Ok(()),
        }
    }

    /// Ends the program at a signal: at once, or after the outcome of a send that has begun. A second signal does not
    /// wait.
    pub(crate) async fn end_early(self, json: bool) {
        let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
        let [Ok(mut interrupts), Ok(mut terminations)] = signals else {
            // Signals end it as they end any program.
            return;
        };
        for is_first in [true, false] {
            tokio::select! {
                _ = interrupts.recv() => {}
                _ = terminations.recv() => {}
            }
            let mut progress = self.get();
            progress.is_interrupted = true;
            if !(is_first && progress.is_sending) {
                let code = progress.interrupted().tell(json);
                std::process::exit(code.into());
            }
        }
    }
}

impl Progress {
    /// Says what a failure is about, what was sent, and how to go on.
    pub(crate) fn failed(&self, failure: Failure, lines: Option<RangeInclusive<u64>>) -> Failure {
        let Self {
            sent, next_line, ..
        } = self;
        let named = match &lines {
            None => String::new(),
            Some(lines) if lines.start() == lines.end() => format!("line {}", lines.start()),
            Some(lines) => format!("lines {} to {}", lines.start(), lines.end()),
        };
        let how = match lines {
            Some(lines) if failure.is_outcome_unknown() => format!(
                "{named} may have been sent; {sent} messages were sent before, and none after; see whether they \
                 arrived, and to continue, use --from-line {} if they did and --from-line {next_line} if not",
                lines.end() + 1
            ),
            Some(_) => format!(
                "{named}; {sent} messages were sent before, and none after; to continue, use --from-line {next_line}"
            ),
            None => format!(
                "{sent} messages were sent before, and none after; to continue, use --from-line {next_line}"
            ),
        };
        failure.after(how)
    }

    fn interrupted(&self) -> Failure {
        let failure = Failure::Refused {
            message: "interrupted".into(),
            code: None,
        };
        self.failed(failure, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::ServiceError;

    #[test]
    fn an_error_says_which_lines_may_have_been_sent() {
        let progress = SharedProgress::new(1);
        progress.send(1..=2, 2, || Ok(())).unwrap();
        let failed = |is_outcome_unknown| {
            let error = ServiceError {
                is_outcome_unknown,
                ..ServiceError::default()
            };
            let send = || Err(Failure::Bus(Box::new(error)));
            progress.send(3..=502, 500, send).unwrap_err().message()
        };
        let unknown = failed(true);
        for named in [
            "lines 3 to 502 may have been sent",
            "2 messages were sent before",
            "--from-line 503 if they did and --from-line 3 if not",
        ] {
            assert!(unknown.contains(named), "{unknown}");
        }
        let refused = failed(false);
        assert!(!refused.contains("may"), "{refused}");
        assert!(refused.contains("use --from-line 3)"), "{refused}");
    }
}
