//! The lock of a state directory. The system releases it when its holder ends, however that ends.
//!
//! The holder writes into the file who it is, for the error of those who do not get the lock. An old note decides nothing,
//! and names nobody: the process that it means is only named while it runs. Another process that got its number since,
//! also after a restart of the system, is not the same.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::ActError;
use super::process::proc;
use super::state::{check_regular, no_links};

const LOCK: &str = "lock";

/// The lock of an agent that was killed is free as soon as the system has ended it.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(20);

/// A note is shorter.
const NOTE_MAX: u64 = 200;

/// What uses a state directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum User {
    Agent,
    /// `kew scale stop`.
    Stop,
}

impl User {
    const ALL: [Self; 2] = [Self::Agent, Self::Stop];

    /// In a note.
    fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Stop => "stop",
        }
    }

    /// In an error.
    fn name(self) -> &'static str {
        match self {
            Self::Agent => "the agent",
            Self::Stop => "kew scale stop",
        }
    }
}

/// Locks the directory, and notes in the file who has it.
pub(super) fn lock(directory: &Path, user: User) -> Result<File, ActError> {
    let path = directory.join(LOCK);
    let failed = |what| {
        let path = path.clone();
        move |error| ActError::file(what, &path, error)
    };
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600).custom_flags(no_links());
    let mut file = options.open(&path).map_err(failed("open"))?;
    check_regular(&file).map_err(failed("open"))?;
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if since.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(LOCK_RETRY);
            }
            Err(TryLockError::WouldBlock) => {
                let mut note = String::new();
                let _ = file.take(NOTE_MAX).read_to_string(&mut note);
                let path = directory.to_owned();
                let holder = holder(&note).unwrap_or_else(|| "another process".to_owned());
                return Err(ActError::InUse { path, holder });
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock")(error)),
        }
    }
    // It only helps a person. A full disk must not keep `kew scale stop` from its work.
    let _ = write_note(&mut file, user);
    Ok(file)
}

/// What has the lock, its process, the start of the process, and the run of the system.
fn write_note(file: &mut File, user: User) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    match note(user) {
        Some(note) => writeln!(file, "{note}"),
        None => Ok(()),
    }
}

fn note(user: User) -> Option<String> {
    let pid = i32::try_from(std::process::id()).ok()?;
    let start_ticks = proc::stat(pid).ok()??.start_ticks;
    let (word, boot) = (user.word(), proc::boot_id().ok()?);
    Some(format!("{word} {pid} {start_ticks} {boot}"))
}

/// Who has the lock, if the process of the note still runs.
fn holder(note: &str) -> Option<String> {
    let words: Vec<&str> = note.split_whitespace().collect();
    let [word, pid, start_ticks, boot] = words[..] else {
        return None;
    };
    let user = User::ALL.into_iter().find(|it| it.word() == word)?;
    let pid: i32 = pid.parse().ok()?;
    let running = proc::stat(pid).ok()??.start_ticks;
    let is_it = start_ticks.parse() == Ok(running) && proc::boot_id().ok()? == boot;
    is_it.then(|| format!("{} with PID {pid}", user.name()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::act::state::StateDirectory;

    /// What the numbers of processes, and their notes, become after a crash and a restart of the system.
    #[test]
    fn only_the_process_that_the_note_means_is_named() {
        let pid = std::process::id();
        let note = note(User::Agent).unwrap();
        let stop = note.replace("agent", "stop");
        assert_eq!(holder(&note), Some(format!("the agent with PID {pid}")));
        assert_eq!(
            holder(&stop),
            Some(format!("kew scale stop with PID {pid}"))
        );
        let words: Vec<&str> = note.split(' ').collect();
        let [word, _, start_ticks, boot] = words[..] else {
            panic!("{note}");
        };
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = child.id();
        child.wait().unwrap();
        for other in [
            // Another process has the number by now.
            format!("{word} {pid} 1{start_ticks} {boot}"),
            // The system was started again, and the process started as long after that.
            format!("{word} {pid} {start_ticks} 1{boot}"),
            format!("{word} {ended} {start_ticks} {boot}"),
            // Cut, empty, and of an earlier version.
            format!("{word} {pid} {start_ticks}"),
            String::new(),
            format!("{pid}\n"),
            format!("other {pid} {start_ticks} {boot}"),
        ] {
            assert_eq!(holder(&other), None, "{other:?}");
        }
    }

    /// The agent was killed, and its note names a process that runs.
    #[test]
    fn a_note_locks_nothing() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join(LOCK), note(User::Agent).unwrap()).unwrap();
        let first = StateDirectory::open(place.path(), User::Stop).unwrap();
        let found = fs::read_to_string(place.path().join(LOCK)).unwrap();
        assert_eq!(found.trim_end(), note(User::Stop).unwrap());
        // Who has the lock cannot be told from a wrong note, and it is locked all the same.
        fs::write(place.path().join(LOCK), "agent 1 2 3").unwrap();
        let error = StateDirectory::open(place.path(), User::Agent).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("is in use by another process: "), "{error}");
        drop(first);
    }

    /// The test runs itself again, with a limit of 0 for the size of files.
    #[test]
    fn the_lock_needs_no_room_on_the_disk() {
        const PLACE: &str = "KEW_TEST_PLACE";
        if let Some(place) = std::env::var_os(PLACE) {
            assert!(fs::write(Path::new(&place).join("x"), "x").is_err());
            StateDirectory::open(&Path::new(&place).join("state"), User::Agent).unwrap();
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh"]);
        command.arg(std::env::current_exe().unwrap());
        command.args([
            "--exact",
            "act::lock::tests::the_lock_needs_no_room_on_the_disk",
        ]);
        // Its output may be a file, too.
        command.stdout(std::process::Stdio::null());
        command.stderr(std::process::Stdio::null());
        let status = command.env(PLACE, place.path()).status().unwrap();
        assert!(status.success());
        assert!(place.path().join("state/lock").exists());
    }

    #[test]
    fn one_agent_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let first = StateDirectory::open(place.path(), User::Agent).unwrap();
        let error = StateDirectory::open(place.path(), User::Agent)
            .unwrap_err()
            .to_string();
        let pid = format!("the agent with PID {}", std::process::id());
        assert!(error.contains(&pid), "{error}");
        drop(first);
        assert!(StateDirectory::open(place.path(), User::Agent).is_ok());
    }
}
