//! Inspects snapshots, and both copies of each page that they name.

use std::collections::BTreeMap;

use super::{Findings, PageFileReport, SnapshotReport};
use crate::format::names;
use crate::pages::{self, PageError, PageReader};
use crate::recovery::{self, OpenError};
use crate::storage::{self, IoFailure, Storage};
use crate::survey::Survey;
use crate::{LogPosition, PageDamage, PageNumber, PagePlace};

/// Reads all snapshots and pages of a directory.
pub(super) fn examine(
    storage: &dyn Storage,
    survey: &Survey,
    findings: &mut Findings,
) -> Result<(Vec<SnapshotReport>, Vec<PageFileReport>), IoFailure> {
    let mut named = BTreeMap::new();
    let mut snapshots = Vec::new();
    for position in &survey.snapshots {
        snapshots.extend(examine_snapshot(storage, *position, &mut named, findings)?);
    }
    let pages = examine_page_files(storage, &survey.pages, &named)?;
    Ok((snapshots, pages))
}

fn examine_snapshot(
    storage: &dyn Storage,
    position: LogPosition,
    named: &mut BTreeMap<PagePlace, PageNumber>,
    findings: &mut Findings,
) -> Result<Option<SnapshotReport>, IoFailure> {
    let file = names::snapshot(position.as_u64());
    let size_bytes = match storage::open(storage, &file) {
        Ok(open) => storage::len(&*open, &file)?,
        Err(failure) => {
            findings.add(OpenError::Io(failure))?;
            return Ok(None);
        }
    };
    let mut report = SnapshotReport {
        file,
        position,
        parts: 0,
        pages: 0,
        size_bytes,
        is_whole: false,
    };
    let read = match pages::read_file(storage, position) {
        Ok(read) => read,
        Err(error) => {
            findings.add(recovery::manifest_error(error))?;
            return Ok(Some(report));
        }
    };
    // What two snapshots name at the same place is read once.
    let mut reader = PageReader::new(storage, read.header.log);
    let mut is_whole = true;
    let mut newer = None;
    for page in read.table.pages() {
        if named.get(&page.place) == Some(&page.number) {
            continue;
        }
        match reader.verify(page.number, page.place) {
            Ok(0) => is_whole = false,
            Ok(_) => {
                named.insert(page.place, page.number);
            }
            Err(PageError::Io(failure)) => return Err(failure),
            Err(error @ (PageError::Newer { .. } | PageError::Damaged(_))) => {
                is_whole = false;
                newer = Some(error);
            }
        }
    }
    let is_damaged = newer.is_some() || !reader.damage().is_empty();
    if is_damaged && is_gone(storage, &report.file)? {
        return Ok(None);
    }
    if let Some(error) = newer {
        findings.add(recovery::manifest_error(error.into()))?;
    }
    for damage in reader.damage() {
        let PageDamage { file, offset, what } = damage.clone();
        findings.add(OpenError::corrupt(&file, offset, what))?;
    }
    if is_whole {
        report.parts = read.header.part_count;
        report.pages = read.table.pages().len() as u64;
        report.is_whole = true;
    }
    Ok(Some(report))
}

/// Whether a running server has removed a file since the directory was listed.
fn is_gone(storage: &dyn Storage, file: &str) -> Result<bool, IoFailure> {
    match storage::open(storage, file) {
        Ok(_) => Ok(false),
        Err(failure) if failure.is_not_found() => Ok(true),
        Err(failure) => Err(failure),
    }
}

/// Lists files of pages, with what the snapshots name in them.
fn examine_page_files(
    storage: &dyn Storage,
    names: &[String],
    named: &BTreeMap<PagePlace, PageNumber>,
) -> Result<Vec<PageFileReport>, IoFailure> {
    let by_pair = pages::bytes_by_pair(named.keys());
    let mut reports = Vec::new();
    for name in names {
        let size_bytes = match storage::open(storage, name) {
            Ok(file) => storage::len(&*file, name)?,
            // A running server has removed it since the directory was listed.
            Err(failure) if failure.is_not_found() => continue,
            Err(failure) => return Err(failure),
        };
        let pair = pages::pair_of(name);
        let named_bytes = pair.and_then(|pair| by_pair.get(&pair));
        reports.push(PageFileReport {
            file: name.clone(),
            size_bytes,
            named_bytes: named_bytes.copied().unwrap_or_default(),
        });
    }
    Ok(reports)
}
