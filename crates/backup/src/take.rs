//! Takes a backup: copies what is not there yet, checks it, and writes the manifest.

use std::path::Path;
use std::sync::Arc;

use kew_log::{
    BackupPlan, BoxError, LogPosition, PageContent, PageFileDamage, PageNumber, ReadManifest,
    Replay, Storage, check_file, identity, pages_of, replay,
};

use crate::copy::{checksum, copy};
use crate::destination::{Destination, stored_name};
use crate::manifest::{FORMAT, Manifest, StoredFile, hex};
use crate::{BackupError, Directory, Phase, Progress, View, pages};

/// What to back up.
pub struct Source<'a> {
    /// The log's directory, to read. The files of the plan stay there meanwhile.
    pub storage: &'a dyn Storage,
    /// What to copy.
    pub plan: &'a BackupPlan,
    /// The id of the data directory.
    pub data_dir_id: &'a str,
    /// The time of the plan, in RFC 3339.
    pub taken_at: &'a str,
    /// The version of Kew.
    pub kew: &'a str,
}

/// A backup that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// What it has.
    pub manifest: Manifest,
    /// How many bytes were copied.
    pub copied_bytes: u64,
    /// How many bytes an earlier run had copied.
    pub reused_bytes: u64,
    /// Files of pages that are damaged in the source. The backup has them whole: it has what is damaged from their other
    /// copies.
    pub mended: Vec<PageFileDamage>,
    /// Why files that are not part of it could not be removed. The next run tries again.
    pub not_removed: Option<String>,
}

/// A file of the plan.
pub(crate) struct Planned {
    kind: Kind,
    pub(crate) name: String,
    pub(crate) identity: u32,
    pub(crate) size_bytes: u64,
    restored_size_bytes: u64,
    end: LogPosition,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A snapshot or a segment: each is there once.
    Single,
    /// One of two files with pages of this snapshot.
    Pages(LogPosition),
}

/// Takes a backup into `to`. An earlier backup there stays usable until this one is whole.
///
/// After an error or a crash, the next run continues: it copies no file again that was copied and checked.
pub fn take(
    source: &Source<'_>,
    to: &Path,
    progress: &Arc<dyn Progress>,
) -> Result<Taken, BackupError> {
    let destination = Destination::open(to, source.data_dir_id)?;
    take_into(source, &destination, progress)
}

/// The same on a disk that this process alone uses.
pub fn take_on(
    source: &Source<'_>,
    to: Directory,
    progress: &Arc<dyn Progress>,
) -> Result<Taken, BackupError> {
    let destination = Destination::open_on(to, source.data_dir_id)?;
    take_into(source, &destination, progress)
}

fn take_into(
    source: &Source<'_>,
    destination: &Destination,
    progress: &Arc<dyn Progress>,
) -> Result<Taken, BackupError> {
    let mut taken = Taken {
        manifest: Manifest {
            format: FORMAT,
            kew: source.kew.to_owned(),
            data_dir_id: source.data_dir_id.to_owned(),
            taken_at: source.taken_at.to_owned(),
            position: source.plan.position.as_u64(),
            files: Vec::new(),
            checksum: String::new(),
        },
        copied_bytes: 0,
        reused_bytes: 0,
        mended: Vec::new(),
        not_removed: None,
    };
    // The snapshot is copied first, and says which pages are needed.
    let mut snapshot = None;
    for planned in planned(source)? {
        if let Kind::Pages(position) = planned.kind
            && snapshot.is_none()
        {
            let view = destination.view(&taken.manifest.files, progress);
            snapshot = Some(pages_of(&view, position).map_err(BackupError::of_source)?);
        }
        let of_pages = snapshot.as_ref().filter(|_| planned.is_pages());
        let file = match find_sound(destination, &planned, of_pages, progress)? {
            Some(file) => {
                taken.reused_bytes += planned.size_bytes;
                file
            }
            None => {
                taken.copied_bytes += planned.size_bytes;
                let (file, mended) = match of_pages {
                    Some(of_pages) => pages::copy_whole(
                        source.storage,
                        destination,
                        &planned,
                        of_pages,
                        progress,
                    )?,
                    None => (copy_one(source, destination, &planned, progress)?, None),
                };
                taken.mended.extend(mended);
                file
            }
        };
        taken.manifest.files.push(file);
    }
    let view = destination.view(&taken.manifest.files, progress);
    check_together(&view, source.plan)?;
    taken.manifest = taken.manifest.sealed();
    destination.replace_manifest(&taken.manifest)?;
    let removed = destination.remove_unneeded(&taken.manifest);
    taken.not_removed = removed.err().map(|error| error.to_string());
    Ok(taken)
}

