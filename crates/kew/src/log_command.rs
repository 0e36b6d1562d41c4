//! `kew log`: shows the content of a data directory that no server uses, verifies it, and repairs
//! it.

mod damage;
mod repair;

use std::path::Path;

use anyhow::{Context, Error, Result, anyhow, bail};
use kew_log::{
    DataDir, DataDirError, Inspection, LogPosition, PageFileReport, Report, SegmentReport,
    SegmentState, SnapshotReport,
};

use crate::cli::{LogArgs, LogCommand, print_line, print_table};
use crate::flags::DataDirArgs;
use crate::queue_command::Align;
use crate::settings;

pub(crate) fn run(args: &LogArgs) -> Result<()> {
    match &args.command {
        LogCommand::Inspect(args) => inspect(args),
        LogCommand::Verify(args) => verify(args),
        LogCommand::Damage(args) => damage::run(args),
        LogCommand::Repair(args) => repair::run(args),
    }
}

fn inspect(args: &DataDirArgs) -> Result<()> {
    let path = settings::data_dir_or_default(args.data_dir.clone())?;
    let inspection = look_at(&path)?;
    let report = kew_log::inspect(inspection.storage())
        .with_context(|| format!("cannot read the log in {}", path.display()))?;
    print_report(&report);
    match report.damage.len() {
        0 => Ok(()),
        damaged => bail!("{damaged} damaged places, listed above"),
    }
}

fn look_at(path: &Path) -> Result<Inspection> {
    DataDir::inspect(path).map_err(|error| match error {
        DataDirError::InUse { .. } => anyhow!(
            "the data directory {} is in use: stop the server, or inspect a snapshot of the disk",
            path.display()
        ),
        error => Error::new(error).context(format!(
            "cannot inspect the data directory {}",
            path.display()
        )),
    })
}

fn verify(args: &DataDirArgs) -> Result<()> {
    let path = settings::data_dir_or_default(args.data_dir.clone())?;
    let inspection = look_at(&path)?;
    let report = kew_log::verify(inspection.storage())
        .with_context(|| format!("the log in {} is damaged", path.display()))?;
    let records: u64 = report.segments.iter().map(|segment| segment.records).sum();
    let bodies: u64 = report.segments.iter().map(|segment| segment.bodies).sum();
    let pages = report.snapshots.last().map_or(0, |last| last.pages);
    print_line(&format!(
        "sound: {} segments, {records} records, {bodies} bodies, {} snapshots, the last one with {pages} pages; ends at {}",
        report.segments.len(),
        report.snapshots.len(),
        report.end
    ));
    Ok(())
}

fn print_report(report: &Report) {
    print_segments(&report.segments);
    report.snapshots.iter().for_each(print_snapshot);
    report.pages.iter().for_each(print_page_file);
    print_line(&format!(
        "ends at {}, proven durable up to {}; the next start replays {} events",
        report.end, report.durable, report.events_to_replay
    ));
    if let Some(cut) = &report.tail_cut {
        print_line(&format!(
            "{} from byte {}: {} bytes were written and never became durable",
            cut.file, cut.offset, cut.size_bytes
        ));
    }
    for file in &report.temporaries {
        print_line(&format!("{file}: unfinished, or kept for reuse"));
    }
    if let Some(size_bytes) = report.ballast_bytes {
        print_line(&format!(
            "ballast: {} KiB reserved for a full disk",
            size_bytes / 1024
        ));
    }
    for file in &report.set_aside {
        print_line(&format!(
            "{file}: set aside by a repair; Kew no longer reads it"
        ));
    }
    for file in &report.foreign {
        print_line(&format!("{file}: not part of the log"));
    }
    for damage in &report.damage {
        print_line(&format!(
            "DAMAGED {} at byte {}: {}",
            damage.file, damage.offset, damage.what
        ));
    }
}

fn print_segments(segments: &[SegmentReport]) {
    let columns = [
        ("segment", Align::Left),
        ("state", Align::Left),
        ("epoch", Align::Right),
        ("first", Align::Right),
        ("size KiB", Align::Right),
        ("records", Align::Right),
        ("events", Align::Right),
        ("bodies", Align::Right),
        ("end", Align::Right),
    ];
    let row = |segment: &SegmentReport| {
        let state = match segment.state {
            SegmentState::Sealed => "sealed",
            SegmentState::Active => "active",
            SegmentState::Prepared => "prepared",
            SegmentState::Superseded => "superseded",
        };
        let mut row = vec![segment.file.clone(), state.to_owned()];
        let numbers = [
            Some(segment.epoch.as_u64()),
            segment.first.map(LogPosition::as_u64),
            Some(segment.size_bytes / 1024),
            Some(segment.records),
            Some(segment.events),
            Some(segment.bodies),
            segment.end.map(LogPosition::as_u64),
        ];
        let shown = |number: Option<u64>| number.map_or_else(|| "-".into(), |it| it.to_string());
        row.extend(numbers.map(shown));
        row
    };
    let rows: Vec<_> = segments.iter().map(row).collect();
    print_table(&columns, &rows);
}

fn print_snapshot(snapshot: &SnapshotReport) {
    let state = if snapshot.is_whole {
        "whole"
    } else {
        "DAMAGED"
    };
    print_line(&format!(
        "{}: {state}, {} parts, {} pages, {} KiB, up to {}",
        snapshot.file,
        snapshot.parts,
        snapshot.pages,
        snapshot.size_bytes / 1024,
        snapshot.position
    ));
}

fn print_page_file(pages: &PageFileReport) {
    print_line(&format!(
        "{}: {} KiB, of which snapshots need {} KiB",
        pages.file,
        pages.size_bytes / 1024,
        pages.named_bytes / 1024
    ));
}
