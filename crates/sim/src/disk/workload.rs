//! Workloads: longer sequences, drawn from a seed, with restarts and rests between the steps.

use super::host::Host;
use super::setting::Setting;
use super::step::Step;
use crate::checker::Violation;
use crate::random::Stream;

/// The acts of a workload, in order.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) setting: Setting,
    pub(super) entropy: u64,
    pub(super) acts: Vec<Act>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Play(Step),
    /// The process ends and the next one begins.
    Restart {
        is_clean: bool,
    },
    /// Long enough for hidden messages to become visible, and for a full disk to be retried.
    Wait,
}

/// The queues of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    /// Only storage queues.
    Storage,
    /// Bus queues, and a few messages of a storage queue.
    WithBus,
    /// The same, and more of topics.
    WithTopics,
}

impl Workload {
    pub(super) fn draw(random: &mut Stream, kind: WorkloadKind) -> Self {
        let (settings, steps, send) = match kind {
            WorkloadKind::Storage => (&Setting::ALL[..], &Step::ALL[..], Step::Send),
            WorkloadKind::WithBus => (&Setting::WITH_BUS[..], &Step::OF_BUS[..], Step::BusSend),
            WorkloadKind::WithTopics => (
                &Setting::WITH_TOPICS[..],
                &Step::OF_TOPICS[..],
                Step::BusPublish,
            ),
        };
        let setting = settings[random.index(settings.len())];
        let entropy = random.next();
        let length = 6 + random.index(8);
        let act = |_| match random.below(16) {
            0 => Act::Restart {
                is_clean: random.happens(500),
            },
            1 => Act::Wait,
            2..6 => Act::Play(send),
            6 => Act::Play(Step::Snapshot),
            _ => Act::Play(steps[random.index(steps.len())]),
        };
        Self {
            setting,
            entropy,
            acts: (0..length).map(act).collect(),
        }
    }
}

impl Workload {
    /// A workload in a world with bodies to move: before and after a restart.
    pub(super) fn of_moves(setting: Setting, entropy: u64) -> Self {
        let acts = [
            Act::Play(Step::Send),
            Act::Play(Step::Tidy),
            Act::Play(Step::Receive),
            Act::Restart { is_clean: true },
            Act::Play(Step::Delete),
            Act::Play(Step::Snapshot),
        ];
        Self {
            setting,
            entropy,
            acts: acts.into(),
        }
    }
}

/// Lets half a minute pass, and lets the partition do its due work.
pub(super) fn wait(host: &mut Host) -> Result<(), Violation> {
    host.pass_time(25_000);
    host.ask_all(Vec::new())?;
    // A piece of a snapshot takes a turn, and the driver wakes for each.
    while host.partition().is_gathering() {
        host.ask_all(Vec::new())?;
    }
    Ok(())
}
