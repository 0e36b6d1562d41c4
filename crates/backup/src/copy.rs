//! Copies one file, and reads it back.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};
use std::path::Path;

use kew_log::StorageFile;

use crate::error::failed;
use crate::{BackupError, Phase, Progress};

/// A file is copied in pieces of this size.
const PIECE_SIZE: usize = 1 << 20;

/// The file's owner alone may read it: the log has the keys of accounts.
const FILE_MODE: u32 = 0o600;

/// Copies the first bytes of a file into a new file, durably, with zeros up to `restored_bytes`. Returns their
/// checksum. `name` names the source in errors.
pub(crate) fn copy(
    from: &dyn StorageFile,
    name: &str,
    to: &Path,
    size_bytes: u64,
    padded_bytes: u64,
    progress: &dyn Progress,
) -> Result<u32, BackupError> {
    let file = create(to).map_err(failed("create", to))?;
    let mut crc = 0;
    let read = |piece: &mut [u8], at| from.read_at(piece, at);
    pieces(size_bytes, name, read, |piece, at| {
        crc = crc32c::crc32c_append(crc, piece);
        file.write_all_at(piece, at).map_err(failed("write", to))?;
        note(progress, Phase::Copy, piece)
    })?;
    if padded_bytes > size_bytes {
        file.set_len(padded_bytes).map_err(failed("extend", to))?;
    }
    file.sync_all().map_err(failed("sync", to))?;
    Ok(crc)
}

/// The checksum of the first bytes of a file, read from its disk if the system allows that.
pub(crate) fn checksum(
    path: &Path,
    size_bytes: u64,
    phase: Phase,
    progress: &dyn Progress,
) -> Result<u32, BackupError> {
    let file = File::open(path).map_err(failed("open", path))?;
    forget_cached(&file);
    let mut crc = 0;
    let name = path.display().to_string();
    let read = |piece: &mut [u8], at| FileExt::read_at(&file, piece, at);
    pieces(size_bytes, &name, read, |piece, _| {
        crc = crc32c::crc32c_append(crc, piece);
        note(progress, phase, piece)
    })?;
    Ok(crc)
}

fn note(progress: &dyn Progress, phase: Phase, piece: &[u8]) -> Result<(), BackupError> {
    let noted = progress.note(phase, piece.len() as u64);
    noted.map_err(BackupError::Ended)
}

/// Passes on the first bytes of a file, which must have them.
fn pieces(
    size_bytes: u64,
    name: &str,
    read: impl Fn(&mut [u8], u64) -> io::Result<usize>,
    mut pass: impl FnMut(&[u8], u64) -> Result<(), BackupError>,
) -> Result<(), BackupError> {
    let mut buffer = vec![0; PIECE_SIZE];
    let mut at = 0;
    while at < size_bytes {
        let count = PIECE_SIZE.min(usize::try_from(size_bytes - at).unwrap_or(usize::MAX));
        match read(&mut buffer[..count], at) {
            Ok(0) => {
                return Err(BackupError::EndsEarly {
                    file: name.to_owned(),
                    offset: at,
                    size_bytes,
                });
            }
            Ok(count) => {
                pass(&buffer[..count], at)?;
                at += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed("read", Path::new(name))(error)),
        }
    }
    Ok(())
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE)
        .open(path)
}

/// Asks the system to forget what it has in memory of a file that was synced. So a check reads the disk, and a
/// backup does not push the server's data out of memory. Nothing depends on it.
pub(crate) fn forget_cached(file: &File) {
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}
