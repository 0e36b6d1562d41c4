use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use crate::format::SegmentHeader;
use crate::segment::Blank;
use crate::storage::StorageFile;
use crate::{BatchBuilder, Epoch, LogId, LogPosition};

/// A file in memory that counts what is read of it.
struct Probe {
    bytes: Vec<u8>,
    reads: AtomicUsize,
    /// Whether it says that it has its bytes in memory.
    is_cached: AtomicBool,
}

impl StorageFile for Probe {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let left = self.bytes.get(memory_size(offset)..).unwrap_or_default();
        let count = left.len().min(buffer.len());
        buffer[..count].copy_from_slice(&left[..count]);
        Ok(count)
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.is_cached.load(Ordering::Relaxed) {
            true => self.read_at(buffer, offset),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }
}

/// Bodies of these sizes in one batch of a segment, each with an event of so many bytes behind it.
struct Written {
    probe: Arc<Probe>,
    /// As the log holds it.
    _segment: Arc<Segment>,
    bodies: Vec<Body>,
    contents: Vec<Vec<u8>>,
}

impl Written {
    fn new(sizes: &[usize], event_size: usize) -> Self {
        Self::damaged(sizes, event_size, None)
    }

    /// The same with a wrong byte in one of them.
    fn damaged(sizes: &[usize], event_size: usize, damaged: Option<usize>) -> Self {
        let header = SegmentHeader {
            log: LogId::default(),
            number: 1,
            epoch: Epoch::new(1),
            first: Some(LogPosition::new(1 << 20)),
            capacity_bytes: 16 << 20,
            salt: 7,
            durable: LogPosition::new(1 << 20),
        };
        let first = LogPosition::new(1 << 20);
        let mut batch = BatchBuilder::at(first);
        let contents: Vec<Vec<u8>> = (0..).zip(sizes).map(|(id, &size)| vec![id; size]).collect();
        let written = contents.iter().map(|content| {
            let location = batch.push_body(content);
            batch.push_event(&vec![0; event_size]);
            location
        });
        let locations: Vec<BodyLocation> = written.collect();
        let mut bytes = vec![0; 4096];
        bytes.extend(batch.into_buffer());
        if let Some(index) = damaged {
            let header_size = crate::format::RECORD_HEADER_SIZE;
            bytes[4096 + header_size + locations[index].offset as usize] ^= 1;
        }
        let probe = Arc::new(Probe {
            bytes,
            reads: AtomicUsize::new(0),
            is_cached: AtomicBool::new(true),
        });
        let blank = Blank {
            header,
            name: "segment".into(),
            file: probe.clone(),
        };
        let segment = Arc::new(blank.beginning_at(first));
        let bodies = locations.into_iter().map(|location| {
            let segment = Arc::clone(&segment);
            Body::in_segment(segment, location).expect("it lies in the segment")
        });
        let bodies: Vec<_> = bodies.collect();
        Self {
            bodies,
            _segment: segment,
            probe,
            contents,
        }
    }

    fn reads(&self) -> usize {
        self.probe.reads.swap(0, Ordering::Relaxed)
    }

    fn check(&self, read: Vec<Result<Bytes, BodyError>>) {
        let read: Vec<_> = read
            .into_iter()
            .map(|it| it.expect("it is whole"))
            .collect();
        assert_eq!(read, self.contents);
    }
}

#[test]
fn neighbours_are_read_at_once() {
    let written = Written::new(&[900; 32], 60);
    written.check(Body::read_all(&written.bodies));
    assert_eq!(written.reads(), 1);
    let cached = Body::read_cached(&written.bodies).expect("all are cached");
    assert_eq!(cached, written.contents);
    assert_eq!(written.reads(), 1);
    assert!(Body::read_all(&[]).is_empty());
}

#[test]
fn one_read_gets_no_more_than_its_bound() {
    let written = Written::new(&[10_000; 9], 0);
    written.check(Body::read_all(&written.bodies));
    assert_eq!(written.reads(), 3);
    // One alone can be larger.
    let large = Written::new(&[100_000, 100_000], 0);
    large.check(Body::read_all(&large.bodies));
    assert_eq!(large.reads(), 2);
}

#[test]
fn what_lies_apart_or_in_no_order_is_read_alone() {
    let apart = Written::new(&[100; 3], 1_000);
    apart.check(Body::read_all(&apart.bodies));
    assert_eq!(apart.reads(), 3);
    let mut backwards = Written::new(&[100; 3], 0);
    backwards.bodies.reverse();
    backwards.contents.reverse();
    backwards.check(Body::read_all(&backwards.bodies));
    assert_eq!(backwards.reads(), 3);
    let other = Written::new(&[100; 3], 0);
    let bodies = [other.bodies[0].clone(), apart.bodies[0].clone()];
    assert!(Body::read_all(&bodies).iter().all(Result::is_ok));
    assert_eq!((other.reads(), apart.reads()), (1, 1));
}

#[test]
fn a_damaged_body_costs_no_neighbour() {
    let written = Written::damaged(&[100; 5], 10, Some(2));
    let read = Body::read_all(&written.bodies);
    let (segment, location) = written.bodies[2].in_file().expect("it is in a file");
    let begin = body_offset(segment, location);
    for (index, (read, content)) in read.into_iter().zip(&written.contents).enumerate() {
        match read {
            Ok(bytes) => assert_eq!(bytes, *content),
            Err(BodyError::Damaged { offset, .. }) => assert_eq!((index, offset), (2, begin)),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(Body::read_cached(&written.bodies), None);
}

#[test]
fn nothing_is_waited_for_where_nobody_may() {
    let written = Written::new(&[1_000; 3], 0);
    written.probe.is_cached.store(false, Ordering::Relaxed);
    assert_eq!(Body::read_cached(&written.bodies), None);
    assert_eq!(written.reads(), 0);
    let large = Written::new(&[100_000; 3], 0);
    assert_eq!(Body::read_cached(&large.bodies), None);
    assert_eq!(large.reads(), 0, "that would take long");
    let memory = Body(Place::Memory(Bytes::from_static(b"here")));
    let bodies = [memory.clone(), written.bodies[0].clone(), memory];
    assert_eq!(Body::read_cached(&bodies), None);
    written.probe.is_cached.store(true, Ordering::Relaxed);
    let read = Body::read_cached(&bodies).expect("it is cached");
    assert_eq!(read, [b"here".as_slice(), &written.contents[0], b"here"]);
}

#[test]
fn a_file_that_the_log_has_left_is_not_dropped_where_nobody_may_wait() {
    let Written {
        _segment, bodies, ..
    } = Written::new(&[100; 3], 0);
    assert!(Body::read_cached(&bodies).is_some());
    drop(_segment);
    assert_eq!(Body::read_cached(&bodies), None);
    assert!(Body::read_all(&bodies).iter().all(Result::is_ok));
}
