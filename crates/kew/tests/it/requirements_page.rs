//! The pages of requirements name tests that exist, in the files that they name.

use std::collections::BTreeMap;
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

/// The tests in a table's last column, `file::function` in backticks: the file, if it is named, and the function.
fn tests_in(page: &str) -> Vec<(Option<&str>, &str)> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    rows.flat_map(|row| {
        let cells = row.trim_end_matches('|').rsplit(" | ");
        let cell = cells.into_iter().next().unwrap_or_default();
        cell.split('`').skip(1).step_by(2)
    })
    .filter_map(|named| {
        let mut parts = named.rsplit("::").filter(|it| *it != "tests");
        let function = parts.next().filter(|it| it.contains('_'))?;
        named.contains("::").then(|| (parts.next(), function))
    })
    .collect()
}

/// The names of a source as a module: that of its file, and that of its folder.
fn modules_of(path: &Path) -> Vec<String> {
    let folder = path.parent().and_then(Path::file_name);
    let names = [path.file_stem(), folder].into_iter().flatten();
    names.map(|it| it.to_string_lossy().into_owned()).collect()
}

/// Functions with the modules that have one of that name.
fn functions_below(folders: &[PathBuf]) -> BTreeMap<String, Vec<String>> {
    let mut files = Vec::new();
    for folder in folders {
        collect(folder, &mut files);
    }
    let mut functions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("UTF-8");
        for line in text.lines() {
            let function = line.split_once("fn ").map(|(_, rest)| rest);
            let name = function.and_then(|rest| rest.split(['(', '<']).next());
            if let Some(name) = name {
                let modules = functions.entry(name.to_owned()).or_default();
                modules.extend(modules_of(&path));
            }
        }
    }
    functions
}

/// What is wrong with the tests that a page names.
fn faults_of(page: &str, functions: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let faults = tests_in(page).into_iter().filter_map(|(file, name)| {
        let modules = functions.get(name);
        match (modules, file) {
            (None, _) => Some(format!("{name} does not exist")),
            (Some(modules), Some(file)) if !modules.iter().any(|it| it == file) => {
                Some(format!("{name} is not in {file}"))
            }
            (Some(_), _) => None,
        }
    });
    faults.collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page_of(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).expect("a page")
}

#[test]
fn tests_are_read_from_the_last_column() {
    let page = "text `a::not_a_row`\n| a `b::not_last` | c | `d::one_test`, `e::f::tests::two_tests` (unit) |\n";
    assert_eq!(
        tests_in(page),
        [(Some("d"), "one_test"), (Some("f"), "two_tests")]
    );
    let functions = BTreeMap::from([("one_test".to_owned(), vec!["x".to_owned()])]);
    assert_eq!(
        faults_of(page, &functions),
        ["one_test is not in d", "two_tests does not exist"]
    );
}

#[test]
fn every_named_test_is_in_its_file() {
    let functions = functions_below(&["crates", "examples"].map(|it| root().join(it)));
    let mut faults = Vec::new();
    for name in ["requirements.md", "worker-requirements.md"] {
        let page = page_of(name);
        let count = tests_in(&page).len();
        assert!(count > 30, "{name} names {count} tests");
        faults.extend(faults_of(&page, &functions));
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn every_requirement_of_the_bank_has_a_place_and_a_test_in_the_bank() {
    let bank = root().join("examples/bank");
    let page = page_of("requirements.md");
    let (_, table) = page.split_once("\n## The bank\n").expect("the bank");
    let (table, _) = table.split_once("\n## ").expect("the next heading");
    let faults = faults_of(table, &functions_below(std::slice::from_ref(&bank)));
    assert!(faults.is_empty(), "{faults:#?}");
    let rows = table.lines().filter(|it| it.starts_with("| ")).skip(2);
    let mut count = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_end_matches('|').split(" | ").collect();
        let [_, places, tests] = cells[..] else {
            panic!("not three columns: {row}");
        };
        let places: Vec<&str> = places.split('`').skip(1).step_by(2).collect();
        assert!(!places.is_empty() && tests.contains("::"), "{row}");
        let missing: Vec<&&str> = places
            .iter()
            .filter(|it| !bank.join(it).is_file())
            .collect();
        assert!(missing.is_empty(), "{missing:?} do not exist");
        count += 1;
    }
    assert!(count > 15, "{count} requirements");
}
