//! Files of pages. A page lies in two files, so a backup has both whole although one of them is damaged.

use std::io;
use std::path::Path;
use std::sync::Arc;

use kew_log::{
    PageFileDamage, ReadManifest, Storage, StorageFile, check_pages, identity, mend_pages,
};

use crate::copy::{checksum, copy, write_all};
use crate::destination::{Destination, stored_name};
use crate::error::failed;
use crate::manifest::StoredFile;
use crate::take::Planned;
use crate::{BackupError, Phase, Progress, View};

/// Whether a stored file has whole copies of all pages of a snapshot that lie in it. A file that was stored for an older
/// snapshot was checked for the pages of that one.
pub(crate) fn is_whole(
    destination: &Destination,
    file: &StoredFile,
    snapshot: &ReadManifest,
    progress: &Arc<dyn Progress>,
) -> Result<bool, BackupError> {
    let view = destination.view(std::slice::from_ref(file), progress);
    let damage = check_pages(&view, snapshot, &file.name).map_err(BackupError::of_source)?;
    Ok(damage.is_none())
}

/// Copies a file of pages under a temporary name, takes what is damaged in it from the other file of its pair, and gives it
/// its name once it was found whole. Also returns what was damaged.
pub(crate) fn copy_whole(
    source: &dyn Storage,
    destination: &Destination,
    planned: &Planned,
    snapshot: &ReadManifest,
    progress: &Arc<dyn Progress>,
) -> Result<(StoredFile, Option<PageFileDamage>), BackupError> {
    let (name, size_bytes) = (&planned.name, planned.size_bytes);
    let temporary = Destination::temporary(name);
    let temporary = destination.file(&temporary);
    let from = Readable::open(source, name)?;
    // What the file does not have are zeros, which are no page.
    let there_bytes = from.size_bytes.min(size_bytes);
    let copied = copy(
        &from,
        name,
        &temporary,
        there_bytes,
        size_bytes,
        &**progress,
    );
    let copied = copied.map_err(BackupError::of_short_source)?;
    if checksum(&temporary, there_bytes, Phase::Check, &**progress)? != copied {
        return Err(BackupError::CopyDamaged {
            path: temporary.path,
        });
    }
    let stored = |crc| planned.stored(stored_name(name, planned.identity, size_bytes, crc), crc);
    let mut view = View::new(progress);
    view.add(&stored(copied), &temporary);
    let to = temporary.open()?;
    let mut write = |offset: u64, bytes: &[u8]| write_all(&*to, bytes, offset);
    let mended = mend_pages(source, &view, snapshot, name, &mut write);
    let mended = mended.map_err(BackupError::of_source)?;
    let mut file = stored(copied);
    // The checksum of the copy is that of what there was.
    if mended.is_some() || there_bytes < size_bytes {
        to.sync_data().map_err(failed("sync", &temporary.path))?;
        let crc = checksum(&temporary, size_bytes, Phase::Check, &**progress)?;
        let left = check_pages(&view, snapshot, name).map_err(BackupError::of_source)?;
        if left.is_some() {
            return Err(BackupError::CopyDamaged {
                path: temporary.path,
            });
        }
        file = stored(crc);
    }
    if identity(&view, name).map_err(BackupError::of_source)? != planned.identity {
        return Err(BackupError::SourceReplaced { file: name.clone() });
    }
    destination.keep(&temporary, &file)?;
    Ok((file, mended))
}

/// A file of the source, of which zeros are read where nothing else can be.
struct Readable {
    /// `None` if it is missing.
    file: Option<Arc<dyn StorageFile>>,
    size_bytes: u64,
}

impl Readable {
    fn open(source: &dyn Storage, name: &str) -> Result<Self, BackupError> {
        let file = match source.open(name) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed("open", Path::new(name))(error)),
        };
        let size_bytes = file.as_ref().map_or(Ok(0), |file| file.len());
        Ok(Self {
            file,
            size_bytes: size_bytes.map_err(failed("read", Path::new(name)))?,
        })
    }
}

impl StorageFile for Readable {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.file.as_ref().map(|file| file.read_at(buffer, offset));
        match read {
            Some(Ok(count)) => Ok(count),
            Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            // A bad sector, perhaps. The other file of the pair may have what is there.
            Some(Err(_)) | None => {
                buffer.fill(0);
                Ok(buffer.len())
            }
        }
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<usize> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.size_bytes)
    }
}
