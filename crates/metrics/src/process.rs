//! What the operating system knows about this process.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::{Family, Unit};

/// Memory, processor time, open files and start time, under the names that every exporter uses. If
/// the system does not provide a value, the family is empty. Reads files of `/proc`, which does not
/// block.
pub fn process(started: SystemTime) -> Vec<Family> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let since_epoch = started.duration_since(UNIX_EPOCH).unwrap_or_default();
    let memory = Family::gauge("process_resident_memory", Unit::Bytes, "Resident memory");
    let files = Family::gauge("process_open_fds", Unit::None, "Open file descriptors");
    let files_max = Family::gauge("process_max_fds", Unit::None, "Limit of open files");
    let start = Family::gauge(
        "process_start_time",
        Unit::Seconds,
        "When the server started, in seconds since 1970-01-01 UTC",
    );
    let max = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    vec![
        process_cpu(),
        with(memory, resident_bytes(&status), Family::count),
        with(files, open_files(), Family::count),
        with(files_max, max, Family::count),
        start.amount(Vec::new(), since_epoch.as_secs_f64()),
    ]
}

/// Processor time of this process, under the name that every exporter uses. Empty if the system does not say it.
pub fn process_cpu() -> Family {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let cpu = Family::counter("process_cpu", Unit::Seconds, "Processor time used");
    with(cpu, cpu_seconds(&stat), Family::amount)
}

/// The space that this process may use on the file system of the path. Blocks.
pub fn disk_free_bytes(path: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(path).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

fn with<T>(
    family: Family,
    value: Option<T>,
    add: impl FnOnce(Family, crate::Labels, T) -> Family,
) -> Family {
    match value {
        Some(value) => add(family, Vec::new(), value),
        None => family,
    }
}

/// User and system time, fields 14 and 15, in ticks. The second field, the name, may have spaces.
///
/// Source: proc_pid_stat(5).
#[expect(
    clippy::cast_precision_loss,
    reason = "a tick is a hundredth of a second"
)]
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// The directory lists the descriptor that reads it, too.
fn open_files() -> Option<u64> {
    let count = std::fs::read_dir("/proc/self/fd").ok()?.count();
    Some((count as u64).saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_brackets_does_not_shift_the_fields() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0";
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(cpu_seconds(stat), Some(200.0 / ticks));
        assert_eq!(cpu_seconds(""), None);
        assert_eq!(
            resident_bytes("VmPeak: 1 kB\nVmRSS:\t  12 kB\n"),
            Some(12 * 1024)
        );
    }
}
