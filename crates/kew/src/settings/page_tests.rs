//! `docs/configuration.md` has every setting, and its examples are valid.

use std::collections::BTreeSet;

use clap::Args as _;

use super::*;

const PAGE: &str = include_str!("../../../../docs/configuration.md");

/// A setting: its key in the file, its flag and its variable.
type Names = (String, String, String);

fn documented() -> BTreeSet<Names> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| `"));
    let names = rows.map(|row| {
        let mut cells = row.split(" | ").take(3).map(|cell| {
            let cell = cell.trim_start_matches("| ");
            cell.trim_matches('`').to_owned()
        });
        let mut next = || cells.next().expect("three cells");
        (next(), next(), next())
    });
    names.collect()
}

/// The names of the fields of a struct, from its `Debug` text: `Layer { data_dir: None, ... }`.
fn fields(shown: &str) -> BTreeSet<String> {
    let (_, shown) = shown.split_once('{').expect("a struct");
    let names = shown.split([',', '{']).filter_map(|field| {
        let (name, _) = field.split_once(':')?;
        Some(name.trim().to_owned())
    });
    names.collect()
}

#[test]
fn every_key_of_the_file_is_documented() {
    let issuer = fields(&format!("{:?}", issuer::IssuerLayer::default()));
    let mut keys = fields(&format!("{:?}", Layer::default()));
    for name in &issuer {
        keys.remove(name);
        keys.insert(format!("issuer.{name}"));
    }
    keys.remove("issuer");
    let documented: BTreeSet<String> = documented().into_iter().map(|(key, ..)| key).collect();
    assert_eq!(documented, keys);
}

#[test]
fn every_flag_is_documented_with_its_variable() {
    let command = ServeArgs::augment_args(clap::Command::new("kew"));
    let flags = command.get_arguments().filter_map(|argument| {
        let flag = format!("--{}", argument.get_long()?);
        let help = argument.get_help().expect("a text").to_string();
        let (_, variable) = help.split_once("[env: ").expect("a variable");
        let end = variable.find([']', '=']).expect("the end of a variable");
        Some((flag, variable[..end].to_owned()))
    });
    let mut flags: BTreeSet<(String, String)> = flags.collect();
    assert!(flags.remove(&("--config".into(), "KEW_CONFIG".into())));
    let documented = documented();
    let documented = documented
        .into_iter()
        .map(|(_, flag, variable)| (flag, variable));
    assert_eq!(documented.collect::<BTreeSet<_>>(), flags);
}

#[test]
fn the_example_is_valid() {
    let (_, example) = PAGE.split_once("```toml\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("kew.toml");
    std::fs::write(&path, example).expect("a file");
    let args = ServeArgs {
        config: Some(path),
        ..ServeArgs::default()
    };
    let settings = Settings::from_layers(args, &|_| None).expect("it is taken");
    assert_eq!(settings.bus_listen.addresses.len(), 2);
    assert_eq!(settings.issuers.len(), 1);
}
