//! A state with a journal that keeps events or drops them.

use kew_engine::{
    BodyLocation, Command, Event, Journal, Outcome, RunLength, State, Timestamp, Turn,
};

pub(crate) type Failure = Box<dyn std::error::Error>;

/// Events as bytes, if they are kept.
struct Events {
    are_kept: bool,
    kept: Vec<Vec<u8>>,
    position: u64,
}

impl Journal for Events {
    fn store_body(&mut self, body: &[u8]) -> BodyLocation {
        self.position += body.len() as u64 + 48;
        BodyLocation::new(
            self.position,
            0,
            u32::try_from(body.len()).unwrap_or(u32::MAX),
        )
    }

    fn record(&mut self, event: &Event) {
        if self.are_kept {
            let mut bytes = Vec::new();
            event.encode(&mut bytes);
            self.kept.push(bytes);
        }
    }
}

pub(crate) struct Partition {
    state: State,
    now: Timestamp,
    events: Events,
}

impl Partition {
    pub(crate) fn new(now: Timestamp, keeps_events: bool) -> Result<Self, Failure> {
        let events = Events {
            are_kept: keeps_events,
            kept: Vec::new(),
            position: 0,
        };
        let mut partition = Self {
            state: State::new(),
            now,
            events,
        };
        partition.ask(Command::Initialize {
            secret: [42; 16],
            run_length: RunLength::DEFAULT,
        })?;
        Ok(partition)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// A millisecond passes.
    pub(crate) fn pass(&mut self) {
        self.now = self.now.plus_ms(1);
    }

    pub(crate) fn ask(&mut self, command: Command) -> Result<Outcome, Failure> {
        let mut turn = Turn::new(&mut self.state, self.now, &mut self.events);
        Ok(turn.decide(command).result?)
    }

    pub(crate) fn message_count(&self) -> u64 {
        self.state.counts().1
    }

    /// Frees what is not needed any more.
    pub(crate) fn trim(&mut self) {
        drop(self.state.take_waste());
    }

    /// Takes the events that were kept since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.events.kept)
    }

    /// Makes events part of a state.
    pub(crate) fn replay(state: &mut State, events: &[Vec<u8>]) -> Result<(), Failure> {
        for bytes in events {
            let event = state.read_event(bytes)?;
            state.apply(event);
        }
        Ok(())
    }
}
