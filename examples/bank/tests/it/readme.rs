//! What the README says of arguments and settings is what the programs have, and their errors lead on.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::{Command, Output};

const README: &str = include_str!("../../README.md");

const SUBCOMMANDS: [&str; 5] = ["start", "replay", "check", "balances", "return"];

fn run(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    // Help shows the values of variables.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BANK_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).output().unwrap()
}

/// The variables in a program's help, with their defaults.
fn settings_of(program: &str, arguments: &[&str], found: &mut BTreeMap<String, String>) {
    let help = run(program, arguments);
    assert!(help.status.success(), "{program} {arguments:?}");
    let help = String::from_utf8(help.stdout).unwrap();
    // An argument begins with its name, and its text has several lines.
    for argument in help.split("\n      --").skip(1) {
        let Some((_, rest)) = argument.split_once("[env: ") else {
            continue;
        };
        let name = rest.split(['=', ']']).next().unwrap();
        let default = argument.split_once("[default: ");
        let default = default.map_or("", |(_, it)| it.split(']').next().unwrap());
        let before = found.insert(name.to_owned(), default.to_owned());
        assert!(
            before.is_none_or(|it| it == default),
            "{name} has two defaults"
        );
    }
}

#[test]
fn the_table_of_settings_is_that_of_the_programs() {
    let mut settings = BTreeMap::new();
    for program in [
        env!("CARGO_BIN_EXE_bank-web"),
        env!("CARGO_BIN_EXE_bank-worker"),
    ] {
        settings_of(program, &["--help"], &mut settings);
    }
    for subcommand in SUBCOMMANDS {
        settings_of(
            env!("CARGO_BIN_EXE_bank"),
            &[subcommand, "--help"],
            &mut settings,
        );
    }
    let table = README.split_once("## Settings").unwrap().1;
    let rows = table.lines().filter(|it| it.starts_with("| `BANK_"));
    let listed: BTreeMap<String, String> = rows
        .map(|row| {
            let mut cells = row.split(" | ");
            let name = cells.next().unwrap().trim_start_matches("| ");
            let default = cells.next().unwrap();
            // In words, if it is made of another setting.
            let default = if default.contains(' ') { "" } else { default };
            (name.replace('`', ""), default.replace('`', ""))
        })
        .collect();
    assert_eq!(listed, settings);
}

/// The commands in the README that begin with these words, without their comments.
fn commands(begin: &str) -> Vec<&str> {
    let lines = README.lines().map(|it| it.split("  ").next().unwrap());
    lines.filter(|it| it.starts_with(begin)).collect()
}

#[test]
fn the_commands_have_arguments_that_exist() {
    let mut count = 0;
    for (begin, before) in [
        ("examples/bank/start", Some("start")),
        ("target/debug/bank ", None),
    ] {
        for command in commands(begin) {
            let arguments = command.split_whitespace().skip(1);
            let arguments: Vec<&str> = before
                .into_iter()
                .chain(arguments)
                .chain(["--help"])
                .collect();
            let help = run(env!("CARGO_BIN_EXE_bank"), &arguments);
            let error = String::from_utf8_lossy(&help.stderr);
            assert!(help.status.success(), "{command}: {error}");
            count += 1;
        }
    }
    assert!(count >= 8, "{count}");
}

#[test]
fn what_is_missing_or_taken_is_named_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let [bank, web] = [env!("CARGO_BIN_EXE_bank"), env!("CARGO_BIN_EXE_bank-web")];
    let cases: [(&str, &[&str], &str); 4] = [
        (
            web,
            &["--listen", &taken],
            "choose another address with BANK_LISTEN",
        ),
        // Nothing listens at port 0.
        (
            bank,
            &["replay", "--peak", "burst", "--web", "http://127.0.0.1:0"],
            "examples/bank/start",
        ),
        (
            bank,
            &["check", "--data", "not/there"],
            "replay a peak first",
        ),
        (
            bank,
            &["balances", "--data", "not/there"],
            "start the bank first",
        ),
    ];
    for (program, arguments, expected) in cases {
        let ran = run(program, arguments);
        let error = String::from_utf8_lossy(&ran.stderr);
        assert!(
            !ran.status.success() && error.contains(expected),
            "{arguments:?}: {error}"
        );
    }
    assert!(!std::path::Path::new("not").exists());
}
