//! `kew bus authorization-rule`: authorization rules of Service Bus.

use anyhow::Result;
use kew_bus_api::{BusRules, Right, RuleScope};

use crate::admin::Act;
use crate::admin::rule::RuleSettings;
use crate::admin::verb::{Asked, New, Verb};
use crate::bus_args::AuthorizationCommand;
use crate::flags::DirectoryArgs;
use crate::principal_command::{self, read_key};

pub(super) fn run(command: AuthorizationCommand, of: DirectoryArgs) -> Result<()> {
    principal_command::run(Act::Rule(asked(command)?), of)
}

fn asked(command: AuthorizationCommand) -> Result<Asked<BusRules>> {
    let (of, verb) = match command {
        AuthorizationCommand::Add {
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
        AuthorizationCommand::List { of } => (of, Verb::List),
        AuthorizationCommand::Show { name, of } => (of, Verb::Show { name }),
        AuthorizationCommand::Keys { name, of } => (of, Verb::Keys { name }),
        AuthorizationCommand::Rotate { name, key, of } => (of, Verb::Rotate { name, key }),
        AuthorizationCommand::Set { name, rights, of } => {
            let settings = settings(rights);
            (of, Verb::Set { name, settings })
        }
        AuthorizationCommand::Remove { name, of } => (of, Verb::Remove { name, removal: () }),
    };
    let scope = RuleScope::of(of.entity.as_deref());
    Ok(Asked { scope, verb })
}

fn settings(rights: Vec<Right>) -> RuleSettings {
    RuleSettings {
        rights: rights.into_iter().collect(),
    }
}
