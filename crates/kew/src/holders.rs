//! Which process holds a lock or a port, so that an error can name it.
//!
//! Linux shows it under `/proc`: the holders of locks and the listening sockets to every user, the
//! open files of a process to its own user and to root. On other systems nothing is found, and the
//! error explains how to look.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use kew_log::{DataDir, DataDirError};

use crate::tls_command::quoted;

/// A process that holds something.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holder {
    pid: u32,
    /// The name of its program, if that can be read.
    name: Option<String>,
}

impl Holder {
    fn of_pid(pid: u32) -> Self {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok();
        Self {
            pid,
            name: name.map(|name| name.trim().escape_debug().to_string()),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        match &self.name {
            Some(name) => write!(f, " ({name})"),
            None => Ok(()),
        }
    }
}

/// The error of a data directory, with the process that uses it.
pub(crate) fn of_data_dir(error: DataDirError) -> anyhow::Error {
    let DataDirError::InUse { path } = &error else {
        return error.into();
    };
    let lock = DataDir::lock_path(path);
    let why = match holder_of_lock(&lock) {
        Some(holder) => format!("it is in use by {holder}: stop that process first"),
        None => format!(
            "it is in use by another process: find it with fuser {}, and stop it first",
            quoted(&lock.display().to_string())
        ),
    };
    anyhow::Error::msg(why)
}

/// Which process listens at an address in use, and how to find out if Kew cannot see it.
pub(crate) fn of_port(address: SocketAddr) -> String {
    match holder_of_port(address) {
        Some(holder) if holder.pid == std::process::id() => {
            "this server listens there already: name each address once".to_owned()
        }
        Some(holder) => format!("the address is in use by {holder}"),
        None => format!(
            "the address is in use by another process: find it with ss -ltnp 'sport = :{}' as root",
            address.port()
        ),
    }
}

/// The process that holds the lock on this file.
fn holder_of_lock(lock: &Path) -> Option<Holder> {
    let file = fs::metadata(lock).ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let lockers = lockers(&locks, file.ino());
    let device = file.dev();
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    // Some file systems show a file with another device than that of its lock: then the process's
    // open files decide.
    let found = lockers.iter().find(|locker| locker.device == device);
    let found = found.or_else(|| {
        let is_same = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|it| (it.dev(), it.ino()) == (file.dev(), file.ino()))
        };
        let holds = |pid| open_files(pid).iter().any(is_same);
        lockers.iter().find(|locker| holds(locker.pid))
    });
    Some(Holder::of_pid(found?.pid))
}

/// A process that has locked a file.
#[derive(Debug, PartialEq, Eq)]
struct Locker {
    pid: u32,
    device: (u32, u32),
}

/// The processes with a `flock` on the file of that number, from the text of `/proc/locks`: `1:
/// FLOCK  ADVISORY  WRITE 4711 fd:01:131 0 EOF`.
fn lockers(locks: &str, inode: u64) -> Vec<Locker> {
    let lockers = locks.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Processes that wait have an arrow before the kind.
        let [_, "FLOCK", _, _, pid, file, ..] = words[..] else {
            return None;
        };
        let mut file = file.split(':');
        let mut hexadecimal = || u32::from_str_radix(file.next()?, 16).ok();
        let device = (hexadecimal()?, hexadecimal()?);
        let is_it = file.next()?.parse() == Ok(inode);
        let pid = pid.parse().ok().filter(|pid| *pid > 0)?;
        is_it.then_some(Locker { pid, device })
    });
    lockers.collect()
}

/// The process that listens at an address.
fn holder_of_port(address: SocketAddr) -> Option<Holder> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let tables = tables
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    let sockets: Vec<String> = tables
        .flat_map(|table| listening(&table, address))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let is_it = |path: &PathBuf| {
        let target = fs::read_link(path);
        target.is_ok_and(|target| sockets.iter().any(|socket| target == Path::new(socket)))
    };
    let processes = fs::read_dir("/proc").ok()?;
    let mut pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let holds = |pid: &u32| !sockets.is_empty() && open_files(*pid).iter().any(is_it);
    pids.find(holds).map(Holder::of_pid)
}

/// The numbers of the sockets that listen at an address or conflict with it, from the text of
/// `/proc/net/tcp` or `tcp6`.
fn listening(table: &str, address: SocketAddr) -> Vec<u64> {
    const LISTEN: &str = "0A";
    let sockets = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, LISTEN, _, _, _, _, _, inode, ..] = words[..] else {
            return None;
        };
        let (host, port) = local.split_once(':')?;
        let host = host_of(host)?;
        let is_same = host.to_canonical() == address.ip().to_canonical();
        let is_in_the_way = is_same || host.is_unspecified() || address.ip().is_unspecified();
        let is_it = u16::from_str_radix(port, 16) == Ok(address.port()) && is_in_the_way;
        is_it.then(|| inode.parse().ok())?
    });
    sockets.collect()
}

/// An address in the form of the tables: words of 32 bits, each in the machine's byte order.
fn host_of(digits: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(digits.get(8 * at..8 * at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    match digits.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let octets: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

/// The open files of a process; none if this process may not see them.
fn open_files(pid: u32) -> Vec<PathBuf> {
    let files = fs::read_dir(format!("/proc/{pid}/fd"));
    let files = files.into_iter().flatten();
    files.filter_map(|file| Some(file.ok()?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2711 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0
   1: 00000000:2712 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0
   2: 0100007F:2713 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1000        0 4713 1 0
";
    const TABLE_6: &str = "\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:2711 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4714 1 0
   1: 0000000000000000FFFF00000100007F:2714 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4715 1 0
";

    /// The tables are in the machine's byte order, and these are from a little-endian one.
    #[cfg(target_endian = "little")]
    #[test]
    fn listeners_are_found_by_their_address() {
        for (table, address, expected) in [
            (TABLE, "127.0.0.1:10001", &[4711][..]),
            (TABLE, "0.0.0.0:10001", &[4711]),
            (TABLE, "127.0.0.2:10001", &[]),
            (TABLE, "127.0.0.1:10002", &[4712]),
            // Connected, and not listening.
            (TABLE, "127.0.0.1:10003", &[]),
            (TABLE_6, "[::1]:10001", &[4714]),
            (TABLE_6, "127.0.0.1:10004", &[4715]),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(listening(table, address), expected, "{address}");
        }
    }

    #[test]
    fn a_lock_is_found_by_its_file() {
        let locks = "\
1: POSIX  ADVISORY  WRITE 11 fd:01:131 0 EOF
2: FLOCK  ADVISORY  WRITE 12 fd:01:131 0 EOF
2: -> FLOCK  ADVISORY  WRITE 13 fd:01:131 0 EOF
3: FLOCK  ADVISORY  WRITE 14 fd:01:132 0 EOF
4: FLOCK  ADVISORY  WRITE 0 00:1f:131 0 EOF
";
        let device = (0xfd, 1);
        assert_eq!(lockers(locks, 131), [Locker { pid: 12, device }]);
        assert_eq!(lockers(locks, 1), []);
    }

    #[test]
    fn this_process_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().lock().unwrap();
        if cfg!(target_os = "linux") {
            let pid = |holder: Option<Holder>| holder.map(|holder| holder.pid);
            let own = Some(std::process::id());
            assert_eq!(pid(holder_of_port(address)), own);
            assert_eq!(pid(holder_of_lock(file.path())), own);
        }
        drop(listener);
        assert!(of_port(address).contains("ss -ltnp"));
    }
}
