//! Short scripts, crashed at every storage call: nearly every recovery bug shows with three
//! operations or fewer on a fresh state.

use kew_engine::{BodyEncoding, Command, VisibilityTimeout};

use crate::checker::Violation;
use crate::swarm::Swarm;
use crate::workload::{create_queue, queue_name};
use crate::world::World;

/// One step of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends a message.
    Send,
    /// Sends a message that is hidden at first and expires.
    SendDelayed,
    /// Receives up to two messages.
    Receive,
    /// Peeks.
    Peek,
    /// Updates the message that was sent or received last, with a new body.
    Update,
    /// Deletes the message that was sent or received last.
    Delete,
    /// Clears the queue.
    Clear,
    /// Deletes the queue.
    DeleteQueue,
    /// Creates the queue.
    CreateQueue,
    /// Sets the queue's metadata.
    SetMetadata,
    /// Writes a snapshot, and retires what it makes superfluous.
    Snapshot,
    /// Marks the log's end, as an idle moment does.
    Mark,
}

impl Step {
    /// Every kind of step.
    pub const ALL: [Self; 12] = [
        Self::Send,
        Self::SendDelayed,
        Self::Receive,
        Self::Peek,
        Self::Update,
        Self::Delete,
        Self::Clear,
        Self::DeleteQueue,
        Self::CreateQueue,
        Self::SetMetadata,
        Self::Snapshot,
        Self::Mark,
    ];
}

/// Runs a script once for each storage call that it makes, with a power cut at that call and
/// `states` of the disks that it can leave, and checks what is there afterwards. Answers how many
/// disks were looked at.
pub fn crash_at_every_call(script: &[Step], states: u64) -> Result<u64, Violation> {
    let mut disks = 0;
    for call in 0.. {
        for state in 0..states {
            let mut world = World::with_swarm(call << 16 | state, Swarm::plain(), false);
            if !world.play(script, call)? {
                // The script ended before the power went off.
                return Ok(disks);
            }
            disks += 1;
        }
    }
    unreachable!("a script makes finitely many storage calls")
}

impl World {
    /// Plays a script until the power goes off after `calls` storage calls, then recovers, drains
    /// and checks; false if the power never went off.
    fn play(&mut self, script: &[Step], calls: u64) -> Result<bool, Violation> {
        self.ask_and_wait(0, create_queue(0))?;
        self.ask_and_wait(0, self.first_message())?;
        self.arm(calls);
        for step in script {
            self.play_step(*step)?;
            if self.is_off() {
                break;
            }
        }
        let went_off = self.is_off();
        self.drain()?;
        Ok(went_off)
    }

    fn first_message(&self) -> Command {
        send("first", None, 0)
    }

    fn play_step(&mut self, step: Step) -> Result<(), Violation> {
        let queue = queue_name(0);
        let held = self.last_held();
        let command = match (step, held) {
            (Step::Send | Step::Update | Step::Delete, None) | (Step::Send, _) => {
                send(&format!("body {}", self.asked()), None, 0)
            }
            (Step::SendDelayed, _) => send(&format!("delayed {}", self.asked()), Some(100), 10),
            (Step::Receive, _) => Command::Receive {
                queue,
                count: 2,
                visibility_timeout: seconds(20),
            },
            (Step::Peek, _) => Command::Peek { queue, count: 32 },
            (Step::Update, Some((message, receipt))) => Command::Update {
                queue,
                message,
                receipt,
                visibility_timeout: seconds(5),
                body: Some((
                    BodyEncoding::Text,
                    format!("new {}", self.asked()).into_bytes().into(),
                )),
            },
            (Step::Delete, Some((message, receipt))) => Command::Delete {
                queue,
                message,
                receipt,
            },
            (Step::Clear, _) => Command::Clear { queue },
            (Step::DeleteQueue, _) => Command::DeleteQueue { queue },
            (Step::CreateQueue, _) => create_queue(0),
            (Step::SetMetadata, _) => Command::SetQueueMetadata {
                queue,
                metadata: [("round", "7")].into_iter().collect(),
            },
            (Step::Snapshot, _) => return self.snapshot_now(),
            (Step::Mark, _) => return self.mark_now(),
        };
        self.ask(0, command);
        self.run_to_rest()
    }
}

fn send(body: &str, time_to_live_seconds: Option<u32>, hidden: u32) -> Command {
    Command::Send {
        queue: queue_name(0),
        body: body.as_bytes().to_vec().into(),
        encoding: BodyEncoding::Text,
        time_to_live_seconds,
        visibility_timeout: seconds(hidden),
    }
}

fn seconds(seconds: u32) -> VisibilityTimeout {
    VisibilityTimeout::from_seconds(seconds).expect("scripts stay below seven days")
}
