//! Topics in the bit rot suite: more steps than the other suites have, and what is looked at beside the drain.

use kew_engine::Timestamp;
use kew_engine::bus::{BusCommand, BusMessage};

use super::bus::{self, SUBSCRIPTIONS, TOPIC};
use super::clients::Clients;
use super::host::Host;
use super::step::{Step, body};
use crate::bus::checker::life::Part;
use crate::bus::named;
use crate::bus::rules::{self, Rule};
use crate::checker::Violation;

/// Messages that wait for their time, and a rule that looks at them then. Of two rules in a row, one may be such a rule.
pub(super) const WAITING: [Step; 6] = [
    Step::BusSetRule,
    Step::BusSetRule,
    Step::BusPublishScheduled,
    Step::BusPublishScheduled,
    Step::BusPublishScheduled,
    Step::BusPublishScheduled,
];

/// How many messages are published at once.
const MANY: u64 = 4;
/// Where the number of a message among several begins.
const NTH_FROM: u32 = 32;

/// The command of a step that only topics have.
pub(super) fn command(step: Step, clients: &Clients, now: Timestamp) -> Option<BusCommand> {
    Some(match step {
        Step::BusPublishMany => publish((0..MANY).map(|nth| one_of_many(clients, nth)).collect()),
        Step::BusPublishScheduled => publish(vec![bus::message(clients, Some(now))]),
        Step::BusReceiveOtherCopy => bus::receive(named(SUBSCRIPTIONS[1], Part::Queue), 2),
        Step::BusSetRule => set_rule(clients.asked()),
        _ => return None,
    })
}

fn publish(messages: Vec<BusMessage>) -> BusCommand {
    BusCommand::Send {
        queue: named(TOPIC, Part::Queue),
        messages,
    }
}

fn one_of_many(clients: &Clients, nth: u64) -> BusMessage {
    let number = (clients.asked() + 1) | nth << NTH_FROM;
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.extend(body(clients, &format!("the {nth}. of many")));
    BusMessage {
        body: bytes.into(),
        ..bus::message(clients, None)
    }
}

/// Half of the rules select all messages.
fn set_rule(number: u64) -> BusCommand {
    let nth = usize::try_from(number / 4).expect("few steps") % Rule::ALL.len();
    let rule = match number.is_multiple_of(2) {
        true => Rule::All,
        false => Rule::ALL[nth],
    };
    let subscription = SUBSCRIPTIONS[usize::from(number % 4 < 2)];
    BusCommand::SetRule {
        topic: named(TOPIC, Part::Queue),
        subscription: named(subscription, Part::Queue),
        rule: Box::new(rule.as_new()),
    }
}

/// Looks at everything that a topic has, and changes nothing.
pub(super) fn look(host: &mut Host) -> Result<(), Violation> {
    let rules = SUBSCRIPTIONS.map(|it| BusCommand::ReadRule {
        subscription: named(it, Part::Queue),
        name: rules::NAME.into(),
    });
    let list = BusCommand::ListSubscriptions {
        topic: named(TOPIC, Part::Queue),
        skip: 0,
        limit: 100,
    };
    let peeks = bus::parts().into_iter().map(bus::peek);
    let commands = rules.into_iter().chain([list]).chain(peeks);
    bus::ask(host, commands.collect())
}
