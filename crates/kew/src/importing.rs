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
            input: Input::open(path)?,
            from_line,
            number: 0,
        })
    }

    /// The next message: `make` turns a record into it, or says what is wrong with it.
    pub(crate) fn next<T>(
        &mut self,
        make: impl FnOnce(Record) -> Result<T, String>,
    ) -> Result<Option<T>, Failure> {
        loop {
            let Some(line) = self.input.line()? else {
                return Ok(None);
            };
            self.number += 1;
            if self.number >= self.from_line && !line.trim_ascii().is_empty() {
                let wrong = |what| Failure::Usage(format!("{}: {what}", self.input.place()));
                return Record::read(&line).and_then(make).map(Some).map_err(wrong);
            }
        }
    }

    /// Reads all lines, shows the wrong ones, and counts the right ones.
    pub(crate) fn check<T>(
        mut self,
        make: impl Fn(Record) -> Result<T, String>,
    ) -> Result<u64, Failure> {
        let (mut right, mut wrong) = (0_u64, 0_u64);
        loop {
            match self.next(&make) {
                Ok(Some(_)) => right += 1,
                Ok(None) if wrong == 0 => return Ok(right),
                Ok(None) => {
                    let message =
                        format!("{wrong} lines are wrong and {right} are right; nothing was sent");
                    return Err(Failure::Usage(message));
                }
                Err(Failure::Usage(message)) if self.number > 0 => {
                    wrong += 1;
                    if wrong <= WRONG_LINES_MAX {
                        note(&message);
                    }
                }
                Err(failure) => return Err(failure),
            }
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
        let about = match lines {
            None => String::new(),
            Some(lines) if lines.start() == lines.end() => format!("line {}; ", lines.start()),
            Some(lines) => format!("lines {} to {}; ", lines.start(), lines.end()),
        };
        let Self {
            sent, next_line, ..
        } = self;
        failure.after(format!(
            "{about}{sent} messages were sent before, and none after; to continue, use --from-line {next_line}"
        ))
    }

    fn interrupted(&self) -> Failure {
        let failure = Failure::Refused {
            message: "interrupted".into(),
            code: None,
        };
        self.failed(failure, None)
    }
}
