//! Workspaces apart have lock files of their own, which no build of this workspace corrects: they must know what our
//! crates depend on, or the programs cannot be built with `--locked`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Where their lock files are, and the folders of our crates in them besides `crates`.
const APART: [&str; 2] = ["examples/billing/parquet", "conformance"];
const FOLDERS: [&str; 2] = ["crates", "examples"];

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

/// What the lock files lack.
fn lacking(locked: &BTreeMap<String, BTreeSet<String>>, folder: &Path) -> Vec<String> {
    let mut lacking = Vec::new();
    for (name, known) in locked {
        let short = name.strip_prefix("kew-").unwrap_or(name);
        let manifests = FOLDERS.map(|it| folder.join(it).join(short).join("Cargo.toml"));
        let manifest = manifests.iter().find_map(|it| fs::read_to_string(it).ok());
        let needed = manifest.map(|it| needed(&it)).unwrap_or_default();
        let missing = needed.difference(known);
        lacking.extend(missing.map(|it| format!("{name} needs {it}")));
    }
    lacking
}

#[test]
fn lock_files_apart_know_what_our_crates_need() {
    let mut checked = 0;
    for apart in APART {
        let file = root().join(apart).join("Cargo.lock");
        let locked = locked(&fs::read_to_string(file).unwrap());
        checked += locked.len();
        assert_eq!(lacking(&locked, &root()), [""; 0], "{apart}/Cargo.lock");
    }
    assert!(checked > 5, "only {checked} crates were found");
}

#[test]
fn a_dependency_that_is_not_locked_is_named() {
    let lock =
        "[[package]]\nname = \"kew-client\"\nversion = \"1\"\ndependencies = [\n \"bytes\",\n]\n";
    let found = lacking(&locked(lock), &root());
    assert!(
        found.contains(&"kew-client needs memchr".to_owned()),
        "{found:?}"
    );
    assert!(
        !found.contains(&"kew-client needs bytes".to_owned()),
        "{found:?}"
    );
}
