//! What Linux says of processes: `/proc`.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::act::ActError;
use crate::act::state::Process;
use crate::config::Own;

/// The variable with the token of an instance.
const TOKEN_VARIABLE: &str = Own::Instance.name();

/// While a process changes from one program to another, it has no environment for less than a millisecond.
const EXEC_PATIENCE: Duration = Duration::from_millis(500);
const EXEC_RETRY: Duration = Duration::from_millis(5);

/// The flag of threads of the system, which have no environment (`PF_KTHREAD`).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// What is known of a process that runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::act) struct Stat {
    pub(in crate::act) start_ticks: u64,
    /// What it has used of processors, without its children.
    pub(super) cpu_ticks: u64,
    /// The place of its environment is not set yet.
    is_between_programs: bool,
    /// It is no program.
    is_thread_of_system: bool,
}

/// What a search has found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The oldest process that was meant.
    pub(super) process: Option<Process>,
    /// Processes of which cannot be said whether they are meant, and why.
    pub(super) unread: Vec<ActError>,
}

/// The id of this run of the system.
pub(in crate::act) fn boot_id() -> Result<String, ActError> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = fs::read_to_string(path).map_err(|error| ActError::file("read", path, error))?;
    Ok(text.trim().to_owned())
}

/// A process, or `None` if there is none of this number, or it has ended and waits for its parent.
pub(in crate::act) fn stat(pid: i32) -> Result<Option<Stat>, ActError> {
    stat_in(Path::new(&format!("/proc/{pid}")))
}

fn stat_in(directory: &Path) -> Result<Option<Stat>, ActError> {
    let path = directory.join("stat");
    match fs::read(&path) {
        Ok(bytes) => Ok(parse_stat(&String::from_utf8_lossy(&bytes))),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(ActError::file("read", &path, error)),
    }
}

fn is_gone(error: &io::Error) -> bool {
    let gone = Some(rustix::io::Errno::SRCH.raw_os_error());
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == gone
}

/// `7 (a name (with anything)) S …`, with the flags as the 9th field, the use of processors as the 14th and 15th, the start
/// as the 22nd, and the end of the environment as the 51st.
///
/// Source: *proc_pid_stat(5)*.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, after) = text.rsplit_once(')')?;
    // The first of these is the 3rd.
    let fields: Vec<&str> = after.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let start_ticks = number(22)?;
    let is_thread_of_system = number(9).is_some_and(|flags| flags & KERNEL_THREAD != 0);
    let is_between_programs = number(51) == Some(0) && !is_thread_of_system;
    let has_ended = matches!(*fields.first()?, "Z" | "X" | "x");
    let cpu_ticks = number(14)?.saturating_add(number(15)?);
    (!has_ended).then_some(Stat {
        start_ticks,
        cpu_ticks,
        is_between_programs,
        is_thread_of_system,
    })
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

/// Clock ticks from the start of the system until now, as processes have them.
pub(super) fn ticks_now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds * per_second + nanoseconds * per_second / 1_000_000_000
}

/// The process with a token in its environment that is not older than `since_ticks`: the oldest of them, because
/// children inherit it.
pub(super) fn find_token(token: &str, since_ticks: u64) -> Result<Found, ActError> {
    find_token_in(Path::new("/proc"), token, since_ticks)
}

fn find_token_in(root: &Path, token: &str, since_ticks: u64) -> Result<Found, ActError> {
    let variable = format!("{TOKEN_VARIABLE}={token}");
    let entries = fs::read_dir(root).map_err(|error| ActError::file("list", root, error))?;
    let mut all = Found::default();
    for entry in entries {
        let entry = entry.map_err(|error| ActError::file("list", root, error))?;
        let Some(pid) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        let directory = entry.path();
        let Some(stat) = stat_in(&directory)? else {
            continue;
        };
        let start_ticks = stat.start_ticks;
        if start_ticks < since_ticks || stat.is_thread_of_system {
            continue;
        }
        let environment = match environment(&directory) {
            Ok(environment) => environment,
            Err(error) => {
                all.unread.push(error);
                continue;
            }
        };
        let mut variables = environment.split(|it| *it == 0);
        if !variables.any(|it| it == variable.as_bytes()) {
            continue;
        }
        let found = Process { pid, start_ticks };
        let age = |it: &Process| (it.start_ticks, it.pid);
        let oldest = all.process.as_ref();
        if oldest.is_none_or(|it| age(&found) < age(it)) {
            all.process = Some(found);
        }
    }
    Ok(all)
}

