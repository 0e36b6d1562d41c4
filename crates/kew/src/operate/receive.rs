//! `kew bus receive`: messages under lock or deleted at once, of sessions and deferred ones too.

use std::time::{Duration, SystemTime};

use kew_bus_api::MessageView;
use kew_client::{
    Changes, DeletingReceiver, Error, Locked, Received, Receiver, ReceiverOptions, SessionChoice,
    SessionReceiver,
};
use serde_json::json;

use super::send::values_of;
use super::view::{Lock, plain_body, view_of};
use super::{Doors, Session, dead_letters, show};
use crate::bus_message_args::{ReceiveArgs, Settle};
use crate::queue_command::{Failure, Output, note};

/// How long a queue must be quiet before it counts as empty: a service far away needs a moment.
const QUIET: Duration = Duration::from_secs(1);

/// How long to wait for more messages that come with a first one.
const TOGETHER: Duration = Duration::from_millis(20);

/// How many messages are locked at once before they are printed.
const BATCH_COUNT_MAX: u32 = 32;

/// How many bytes of messages are kept until they are released.
const KEPT_SIZE_BYTES_MAX: usize = 256 << 20;

/// How long before the end of their first lock messages are released.
const LOCK_MARGIN: Duration = Duration::from_secs(2);

/// The code of the answer that no session came in time.
const NO_SESSION: &str = "com.microsoft:timeout";

pub(super) fn receive(it: &mut Session, args: &ReceiveArgs) -> Result<(), Failure> {
    check(args)?;
    let changes = values_of("--set", &args.set)?;
    let queue = match args.dead_letter {
        true => dead_letters(&args.queue),
        false => args.queue.clone(),
    };
    let Session { doors, output } = it;
    let Some(source) = Source::open(doors, args, &queue)? else {
        note(&format!("{queue} has no session with messages to receive"));
        return match output.json {
            true => Ok(output.array(|_| Ok::<_, Failure>(()))?),
            false => Ok(()),
        };
    };
    let taking = Taking {
        doors,
        args,
        queue: &queue,
        changes,
    };
    print_all(output, args.raw, |print| taking.take_all(source, print))
}

/// What the command line can say and not mean.
fn check(args: &ReceiveArgs) -> Result<(), Failure> {
    let usage = |message: &str| Err(Failure::Usage(message.into()));
    let is_dead_letter = args.settle == Some(Settle::DeadLetter);
    if (args.reason.is_some() || args.description.is_some()) && !is_dead_letter {
        return usage("--reason and --description are for --settle dead-letter");
    }
    if !args.set.is_empty() && matches!(args.settle, None | Some(Settle::Complete)) {
        return usage("--set is for --settle abandon, defer and dead-letter");
    }
    if !args.number.is_empty() && args.delete {
        return usage("deferred messages are locked: use --settle complete to delete them");
    }
    Ok(())
}

type Print<'a> = dyn FnMut(&MessageView, &[u8]) -> Result<(), Failure> + 'a;

