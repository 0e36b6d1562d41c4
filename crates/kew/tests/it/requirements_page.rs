//! The pages of requirements name a test for each row, and the tests exist. Those of the bank are in the bank, as are the
//! places that meet its requirements.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Whether a row needs no test: what is planned says so, the test of the row before counts, or another page has them.
fn needs_no_test(row: &str) -> bool {
    let (before, last) = row.rsplit_once(" | ").unwrap_or_default();
    let last = last.trim();
    let is_planned = last.is_empty() && before.contains("planned");
    is_planned || last == "the same" || (last.starts_with('[') && last.ends_with(')'))
}

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

/// The rows of tables, each with the tests in its last column: `file::function` in backticks.
fn rows(page: &str) -> Vec<(&str, Vec<&str>)> {
    let lines = page.lines().filter(|line| line.starts_with('|'));
    let rows =
        lines.filter(|line| !line.starts_with("| ---") && !line.starts_with("| requirement"));
    rows.map(|row| {
        let row = row.trim_end().trim_end_matches('|');
        let cell = row.rsplit_once(" | ").map_or("", |(_, cell)| cell);
        let tests = cell.split('`').skip(1).step_by(2);
        (row, tests.filter(|name| name.contains("::")).collect())
    })
    .collect()
}

/// The names of tests by what names their file: its name without ending, or its folder.
#[derive(Default)]
struct Known(BTreeMap<String, BTreeSet<String>>);

impl Known {
    fn add(&mut self, path: &Path, text: &str) {
        let stem = |path: &Path| path.file_stem().map(|it| it.to_string_lossy().into_owned());
        let names = [stem(path), path.parent().and_then(stem)];
        for file in names.into_iter().flatten() {
            self.0.entry(file).or_default().extend(tests_in(text));
        }
    }

    /// The last two parts count: the file, and the function or the module of all its tests.
    fn has(&self, test: &str) -> bool {
        let Some((file, function)) = test.rsplit_once("::") else {
            return false;
        };
        let file = file.strip_suffix("::tests").unwrap_or(file);
        let file = file.rsplit("::").next().unwrap_or(file);
        let functions = self.0.get(file);
        functions.is_some_and(|it| match function {
            "tests" => !it.is_empty(),
            function => it.contains(function),
        })
    }
}

/// The functions of a source that are tests: those with such an attribute, and those in the list of a macro that makes
/// tests, which stand alone in their lines.
fn tests_in(text: &str) -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        let function = line.split_once("fn ");
        match function {
            Some((before, rest))
                if is_test
                    && before
                        .split(' ')
                        .all(|it| matches!(it, "" | "async" | "pub(crate)")) =>
            {
                tests.extend(rest.split(['(', '<']).next().map(str::to_owned));
                is_test = false;
            }
            _ if line.starts_with("#[test]") || line.starts_with("#[tokio::test") => is_test = true,
            _ => {}
        }
        let alone = line.trim_end_matches([',', ';']);
        let is_name = alone.contains('_')
            && alone
                .bytes()
                .all(|it| it.is_ascii_alphanumeric() || it == b'_');
        if is_name {
            tests.insert(alone.to_owned());
        }
    }
    tests
}

#[test]
fn tests_are_read_from_the_last_column() {
    let page = "text `a::not_a_row`\n| requirement | test |\n| --- | --- |\n\
                | a `b::not_last` | c | `d::one_test`, `e::f::two_tests` (unit), `no` |\n";
    let [(_, tests)] = &rows(page)[..] else {
        panic!("one row");
    };
    assert_eq!(tests, &["d::one_test", "e::f::two_tests"]);
    let source = "#[test]\nfn one_test() {}\nfn helper_of_it() {}\n#[tokio::test(start_paused = true)]\n\
                  async fn two_tests() {}\nmacro_list! {\n    three_tests,\n}\n";
    let mut known = Known::default();
    known.add(Path::new("x/tests/it/d.rs"), source);
    known.add(Path::new("x/src/f/mod.rs"), source);
    for is in [
        "d::one_test",
        "it::d::two_tests",
        "f::three_tests",
        "f::tests",
    ] {
        assert!(known.has(is), "{is}");
    }
    for is_not in ["d::helper_of_it", "e::one_test", "d::other", "one_test"] {
        assert!(!known.has(is_not), "{is_not}");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page_of(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).expect("a page")
}

/// The tests below folders.
fn known_below(folders: &[PathBuf]) -> Known {
    let mut files = Vec::new();
    for folder in folders {
        collect(folder, &mut files);
    }
    let mut known = Known::default();
    for path in files {
        known.add(&path, &std::fs::read_to_string(&path).expect("UTF-8"));
    }
    known
}

#[test]
fn every_row_names_tests_that_exist() {
    let known = known_below(&["crates", "examples"].map(|it| root().join(it)));
    let mut wrong = String::new();
    for name in ["requirements.md", "worker-requirements.md"] {
        let page = page_of(name);
        let rows = rows(&page);
        assert!(rows.len() > 30, "{name} has {} rows", rows.len());
        for (row, tests) in rows {
            if tests.is_empty() && !needs_no_test(row) {
                wrong += &format!("{name} names no test: {row}\n");
            }
            for test in tests.iter().filter(|test| !known.has(test)) {
                wrong += &format!("{name}: no test is called {test}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_requirement_of_the_bank_has_a_place_and_a_test_in_the_bank() {
    let bank = root().join("examples/bank");
    let page = page_of("requirements.md");
    let (_, table) = page.split_once("\n## The bank\n").expect("the bank");
    let (table, _) = table.split_once("\n## ").expect("the next heading");
    let (rows, known) = (rows(table), known_below(std::slice::from_ref(&bank)));
    assert!(rows.len() > 15, "{} requirements", rows.len());
    for (row, tests) in rows {
        let absent: Vec<&&str> = tests.iter().filter(|it| !known.has(it)).collect();
        assert!(!tests.is_empty() && absent.is_empty(), "{absent:?}: {row}");
        let cells: Vec<&str> = row.split(" | ").collect();
        let [_, places, _] = cells[..] else {
            panic!("not three columns: {row}");
        };
        let mut places = places.split('`').skip(1).step_by(2).peekable();
        assert!(places.peek().is_some(), "no place: {row}");
        for place in places {
            assert!(bank.join(place).is_file(), "{place} does not exist: {row}");
        }
    }
}
