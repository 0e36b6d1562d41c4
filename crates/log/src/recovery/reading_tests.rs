use std::sync::Arc;

use super::*;
use crate::format::FIRST_POSITION;
use crate::recovery::Opening;
use crate::segment::Salts;
use crate::{
    BatchBuilder, BoxError, Epoch, FaultyStorage, LogOptions, LogPosition, Need, PageContent,
    PageNumber, PlannedSnapshot, ReserveError, SegmentLog, SnapshotContent, read_table,
};

const OPTIONS: LogOptions = LogOptions {
    segment_size_first_bytes: 8 << 10,
    segment_size_max_bytes: 8 << 10,
    batch_size_max_bytes: 2 << 10,
    turn_space_min_bytes: 1 << 10,
    settlement_reserve_bytes: 1 << 10,
    recycled_segments_max: 0,
    ballast_size_bytes: 0,
    recent_bytes_max: 1 << 10,
    pages: crate::PageOptions {
        file_size_bytes: 12 << 10,
        copied_bytes_max: 300,
        pairs_max: 3,
    },
};

/// Three parts, and pages that are all new.
struct Pages;

impl SnapshotContent for Pages {
    fn plan(&mut self) -> PlannedSnapshot {
        PlannedSnapshot { parts: 3, pages: 9 }
    }

    fn put_part(&self, index: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&vec![b'a'; index * 200]);
    }

    fn page(&self, _: usize) -> Option<PageNumber> {
        None
    }

    fn put_page(&self, index: usize, page: &mut PageContent) {
        page.begin(1);
        page.add_group(|out| out.extend_from_slice(&vec![b'p'; 100 + index * 50]));
    }

    fn keep(&self, _: usize, _: PageNumber) {}
}

/// All that was passed on since the last beginning, and how often there was one.
struct Lines {
    lines: Vec<String>,
    begins: usize,
    passes_over: bool,
}

impl Replay for Lines {
    fn begin(&mut self) {
        self.lines.clear();
        self.begins += 1;
    }

    fn snapshot_part(&mut self, part: &[u8]) -> Result<(), BoxError> {
        self.lines.push(format!("part {}", part.len()));
        Ok(())
    }

    fn passes_over(&mut self, page: PageNumber) -> Result<bool, BoxError> {
        self.lines.push(format!("asked of {page:?}"));
        Ok(self.passes_over && !page.as_u64().is_multiple_of(3))
    }

    fn page_is_at_risk(&mut self) {
        self.lines.push("at risk".to_owned());
    }

    fn snapshot_page(&mut self, page: PageNumber, content: &PageContent) -> Result<(), BoxError> {
        self.lines
            .push(format!("{page:?} {}", content.size_bytes()));
        Ok(())
    }

    fn snapshot_end(&mut self) -> Result<(), BoxError> {
        self.lines.push("end of the snapshot".to_owned());
        Ok(())
    }

    fn batch(&mut self, record: LogPosition, epoch: Epoch, time_ms: u64) {
        self.lines.push(format!("batch {record} {epoch} {time_ms}"));
    }

    fn event(&mut self, record: LogPosition, event: &[u8]) -> Result<(), BoxError> {
        self.lines.push(format!("event {record} {}", event.len()));
        Ok(())
    }
}

fn run_jobs(log: &mut SegmentLog) {
    while let Some(job) = log.next_job() {
        log.complete(job.run()).unwrap();
    }
}

fn send(log: &mut SegmentLog, count: u64) {
    for time_ms in 0..count {
        let reservation = loop {
            match log.reserve(Need::grow(0)) {
                Ok(reservation) => break reservation,
                Err(ReserveError::NotPrepared) => run_jobs(log),
                Err(error) => panic!("{error}"),
            }
        };
        let mut batch = BatchBuilder::at(reservation.position);
        batch.set_time_ms(time_ms);
        for length in 0..time_ms % 3 {
            batch.push_event(&[7; 300][usize::try_from(length).unwrap()..]);
        }
        log.append(reservation, batch).unwrap();
    }
    run_jobs(log);
}

/// A log with two snapshots and some segments behind them.
fn log() -> (FaultyStorage, LogPosition) {
    let disk = FaultyStorage::new();
    let mut lines = lines(false);
    let opened = SegmentLog::open(Arc::new(disk.clone()), OPTIONS, 3, &mut lines);
    let mut log = opened.unwrap().0;
    for count in [3, 3, 60] {
        send(&mut log, count);
        if count == 3 {
            let nothing = LogPosition::new(0)..LogPosition::new(0);
            log.snapshot(Pages, &nothing).unwrap();
            run_jobs(&mut log);
        }
    }
    let newest = log.snapshots().last.unwrap();
    (disk, newest)
}

fn lines(passes_over: bool) -> Lines {
    Lines {
        lines: Vec::new(),
        begins: 0,
        passes_over,
    }
}

/// Reads all of it in steps. Returns how many there were, and how often the disk was asked.
fn read(disk: &FaultyStorage, room_bytes: u64, lines: &mut Lines) -> (usize, u64) {
    let before = disk.calls();
    let mut opening = Opening::begin(disk, Salts::new(5), FIRST_POSITION).unwrap();
    for steps in 1.. {
        let mut room = Room::of_bytes(room_bytes);
        if opening.read(disk, lines, &mut room).unwrap() {
            return (steps, disk.calls() - before);
        }
    }
    unreachable!("the log has an end")
}

#[test]
fn a_reading_stops_after_each_thing_and_goes_on_behind_it() {
    let (whole, newest) = log();
    let read_table = read_table(&whole, newest).unwrap();
    let last = read_table.table.pages().last().unwrap();
    for (passes_over, damaged) in [(false, 0), (true, 0), (false, 1), (false, 2), (true, 2)] {
        let disk = whole.kill();
        for copy in 0..damaged {
            let name = crate::format::names::pages(u64::from(2 * last.place.pair + copy));
            disk.flip(&name, u64::from(last.place.offset) + 60, 1);
        }
        let mut expected = lines(passes_over);
        let (steps, calls) = read(&disk, u64::MAX, &mut expected);
        assert_eq!(steps, 1);
        let begins = if damaged == 2 { 2 } else { 1 };
        assert_eq!(
            expected.begins, begins,
            "the older snapshot takes its place"
        );
        for room_bytes in [1, 300, 1000, 5000] {
            let mut found = lines(passes_over);
            let (steps, asked) = read(&disk, room_bytes, &mut found);
            assert_eq!(
                (found.lines, found.begins),
                (expected.lines.clone(), begins)
            );
            assert!(steps > 3, "{steps} steps of {room_bytes} bytes");
            assert_eq!(asked, calls, "nothing is read twice");
        }
    }
}
