//! Copies one file, and reads it back.

use std::io;
use std::ops::Range;
use std::path::Path;

use kew_log::StorageFile;

use crate::directory::Place;
use crate::error::failed;
use crate::{BackupError, Phase, Progress};

/// A file is copied in pieces of this size.
const PIECE_SIZE: usize = 1 << 20;

/// Copies the first bytes of a file into a new file, durably, with zeros up to `padded_bytes`. Returns their
/// checksum. `name` names the source in errors.
pub(crate) fn copy(
    from: &dyn StorageFile,
    name: &str,
    to: &Place<'_>,
    size_bytes: u64,
    padded_bytes: u64,
    progress: &dyn Progress,
) -> Result<u32, BackupError> {
    let file = to.create()?;
    let mut crc = 0;
    let read = |piece: &mut [u8], at| from.read_at(piece, at);
    pieces(size_bytes, name, read, |piece, at| {
        crc = crc32c::crc32c_append(crc, piece);
        write_all(&*file, piece, at).map_err(failed("write", &to.path))?;
        note(progress, Phase::Copy, piece)
    })?;
    if padded_bytes > size_bytes {
        let extended = write_all(&*file, &[0], padded_bytes - 1);
        extended.map_err(failed("extend", &to.path))?;
    }
    file.sync_data().map_err(failed("sync", &to.path))?;
    Ok(crc)
}

/// The checksum of the first bytes of a file, read from its disk if the system allows that.
pub(crate) fn checksum(
    place: &Place<'_>,
    size_bytes: u64,
    phase: Phase,
    progress: &dyn Progress,
) -> Result<u32, BackupError> {
    let file = place.open()?;
    // So a check reads the disk, and a backup does not push the server's data out of memory.
    file.forget_cached(0, size_bytes);
    let mut crc = 0;
    let name = place.path.display().to_string();
    let read = |piece: &mut [u8], at| file.read_at(piece, at);
    pieces(size_bytes, &name, read, |piece, _| {
        crc = crc32c::crc32c_append(crc, piece);
        note(progress, phase, piece)
    })?;
    Ok(crc)
}

/// Notes bytes of a file that is there already.
pub(crate) fn reused(progress: &dyn Progress, size_bytes: u64) -> Result<(), BackupError> {
    for at in (0..size_bytes).step_by(PIECE_SIZE) {
        let noted = progress.note(Phase::Reuse, (size_bytes - at).min(PIECE_SIZE as u64));
        noted.map_err(BackupError::Ended)?;
    }
    Ok(())
}

/// Whether there is nothing but zeros in a part of a file.
pub(crate) fn is_zero(place: &Place<'_>, bytes: Range<u64>) -> Result<bool, BackupError> {
    let file = place.open()?;
    let mut is_zero = true;
    let name = place.path.display().to_string();
    let read = |piece: &mut [u8], at| file.read_at(piece, bytes.start + at);
    pieces(bytes.end - bytes.start, &name, read, |piece, _| {
        is_zero &= piece.iter().all(|byte| *byte == 0);
        Ok(())
    })?;
    Ok(is_zero)
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

/// Writes all of it, however often a call is interrupted or takes less.
pub(crate) fn write_all(file: &dyn StorageFile, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        match file.write_at(&bytes[written..], offset + written as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
