//! The state directory: which instances were started, in a form that survives a crash at any moment.
//!
//! Each instance has a file `instance-TOKEN`. It is written and synced before the start, without a process, and again
//! with the process. So every instance that runs has a file, and the process of a file that names none has the token in
//! its environment. A file is replaced in one step, and removed after its process has ended.
//!
//! A user who can write in the directory decides which processes get signals. So it must belong to the user of the
//! agent, and nobody else may write in it. Links are not followed.
//!
//! An agent has the directory's lock while it uses it: see `lock`. A child inherits the lock until it runs its own program.
//! So an agent that gets the lock sees the tokens of all instances that the agent before has started.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::ActError;
use super::lock::{User, lock};
use crate::config::OwnPage;

const INSTANCE: &str = "instance-";
/// What a file has while it is written.
const UNFINISHED: &str = ".new";

/// A process, such that no other one is ever the same.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Process {
    pub(super) pid: i32,
    /// Clock ticks from the start of the system to the start of the process.
    pub(super) start_ticks: u64,
}

/// What is known of an instance.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Record {
    pub(super) token: String,
    /// Instances are numbered in the order of their starts. 0 if the file cannot be read.
    pub(super) number: u64,
    /// The id of the system's run. Another one means that the process is gone.
    pub(super) boot: String,
    /// Clock ticks from the start of the system to the first write. No process of the record is older.
    pub(super) since_ticks: u64,
    /// The port of its metrics page, if it has one.
    pub(super) port: Option<u16>,
    pub(super) process: Option<Process>,
}

impl Record {
    /// Whether its file says so little that any process with its token can be meant.
    pub(super) fn is_damaged(&self) -> bool {
        self.number == 0 || (self.process.is_none() && self.since_ticks == 0)
    }

    /// Where its metrics page is.
    pub(super) fn page(&self, is_ready: bool) -> Option<OwnPage> {
        Some(OwnPage {
            instance: self.number,
            port: self.port?,
            is_starting: !is_ready,
        })
    }

    fn text(&self) -> String {
        let Self {
            number,
            boot,
            since_ticks,
            ..
        } = self;
        let port = self.port.map(|it| format!("port={it}\n"));
        let port = port.unwrap_or_default();
        let process = match &self.process {
            Some(Process { pid, start_ticks }) => format!("pid={pid}\nstart={start_ticks}\n"),
            None => String::new(),
        };
        format!("number={number}\nboot={boot}\nsince={since_ticks}\n{port}{process}end\n")
    }

    /// Reads a file. One that makes no sense says only that there may be a process with its token.
    fn parse(token: &str, text: &str, this_boot: &str) -> Self {
        let value = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once('='));
            lines.find(|(key, _)| *key == name).map(|it| it.1)
        };
        let whole = text.ends_with("end\n").then_some(());
        let known = whole.and_then(|()| Some((value("number")?.parse().ok()?, value("boot")?)));
        let (number, boot) = known.unwrap_or((0, this_boot));
        let process = || {
            known?;
            Some(Process {
                pid: value("pid")?.parse().ok().filter(|pid| *pid > 0)?,
                start_ticks: value("start")?.parse().ok()?,
            })
        };
        Self {
            token: token.to_owned(),
            number,
            boot: boot.to_owned(),
            since_ticks: known
                .and_then(|_| value("since")?.parse().ok())
                .unwrap_or(0),
            port: known.and_then(|_| value("port")?.parse().ok()),
            process: process(),
        }
    }
}

/// The records of a directory, in the order of the starts. None if there is no directory.
pub(super) fn records(directory: &Path, this_boot: &str) -> Result<Vec<Record>, ActError> {
    match File::open(directory) {
        Ok(opened) => check_access(directory, &opened)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(ActError::file("open", directory, error)),
    }
    let entries = fs::read_dir(directory);
    let entries = entries.map_err(|error| ActError::file("list", directory, error))?;
    let mut records = Vec::new();
    for entry in entries {
        let name = entry
            .map_err(|error| ActError::file("list", directory, error))?
            .file_name();
        let name = name.to_string_lossy();
        let Some(token) = name.strip_prefix(INSTANCE) else {
            continue;
        };
        // Neither one that is not finished nor a copy of one, such as those of editors.
        if !token.bytes().all(|it| it.is_ascii_alphanumeric()) {
            continue;
        }
        let path = directory.join(&*name);
        match read_record(&path) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                records.push(Record::parse(token, &text, this_boot));
            }
            // An agent has removed it meanwhile: only a survey runs beside one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(ActError::Record { path, source }),
        }
    }
    records.sort_by(|a, b| (a.number, &a.token).cmp(&(b.number, &b.token)));
    Ok(records)
}