/// Gives `take` a function that prints a message.
fn print_all(
    output: &mut Output,
    is_raw: bool,
    take: impl FnOnce(&mut Print<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if output.json {
        return output.array(|array| {
            take(&mut |view, _| {
                array.push(view)?;
                Ok(array.flush()?)
            })
        });
    }
    let mut is_first = true;
    take(&mut |view, body| {
        if is_raw {
            output.body(body)?;
            return Ok(output.flush()?);
        }
        if !std::mem::take(&mut is_first) {
            output.line("")?;
        }
        show::object(output, &json!(view))?;
        Ok(output.flush()?)
    })
}

/// What messages come over.
enum Link {
    Locking(Receiver),
    Session(SessionReceiver),
    Deleting(DeletingReceiver),
}

/// Where messages come from.
struct Source {
    link: Link,
    /// Deferred messages that the command line names, in place of those that wait.
    deferred: Option<Vec<Locked>>,
}

/// A message that came.
enum Came {
    Locked(Locked),
    Deleted(Received),
}

impl Came {
    fn message(&self) -> &Received {
        match self {
            Self::Locked(message) => message,
            Self::Deleted(message) => message,
        }
    }

    fn into_locked(self) -> Option<Locked> {
        match self {
            Self::Locked(message) => Some(message),
            Self::Deleted(_) => None,
        }
    }
}

fn size_bytes_of(message: &Locked) -> usize {
    message.raw().bytes().len()
}

impl Source {
    /// `None`: no session has messages.
    fn open(doors: &Doors, args: &ReceiveArgs, queue: &str) -> Result<Option<Self>, Failure> {
        let Some(link) = Link::open(doors, args, queue)? else {
            return Ok(None);
        };
        let numbers = &args.number[..];
        let deferred = match (&link, numbers) {
            (_, []) | (Link::Deleting(_), _) => None,
            (Link::Locking(link), numbers) => {
                Some(doors.over_amqp(link.receive_deferred(numbers))?)
            }
            (Link::Session(link), numbers) => {
                Some(doors.over_amqp(link.receive_deferred(numbers))?)
            }
        };
        Ok(Some(Self { link, deferred }))
    }

    /// The next messages: some, if one comes within the time.
    fn next(&mut self, doors: &Doors, count: u64, wait: Duration) -> Result<Vec<Came>, Failure> {
        if let Some(deferred) = &mut self.deferred {
            return Ok(deferred.drain(..).map(Came::Locked).collect());
        }
        let count = u32::try_from(count)
            .unwrap_or(u32::MAX)
            .min(BATCH_COUNT_MAX);
        let locked = match &mut self.link {
            Link::Locking(link) => {
                doors.over_amqp_within(wait, link.receive_batch(count, TOGETHER))?
            }
            Link::Session(link) => {
                doors.over_amqp_within(wait, link.receive_batch(count, TOGETHER))?
            }
            // Each is printed before the next one is deleted.
            Link::Deleting(link) => {
                let deleted = doors.over_amqp_within(wait, link.receive())?;
                return Ok(deleted.map(Came::Deleted).into_iter().collect());
            }
        };
        Ok(locked.into_iter().flatten().map(Came::Locked).collect())
    }

    /// Gives back what came and was not taken. What was deleted already cannot be given back.
    fn close(self, doors: &Doors) -> Result<Vec<Received>, Failure> {
        match self.link {
            Link::Locking(link) => doors.over_amqp(link.close()).map(|()| Vec::new()),
            Link::Session(link) => doors.over_amqp(link.close()).map(|()| Vec::new()),
            Link::Deleting(link) => doors.over_amqp(link.close()),
        }
    }
}

impl Link {
    fn open(doors: &Doors, args: &ReceiveArgs, queue: &str) -> Result<Option<Self>, Failure> {
        let (bus, options) = (&doors.bus, ReceiverOptions::default());
        let choice = match (&args.session, args.next_session) {
            (Some(id), _) => SessionChoice::named(id),
            (None, true) => SessionChoice::next(args.wait.unwrap_or(QUIET)),
            (None, false) if args.delete => {
                let link = doors.over_amqp(bus.deleting_receiver(queue, options))?;
                return Ok(Some(Self::Deleting(link)));
            }
            (None, false) => {
                let link = doors.over_amqp(bus.receiver(queue, options))?;
                return Ok(Some(Self::Locking(link)));
            }
        };
        match doors.wait(bus.session(queue, choice, options)) {
            Ok(session) => Ok(Some(Self::Session(session))),
            Err(error) if args.next_session && error.code() == Some(NO_SESSION) => Ok(None),
            Err(error) => Err(doors.failed_over_amqp(&error)),
        }
    }
}

/// Why printing has ended, and the locks of what was not printed.
struct Unprinted {
    failure: Failure,
    rest: Vec<Locked>,
}

/// What the command does with each message.
struct Taking<'a> {
    doors: &'a Doors,
    args: &'a ReceiveArgs,
    queue: &'a str,
    changes: Changes,
}