/// The environment of a process. It is empty if the process has ended, or belongs to another user.
///
/// Anything else that keeps it from being read is an error: the process may be an instance.
fn environment(directory: &Path) -> Result<Vec<u8>, ActError> {
    let path = directory.join("environ");
    let failed = |error| ActError::file("read", &path, error);
    let since = Instant::now();
    loop {
        match fs::read(&path) {
            Ok(bytes) if !bytes.is_empty() => return Ok(bytes),
            // It has none, unless it is just between two programs.
            Ok(_) => match stat_in(directory)? {
                Some(stat) if stat.is_between_programs => {}
                Some(_) | None => return Ok(Vec::new()),
            },
            Err(error) if is_gone(&error) => return Ok(Vec::new()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let owner = fs::metadata(directory).map(|it| it.uid());
                let user = rustix::process::geteuid().as_raw();
                return match owner {
                    Ok(owner) if is_foreign(owner, user) => Ok(Vec::new()),
                    Err(gone) if is_gone(&gone) => Ok(Vec::new()),
                    Ok(_) | Err(_) => Err(failed(error)),
                };
            }
            Err(error) => return Err(failed(error)),
        }
        if since.elapsed() >= EXEC_PATIENCE {
            return Err(failed(io::Error::other("it is empty: try again")));
        }
        std::thread::sleep(EXEC_RETRY);
    }
}

/// Whether a process of this owner can be no instance of this user. An agent of root may have started any.
fn is_foreign(owner: u32, user: u32) -> bool {
    user != 0 && owner != user
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
            let expected = Stat {
                start_ticks: 22,
                cpu_ticks: 14 + 15,
                is_between_programs: false,
                is_thread_of_system: false,
            };
            assert_eq!(found, Some(expected), "{name}");
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

    /// A directory like `/proc` with one process, which started at tick 22.
    fn one_process(environment: Option<&str>, stat: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("7");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("stat"), stat).unwrap();
        match environment {
            Some(text) => fs::write(directory.join("environ"), text).unwrap(),
            // What cannot be read for a reason that says nothing of the process.
            None => fs::create_dir(directory.join("environ")).unwrap(),
        }
        root
    }

    #[test]
    fn a_token_is_found_in_a_process_that_is_not_older() {
        let root = one_process(Some("A=1\0KEW_INSTANCE=t\0"), &line("sh", "S"));
        let found = |token, since| {
            let found = find_token_in(root.path(), token, since).unwrap();
            assert!(found.unread.is_empty(), "{found:?}");
            found.process
        };
        let process = Process {
            pid: 7,
            start_ticks: 22,
        };
        assert_eq!(found("t", 0), Some(process.clone()));
        assert_eq!(found("t", 22), Some(process));
        assert_eq!(found("t", 23), None);
        assert_eq!(found("u", 0), None);
    }

    /// Why a process could not be examined. It is found in no case.
    fn unread(root: &Path, since: u64) -> Option<String> {
        let found = find_token_in(root, "t", since).unwrap();
        assert_eq!(found.process, None);
        found.unread.first().map(ToString::to_string)
    }

    #[test]
    fn an_environment_that_cannot_be_read_is_an_error_and_not_another_process() {
        let root = one_process(None, &line("sh", "S"));
        let error = unread(root.path(), 22).unwrap();
        assert!(
            error.contains("cannot read") && error.contains("7/environ"),
            "{error}"
        );
        // It is older than the record, or has ended.
        assert_eq!(unread(root.path(), 23), None);
        let root = one_process(None, &line("sh", "Z"));
        assert_eq!(unread(root.path(), 22), None);
        assert!(is_foreign(5, 7) && !is_foreign(7, 7) && !is_foreign(5, 0));
    }

    #[test]
    fn an_empty_environment_says_nothing_while_the_program_changes() {
        let (whole, none) = (line("sh", "S"), Some(""));
        let root = one_process(none, &whole);
        assert_eq!(unread(root.path(), 0), None);
        let changing = whole.replace(" 51 ", " 0 ");
        let root = one_process(none, &changing);
        let error = unread(root.path(), 0).unwrap();
        assert!(error.ends_with("it is empty: try again"), "{error}");
        let thread = changing.replace(" 9 ", " 2097216 ");
        let root = one_process(none, &thread);
        assert_eq!(unread(root.path(), 0), None);
    }

    #[test]
    fn a_process_that_starts_now_is_not_older_than_now() {
        let before = ticks_now();
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let found = stat(i32::try_from(child.id()).unwrap()).unwrap().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!((before..=ticks_now()).contains(&found.start_ticks));
    }
}
