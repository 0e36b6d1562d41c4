//! `kew queue send`: one message, or one for each line.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kew_client::{Error, PutOptions, is_xml_character};
use serde::Serialize;
use tokio::task::JoinSet;

use super::client::Client;
use super::failure::Failure;
use super::output::{Output, printable, rfc3339};
use super::progress::Progress;
use crate::input::Input;
use crate::queue_args::{CommonArgs, SendArgs};

#[derive(Serialize)]
struct SentReport<'a> {
    queue: &'a str,
    id: &'a str,
    inserted: String,
    expires: String,
    receipt: &'a str,
    next_visible: String,
}

#[derive(Serialize)]
struct LinesReport<'a> {
    queue: &'a str,
    put: u64,
    seconds: f64,
}

pub(super) fn send(
    client: &Client,
    args: &SendArgs,
    common: &CommonArgs,
    output: &mut Output,
) -> Result<(), Failure> {
    if args.lines {
        send_lines(client, args, common, output)
    } else {
        send_one(client, args, output)
    }
}

fn send_one(client: &Client, args: &SendArgs, output: &mut Output) -> Result<(), Failure> {
    let text = match &args.text {
        Some(text) => text_of(text.as_bytes(), args.base64, "the text")?,
        None => {
            let mut input = Input::open(args.file.as_deref())?;
            text_of(&input.whole()?, args.base64, &input.place())?
        }
    };
    let sent = client.ask(|it| it.put(&args.name, &text, options(args)))?;
    if output.json {
        return Ok(output.object(&SentReport {
            queue: &args.name,
            id: &sent.id,
            inserted: rfc3339(sent.inserted),
            expires: rfc3339(sent.expires),
            receipt: &sent.receipt.value,
            next_visible: rfc3339(sent.receipt.next_visible),
        })?);
    }
    Ok(output.line(&format!("put {} in {}", printable(&sent.id), args.name))?)
}

fn send_lines(
    client: &Client,
    args: &SendArgs,
    common: &CommonArgs,
    output: &mut Output,
) -> Result<(), Failure> {
    let input = Input::open(args.file.as_deref())?;
    let progress = Progress::new(common.progress, "put");
    let result = send_each(client, args, input, &progress);
    let (done, seconds) = (progress.done(), progress.elapsed().as_secs_f64());
    let rate = progress.rate();
    // The last line of progress must come before the result.
    drop(progress);
    result.map_err(|failure| failure.after(format!("{done} messages were put")))?;
    if output.json {
        return Ok(output.object(&LinesReport {
            queue: &args.name,
            put: done,
            seconds,
        })?);
    }
    let queue = &args.name;
    Ok(output.line(&format!("put {done} messages in {queue}, {rate:.0}/s"))?)
}

/// Reads lines here and sends them side by side. The first failure stops everything, after what was already sent has its
/// outcome.
fn send_each(
    client: &Client,
    args: &SendArgs,
    mut input: Input,
    progress: &Progress,
) -> Result<(), Failure> {
    let mut sends = Sends {
        client,
        under_way: JoinSet::new(),
        failure: None,
    };
    let most = usize::from(args.parallel).saturating_sub(1);
    let mut number = 0;
    let read = loop {
        sends.wait_until(most);
        if sends.failure.is_some() {
            break Ok(());
        }
        number += 1;
        match read_line(&mut input, args.base64) {
            Ok(Some(text)) => sends.begin(args, number, text, progress.counter()),
            Ok(None) => break Ok(()),
            Err(failure) => break Err(failure),
        }
    };
    sends.wait_until(0);
    match sends.failure {
        Some((number, error)) => {
            Err(Failure::from(client.failed(error)).after(format!("line {number}")))
        }
        None => read,
    }
}

/// Messages that are sent side by side.
struct Sends<'a> {
    client: &'a Client,
    under_way: JoinSet<Result<(), (u64, Error)>>,
    /// The first line that could not be sent.
    failure: Option<(u64, Error)>,
}

impl Sends<'_> {
    fn begin(
        &mut self,
        args: &SendArgs,
        number: u64,
        text: String,
        count: impl FnOnce() + Send + 'static,
    ) {
        let (service, queue) = (self.client.service().clone(), args.name.clone());
        let options = options(args);
        let send = async move {
            let sent = service.put(&queue, &text, options).await;
            sent.map_err(|error| (number, error))?;
            count();
            Ok(())
        };
        let runtime = self.client.runtime().handle();
        self.under_way.spawn_on(send, runtime);
    }

    /// Takes the outcomes that there are, and waits while more than `most` messages are under way.
    fn wait_until(&mut self, most: usize) {
        loop {
            let ended = if self.under_way.len() > most {
                let next = self.under_way.join_next();
                self.client.runtime().block_on(next)
            } else {
                self.under_way.try_join_next()
            };
            match ended {
                Some(outcome) => {
                    let outcome = outcome.expect("a send neither panics nor is cancelled");
                    self.failure = self.failure.take().or(outcome.err());
                }
                None => return,
            }
        }
    }
}

/// The next line as a message; `None` after the last.
fn read_line(input: &mut Input, base64: bool) -> Result<Option<String>, Failure> {
    let Some(line) = input.line()? else {
        return Ok(None);
    };
    text_of(&line, base64, &input.place()).map(Some)
}

fn options(args: &SendArgs) -> PutOptions {
    PutOptions {
        visibility_timeout: args.delay,
        time_to_live: args.ttl,
    }
}

/// A message's text from bytes. Refuses text that XML cannot carry, so that the service does not do
/// so in the middle of much work.
pub(super) fn text_of(bytes: &[u8], base64: bool, what: &str) -> Result<String, Failure> {
    if base64 {
        return Ok(STANDARD.encode(bytes));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        Failure::Usage(format!("{what} is not UTF-8 at byte {at}: use --base64"))
    })?;
    match text.chars().find(|&c| !is_xml_character(c)) {
        None => Ok(text.to_owned()),
        Some(c) => Err(Failure::Usage(format!(
            "{what} has U+{:04X}, which the protocol cannot carry: use --base64",
            u32::from(c)
        ))),
    }
}
