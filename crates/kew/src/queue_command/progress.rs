//! Progress of long operations, as one line on standard error that is overwritten.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::queue_args::When;

/// How often a second the line changes at most.
const RATE_HZ: u8 = 5;

/// If the work ends sooner, no line stays on the terminal.
const KEPT_FROM: Duration = Duration::from_millis(200);

/// Counts finished work, also of other threads.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    /// Shown where no terminal ends the line.
    is_in_file: bool,
}

impl Progress {
    pub(super) fn new(when: When, verb: &'static str) -> Self {
        let target = match when {
            When::Auto => ProgressDrawTarget::stderr_with_hz(RATE_HZ),
            // As a terminal, because indicatif draws nothing into a file.
            When::Always => {
                let term = Box::new(Term::buffered_stderr());
                ProgressDrawTarget::term_like_with_hz(term, RATE_HZ)
            }
            When::Never => ProgressDrawTarget::hidden(),
        };
        let style = ProgressStyle::with_template("{pos} {msg}, {rate}/s, {seconds} s")
            .expect("a constant template")
            .with_key(
                "rate",
                |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                    // The line is a buffer in memory.
                    let _ = write!(out, "{:.0}", rate(state.pos(), state.elapsed()));
                },
            )
            .with_key(
                "seconds",
                |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                    let _ = write!(out, "{}", state.elapsed().as_secs());
                },
            );
        Self {
            bar: ProgressBar::with_draw_target(None, target)
                .with_style(style)
                .with_message(verb),
            is_in_file: when == When::Always && !io::stderr().is_terminal(),
        }
    }

    /// Notes that one more is done.
    pub(super) fn advance(&self) {
        self.bar.inc(1);
    }

    /// Notes that one more is done, from another thread.
    pub(super) fn counter(&self) -> impl FnOnce() + Send + use<> {
        let bar = self.bar.clone();
        move || bar.inc(1)
    }

    /// Notes how many are done now.
    pub(super) fn set(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// Prints other output: the progress line is removed before, and shown again after it.
    pub(super) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    pub(super) fn done(&self) -> u64 {
        self.bar.position()
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.bar.elapsed()
    }

    /// How many a second so far.
    pub(super) fn rate(&self) -> f64 {
        rate(self.done(), self.elapsed())
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a rate for people, from counts far below 2^53"
)]
fn rate(done: u64, elapsed: Duration) -> f64 {
    done as f64 / elapsed.as_secs_f64().max(0.001)
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_in_file {
            self.bar.abandon();
            // If progress cannot be shown, the work continues.
            let _ = writeln!(io::stderr().lock());
        } else if self.elapsed() < KEPT_FROM {
            self.bar.finish_and_clear();
        } else {
            self.bar.abandon();
        }
    }
}
