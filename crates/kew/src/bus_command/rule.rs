//! `kew bus rule`: authorization rules of Service Bus.

use anyhow::Result;
use kew_bus_api::{BusRules, Right, RuleScope};

use crate::admin::Act;
use crate::admin::rule::RuleSettings;
use crate::admin::verb::{Asked, New, Verb};
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
            let (key, settings) = (read_key(key_from_stdin)?, settings(rights));
            (
                of,
                Verb::Add(New {
                    name,
                    key,
                    settings,
                }),
            )
        }
        RuleCommand::List { of } => (of, Verb::List),
        RuleCommand::Show { name, of } => (of, Verb::Show { name }),
        RuleCommand::Keys { name, of } => (of, Verb::Keys { name }),
        RuleCommand::Rotate { name, key, of } => (of, Verb::Rotate { name, key }),
        RuleCommand::Set { name, rights, of } => {
            let settings = settings(rights);
            (of, Verb::Set { name, settings })
        }
        RuleCommand::Remove { name, of } => (of, Verb::Remove { name, removal: () }),
    };
    let scope = RuleScope::of(of.entity.as_deref());
    Ok(Asked { scope, verb })
}

fn settings(rights: Vec<Right>) -> RuleSettings {
    RuleSettings {
        rights: rights.into_iter().collect(),
    }
}
