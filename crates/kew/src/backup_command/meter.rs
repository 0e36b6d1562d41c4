//! The progress of a backup or a restore: a bar on a terminal, lines of text elsewhere, or lines of JSON.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kew_backup::Phase;
use serde_json::json;

use super::size;
use crate::cli::print_line;
use crate::safe_json;

/// How often a second the bar changes at most.
const RATE_HZ: u8 = 5;
const JSON_INTERVAL: Duration = Duration::from_secs(1);
const TEXT_INTERVAL: Duration = Duration::from_secs(10);

/// Counts bytes, and shows them.
pub(crate) struct Meter {
    form: Form,
    verb: &'static str,
    total_bytes: u64,
    done_bytes: u64,
    reused_bytes: u64,
    checked_bytes: u64,
    shown_at: Instant,
}

enum Form {
    Bar(ProgressBar),
    /// On standard error.
    Text,
    /// On standard output.
    Json,
}

impl Meter {
    pub(crate) fn new(json: bool, verb: &'static str, total_bytes: u64) -> Self {
        let form = match (json, io::stderr().is_terminal()) {
            (true, _) => Form::Json,
            (false, true) => Form::Bar(bar(verb, total_bytes)),
            (false, false) => Form::Text,
        };
        Self {
            form,
            verb,
            total_bytes,
            done_bytes: 0,
            reused_bytes: 0,
            checked_bytes: 0,
            shown_at: Instant::now(),
        }
    }

    pub(crate) fn note(&mut self, phase: Phase, bytes: u64) {
        match phase {
            Phase::Copy => self.done_bytes += bytes,
            Phase::Reuse => {
                self.done_bytes += bytes;
                self.reused_bytes += bytes;
            }
            Phase::Check => self.checked_bytes += bytes,
            // The same bytes are read again.
            Phase::Verify => {}
        }
        let interval = match &self.form {
            Form::Bar(bar) => {
                bar.set_position(self.done_bytes);
                return;
            }
            Form::Text => TEXT_INTERVAL,
            Form::Json => JSON_INTERVAL,
        };
        if self.shown_at.elapsed() >= interval {
            self.shown_at = Instant::now();
            self.show();
        }
    }

    fn show(&self) {
        match &self.form {
            Form::Bar(_) => {}
            Form::Text => {
                let (done, total) = (size(self.done_bytes), size(self.total_bytes));
                // If progress cannot be shown, the work continues.
                let _ = writeln!(io::stderr().lock(), "{} {done} of {total}", self.verb);
            }
            Form::Json => {
                let line = json!({"progress": {
                    "done_bytes": self.done_bytes,
                    "reused_bytes": self.reused_bytes,
                    "checked_bytes": self.checked_bytes,
                    "total_bytes": self.total_bytes,
                }});
                print_line(&safe_json::to_string(&line).expect("plain values can be written"));
            }
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Form::Bar(bar) = &self.form {
            bar.finish_and_clear();
        }
    }
}

fn bar(verb: &'static str, total_bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{msg} {binary_bytes} of {binary_total_bytes} [{wide_bar}] {binary_bytes_per_sec}, {eta} left",
    )
    .expect("a constant template");
    let target = ProgressDrawTarget::stderr_with_hz(RATE_HZ);
    ProgressBar::with_draw_target(Some(total_bytes), target)
        .with_style(style)
        .with_message(verb)
}
