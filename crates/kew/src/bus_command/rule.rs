//! `kew bus rule`: authorization rules of Service Bus.

use anyhow::Result;
use kew_bus_api::{BusRules, RuleScope};

use crate::admin::Act;
use crate::admin::rule::{NewRule, RuleChange};
use crate::admin::verb::{Asked, Verb};
use crate::bus_args::RuleCommand;
use crate::flags::DirectoryArgs;
use crate::principal_command::{self, read_key};

pub(super) fn run(command: RuleCommand, of: DirectoryArgs) -> Result<()> {
    principal_command::run(Act::Rule(asked(command)?), of)
}

fn asked(command: RuleCommand) -> Result<Asked<BusRules>> {
    let (of, verb) = match command {
        RuleCommand::Add {
            name,
            rights,
            key_from_stdin,
            of,
        } => {
            let rights = rights.into_iter().collect();
            let key = read_key(key_from_stdin)?;
            (of, Verb::Add(NewRule { name, rights, key }))
        }
        RuleCommand::List { of } => (of, Verb::List),
        RuleCommand::Show { name, of } => (of, Verb::Show { name }),
        RuleCommand::Keys { name, of } => (of, Verb::Keys { name }),
        RuleCommand::Rotate { name, key, of } => (of, Verb::Rotate { name, key }),
        RuleCommand::Set { name, rights, of } => {
            let rights = rights.into_iter().collect();
            let change = RuleChange { rights };
            (of, Verb::Set { name, change })
        }
        RuleCommand::Remove { name, of } => (of, Verb::Remove { name, removal: () }),
    };
    let scope = RuleScope::of(of.entity.as_deref());
    Ok(Asked { scope, verb })
}
