//! The order of a crate's parts: a test of each crate reads the imports of its files and compares them with it.
//!
//! It reads text, and knows nothing of Rust but how imports and paths are written.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a crate can read its own folders") {
        let path = entry.expect("a crate can read its own folders").path();
        if path.is_dir() {
            files.extend(files_in(&path));
        } else {
            files.push(path);
        }
    }
    files
}

/// The code of a file without its tests and comments. Tests in the file itself are its end.
fn code_of(file: &Path) -> String {
    let text = fs::read_to_string(file).expect("a crate's files are text");
    let (code, _) = text
        .split_once("#[cfg(test)]\nmod tests {")
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

/// The parts of a folder from the ground up. Those beside each other know nothing of each other.
#[derive(Clone, Copy, Debug)]
pub struct Layers<'a> {
    /// The parts of each layer: the names of files and folders, and of types of the folder's own module.
    pub order: &'a [&'a [&'a str]],
    /// Files and folders, at any depth, that may import everything.
    pub free: &'a [&'a str],
}

impl Layers<'_> {
    fn place(&self, part: &str) -> Option<usize> {
        self.order.iter().position(|layer| layer.contains(&part))
    }

    fn is_free(&self, inner: &str) -> bool {
        let mut parts = inner.split(['/', '.']);
        parts.any(|part| self.free.contains(&part))
    }
}

/// The imports that break the order, of files in `folder`, which other files name `prefix`. Each is a line of text.
///
/// # Panics
///
/// If a file of the folder cannot be read.
pub fn broken(folder: &Path, prefix: &str, layers: Layers<'_>) -> BTreeSet<String> {
    let mut broken = BTreeSet::new();
    for part in layers.order.iter().copied().flatten() {
        let is_type = part.starts_with(char::is_uppercase);
        if !is_type && !folder.join(part).is_dir() && !folder.join(format!("{part}.rs")).is_file() {
            broken.insert(format!("'{part}' is in the order, and does not exist"));
        }
    }
    for file in files_in(folder) {
        let inner = file
            .strip_prefix(folder)
            .expect("a file of a folder is in it")
            .to_string_lossy()
            .into_owned();
        let part = inner.split(['/', '.']).next().unwrap_or_default();
        if matches!(part, "lib" | "layers" | "mod") || layers.is_free(&inner) {
            continue;
        }
        let Some(own) = layers.place(part) else {
            broken.insert(format!("{inner}: '{part}' is not in the order"));
            continue;
        };
        let code = code_of(&file);
        let mut all = named_after(&code, prefix);
        all.extend(named_after(&code, &supers_of(&inner)));
        for named in all {
            match layers.place(&named) {
                Some(_) if named == part => {}
                Some(other) if other < own => {}
                Some(_) => {
                    broken.insert(format!(
                        "{inner} imports {prefix}::{named}, which is not below '{part}'"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_found_in_every_place() {
        let code = "use crate::ground::limits::Limits;\nfn f(at: crate::http::Room) {}\nuse crate::{A, B};";
        assert_eq!(named_after(code, "crate"), ["ground", "http", ""]);
        assert_eq!(supers_of("links/mod.rs"), "super");
        assert_eq!(supers_of("links/link.rs"), "super::super");
    }

    #[test]
    fn an_import_upwards_or_sideways_is_broken() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::create_dir_all(folder.join("high/tests")).unwrap();
        for (file, text) in [
            ("low.rs", "use crate::low::A;\n// crate::high\n"),
            ("left.rs", "use crate::low::A;\nuse crate::right::B;\n"),
            ("right.rs", "use crate::high::{A, B};\n"),
            (
                "high/mod.rs",
                "#[cfg(test)]\nmod tests;\nuse crate::left::A;\nuse super::right::B;\nuse crate::B;\n",
            ),
            ("high/tests/one.rs", "use crate::{A, B};\n"),
            ("other.rs", ""),
        ] {
            fs::write(folder.join(file), text).unwrap();
        }
        let layers = Layers {
            order: &[&["low"], &["left", "right"], &["high", "gone"]],
            free: &["tests"],
        };
        let found = broken(folder, "crate", layers);
        let expected = [
            "'gone' is in the order, and does not exist",
            "high/mod.rs imports crate::B, which is not a part: import it from its module",
            "left.rs imports crate::right, which is not below 'left'",
            "other.rs: 'other' is not in the order",
            "right.rs imports crate::high, which is not below 'right'",
        ];
        assert_eq!(found, expected.map(str::to_owned).into());
    }
}
