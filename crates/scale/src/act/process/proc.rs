//! What Linux says of processes: `/proc`.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::act::ActError;
use crate::act::state::Process;

/// The variable with the token of an instance.
pub(super) const TOKEN_VARIABLE: &str = "KEW_INSTANCE";

/// What is known of a process that runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stat {
    pub(super) start_ticks: u64,
}

/// The id of this run of the system.
pub(super) fn boot_id() -> Result<String, ActError> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = fs::read_to_string(path).map_err(|error| ActError::file("read", path, error))?;
    Ok(text.trim().to_owned())
}

/// A process, or `None` if there is none of this number, or it has ended and waits for its parent.
pub(super) fn stat(pid: i32) -> Result<Option<Stat>, ActError> {
    let path = format!("/proc/{pid}/stat");
    match fs::read_to_string(&path) {
        Ok(text) => Ok(parse_stat(&text)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(ActError::file("read", Path::new(&path), error)),
    }
}

fn is_gone(error: &io::Error) -> bool {
    let gone = Some(rustix::io::Errno::SRCH.raw_os_error());
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == gone
}

/// `7 (a name (with anything)) S …`, with the start as the 22nd field.
///
/// Source: *proc_pid_stat(5)*.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, after) = text.rsplit_once(')')?;
    let mut fields = after.split_whitespace();
    let state = fields.next()?;
    let start_ticks = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X" | "x")).then_some(Stat { start_ticks })
}

/// How long a process has run.
pub(super) fn age(process: &Process) -> Duration {
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let uptime = uptime.split_whitespace().next();
    let uptime: f64 = uptime.and_then(|it| it.parse().ok()).unwrap_or(0.0);
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let whole = Duration::from_secs(process.start_ticks / per_second);
    let part = process.start_ticks % per_second;
    let rest = Duration::from_millis(part.saturating_mul(1000) / per_second);
    let uptime = Duration::try_from_secs_f64(uptime).unwrap_or_default();
    uptime.saturating_sub(whole + rest)
}

/// The process with a token in its environment: the oldest of them, because children inherit it.
pub(super) fn find_token(token: &str) -> Result<Option<Process>, ActError> {
    let variable = format!("{TOKEN_VARIABLE}={token}");
    let path = Path::new("/proc");
    let entries = fs::read_dir(path).map_err(|error| ActError::file("list", path, error))?;
    let mut oldest: Option<Process> = None;
    for entry in entries {
        let entry = entry.map_err(|error| ActError::file("list", path, error))?;
        let Some(pid) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        // That of another user cannot be read, and is none of ours.
        let Ok(environment) = fs::read(entry.path().join("environ")) else {
            continue;
        };
        let mut variables = environment.split(|it| *it == 0);
        if !variables.any(|it| it == variable.as_bytes()) {
            continue;
        }
        let found = stat(pid)?.map(|it| Process {
            pid,
            start_ticks: it.start_ticks,
        });
        let age = |it: &Process| (it.start_ticks, it.pid);
        oldest = match (oldest, found) {
            (Some(oldest), Some(found)) if age(&found) < age(&oldest) => Some(found),
            (Some(oldest), _) => Some(oldest),
            (None, found) => found,
        };
    }
    Ok(oldest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, state: &str) -> String {
        let fields: Vec<String> = (4..=52).map(|it| it.to_string()).collect();
        format!("7 ({name}) {state} {}\n", fields.join(" "))
    }

    #[test]
    fn a_name_can_have_anything() {
        for name in ["sh", "a b", ") Z 1 2", "(x)"] {
            let found = parse_stat(&line(name, "S"));
            assert_eq!(found, Some(Stat { start_ticks: 22 }), "{name}");
        }
        assert_eq!(parse_stat(&line("sh", "Z")), None);
        assert_eq!(parse_stat("7 (sh) S 1"), None);
    }

    #[test]
    fn this_process_runs_and_has_an_age() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let start_ticks = stat(pid).unwrap().unwrap().start_ticks;
        let age = age(&Process { pid, start_ticks });
        assert!(age < Duration::from_hours(24), "{age:?}");
        assert!(!boot_id().unwrap().is_empty());
        // The largest number that Linux gives is below.
        assert_eq!(stat(i32::MAX).unwrap(), None);
    }
}
