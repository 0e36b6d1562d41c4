//! A door that fails at chosen commands.

use std::collections::VecDeque;
use std::fmt;
use std::iter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kew_broker::{Asker, Broker, Door, Epoch, Ownership, Rejection, Source, Watchers};
use kew_engine::Command;

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is carried out, and its answer is lost: the outcome is unknown.
    LosesAnswer,
    /// It is lost, and its outcome is unknown.
    LosesCommand,
    /// It waits for [`Faulty::release`].
    Waits,
}

/// Whether a fault is for this command.
type IsMeant = fn(&Command) -> bool;

/// A door to the partition of a broker. It has a fault for each of the next commands that are meant, in order.
pub struct Faulty {
    behind: Broker,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    faults: VecDeque<(IsMeant, Fault)>,
    waiting: Vec<(Source, Option<Epoch>, Asker, Command)>,
}

/// A handle whose commands go through such a door. To be used within a runtime of Tokio.
pub fn faulty(behind: &Broker) -> (Broker, Arc<Faulty>) {
    let door = Arc::new(Faulty {
        behind: behind.clone(),
        state: Mutex::default(),
    });
    (behind.through(Arc::clone(&door) as Arc<dyn Door>), door)
}

impl Faulty {
    /// The next command that is meant has this fault.
    pub fn fail(&self, is_meant: IsMeant, fault: Fault) {
        self.state().faults.push_back((is_meant, fault));
    }

    /// How many commands wait.
    pub fn waiting(&self) -> usize {
        self.state().waiting.len()
    }

    /// Submits the commands that wait.
    pub fn release(&self) {
        let waiting = std::mem::take(&mut self.state().waiting);
        for (from, within, asker, command) in waiting {
            let mut refused = None;
            self.behind.door().submit(
                from,
                within,
                &mut iter::once((asker, command)),
                &mut |asker, rejection| refused = Some((asker, rejection)),
            );
            if let Some((asker, rejection)) = refused {
                asker.answer(Err(rejection));
            }
        }
    }

    fn fault_of(&self, command: &Command) -> Option<Fault> {
        let mut state = self.state();
        let is_meant = state.faults.front().is_some_and(|(it, _)| it(command));
        let fault = is_meant.then(|| state.faults.pop_front());
        fault.flatten().map(|(_, fault)| fault)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Door for Faulty {
    fn submit(
        &self,
        from: Source,
        within: Option<Epoch>,
        commands: &mut dyn Iterator<Item = (Asker, Command)>,
        refused: &mut dyn FnMut(Asker, Rejection),
    ) {
        for (asker, command) in commands {
            match self.fault_of(&command) {
                None => {
                    let mut one = iter::once((asker, command));
                    self.behind.door().submit(from, within, &mut one, refused);
                }
                Some(Fault::LosesAnswer) => {
                    let behind = self.behind.of_source(from);
                    tokio::spawn(async move {
                        let _lost = behind.submit_within(within, command).await;
                        asker.answer(Err(Rejection::Unknown));
                    });
                }
                Some(Fault::LosesCommand) => asker.answer(Err(Rejection::Unknown)),
                Some(Fault::Waits) => {
                    let waiting = (from, within, asker, command);
                    self.state().waiting.push(waiting);
                }
            }
        }
    }

    fn watchers(&self) -> &Arc<Watchers> {
        self.behind.door().watchers()
    }

    fn ownership(&self) -> &Arc<Ownership> {
        self.behind.door().ownership()
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").finish_non_exhaustive()
    }
}
