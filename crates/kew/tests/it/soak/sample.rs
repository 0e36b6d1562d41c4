//! What a server uses, and whether that stays flat.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a server uses at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) at: Duration,
    resident_bytes: u64,
    descriptors: u64,
    disk_bytes: u64,
}

/// A quantity, and how much more of it the last fifth of a run may use than the second fifth.
struct Bound {
    name: &'static str,
    of: fn(&Sample) -> u64,
    /// How many of its units one unit of the table is.
    unit: u64,
    /// Beside a tenth.
    more_max: u64,
}

/// The first fifth is the warm-up. The constants are what the server keeps in reserve and uses in turns: pages of the
/// allocator, connections that are made anew, segments of 64 MiB that are prepared and recycled, and snapshots.
const BOUNDS: [Bound; 3] = [
    Bound {
        name: "resident memory, MiB",
        of: |sample| sample.resident_bytes,
        unit: 1 << 20,
        more_max: 16 << 20,
    },
    Bound {
        name: "descriptors",
        of: |sample| sample.descriptors,
        unit: 1,
        more_max: 8,
    },
    Bound {
        name: "bytes on disk, MiB",
        of: |sample| sample.disk_bytes,
        unit: 1 << 20,
        more_max: 128 << 20,
    },
];

/// Reads what the process and its data directory use.
pub(super) fn take(at: Duration, pid: u32, data_dir: &Path) -> Sample {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|it| it.trim().strip_suffix(" kB"));
    let resident_kib: u64 = resident.and_then(|it| it.parse().ok()).expect("KiB");
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
    Sample {
        at,
        resident_bytes: resident_kib << 10,
        descriptors: descriptors.count() as u64,
        disk_bytes: disk_bytes(data_dir),
    }
}

/// The bytes of blocks that all files of a directory have. A file that is removed meanwhile has none.
fn disk_bytes(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;

    let mut directories: Vec<PathBuf> = vec![directory.to_owned()];
    let mut bytes = 0;
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(it) if it.is_dir() => directories.push(entry.path()),
                Ok(it) => bytes += it.blocks() * 512,
                Err(_) => {}
            }
        }
    }
    bytes
}

/// The medians of each fifth of a run as the lines of a table, and what is not flat.
pub(super) fn judge(samples: &[Sample]) -> (Vec<String>, Vec<String>) {
    let fifth = samples.len() / 5;
    assert!(fifth >= 3, "{} samples are too few", samples.len());
    let header = format!(
        "{:22}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
        "median of each fifth", "warm-up", "second", "third", "fourth", "last", "allowed"
    );
    let (mut table, mut grown) = (vec![header], Vec::new());
    for bound in &BOUNDS {
        let median = |part: &[Sample]| {
            let mut values: Vec<u64> = part.iter().map(bound.of).collect();
            values.sort_unstable();
            values[values.len() / 2]
        };
        let medians: Vec<u64> = samples.chunks_exact(fifth).take(5).map(median).collect();
        let allowed = medians[1] + medians[1] / 10 + bound.more_max;
        let cells = medians.iter().chain([&allowed]);
        let cells: String = cells.map(|it| format!("{:>9}", it / bound.unit)).collect();
        table.push(format!("{:22}{cells}", bound.name));
        if medians[4] > allowed {
            grown.push(format!(
                "{}: {} in the last fifth, {} in the second, allowed {}",
                bound.name,
                medians[4] / bound.unit,
                medians[1] / bound.unit,
                allowed / bound.unit
            ));
        }
    }
    (table, grown)
}

#[test]
fn growth_is_noticed_and_a_wave_is_not() {
    let run = |use_at: fn(u64) -> u64| -> Vec<String> {
        let samples = (0..100).map(|number| Sample {
            at: Duration::from_secs(number),
            resident_bytes: use_at(number) << 20,
            descriptors: use_at(number),
            disk_bytes: use_at(number) << 20,
        });
        judge(&samples.collect::<Vec<_>>()).1
    };
    assert!(run(|number| 300 + number % 10).is_empty());
    // It only grows in the warm-up.
    assert!(run(|number| 300 + 20 * number.min(20)).is_empty());
    let grown = run(|number| 300 + 8 * number);
    assert_eq!(grown.len(), 3, "{grown:?}");
    assert!(grown[1].starts_with("descriptors: 1020"), "{grown:?}");
    // A leak that is slower than the constant of the disk is noticed in memory and descriptors.
    assert_eq!(run(|number| 10 + number).len(), 2);
}
