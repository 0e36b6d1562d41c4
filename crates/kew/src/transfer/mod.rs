//! `kew export` and `kew import`: whole accounts of Queue Storage and namespaces of Service Bus as JSON lines.
//!
//! The format is that of messages, with lines for definitions and states of sessions (`portable`). Neither command keeps
//! more of a queue in memory than a page or a batch of its messages.

mod report;
mod selection;
mod services;

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::importing::Lines;
use crate::operate::{NamespaceCheck, NamespaceImport, export_namespace};
use crate::portable::{Line, Totals};
use crate::queue_command::{AccountImport, Failure, Output, check_line, export_account, note};
use crate::safe_json;
use crate::transfer_args::{ExportArgs, ImportArgs};

pub(crate) use report::{Lost, Report};
use selection::{is_of_storage, is_wanted};
use services::Services;

/// How often a command says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

pub(crate) fn export(args: &ExportArgs) -> ExitCode {
    let mut output = Output::new(args.services.json);
    let done = write_export(args, &mut output);
    ended(done, &mut output, args.services.json)
}

pub(crate) fn import(args: &ImportArgs) -> ExitCode {
    let mut output = Output::new(args.services.json);
    let done = match args.dry_run {
        true => check(args, &mut output),
        false => read_import(args, &mut output),
    };
    ended(done, &mut output, args.services.json)
}

fn ended(done: Result<(), Failure>, output: &mut Output, json: bool) -> ExitCode {
    match done.and(output.flush().map_err(Failure::from)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(failure.tell(json)),
    }
}

/// Says now and then how far a command is.
struct Meter {
    last: Instant,
}

impl Meter {
    fn new() -> Self {
        Self {
            last: Instant::now(),
        }
    }

    fn show(&mut self, text: impl FnOnce() -> String) {
        if self.last.elapsed() >= PROGRESS_EVERY {
            self.last = Instant::now();
            note(&text());
        }
    }
}

/// Where the lines of an export go.
enum Sink<'a> {
    File(BufWriter<File>),
    Output(&'a mut Output),
}

impl Sink<'_> {
    fn write(&mut self, line: &Line) -> Result<(), Failure> {
        match self {
            Self::File(file) => {
                safe_json::write(&mut *file, line)?;
                Ok(file.write_all(b"\n")?)
            }
            Self::Output(output) => Ok(output.object(line)?),
        }
    }

    fn sync(&mut self) -> Result<(), Failure> {
        match self {
            Self::File(file) => {
                file.flush()?;
                Ok(file.get_ref().sync_all()?)
            }
            Self::Output(output) => Ok(output.flush()?),
        }
    }
}

/// Only its owner may read it: it can have keys and any message.
fn create(path: &Path) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let file = options.open(path);
    file.map_err(|error| Failure::Usage(format!("cannot write {}: {error}", path.display())))
}

fn write_export(args: &ExportArgs, output: &mut Output) -> Result<(), Failure> {
    let services = Services::open(&args.services)?;
    let mut sink = match &args.output {
        Some(path) => Sink::File(BufWriter::new(create(path)?)),
        None => Sink::Output(output),
    };
    let (mut totals, mut meter) = (Totals::default(), Meter::new());
    let mut write = |line: Line| {
        totals.add(&line);
        meter.show(|| format!("{} messages exported", totals.messages));
        sink.write(&line)
    };
    let mut unread = 0;
    if let Some(account) = &services.account {
        unread += export_account(account, args, &mut write)?;
    }
    if let Some(namespace) = &services.namespace {
        unread += export_namespace(namespace, args, &mut write)?;
    }
    if unread == 0 {
        sink.write(&Line::End(totals))?;
    }
    sink.sync()?;
    note(&format!("exported {totals}"));
    match unread {
        0 => Ok(()),
        _ => Err(Failure::Refused {
            message: format!("{unread} parts were not exported: the notes name them"),
            code: None,
        }),
    }
}

/// Counts the lines, and compares with what the last one says of them.
#[derive(Default)]
struct Count {
    seen: Totals,
    is_ended: bool,
}

impl Count {
    fn add(&mut self, line: &Line) -> Result<(), String> {
        if let Line::End(end) = line {
            let seen = std::mem::take(&mut self.seen);
            self.is_ended = true;
            return match seen == *end {
                true => Ok(()),
                false => Err(format!(
                    "lines are missing or come twice: the export had {end}, and before this line are {seen}"
                )),
            };
        }
        self.seen.add(line);
        self.is_ended = false;
        Ok(())
    }