/// A state directory that no other agent uses.
#[derive(Debug)]
pub(super) struct StateDirectory {
    path: PathBuf,
    directory: File,
    _lock: File,
}

impl StateDirectory {
    /// Creates it if it is missing, and locks it.
    pub(super) fn open(path: &Path, user: User) -> Result<Self, ActError> {
        let failed = |what| move |error| ActError::file(what, path, error);
        let mut create = fs::DirBuilder::new();
        let created = create.recursive(true).mode(0o700).create(path);
        created.map_err(failed("create"))?;
        let directory = File::open(path).map_err(failed("open"))?;
        check_access(path, &directory)?;
        let lock = lock(path, user)?;
        let state = Self {
            path: path.to_owned(),
            directory,
            _lock: lock,
        };
        state.sweep()?;
        Ok(state)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes what was not finished.
    fn sweep(&self) -> Result<(), ActError> {
        let failed = |error| ActError::file("list", &self.path, error);
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(INSTANCE) && name.ends_with(UNFINISHED) {
                let path = self.path.join(&*name);
                fs::remove_file(&path).map_err(|it| ActError::file("remove", &path, it))?;
            }
        }
        Ok(())
    }

    fn place(&self, token: &str) -> PathBuf {
        file_of(&self.path, token)
    }

    /// Writes a record, in one step. It is durable when this returns.
    pub(super) fn write(&self, record: &Record) -> Result<(), ActError> {
        let path = self.place(&record.token);
        let unfinished = self
            .path
            .join(format!("{INSTANCE}{}{UNFINISHED}", record.token));
        let write = || {
            let mut options = File::options();
            options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = options.custom_flags(no_links()).open(&unfinished)?;
            file.write_all(record.text().as_bytes())?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            self.directory.sync_all()
        };
        write().map_err(|error| {
            // It may not be there. The next agent would remove it, too.
            let _ = fs::remove_file(&unfinished);
            ActError::file("write", &path, error)
        })
    }

