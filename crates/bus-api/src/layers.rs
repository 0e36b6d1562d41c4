//! The order of the parts: each may import only those before it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The parts from the ground up. A file or folder beside `lib.rs` is one of these.
const ORDER: [&str; 11] = [
    "ground",
    "metrics",
    "memory",
    "messages",
    "authorization",
    "configuration",
    "shared",
    "management",
    "connection",
    "http",
    "api",
];

/// The same within a client of AMQP: its links, its parts, the client itself, and its handlers.
const ORDER_IN_CLIENT: [&str; 5] = ["patience", "links", "parts", "Client", "handlers"];

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_in(&path));
        } else {
            files.push(path);
        }
    }
    files
}

/// The code of a file without its tests and comments.
fn code_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let (code, _) = text
        .split_once("#[cfg(test)]\nmod tests")
        .unwrap_or((&text, ""));
    let lines = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The first names after each `prefix::`, or an empty text for an import such as `crate::{A, B}`.
fn named_after(code: &str, prefix: &str) -> Vec<String> {
    let prefix = format!("{prefix}::");
    let after = code.split(&prefix).skip(1);
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    after
        .map(|rest| rest.chars().take_while(|c| is_part(*c)).collect())
        .collect()
}

/// How a file names the folder that its path begins in.
fn supers_of(inner: &str) -> String {
    let module = inner.strip_suffix("/mod.rs").unwrap_or(inner);
    vec!["super"; module.split('/').count()].join("::")
}

/// The imports that break the order, of files in `folder`, by the part of each.
fn broken(folder: &Path, prefix: &str, order: &[&str]) -> BTreeSet<String> {
    let place = |part: &str| order.iter().position(|known| *known == part);
    let mut broken = BTreeSet::new();
    for file in files_in(folder) {
        let inner = file
            .strip_prefix(folder)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let part = inner.split(['/', '.']).next().unwrap_or_default();
        if matches!(part, "lib" | "layers" | "mod") {
            continue;
        }
        let Some(own) = place(part) else {
            broken.insert(format!("{inner}: '{part}' is not in the order"));
            continue;
        };
        let code = code_of(&file);
        let mut all = named_after(&code, prefix);
        all.extend(named_after(&code, &supers_of(&inner)));
        for named in all {
            match place(&named) {
                Some(other) if other <= own => {}
                Some(_) => {
                    broken.insert(format!(
                        "{inner} imports {prefix}::{named}, which is above '{part}'"
                    ));
                }
                None => {
                    broken.insert(format!(
                        "{inner} imports {prefix}::{named}, which is not a part: import it from its module"
                    ));
                }
            }
        }
    }
    broken
}

#[test]
fn no_part_imports_one_above_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = broken(&source, "crate", &ORDER);
    let client = source.join("connection/client");
    all.extend(broken(
        &client,
        "crate::connection::client",
        &ORDER_IN_CLIENT,
    ));
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn imports_are_found_in_every_place() {
    let code =
        "use crate::ground::limits::Limits;\nfn f(at: crate::http::Room) {}\nuse crate::{A, B};";
    assert_eq!(named_after(code, "crate"), ["ground", "http", ""]);
    assert_eq!(supers_of("links/mod.rs"), "super");
    assert_eq!(supers_of("links/link.rs"), "super::super");
}
