//! `kew dlq`, and the parts of `kew bus` for queues, topics and messages: a client of any namespace of Service Bus.
//!
//! Messages go over AMQP, entities are managed by ATOM, both with `kew-client`. What the public protocols cannot do is asked
//! of Kew's own interface (`own`), which other namespaces do not have.

mod browse;
mod doors;
mod entity;
mod export;
mod failing;
mod filter;
mod import;
mod jobs;
mod mover;
mod namespace;
mod own;
mod receive;
mod resubmit;
mod rule_values;
mod rules;
mod sas;
mod send;
mod sessions;
mod settings;
mod settle;
mod show;
mod test_rule;
mod topics;
mod view;
mod watch;

use std::process::ExitCode;

use crate::bus_rule_args::RuleCommand;
use crate::bus_session_args::SessionCommand;
use crate::bus_topic_args::{SubscriptionCommand, TopicCommand};
use crate::operate_args::{
    Common, DlqArgs, DlqCommand, FilterArgs, MessageCommand, OperateCommand,
};
use crate::queue_command::{Failure, Output};
use doors::Doors;
use entity::Listed;
use failing::status_of_failure;

pub(crate) use failing::ServiceError;
pub(crate) use namespace::{Namespace, NamespaceCheck, NamespaceImport, export_namespace};

/// The suffix of a queue's name for its dead letters.
const DEAD_LETTERS: &str = "/$deadletterqueue";

/// The namespace to use, and the output.
struct Session {
    doors: Doors,
    output: Output,
}

pub(crate) fn run(command: &OperateCommand) -> ExitCode {
    use OperateCommand as It;
    match command {
        It::List(args) => with(&args.common, |it| entity::list(it, Listed::All)),
        It::Show(args) => with(&args.common, |it| entity::show(it, args)),
        It::Create(args) => with(&args.common, |it| entity::create(it, args)),
        It::Update(args) => with(&args.common, |it| entity::update(it, args)),
        It::Delete(args) => with(&args.common, |it| entity::delete(it, args)),
        It::Send(args) => with(&args.common, |it| send::send(it, args)),
        It::Receive(args) => with(&args.common, |it| receive::receive(it, args)),
        It::Peek(args) => with(&args.common, |it| show::peek(it, args, &args.queue)),
        It::Purge(args) => with(&args.common, |it| jobs::purge(it, args, &args.queue)),
        It::Message(command) => run_message(command),
        It::Session(command) => run_session(command),
        It::Watch(args) => with(&args.common, |it| watch::watch(it, args)),
        It::Sas(args) => {
            let mut output = Output::new(args.json);
            let done = sas::sas(args, &mut output).and_then(|()| Ok(output.flush()?));
            ended(done, args.json)
        }
        It::BreakLock(args) => with(&args.common, |it| show::break_lock(it, args)),
        It::Jobs(args) => with(&args.common, jobs::list),
        It::Cancel(args) => with(&args.common, |it| jobs::cancel(it, args)),
    }
}

fn run_message(command: &MessageCommand) -> ExitCode {
    use MessageCommand as It;
    match command {
        It::Get(args) => with(&args.common, |it| show::message(it, args)),
        It::Delete(args) => with(&args.common, |it| show::delete(it, args)),
        It::Complete(args) => with(&args.common, |it| settle::complete(it, args)),
        It::Abandon(args) => with(&args.locked.common, |it| settle::abandon(it, args)),
        It::Defer(args) => with(&args.locked.common, |it| settle::defer(it, args)),
        It::DeadLetter(args) => with(&args.change.locked.common, |it| {
            settle::dead_letter(it, args)
        }),
        It::Renew(args) => with(&args.common, |it| settle::renew(it, args)),
        It::Export(args) => with(&args.common, |it| export::export(it, args)),
        It::Import(args) => with(&args.common, |it| import::import(it, args)),
        It::CancelScheduled(args) => with(&args.common, |it| send::cancel_scheduled(it, args)),
    }
}

fn run_session(command: &SessionCommand) -> ExitCode {
    use SessionCommand as It;
    match command {
        It::List(args) => with(&args.common, |it| sessions::list(it, args)),
        It::State(args) => with(&args.common, |it| sessions::state(it, args)),
        It::SetState(args) => with(&args.of.common, |it| sessions::set_state(it, args)),
    }
}

