//! The administration socket in the file system.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The longest path of a socket that the system accepts, in bytes.
const PATH_SIZE_BYTES_MAX: usize = 107;

/// A path of a socket that the system accepts. If the path is too long, its directory is opened and named by the
/// number of its descriptor. Only Linux can do that.
struct Reach {
    path: PathBuf,
    _directory: Option<File>,
}

impl Reach {
    fn of(path: &Path) -> io::Result<Self> {
        if path.as_os_str().len() <= PATH_SIZE_BYTES_MAX {
            return Ok(Self {
                path: path.to_owned(),
                _directory: None,
            });
        }
        let too_long = || {
            io::Error::other(format!(
                "the path of a socket can have at most {PATH_SIZE_BYTES_MAX} bytes, and this one has {}: \
                 set a shorter one with --admin-socket",
                path.as_os_str().len()
            ))
        };
        let name = path.file_name().ok_or_else(too_long)?;
        let directory = File::open(path.parent().ok_or_else(too_long)?)?;
        let short = Path::new("/proc/self/fd")
            .join(directory.as_raw_fd().to_string())
            .join(name);
        if short.as_os_str().len() > PATH_SIZE_BYTES_MAX || !Path::new("/proc/self/fd").exists() {
            return Err(too_long());
        }
        Ok(Self {
            path: short,
            _directory: Some(directory),
        })
    }
}

/// Creates the socket. Replaces a socket that a killed server has left there. Fails if a server answers at the
/// path, or if there is something else.
pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
    let reach = Reach::of(path)?;
    match fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => {
            return Err(io::Error::other("a file exists there that is not a socket"));
        }
        Ok(_) => match UnixStream::connect(&reach.path) {
            Ok(_) => return Err(io::Error::other("another server answers there")),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path)?;
            }
            Err(error) => return Err(error),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(&reach.path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connects to a server.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    let reach = Reach::of(path)?;
    UnixStream::connect(&reach.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_replaced_after_a_crash_but_not_while_its_server_runs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        let first = bind(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(bind(&path).is_err());
        drop(first);
        let _second = bind(&path).unwrap();
        connect(&path).unwrap();
    }

    #[test]
    fn a_file_that_is_not_a_socket_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        fs::write(&path, "mine").unwrap();
        assert!(bind(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn a_socket_with_a_long_path_can_be_used() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("d".repeat(120));
        fs::create_dir(&long).unwrap();
        let path = long.join("admin.sock");
        let _listener = bind(&path).unwrap();
        connect(&path).unwrap();
    }
}