/// The files to copy: the segment that is being written last.
fn planned(source: &Source<'_>) -> Result<Vec<Planned>, BackupError> {
    let mut all = Vec::new();
    if let Some(name) = source.plan.snapshot_name() {
        let file = source.storage.open(&name);
        let size_bytes = file.and_then(|file| file.len());
        let size_bytes = size_bytes.map_err(crate::error::failed("open", Path::new(&name)))?;
        all.push(Planned {
            kind: Kind::Single,
            identity: identity(source.storage, &name).map_err(BackupError::of_source)?,
            name,
            size_bytes,
            restored_size_bytes: size_bytes,
            end: source.plan.position,
        });
    }
    let of_pages = source.plan.snapshot.into_iter();
    let of_pages = of_pages.flat_map(|position| {
        let files = source.plan.pages.iter();
        files.map(move |pages| (position, pages))
    });
    for (position, pages) in of_pages {
        let name = pages.name();
        all.push(Planned {
            kind: Kind::Pages(position),
            identity: identity(source.storage, &name).map_err(BackupError::of_source)?,
            name,
            size_bytes: pages.copied_bytes,
            restored_size_bytes: pages.copied_bytes,
            end: source.plan.position,
        });
    }
    all.extend(source.plan.segments.iter().map(|segment| Planned {
        kind: Kind::Single,
        name: segment.name(),
        identity: segment.header_crc,
        size_bytes: segment.copied_bytes,
        restored_size_bytes: segment.size_bytes,
        end: segment.end,
    }));
    Ok(all)
}

impl Planned {
    fn is_pages(&self) -> bool {
        self.kind != Kind::Single
    }

    pub(crate) fn stored(&self, stored_as: String, crc: u32) -> StoredFile {
        StoredFile {
            name: self.name.clone(),
            stored_as,
            size_bytes: self.size_bytes,
            restored_size_bytes: self.restored_size_bytes,
            end: self.end.as_u64(),
            crc32c: hex(crc),
        }
    }
}

/// The copy of an earlier run, if its bytes are still those that were checked then. If they are not, the file is
/// copied again and takes the place of the damaged copy: otherwise every later backup would be as damaged. So is a file of
/// pages in which one is not whole.
fn find_sound(
    destination: &Destination,
    planned: &Planned,
    of_pages: Option<&ReadManifest>,
    progress: &Arc<dyn Progress>,
) -> Result<Option<StoredFile>, BackupError> {
    let size_bytes = planned.size_bytes;
    let found = destination.find(&planned.name, planned.identity, size_bytes)?;
    let Some((stored_as, crc)) = found else {
        return Ok(None);
    };
    let place = destination.file(&stored_as);
    if checksum(&place, size_bytes, Phase::Reuse, &**progress)? != crc {
        return Ok(None);
    }
    let file = planned.stored(stored_as, crc);
    let is_whole = match of_pages {
        Some(snapshot) => pages::is_whole(destination, &file, snapshot, progress)?,
        None => true,
    };
    Ok(is_whole.then_some(file))
}

/// Copies a file under a temporary name, and gives it its name once the copy was found whole.
fn copy_one(
    source: &Source<'_>,
    destination: &Destination,
    planned: &Planned,
    progress: &Arc<dyn Progress>,
) -> Result<StoredFile, BackupError> {
    let name = &planned.name;
    let temporary = Destination::temporary(name);
    let temporary = destination.file(&temporary);
    let from = source.storage.open(name);
    let from = from.map_err(crate::error::failed("open", Path::new(name)))?;
    let size_bytes = planned.size_bytes;
    let crc = copy(&*from, name, &temporary, size_bytes, 0, &**progress);
    let crc = crc.map_err(BackupError::of_short_source)?;
    let stored_as = stored_name(name, planned.identity, size_bytes, crc);
    let file = planned.stored(stored_as, crc);
    if checksum(&temporary, size_bytes, Phase::Check, &**progress)? != crc {
        return Err(BackupError::CopyDamaged {
            path: temporary.path,
        });
    }
    // The copy has the bytes of the source, so what is wrong with it is wrong there.
    let mut view = View::new(progress);
    view.add(&file, &temporary);
    let found = identity(&view, name).map_err(BackupError::of_source)?;
    let damage = check_file(&view, name, planned.end).map_err(BackupError::of_source)?;
    if let Some(damage) = damage.into_iter().next() {
        return Err(BackupError::SourceDamaged {
            file: damage.file,
            offset: damage.offset,
            what: damage.what,
        });
    }
    if found != planned.identity {
        return Err(BackupError::SourceReplaced { file: name.clone() });
    }
    destination.keep(&temporary, &file)?;
    Ok(file)
}

/// Reads what a start would read: the files fit together, and end where the plan says.
fn check_together(view: &View, plan: &BackupPlan) -> Result<(), BackupError> {
    let end = replay(view, &mut NoState).map_err(BackupError::of_source)?;
    if end.position == plan.position {
        return Ok(());
    }
    let last = plan.segments.last();
    Err(BackupError::SourceDamaged {
        file: last.map_or_else(String::new, |segment| segment.name()),
        offset: last.map_or(0, |segment| segment.copied_bytes),
        what: format!(
            "the log ends at position {}, and was durable up to {}",
            end.position, plan.position
        ),
    })
}

/// Discards what is replayed.
struct NoState;

impl Replay for NoState {
    fn begin(&mut self) {}

    fn snapshot_part(&mut self, _part: &[u8]) -> Result<(), BoxError> {
        Ok(())
    }

    fn snapshot_page(&mut self, _page: PageNumber, _: &PageContent) -> Result<(), BoxError> {
        Ok(())
    }

    fn event(&mut self, _record: LogPosition, _event: &[u8]) -> Result<(), BoxError> {
        Ok(())
    }
}
