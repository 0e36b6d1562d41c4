//! The result of a seed, and what a reader sees of a world.

use std::collections::BTreeMap;

use super::World;
use crate::checker::Violation;
use crate::rare::RareStates;

/// The result of one seed.
#[derive(Debug, Default)]
pub struct Report {
    /// Operations that clients submitted and the partition admitted.
    pub operations: u64,
    /// Of these, how many had an outcome that the client never learned.
    pub unknown: u64,
    /// Clients that gave up waiting.
    pub given_up: u64,
    /// Operations that were refused because too much was in progress, or the disk was full.
    pub busy: u64,
    /// Processes that were killed; their writes stay.
    pub kills: u64,
    /// Power cuts; any unsynced write may be lost.
    pub power_cuts: u64,
    /// Disk calls that were made to fail.
    pub failed_calls: u64,
    /// Times that the disk became full.
    pub full_disks: u64,
    /// How often the disk did nothing for long.
    pub slow_disks: u64,
    /// Snapshots damaged while the process was down.
    pub damaged_snapshots: u64,
    /// Jumps of the wall clock.
    pub clock_jumps: u64,
    /// How often the machine was suspended.
    pub suspensions: u64,
    /// Snapshots that were written.
    pub snapshots: u64,
    /// Steps of the simulation.
    pub steps: u64,
    /// How often each rare state occurred.
    pub rare: RareStates,
    /// How often each rare thing happened to bus queues.
    pub occurred: BTreeMap<&'static str, u64>,
    /// A number that is the same exactly for the same history.
    pub trace_hash: u64,
    /// Every step, if a trace was requested.
    pub trace: Vec<String>,
    /// The broken promise, if there is one.
    pub violation: Option<Violation>,
}

/// Where a replay has got to.
#[derive(Debug)]
pub struct Moment<'a> {
    /// Steps since the beginning.
    pub step: u64,
    /// The actions of this step.
    pub lines: &'a [String],
    pub(super) world: &'a World,
}

impl Moment<'_> {
    /// The state of the world, for a reader.
    pub fn state(&self) -> String {
        self.world.describe()
    }
}

/// Looks at each moment of a replay.
pub type Watch = Box<dyn FnMut(&Moment<'_>)>;

impl World {
    pub(super) fn describe(&self) -> String {
        let (queues, messages) = self.life.partition.state().counts();
        let files = self.storage.files();
        let mut lines = vec![
            format!("swarm: {:?}", self.swarm),
            format!("time: {} by {:?}", self.life.now, self.reading),
            format!("state: {queues} queues, {messages} messages"),
            format!(
                "log: durable {}, end {}, {:?}",
                self.life.partition.log().durable(),
                self.life.partition.log().end(),
                self.life.partition.log().files().map(|files| files.space())
            ),
            format!("jobs: {:?}", self.life.jobs),
            format!(
                "disk: dies after {:?}, call may fail {}, full {}, slow until step {}",
                self.dies_after, self.call_may_fail, self.is_full, self.slow_until
            ),
        ];
        for (name, size_bytes) in files {
            lines.push(format!("  {name}, {size_bytes} bytes"));
        }
        for (id, asked) in &self.history {
            let how = match (asked.done, asked.given_up) {
                (true, _) => "done",
                (false, true) => "given up",
                (false, false) => "waits",
            };
            lines.push(format!("  operation {id} {how}: {:?}", asked.operation));
        }
        lines.join("\n")
    }

    pub(super) fn report(mut self, violation: Option<Violation>) -> Report {
        self.report.rare.add(&self.checker.rare);
        let bus = self.bus.map(|bus| bus.checker).unwrap_or_default();
        let members = self.members.map(|members| members.occurred);
        let occurred = bus
            .occurred
            .into_iter()
            .chain(members.into_iter().flatten());
        let operations = self.checker.operations + bus.operations;
        Report {
            operations: operations.saturating_sub(self.refused_at_the_door),
            unknown: self.checker.unknown + bus.unknown,
            occurred: occurred.collect(),
            trace_hash: self.trace.hash(),
            trace: self.trace.take_lines(),
            violation,
            ..self.report
        }
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe())
    }
}