    fn finish(&self) {
        if !self.is_ended {
            note("the last line is not the end of an export: the file may not be whole");
        }
    }
}

fn check(args: &ImportArgs, output: &mut Output) -> Result<(), Failure> {
    let lines = Lines::open(args.file.as_deref(), 1)?;
    let (mut count, mut order) = (Count::default(), NamespaceCheck::default());
    let mut totals = Totals::default();
    lines.check_lines(|text| {
        let line = Line::read(text)?;
        count.add(&line)?;
        if !is_wanted(&line, &args.queue) {
            return Ok(());
        }
        match is_of_storage(&line) {
            true => check_line(&line)?,
            false => order.check(&line)?,
        }
        totals.add(&line);
        Ok(())
    })?;
    count.finish();
    if output.json {
        return Ok(output.object(&json!({"dry_run": true, "would_import": totals}))?);
    }
    Ok(output.line(&format!("would import {totals}"))?)
}

fn read_import(args: &ImportArgs, output: &mut Output) -> Result<(), Failure> {
    let services = Services::open(&args.services)?;
    let mut lines = Lines::open(args.file.as_deref(), 1)?;
    let mut import = Import {
        account: services
            .account
            .as_ref()
            .map(|it| AccountImport::new(it, args.append)),
        namespace: services
            .namespace
            .as_ref()
            .map(|it| NamespaceImport::new(it, args.append)),
        report: Report::default(),
    };
    let (mut count, mut meter) = (Count::default(), Meter::new());
    loop {
        let next = lines.next_or_wrong(|text| {
            let line = Line::read(text)?;
            count.add(&line)?;
            Ok(line)
        });
        let line = match next.transpose() {
            None => break,
            Some(next) => next
                .and_then(|next| next)
                .map_err(|failure| import.stopped(failure))?,
        };
        if !is_wanted(&line, &args.queue) {
            continue;
        }
        let number = lines.number;
        let took = import.take(number, line).map_err(|failure| match failure {
            Failure::Usage(what) => lines.wrong(&what),
            other => import.at(number, other),
        });
        took.map_err(|failure| import.stopped(failure))?;
        let report = &import.report;
        meter.show(|| format!("line {number}: {} messages sent", report.messages_sent));
    }
    count.finish();
    let finished = import.finish();
    finished.map_err(|failure| import.stopped(failure))?;
    if output.json {
        return Ok(output.object(&import.report)?);
    }
    for line in import.report.lines() {
        output.line(&line)?;
    }
    Ok(())
}

/// An import into one or both services.
struct Import<'a> {
    account: Option<AccountImport<'a>>,
    namespace: Option<NamespaceImport<'a>>,
    report: Report,
}

impl Import<'_> {
    fn take(&mut self, number: u64, line: Line) -> Result<(), Failure> {
        let report = &mut self.report;
        if matches!(line, Line::End(_)) {
            return Ok(());
        }
        if is_of_storage(&line) {
            let account = self
                .account
                .as_mut()
                .ok_or_else(|| no_service("Queue Storage"))?;
            return match line {
                Line::StorageQueue(it) => account.define(&it.queue, &it.definition, report),
                Line::Message(record) => account.message(&record, report),
                Line::BusQueue(_)
                | Line::Topic(_)
                | Line::Subscription(_)
                | Line::Rule(_)
                | Line::SessionState(_)
                | Line::End(_) => Ok(()),
            };
        }
        let namespace = self
            .namespace
            .as_mut()
            .ok_or_else(|| no_service("Service Bus"))?;
        namespace.take(number, line, report)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        match &mut self.namespace {
            Some(namespace) => namespace.finish(&mut self.report),
            None => Ok(()),
        }
    }

    /// Names the lines that a failure is about: those that were sent together, or one.
    fn at(&self, number: u64, failure: Failure) -> Failure {
        let lines = self.namespace.as_ref().and_then(NamespaceImport::lines);
        let lines = lines.filter(|lines| *lines.start() < number);
        failure.after(match lines {
            Some(lines) => format!("lines {} to {number}", lines.start()),
            None => format!("line {number}"),
        })
    }

    /// How to continue after a failure.
    fn stopped(&self, failure: Failure) -> Failure {
        let sent = self.report.messages_sent;
        failure.after(format!(
            "{sent} messages were sent before; repeat the same command to continue: it sends no message again that \
             has arrived"
        ))
    }
}

fn no_service(name: &str) -> Failure {
    Failure::Usage(format!(
        "it is a line of {name}, and no connection string names one: pass --connection-string twice, or --queue for the \
         queues of the other service"
    ))
}
