//! The pages of requirements name tests that exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Adds the sources in Rust below a folder. Folders of build tools are left out.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let path = entry.path();
        if entry.file_type().expect("its type").is_dir() {
            if entry.file_name() != "target" {
                collect(&path, files);
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
}

/// The names of functions in a table's last column: `file::function` in backticks.
fn tests_in(page: &str) -> Vec<&str> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    rows.flat_map(|row| {
        let cells = row.trim_end_matches('|').rsplit(" | ");
        let cell = cells.into_iter().next().unwrap_or_default();
        cell.split('`').skip(1).step_by(2)
    })
    .filter_map(|named| Some(named.rsplit_once("::")?.1))
    .filter(|name| name.contains('_'))
    .collect()
}

#[test]
fn tests_are_read_from_the_last_column() {
    let page =
        "text `a::not_a_row`\n| a `b::not_last` | c | `d::one_test`, `e::f::two_tests` (unit) |\n";
    assert_eq!(tests_in(page), ["one_test", "two_tests"]);
}

#[test]
fn every_named_test_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in ["crates", "examples"] {
        collect(&root.join(folder), &mut files);
    }
    let mut functions = BTreeSet::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("UTF-8");
        functions.extend(text.lines().filter_map(|line| {
            let (_, rest) = line.split_once("fn ")?;
            Some(rest.split(['(', '<']).next()?.to_owned())
        }));
    }
    let mut missing = String::new();
    for name in ["requirements.md", "worker-requirements.md"] {
        let page = std::fs::read_to_string(root.join("docs").join(name)).expect("a page");
        let tests = tests_in(&page);
        assert!(tests.len() > 30, "{name} names {} tests", tests.len());
        for test in tests.iter().filter(|test| !functions.contains(**test)) {
            missing += &format!("{name}: {test}\n");
        }
    }
    assert!(missing.is_empty(), "these tests do not exist:\n{missing}");
}
