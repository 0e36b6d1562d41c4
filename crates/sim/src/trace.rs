//! What happened, in one number: two runs of one seed must agree on it.

use std::fmt::{Debug, Write};

/// A running hash of everything that the simulation did, and its text if somebody reads it.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
    line: String,
}

impl Trace {
    pub(crate) fn new(keep_lines: bool) -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            lines: keep_lines.then(Vec::new),
            line: String::new(),
        }
    }

    pub(crate) fn add(&mut self, what: &str, detail: &dyn Debug) {
        self.line.clear();
        write!(self.line, "{what} {detail:?}").expect("a string takes all that is written");
        for byte in self.line.bytes() {
            // FNV-1a: stable across versions of everything.
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if let Some(lines) = &mut self.lines {
            lines.push(self.line.clone());
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
