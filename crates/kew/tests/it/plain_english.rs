//! Code, documents and suites use none of the words that CONTRIBUTING.md tells writers to avoid.

use std::path::{Path, PathBuf};

/// Matched as whole words, in any case. Each has a plain replacement in every sentence.
const AVOIDED: [&str; 17] = [
    "hereby",
    "herein",
    "hither",
    "lest",
    "naught",
    "nought",
    "shall",
    "thereby",
    "therein",
    "thereof",
    "unto",
    "whence",
    "wherein",
    "whither",
    "whoever",
    "whom",
    "whosoever",
];

const FOLDERS: [&str; 6] = [
    "crates",
    "docs",
    "conformance",
    "benches",
    "examples",
    "fuzz",
];

const ENDINGS: [&str; 6] = ["rs", "md", "py", "js", "go", "java"];

/// Adds the files with one of the endings. Hidden folders and those of build tools are left out.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let (path, name) = (entry.path(), entry.file_name());
        let is_hidden = name.as_encoded_bytes().starts_with(b".");
        let kind = entry.file_type().expect("its type");
        if kind.is_dir() && !is_hidden && name != "target" && name != "node_modules" {
            collect(&path, files);
        } else if kind.is_file()
            && path
                .extension()
                .is_some_and(|it| ENDINGS.iter().any(|ending| it == *ending))
        {
            files.push(path);
        }
    }
}

fn avoided_in(line: &str) -> Option<&str> {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.find(|word| AVOIDED.contains(&word.to_lowercase().as_str()))
}

#[test]
fn avoided_words_are_found() {
    assert_eq!(avoided_in("// Whoever waits"), Some("Whoever"));
    assert_eq!(avoided_in("let whom_else = \"shallow\";"), None);
}

#[test]
fn no_text_has_an_avoided_word() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in FOLDERS {
        collect(&root.join(folder), &mut files);
    }
    assert!(files.len() > 500, "{} files", files.len());
    let mut found = String::new();
    for path in files {
        let name = path.strip_prefix(&root).expect("below the root").display();
        let name = name.to_string();
        if name.ends_with("/plain_english.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("UTF-8");
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = avoided_in(line) {
                found += &format!("{name}:{}: {word}\n", number + 1);
            }
        }
    }
    assert!(
        found.is_empty(),
        "write these in plain English, see CONTRIBUTING.md:\n{found}"
    );
}