    /// Removes the record of an instance that has ended. If that is lost in a crash, the next agent does it again.
    pub(super) fn remove(&self, token: &str) -> Result<(), ActError> {
        let path = self.place(token);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(ActError::file("remove", &path, error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Where the record of an instance is.
pub(super) fn file_of(directory: &Path, token: &str) -> PathBuf {
    directory.join(format!("{INSTANCE}{token}"))
}

/// Flags to open a file that may have been put there by somebody else: no link is followed, and a pipe does not block.
pub(super) fn no_links() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()
}

pub(super) fn check_regular(file: &File) -> io::Result<()> {
    match file.metadata()?.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is no regular file")),
    }
}

fn read_record(path: &Path) -> io::Result<Vec<u8>> {
    let mut options = File::options();
    let mut file = options.read(true).custom_flags(no_links()).open(path)?;
    check_regular(&file)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Refuses a directory in which somebody else can write.
fn check_access(path: &Path, directory: &File) -> Result<(), ActError> {
    let found = directory.metadata();
    let found = found.map_err(|error| ActError::file("examine", path, error))?;
    let user = rustix::process::geteuid().as_raw();
    access(found.uid(), found.mode(), user).map_err(|what| ActError::Access {
        path: path.to_owned(),
        what,
    })
}

fn access(owner: u32, mode: u32, user: u32) -> Result<(), String> {
    let mode = mode & 0o7777;
    if owner != user {
        return Err(format!(
            "belongs to user {owner}, and this process runs as user {user}: run it as the owner, or set another \
             state_directory"
        ));
    }
    if mode & 0o022 != 0 {
        return Err(format!(
            "has the mode {mode:04o}, so other users can write in it: use chmod 700"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: &str = "b-1";

    fn record(token: &str, number: u64, process: Option<Process>) -> Record {
        Record {
            token: token.to_owned(),
            number,
            boot: BOOT.to_owned(),
            since_ticks: if number == 0 { 0 } else { 44 },
            port: None,
            process,
        }
    }

    #[test]
    fn what_is_written_is_read_in_the_order_of_starts() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(place.path(), User::Agent).unwrap();
        let process = Process {
            pid: 7,
            start_ticks: u64::MAX,
        };
        let second = Record {
            port: Some(23_401),
            ..record("b", 2, None)
        };
        let first = record("c", 1, Some(process.clone()));
        state.write(&second).unwrap();
        state.write(&first).unwrap();
        let found = records(place.path(), BOOT).unwrap();
        assert_eq!(found, [first.clone(), second.clone()]);
        let second = Record {
            process: Some(process),
            ..second
        };
        state.write(&second).unwrap();
        state.remove("c").unwrap();
        state.remove("c").unwrap();
        assert_eq!(records(place.path(), BOOT).unwrap(), [second]);
        assert_eq!(records(&place.path().join("none"), BOOT).unwrap(), []);
    }

    #[test]
    fn a_file_cut_anywhere_still_tells_its_token() {
        let process = Process {
            pid: 71,
            start_ticks: 902,
        };
        let whole = Record {
            port: Some(23_400),
            ..record("t", 12, Some(process))
        };
        let text = whole.text();
        assert_eq!(Record::parse("t", &text, BOOT), whole);
        for end in 0..text.len() {
            let cut = Record::parse("t", &text[..end], BOOT);
            assert_eq!(cut, record("t", 0, None), "{end}");
        }
    }

    #[test]
    fn an_unfinished_file_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("instance-x.new");
        fs::write(&path, "number=").unwrap();
        let state = StateDirectory::open(place.path(), User::Agent).unwrap();
        assert!(!path.exists());
        assert_eq!(records(state.path(), BOOT).unwrap(), []);
    }

    /// Editors, and people before they try something, leave copies. Their processes are those of the files.
    #[test]
    fn a_copy_of_a_file_is_no_other_instance() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(place.path(), User::Agent).unwrap();
        let only = record("5f", 1, None);
        state.write(&only).unwrap();
        for copy in ["instance-5f~", "instance-5f.bak", "instance-5f (copy)"] {
            fs::copy(place.path().join("instance-5f"), place.path().join(copy)).unwrap();
        }
        assert_eq!(records(state.path(), BOOT).unwrap(), [only]);
    }

    #[test]
    fn a_directory_in_which_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().unwrap();
        for mode in [0o770, 0o707] {
            fs::set_permissions(place.path(), fs::Permissions::from_mode(mode)).unwrap();
            let opened = StateDirectory::open(place.path(), User::Agent).map(drop);
            let read = records(place.path(), BOOT).map(drop);
            for refused in [opened, read] {
                let error = refused.unwrap_err().to_string();
                let expected = format!("has the mode {mode:04o}, so other users can write in it");
                assert!(error.contains(&expected), "{error}");
            }
        }
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(StateDirectory::open(place.path(), User::Agent).is_ok());
        let other = access(5, 0o40700, 0).unwrap_err();
        assert!(
            other.starts_with("belongs to user 5, and this process runs as user 0: "),
            "{other}"
        );
    }

    #[test]
    fn a_link_is_not_followed_and_a_pipe_does_not_block() {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("state");
        drop(StateDirectory::open(&state, User::Agent).unwrap());
        let victim = place.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        fs::remove_file(state.join("lock")).unwrap();
        std::os::unix::fs::symlink(&victim, state.join("lock")).unwrap();
        assert!(StateDirectory::open(&state, User::Agent).is_err());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        fs::write(&victim, record("x", 1, None).text()).unwrap();
        std::os::unix::fs::symlink(&victim, state.join("instance-x")).unwrap();
        assert!(records(&state, BOOT).is_err());
        fs::remove_file(state.join("instance-x")).unwrap();
        let path = state.join("instance-y");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let error = records(&state, BOOT).unwrap_err().to_string();
        assert!(error.ends_with("it is no regular file"), "{error}");
    }
}