pub(crate) fn run_topic(command: &TopicCommand) -> ExitCode {
    use TopicCommand as It;
    match command {
        It::Create(args) => with(&args.common, |it| topics::create_topic(it, args)),
        It::Show(args) => with(&args.common, |it| topics::show_topic(it, args)),
        It::List(args) => with(&args.common, topics::list_topics),
        It::Update(args) => with(&args.common, |it| topics::update_topic(it, args)),
        It::Delete(args) => with(&args.common, |it| topics::delete_topic(it, args)),
    }
}

pub(crate) fn run_subscription(command: &SubscriptionCommand) -> ExitCode {
    use SubscriptionCommand as It;
    match command {
        It::Create(args) => with(&args.common, |it| topics::create_subscription(it, args)),
        It::Show(args) => with(&args.common, |it| topics::show_subscription(it, args)),
        It::List(args) => with(&args.common, |it| topics::list_subscriptions(it, args)),
        It::Update(args) => with(&args.common, |it| topics::update_subscription(it, args)),
        It::Delete(args) => with(&args.common, |it| topics::delete_subscription(it, args)),
    }
}

pub(crate) fn run_rule(command: &RuleCommand) -> ExitCode {
    use RuleCommand as It;
    match command {
        It::Add(args) => with(&args.common, |it| rules::add(it, args)),
        It::Set(args) => with(&args.common, |it| rules::set(it, args)),
        It::List(args) => with(&args.common, |it| rules::list(it, args)),
        It::Show(args) => with(&args.common, |it| rules::show_rule(it, args)),
        It::Remove(args) => with(&args.common, |it| rules::remove(it, args)),
        It::Test(args) => ended(test_rule::test(args), args.common.json),
    }
}

pub(crate) fn run_dlq(args: &DlqArgs) -> ExitCode {
    use DlqCommand as It;
    match &args.command {
        It::List(args) => with(&args.common, |it| entity::list(it, Listed::WithDeadLetters)),
        It::Peek(args) => with_dead_letters(&args.common, &args.queue, |it, dead| {
            show::peek(it, args, dead)
        }),
        It::Groups(args) => with_dead_letters(&args.common, &args.queue, |it, dead| {
            show::groups(it, args, dead)
        }),
        It::Resubmit(args) => with_dead_letters(&args.common, &args.queue, |it, dead| {
            jobs::resubmit(it, args, dead)
        }),
        It::Purge(args) => with_dead_letters(&args.common, &args.queue, |it, dead| {
            jobs::purge(it, args, dead)
        }),
    }
}

/// Works on the dead letters of a queue or subscription. A topic has none: the failure then says where they are.
fn with_dead_letters(
    common: &Common,
    queue: &str,
    work: impl FnOnce(&mut Session, &str) -> Result<(), Failure>,
) -> ExitCode {
    with(common, |it| {
        let failure = match work(it, &dead_letters(queue)) {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        let is_gone = status_of_failure(&failure) == Some(404) && !queue.contains('$');
        match is_gone && entity::is_topic(&it.doors, queue) {
            false => Err(failure),
            true => Err(Failure::Refused {
                message: format!(
                    "'{queue}' is a topic, and has no dead letters: name one of its subscriptions, as \
                     {queue}/subscriptions/NAME, or {queue}/$transfer/$deadletterqueue for its failed transfers"
                ),
                code: Some("OtherKind"),
            }),
        }
    })
}

/// The entity of a queue's dead letters. A sub-queue stays unchanged.
fn dead_letters(queue: &str) -> String {
    if queue.to_lowercase().ends_with(DEAD_LETTERS) {
        queue.to_owned()
    } else {
        format!("{queue}{DEAD_LETTERS}")
    }
}

fn with(common: &Common, work: impl FnOnce(&mut Session) -> Result<(), Failure>) -> ExitCode {
    let result = session(common).and_then(|mut session| {
        let result = work(&mut session);
        // Earlier output must come before the error.
        let flushed = session.output.flush();
        result.and(Ok(flushed?))
    });
    ended(result, common.json)
}

fn ended(result: Result<(), Failure>, json: bool) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ExitCode::from(failure.tell(json)),
    }
}

fn session(common: &Common) -> Result<Session, Failure> {
    Ok(Session {
        doors: Doors::open(common)?,
        output: Output::new(common.json),
    })
}
