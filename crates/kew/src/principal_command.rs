//! The common part of `kew account` and `kew bus authorization-rule`: they send a request and print the answer.

use std::io::Read as _;

use anyhow::{Context as _, Result, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use kew_principals::{Secret, WhichKey};

use crate::admin::account::AccountView;
use crate::admin::reach::ask;
use crate::admin::rule::RuleView;
use crate::admin::verb::KeyView;
use crate::admin::{Act, Answer};
use crate::cli::{print_line, print_table};
use crate::flags::DirectoryArgs;
use crate::queue_command::Align;
use crate::safe_json;

/// The longest key that is read from standard input, in bytes.
const KEY_TEXT_SIZE_BYTES_MAX: u64 = 1024;

pub(crate) fn run(act: Act, of: DirectoryArgs) -> Result<()> {
    match ask(of.of.data_dir, of.admin_socket, act)? {
        Ok(answer) => print(&answer, of.json),
        Err(failure) => bail!("{}", failure.message),
    }
}

/// Reads `primary` or `secondary` on the command line.
pub(crate) fn which_key() -> impl TypedValueParser<Value = WhichKey> {
    let names = PossibleValuesParser::new(WhichKey::ALL.map(WhichKey::name));
    names.map(|name| {
        let mut all = WhichKey::ALL.into_iter();
        let named = all.find(|key| key.name() == name);
        named.expect("the parser accepts no other name")
    })
}

/// Reads a key from standard input, if requested. On the command line, other users could see it.
pub(crate) fn read_key(from_stdin: bool) -> Result<Option<Secret>> {
    if !from_stdin {
        return Ok(None);
    }
    let mut text = String::new();
    let input = std::io::stdin().lock();
    input
        .take(KEY_TEXT_SIZE_BYTES_MAX)
        .read_to_string(&mut text)
        .context("cannot read the key from standard input")?;
    Ok(Some(Secret::new(text.trim())))
}

fn print(answer: &Answer, json: bool) -> Result<()> {
    if json {
        print_line(&safe_json::to_string(answer)?);
        return Ok(());
    }
    match answer {
        Answer::Accounts { accounts } => print_accounts(accounts),
        Answer::Rules { rules } => print_rules(rules),
        Answer::Account { account, keys } => {
            print_accounts(std::slice::from_ref(account));
            print_keys(keys);
        }
        Answer::Rule { rule, keys } => {
            print_rules(std::slice::from_ref(rule));
            print_keys(keys);
        }
        Answer::Removed { removed } => print_line(&format!("removed {removed}")),
        Answer::Config { .. } | Answer::Damage { .. } => {
            bail!("the server sent an unexpected answer")
        }
    }
    Ok(())
}

fn print_accounts(accounts: &[AccountView]) {
    let columns = [
        ("account", Align::Left),
        ("served", Align::Left),
        ("most queues", Align::Right),
        ("most bytes", Align::Right),
    ];
    let limit = |limit: Option<u64>| limit.map_or("-".into(), |limit| limit.to_string());
    let row = |account: &AccountView| {
        let served = if account.disabled { "disabled" } else { "yes" };
        vec![
            account.name.clone(),
            served.into(),
            limit(account.quota_queues),
            limit(account.quota_bytes),
        ]
    };
    let rows: Vec<_> = accounts.iter().map(row).collect();
    print_table(&columns, &rows);
}

fn print_rules(rules: &[RuleView]) {
    let columns = [
        ("rule", Align::Left),
        ("rights", Align::Left),
        ("created", Align::Left),
        ("modified", Align::Left),
    ];
    let row = |rule: &RuleView| {
        vec![
            rule.name.clone(),
            rule.rights.to_string(),
            time(rule.created_at_ms),
            time(rule.modified_at_ms),
        ]
    };
    let rows: Vec<_> = rules.iter().map(row).collect();
    print_table(&columns, &rows);
}

/// A time in UTC, in whole seconds.
fn time(ms: u64) -> String {
    let seconds = i64::try_from(ms / 1000).ok();
    let time = seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    time.map_or("-".into(), |time| time.to_string())
}

fn print_keys(keys: &[KeyView]) {
    for KeyView {
        key,
        value,
        connection_string,
    } in keys
    {
        let value = value.as_str();
        let connection_string = connection_string.as_str();
        print_line(&format!("{key:?} key: {value}"));
        print_line(&format!("{key:?} connection string: {connection_string}"));
    }
}
