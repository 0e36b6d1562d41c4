//! `kew bus rule`: authorization rules of Service Bus.

use anyhow::{Result, bail};

use crate::admin::bus::{NewRule, RuleAct, RuleAnswer, RuleView};
use crate::admin::reach::ask;
use crate::admin::{Act, Answer};
use crate::bus_args::RuleCommand;
use crate::cli::{print_line, print_table};
use crate::flags::DirectoryArgs;
use crate::queue_command::Align;
use crate::safe_json;

pub(super) fn run(command: RuleCommand, of: DirectoryArgs) -> Result<()> {
    let (entity, what) = act(command);
    match ask(of.of.data_dir, of.admin_socket, Act::Rule { entity, what })? {
        Ok(answer) => print(&answer, of.json),
        Err(failure) => bail!("{}", failure.message),
    }
}

fn act(command: RuleCommand) -> (Option<String>, RuleAct) {
    match command {
        RuleCommand::Add { name, rights, of } => {
            let rights = rights.into_iter().collect();
            (of.entity, RuleAct::Add(NewRule { name, rights }))
        }
        RuleCommand::List { of } => (of.entity, RuleAct::List),
        RuleCommand::Remove { name, of } => (of.entity, RuleAct::Remove { name }),
        RuleCommand::Keys { name, of } => (of.entity, RuleAct::Keys { name }),
        RuleCommand::Regenerate { name, key, of } => (of.entity, RuleAct::Regenerate { name, key }),
    }
}

fn print(answer: &Answer, json: bool) -> Result<()> {
    if json {
        print_line(&safe_json::to_string(answer)?);
        return Ok(());
    }
    match answer {
        Answer::Rules { rules } => print_rules(rules),
        Answer::Rule(answer) => print_keys(answer),
        Answer::Removed { removed } => print_line(&format!("removed {removed}")),
        _ => bail!("the server sent an unexpected answer"),
    }
    Ok(())
}

fn print_rules(rules: &[RuleView]) {
    let columns = [("rule", Align::Left), ("rights", Align::Left)];
    let row = |rule: &RuleView| vec![rule.name.clone(), rule.rights.to_string()];
    let rows: Vec<_> = rules.iter().map(row).collect();
    print_table(&columns, &rows);
}

fn print_keys(answer: &RuleAnswer) {
    let RuleView { name, rights, .. } = &answer.rule;
    print_line(&format!("rule {name}: {rights}"));
    for key in &answer.keys {
        print_line(&format!("{:?} key: {}", key.key, key.value.0));
        print_line(&format!(
            "{:?} connection string: {}",
            key.key, key.connection_string.0
        ));
    }
}
