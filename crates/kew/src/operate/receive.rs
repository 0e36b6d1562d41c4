//! `kew bus receive`, and what it does with the messages that it has locked.

use std::time::{Duration, Instant, SystemTime};

use serde_json::json;
use ureq::http::Method;

use super::connection::{Answer, Asked, Client};
use super::received::Received;
use super::{Session, dead_letters, encode, in_path, show};
use crate::bus_message_args::{LockedArgs, ReceiveArgs, Settle};
use crate::queue_command::{Failure, note, printable};

/// How long one request waits at most.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The status of an answer without a message.
const NO_CONTENT: u16 = 204;

pub(super) fn receive(it: &mut Session, args: &ReceiveArgs) -> Result<(), Failure> {
    if matches!(args.settle, Some(Settle::DeadLetter | Settle::Defer)) {
        return Err(Failure::Usage(
            "over HTTP a message can only be completed or abandoned: use an AMQP client to defer \
             it or to dead-letter it"
                .into(),
        ));
    }
    let queue = match args.dead_letter {
        true => dead_letters(&args.queue),
        false => args.queue.clone(),
    };
    let Session { client, output } = it;
    let from = Source {
        client,
        args,
        queue: &queue,
    };
    if output.json {
        return output.array(|array| {
            from.take_all(|message, _| {
                array.push(&message.view)?;
                Ok(array.flush()?)
            })
        });
    }
    let mut is_first = true;
    from.take_all(|message, body| {
        if args.raw {
            output.body(body)?;
            return Ok(output.flush()?);
        }
        if !std::mem::take(&mut is_first) {
            output.line("")?;
        }
        let message =
            serde_json::to_value(&message.view).map_err(|error| client.not_understood(&error));
        show::object(output, &message?)?;
        Ok(output.flush()?)
    })
}

/// How long before the end of their first lock messages are released.
const LOCK_MARGIN: Duration = Duration::from_secs(2);

/// Where messages are received from.
struct Source<'a> {
    client: &'a Client,
    args: &'a ReceiveArgs,
    queue: &'a str,
}

impl Source<'_> {
    /// Receives as many messages as requested, or as exist. `print` has written each message before
    /// it is completed, so that no message is lost unseen.
    fn take_all(
        &self,
        mut print: impl FnMut(&Received, &[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        // A message that is released at once would arrive again, and so would one whose lock has
        // ended.
        let mut abandoned = Vec::new();
        let mut first_end = None;
        let result = self.take_each(|message, body| {
            print(message, body)?;
            match (self.args.settle, &message.view.lock_token) {
                (Some(Settle::Complete), Some(lock)) => self.complete(message, lock)?,
                (Some(Settle::Abandon), Some(lock)) => {
                    abandoned.push((message.view.sequence_number, lock.clone()));
                    first_end = first_end.or(message.lock_ends);
                }
                _ => {}
            }
            let now = SystemTime::now() + LOCK_MARGIN;
            Ok(first_end.is_none_or(|end| now < end))
        });
        let mut given_back = Ok(());
        for (number, lock) in &abandoned {
            let path = path_of(self.queue, &number.to_string(), lock);
            // The others are released anyway.
            if let Err(failure) = self.client.ask(Asked::new(Method::PUT, &path)) {
                given_back = given_back.and(Err(
                    failure.after(format!("message {number} was printed and not released"))
                ));
            }
        }
        result.and(given_back)
    }

    fn complete(&self, message: &Received, lock: &str) -> Result<(), Failure> {
        let number = message.view.sequence_number;
        let path = path_of(self.queue, &number.to_string(), lock);
        let completed = self.client.ask(Asked::new(Method::DELETE, &path));
        completed.map(drop).map_err(|failure| {
            failure.after(format!("message {number} was printed and not completed"))
        })
    }

    fn take_each(
        &self,
        mut take: impl FnMut(&Received, &[u8]) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let deadline = self.args.wait.map(|wait| Instant::now() + wait);
        let mut taken = 0;
        while taken < self.args.count {
            // Only the first message is waited for.
            let until = deadline.filter(|_| taken == 0);
            let left = until.map_or(Duration::ZERO, |until| {
                until.saturating_duration_since(Instant::now())
            });
            match self.ask(left.min(WAIT_MAX))? {
                Some(answer) => {
                    let message = Received::read(&answer);
                    let message = message.map_err(|what| self.client.not_understood(&what))?;
                    taken += 1;
                    if !take(&message, &answer.body)? {
                        if taken < self.args.count {
                            note(&format!(
                                "stopped after {taken}: the first lock is about to end"
                            ));
                        }
                        break;
                    }
                }
                None if left > WAIT_MAX => {}
                None => break,
            }
        }
        if taken == 0 {
            note(&format!("{} has no message to receive", self.queue));
        }
        Ok(())
    }

    /// One message, if one arrives within the time.
    fn ask(&self, wait: Duration) -> Result<Option<Answer>, Failure> {
        // The service counts in whole seconds.
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let method = match self.args.delete {
            true => Method::DELETE,
            false => Method::POST,
        };
        let path = format!("{}/messages/head?timeout={seconds}", in_path(self.queue));
        let answer = self.client.ask(Asked {
            wait: Duration::from_secs(seconds),
            ..Asked::new(method, &path)
        })?;
        Ok((answer.status != NO_CONTENT).then_some(answer))
    }
}

/// The path of a message under a lock.
fn path_of(queue: &str, message: &str, lock: &str) -> String {
    let (message, lock) = (encode(message), encode(lock));
    format!("{}/messages/{message}/{lock}", in_path(queue))
}

pub(super) fn complete(it: &mut Session, args: &LockedArgs) -> Result<(), Failure> {
    settle(it, args, Method::DELETE, "completed")
}

pub(super) fn abandon(it: &mut Session, args: &LockedArgs) -> Result<(), Failure> {
    settle(it, args, Method::PUT, "abandoned")
}

pub(super) fn renew(it: &mut Session, args: &LockedArgs) -> Result<(), Failure> {
    settle(it, args, Method::POST, "renewed")
}

fn settle(it: &mut Session, args: &LockedArgs, how: Method, done: &str) -> Result<(), Failure> {
    let path = path_of(&args.queue, &args.message, &args.lock);
    it.client.ask(Asked::new(how, &path))?;
    if it.output.json {
        return Ok(it
            .output
            .object(&json!({"message": args.message, done: true}))?);
    }
    Ok(it
        .output
        .line(&format!("{done} {}", printable(&args.message)))?)
}
