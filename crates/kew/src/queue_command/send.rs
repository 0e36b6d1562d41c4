//! `kew queue send`: one message, or one for each line.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kew_queue_client::{Client, PutOptions, is_xml_character};
use serde::Serialize;

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
    let sent = client.put(&args.name, &text, options(args))?;
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

/// Reads lines here and sends them from several threads. The first failure stops everything.
fn send_each(
    client: &Client,
    args: &SendArgs,
    mut input: Input,
    progress: &Progress,
) -> Result<(), Failure> {
    let parallel = usize::from(args.parallel);
    let (sender, receiver) = sync_channel::<(u64, String)>(parallel);
    let receiver = Mutex::new(receiver);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..parallel)
            .map(|_| {
                scope.spawn(|| {
                    let result = work(client, args, &receiver, &stop, progress);
                    if result.is_err() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    result
                })
            })
            .collect();
        let mut number = 0;
        let read = loop {
            if stop.load(Ordering::Relaxed) {
                break Ok(());
            }
            number += 1;
            match read_line(&mut input, args.base64) {
                Ok(Some(text)) => {
                    if sender.send((number, text)).is_err() {
                        break Ok(());
                    }
                }
                Ok(None) => break Ok(()),
                Err(failure) => break Err(failure),
            }
        };
        drop(sender);
        let mut failure = None;
        for worker in workers {
            let result = worker.join().unwrap_or_else(|_| {
                Err(Failure::Refused {
                    message: "a thread panicked, which is a bug".into(),
                    code: None,
                })
            });
            failure = failure.or(result.err());
        }
        failure.map_or(read, Err)
    })
}

fn work(
    client: &Client,
    args: &SendArgs,
    receiver: &Mutex<Receiver<(u64, String)>>,
    stop: &AtomicBool,
    progress: &Progress,
) -> Result<(), Failure> {
    loop {
        let next = receiver
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        // The reader never waits for a stopped thread: stopped threads still take lines.
        let Ok((number, text)) = next else {
            return Ok(());
        };
        if stop.load(Ordering::Relaxed) {
            continue;
        }
        if let Err(error) = client.put(&args.name, &text, options(args)) {
            stop.store(true, Ordering::Relaxed);
            // Remaining input is dropped, until the reader sees the flag.
            while receiver
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .recv()
                .is_ok()
            {}
            return Err(Failure::from(error).after(format!("line {number}")));
        }
        progress.advance();
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
