//! Bugs stay out of the product's way: few lines of it know of them.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates that may know of planted bugs, and how many lines of each at most: bugs and seams together.
const LINES_MAX: [(&str, usize); 3] = [("engine", 12), ("broker", 9), ("log", 3)];

/// Crates that may name every bug.
const FREE: [&str; 2] = ["planted", "sim"];

#[test]
fn few_lines_know_of_planted_bugs() {
    for name in crates() {
        let lines: Vec<String> = files_in(&folder(&name))
            .iter()
            .flat_map(|it| sites(it))
            .collect();
        let allowed = LINES_MAX.iter().find(|(it, _)| *it == name);
        let count_max = allowed.map_or(0, |(_, count_max)| *count_max);
        let count = lines.len();
        assert!(
            count <= count_max,
            "{name} has {count} lines that know of planted bugs, and {count_max} are allowed. Plant a bug at a seam \
             instead: crates/sim/src/planted\n{}",
            lines.join("\n")
        );
        assert!(
            allowed.is_none() || count > 0,
            "no line of {name} was found"
        );
    }
}

/// The crates without those that are free.
fn crates() -> Vec<String> {
    let crates = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let crates = crates.expect("the crates lie side by side");
    let names = crates.map(|it| it.expect("the folder can be read").file_name());
    let names = names.map(|it| it.into_string().expect("a crate has a plain name"));
    names
        .filter(|name| !FREE.contains(&name.as_str()))
        .collect()
}

fn folder(name: &str) -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    crates.join(name).join("src")
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => files_in(&path),
            false => vec![path],
        })
        .collect()
}

/// The lines that ask for a bug or have a seam.
fn sites(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let is_site = |line: &&str| line.contains("is_planted(") || line.contains("Seam::");
    let at = |line: &str| format!("  {}: {}", file.display(), line.trim());
    text.lines().filter(is_site).map(at).collect()
}
