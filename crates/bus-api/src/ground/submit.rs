//! Commands in the order in which they were meant.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use kew_broker::{Answer, Broker, Epoch, Rejection};
use kew_engine::Command;
use kew_engine::bus::BusCommand;

/// A command at the broker, without an answer so far.
pub(crate) enum Submitted {
    Answered(Box<Result<Answer, Rejection>>),
    UnderWay(Pin<Box<dyn Future<Output = Result<Answer, Rejection>> + Send>>),
}

impl Submitted {
    /// Submits a command now, so that it is carried out before later ones. A future would submit it
    /// only when it is first polled, and tasks are polled in any order.
    pub(crate) fn new(broker: &Broker, command: BusCommand) -> Self {
        Self::within(broker, None, command)
    }

    /// The same, for a command that is carried out in this epoch or not at all.
    pub(crate) fn within(broker: &Broker, epoch: Option<Epoch>, command: BusCommand) -> Self {
        let broker = broker.clone();
        let command = Command::Bus(command);
        let mut answer = Box::pin(async move { broker.submit_within(epoch, command).await });
        let mut context = Context::from_waker(Waker::noop());
        match answer.as_mut().poll(&mut context) {
            Poll::Ready(answer) => Self::Answered(Box::new(answer)),
            Poll::Pending => Self::UnderWay(answer),
        }
    }

    pub(crate) async fn answer(self) -> Result<Answer, Rejection> {
        match self {
            Self::Answered(answer) => *answer,
            Self::UnderWay(answer) => answer.await,
        }
    }
}