impl Taking<'_> {
    /// Receives as many messages as requested, or as exist. `print` has written each message before it is settled, so
    /// that no message is lost unseen.
    fn take_all(&self, mut source: Source, print: &mut Print<'_>) -> Result<(), Failure> {
        // A message that is released at once would arrive again.
        let mut abandoned = Vec::new();
        let taken = self.take_each(&mut source, print, &mut abandoned);
        let given_back = self.settle(abandoned, "released");
        // What was deleted meanwhile exists nowhere else.
        let closed = source.close(self.doors).and_then(|messages| {
            let late = messages.len() as u64;
            for message in messages {
                self.print(&Came::Deleted(message), print)?;
            }
            Ok(late)
        });
        let count = taken?;
        given_back?;
        let count = count + closed?;
        if count == 0 {
            note(&format!("{} has no message to receive", self.queue));
        }
        Ok(())
    }

    fn take_each(
        &self,
        source: &mut Source,
        print: &mut Print<'_>,
        abandoned: &mut Vec<Locked>,
    ) -> Result<u64, Failure> {
        let args = self.args;
        let mut taken = 0;
        let mut first_end: Option<SystemTime> = None;
        let mut kept_size_bytes: usize = 0;
        while taken < args.count {
            // Only the first message is waited for.
            let wait = match taken {
                0 => args.wait.unwrap_or(QUIET),
                _ => QUIET,
            };
            let came = source.next(self.doors, args.count - taken, wait)?;
            if came.is_empty() {
                break;
            }
            taken += came.len() as u64;
            let (printed, unprinted) = self.print_each(came, print);
            first_end = first_end.or(printed.iter().find_map(Locked::locked_until));
            if let Some(Unprinted { failure, mut rest }) = unprinted {
                // Without --settle, the reader of a printed token may use its lock.
                if args.settle.is_some() {
                    rest.extend(printed);
                    rest.append(abandoned);
                }
                self.release(rest);
                return Err(failure);
            }
            kept_size_bytes += match args.settle {
                Some(Settle::Abandon) => printed.iter().map(size_bytes_of).sum(),
                Some(Settle::Complete | Settle::DeadLetter | Settle::Defer) | None => 0,
            };
            match args.settle {
                Some(Settle::Abandon) => abandoned.extend(printed),
                Some(Settle::Complete) => self.settle(printed, "completed")?,
                Some(Settle::DeadLetter) => self.settle(printed, "dead-lettered")?,
                Some(Settle::Defer) => self.settle(printed, "deferred")?,
                None => {}
            }
            let is_abandoning = args.settle == Some(Settle::Abandon);
            let ends_soon = first_end.is_some_and(|end| SystemTime::now() + LOCK_MARGIN >= end);
            let why = match kept_size_bytes >= KEPT_SIZE_BYTES_MAX {
                true => Some("they are too large to keep more"),
                false if is_abandoning && ends_soon => Some("the first lock is about to end"),
                false => None,
            };
            if let Some(why) = why {
                if taken < args.count {
                    note(&format!("stopped after {taken}: {why}"));
                }
                break;
            }
            if source.deferred.is_some() {
                break;
            }
        }
        Ok(taken)
    }

    /// Prints messages up to a failure. Returns the locks of those that were printed, and with a failure also those of
    /// the others.
    fn print_each(
        &self,
        came: Vec<Came>,
        print: &mut Print<'_>,
    ) -> (Vec<Locked>, Option<Unprinted>) {
        let mut printed = Vec::new();
        let mut came = came.into_iter();
        while let Some(message) = came.next() {
            let done = match &message {
                // A session has no other way to delete before it prints.
                Came::Locked(locked) if self.args.delete => self.doors.over_amqp(locked.complete()),
                Came::Locked(_) | Came::Deleted(_) => Ok(()),
            };
            let done = done.and_then(|()| self.print(&message, print));
            if let Err(failure) = done {
                let rest = std::iter::once(message).chain(came);
                let rest = rest.filter_map(Came::into_locked).collect();
                return (printed, Some(Unprinted { failure, rest }));
            }
            printed.extend(message.into_locked());
        }
        (printed, None)
    }

    /// Abandons messages that nobody has seen, before the command fails for another reason.
    fn release(&self, messages: Vec<Locked>) {
        let mut tasks = tokio::task::JoinSet::new();
        self.doors.wait(async {
            for message in messages {
                tasks.spawn(async move { message.abandon(Vec::new()).await });
            }
            // Where it fails, the lock ends by itself.
            let _ = tokio::time::timeout(QUIET, tasks.join_all()).await;
        });
    }

    fn print(&self, message: &Came, print: &mut Print<'_>) -> Result<(), Failure> {
        let lock = match message {
            Came::Locked(locked) if !self.args.delete => Some(Lock {
                token: locked.lock_token(),
                until: locked.locked_until(),
            }),
            Came::Locked(_) | Came::Deleted(_) => None,
        };
        let raw = message.message().raw();
        let body = plain_body(raw).unwrap_or_else(|| raw.body());
        print(&view_of(message.message(), lock), &body)
    }

    /// Settles messages at the same time. Each is tried; the first failure is the result.
    fn settle(&self, messages: Vec<Locked>, done: &str) -> Result<(), Failure> {
        let mut tasks = tokio::task::JoinSet::new();
        let settled = self.doors.wait(async {
            for message in messages {
                let settling = Settling::of(self.args, self.changes.clone());
                tasks.spawn(async move {
                    let number = message.sequence_number().unwrap_or_default();
                    (number, settling.settle(&message).await)
                });
            }
            tasks.join_all().await
        });
        let mut failures: Vec<(i64, Error)> = settled
            .into_iter()
            .filter_map(|(number, settled)| Some((number, settled.err()?)))
            .collect();
        failures.sort_by_key(|(number, _)| *number);
        match failures.first() {
            None => Ok(()),
            Some((number, error)) => {
                let failure = self.doors.failed_over_amqp(error);
                let others = match failures.len() {
                    1 => String::new(),
                    count => format!(", and neither were {} others", count - 1),
                };
                Err(failure.after(format!(
                    "message {number} was printed and not {done}{others}"
                )))
            }
        }
    }
}

/// How a message is settled.
struct Settling {
    how: Option<Settle>,
    reason: String,
    description: String,
    changes: Changes,
}

impl Settling {
    fn of(args: &ReceiveArgs, changes: Changes) -> Self {
        Self {
            how: args.settle,
            reason: args.reason.clone().unwrap_or_default(),
            description: args.description.clone().unwrap_or_default(),
            changes,
        }
    }

    async fn settle(self, message: &Locked) -> Result<(), Error> {
        match self.how {
            Some(Settle::Complete) => message.complete().await,
            Some(Settle::Abandon) => message.abandon(self.changes).await,
            Some(Settle::Defer) => message.defer(self.changes).await,
            Some(Settle::DeadLetter) => {
                let (reason, description) = (&self.reason, &self.description);
                message.dead_letter(reason, description, self.changes).await
            }
            None => Ok(()),
        }
    }
}
