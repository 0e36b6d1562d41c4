//! Workspaces apart have lock files of their own, which no build of this workspace corrects: they must know what our
//! crates depend on, or the programs cannot be built with `--locked`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Where their lock files are, and the folders of all of our crates that they have.
const APART: [(&str, &[&str]); 2] = [
    (
        "conformance",
        &["conformance/rust", "conformance/examples/rust"],
    ),
    (
        "examples/billing/parquet",
        &[
            "examples/billing/parquet",
            "examples/billing",
            "crates/amqp",
            "crates/claim-check",
            "crates/client",
            "crates/metrics",
            "crates/worker",
        ],
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The packages of a lock file without a registry: their names, and what they depend on.
fn locked(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let packages = text.split("[[package]]").skip(1);
    let own = packages.filter(|package| !package.contains("\nsource = "));
    let quoted = |line: &str| {
        let name = line.split('"').nth(1)?;
        Some(name.split(' ').next()?.to_owned())
    };
    let known = own.filter_map(|package| {
        let mut names = package.lines().filter(|line| line.starts_with("name = "));
        let (_, dependencies) = package.split_once("dependencies = [").unwrap_or_default();
        let dependencies = dependencies.lines().filter_map(quoted);
        Some((names.next().and_then(quoted)?, dependencies.collect()))
    });
    known.collect()
}

/// What a crate always depends on.
fn needed(manifest: &str) -> BTreeSet<String> {
    let (_, section) = manifest
        .split_once("\n[dependencies]\n")
        .unwrap_or_default();
    let (section, _) = section.split_once("\n[").unwrap_or((section, ""));
    let lines = section.lines().filter(|line| {
        let is_comment = line.trim_start().starts_with('#');
        !is_comment && !line.contains("optional = true")
    });
    let names = lines.filter_map(|line| line.split(['.', ' ', '=']).next());
    let names = names.filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// What a lock file lacks of the crates in these folders, and which crates it has without a folder here.
fn lacking(locked: &BTreeMap<String, BTreeSet<String>>, folders: &[&str]) -> Vec<String> {
    let mut lacking = Vec::new();
    let mut unknown: BTreeSet<&str> = locked.keys().map(String::as_str).collect();
    for folder in folders {
        let file = root().join(folder).join("Cargo.toml");
        let manifest = match fs::read_to_string(&file) {
            Ok(manifest) => manifest,
            Err(error) => {
                lacking.push(format!("{folder}/Cargo.toml cannot be read: {error}"));
                continue;
            }
        };
        let name = manifest.lines().find_map(|it| it.strip_prefix("name = "));
        let name = name.expect("a package has a name").trim_matches('"');
        unknown.remove(name);
        let needed = needed(&manifest);
        assert!(!needed.is_empty(), "{folder} needs nothing");
        match locked.get(name) {
            Some(known) => {
                let missing = needed.difference(known);
                lacking.extend(missing.map(|it| format!("{name} needs {it}")));
            }
            None => lacking.push(format!("{name} is not there")),
        }
    }
    let unknown = unknown.into_iter();
    lacking.extend(unknown.map(|it| format!("{it} has no folder in this test")));
    lacking
}

fn text_of(apart: &str) -> String {
    let file = root().join(apart).join("Cargo.lock");
    fs::read_to_string(file).expect("a lock file is committed")
}

#[test]
fn lock_files_apart_know_what_our_crates_need() {
    for (apart, folders) in APART {
        let locked = locked(&text_of(apart));
        assert_eq!(lacking(&locked, folders), [""; 0], "{apart}/Cargo.lock");
    }
}

#[test]
fn a_dependency_that_is_not_locked_is_named() {
    for ((apart, folders), crates) in APART.into_iter().zip([
        ["kew-conformance-rust", "kew-example-rust"],
        ["kew-billing-parquet", "kew-client"],
    ]) {
        for name in crates {
            let mut locked = locked(&text_of(apart));
            let known = locked.get_mut(name).expect("it is there");
            let first = known.pop_first().expect("it needs something");
            let expected = [format!("{name} needs {first}")];
            assert_eq!(lacking(&locked, folders), expected, "{apart}");
            locked.remove(name);
            let expected = [format!("{name} is not there")];
            assert_eq!(lacking(&locked, folders), expected, "{apart}");
        }
    }
}

#[test]
fn a_crate_without_a_manifest_is_named() {
    let (apart, folders) = APART[1];
    let locked = locked(&text_of(apart));
    let found = lacking(&locked, &folders[1..]);
    assert_eq!(found, ["kew-billing-parquet has no folder in this test"]);
    let found = lacking(&locked, &[folders, &["crates/absent"]].concat());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("crates/absent/Cargo.toml cannot be read: "),
        "{found:?}"
    );
}
