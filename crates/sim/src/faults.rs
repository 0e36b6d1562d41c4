//! Which faults strike, and when. Faults know nothing about clients or promises.

use kew_log::{Fault, Repeat};

use crate::random::Stream;
use crate::swarm::FaultRates;

/// A fault that strikes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strike {
    /// The wall clock jumps by an hour.
    ClockJump { ahead: bool },
    /// The machine is suspended, or nothing happens for a long time.
    Suspension { seconds: u64 },
    /// Now, between two calls.
    Crash(Crash),
    /// A crash some calls from now, in the middle of any disk operation.
    CrashAfter { crash: Crash, calls: u64 },
    /// A call of the disk fails.
    FailCall(FailedCall),
    /// The disk has room for so much more.
    FillDisk { room_bytes: u64 },
    /// The disk gets free space.
    FreeDisk,
    /// The disk does nothing for so many steps.
    SlowDisk { steps: u64 },
    /// Another member begins to own the log.
    Fence,
    /// One of the waiting clients gives up; which of them, by a number to be reduced.
    GiveUp { which: u64 },
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// The process dies; the operating system keeps what was written.
    Kill,
    /// The machine dies; unsynced writes may be lost, in part or in another order.
    PowerCut,
}

/// A disk call that fails, some calls from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailedCall {
    pub(crate) after: u64,
    pub(crate) fault: Fault,
    pub(crate) repeat: Repeat,
}

/// A fault during one recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveryFault {
    CrashAfter { crash: Crash, calls: u64 },
    FailCall(FailedCall),
}

/// Chooses faults: with a stream for each kind, so that adding a kind leaves the others unchanged.
#[derive(Debug)]
pub(crate) struct Faults {
    rates: FaultRates,
    clock: Stream,
    crash: Stream,
    recovery: Stream,
    calls: Stream,
    space: Stream,
    speed: Stream,
    clients: Stream,
    rot: Stream,
    page_rot: Stream,
    members: Stream,
    is_full: bool,
}

impl Faults {
    pub(crate) fn new(seed: u64, rates: FaultRates) -> Self {
        Self {
            rates,
            clock: Stream::new(seed, "faults: clock"),
            crash: Stream::new(seed, "faults: crash"),
            recovery: Stream::new(seed, "faults: recovery"),
            calls: Stream::new(seed, "faults: calls"),
            space: Stream::new(seed, "faults: space"),
            speed: Stream::new(seed, "faults: speed"),
            clients: Stream::new(seed, "faults: clients"),
            rot: Stream::new(seed, "faults: rot"),
            page_rot: Stream::new(seed, "faults: rot of pages"),
            members: Stream::new(seed, "faults: members"),
            is_full: false,
        }
    }

    /// The faults after a step. A crash comes last.
    pub(crate) fn strike(&mut self) -> Vec<Strike> {
        let rates = &self.rates;
        let mut strikes = Vec::new();
        if self.clock.happens(rates.clock_jump) {
            let ahead = self.clock.happens(500);
            strikes.push(Strike::ClockJump { ahead });
        }
        if self.clock.happens(rates.suspension) {
            let seconds = [30, 70, 4000, 700_000][self.clock.index(4)];
            strikes.push(Strike::Suspension { seconds });
        }
        if self.clients.happens(rates.give_up) {
            let which = self.clients.next();
            strikes.push(Strike::GiveUp { which });
        }
        if self.speed.happens(rates.slow_disk) {
            let steps = 20 + self.speed.below(200);
            strikes.push(Strike::SlowDisk { steps });
        }
        if self.is_full {
            if self.space.happens(8) {
                self.is_full = false;
                strikes.push(Strike::FreeDisk);
            }
        } else if self.space.happens(rates.full_disk) {
            self.is_full = true;
            let room_bytes = [0, 1000, 8 * 1024, 40 * 1024][self.space.index(4)];
            strikes.push(Strike::FillDisk { room_bytes });
        }
        if self.calls.happens(rates.failed_call) {
            strikes.push(Strike::FailCall(failed_call(&mut self.calls, 30)));
        }
        if self.members.happens(rates.fence) {
            strikes.push(Strike::Fence);
        }
        strikes.extend(self.crash());
        strikes
    }

    fn crash(&mut self) -> Option<Strike> {
        let crash = if self.crash.happens(self.rates.kill) {
            Crash::Kill
        } else if self.crash.happens(self.rates.power_cut) {
            Crash::PowerCut
        } else {
            return None;
        };
        if self.crash.happens(300) {
            return Some(Strike::Crash(crash));
        }
        let calls = self.crash.below(12);
        Some(Strike::CrashAfter { crash, calls })
    }

    /// The fault of a recovery.
    pub(crate) fn strike_recovery(&mut self) -> Option<RecoveryFault> {
        if self.recovery.happens(self.rates.crash_in_recovery) {
            let crash = [Crash::Kill, Crash::PowerCut][self.recovery.index(2)];
            let calls = self.recovery.below(40);
            return Some(RecoveryFault::CrashAfter { crash, calls });
        }
        let fails = self.rates.failed_call > 0 && self.recovery.happens(200);
        fails.then(|| RecoveryFault::FailCall(failed_call(&mut self.recovery, 40)))
    }

    /// Whether a snapshot is damaged while the process is down; which byte, by a number to be reduced.
    pub(crate) fn damage_snapshot(&mut self) -> Option<u64> {
        let happens = self.rot.happens(self.rates.damaged_snapshot);
        happens.then(|| self.rot.next())
    }

    /// Whether a page is damaged while the process is down; which byte of all page files, by a number to be reduced.
    pub(crate) fn damage_page(&mut self) -> Option<u64> {
        let happens = self.page_rot.happens(self.rates.damaged_snapshot);
        happens.then(|| self.page_rot.next())
    }

    /// The disk got free space without this fault.
    pub(crate) fn disk_is_free(&mut self) {
        self.is_full = false;
    }

    /// No more faults.
    pub(crate) fn stop(&mut self) {
        self.rates = FaultRates::default();
        self.is_full = false;
    }
}

fn failed_call(r: &mut Stream, calls: u64) -> FailedCall {
    let faults = [
        Fault::Eio,
        Fault::Eio,
        Fault::Enospc,
        Fault::Emfile,
        Fault::ShortWrite,
        Fault::Eintr,
    ];
    let fault = faults[r.index(faults.len())];
    // An endless interruption would cause endless retries.
    let repeat = if fault == Fault::Eio && r.happens(300) {
        Repeat::Sticky
    } else {
        Repeat::Once
    };
    FailedCall {
        after: r.below(calls),
        fault,
        repeat,
    }
}
