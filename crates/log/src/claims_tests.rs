//! A log that was cut: a later owner went on before a position that an earlier one has claimed.

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::format::{
    RECORD_HEADER_SIZE, RecordKind, SEGMENT_HEADER_BLOCK_SIZE, Sealing, names, seal_record,
};
use crate::replay::Replay;
use crate::segment::{self, Salts, Source};
use crate::storage::Storage;
use crate::survey::Survey;
use crate::{
    BatchBuilder, BoxError, FaultyStorage, Gap, LogOptions, Need, OpenError, Recovery, Rescue,
    Salvage, SegmentLog,
};

const fn at(position: u64) -> LogPosition {
    LogPosition::new(position)
}

fn claims(claimed: &[(u64, u64)], beginnings: &[(u64, u64)]) -> Claims {
    let mut claims = Claims::default();
    for (epoch, durable) in claimed {
        claims.claim(Epoch::new(*epoch), at(*durable));
    }
    for (epoch, began) in beginnings {
        claims.begin(Epoch::new(*epoch), at(*began));
    }
    claims
}

#[test]
fn a_claim_counts_up_to_where_each_later_epoch_began() {
    let check = |claimed: &[_], beginnings: &[_], proven, void| {
        let claims = claims(claimed, beginnings);
        assert_eq!(claims.proven(), at(proven), "{claims:?}");
        assert_eq!(claims.void(), void, "{claims:?}");
    };
    check(&[], &[(3, 100)], 0, 0);
    check(&[(3, 900)], &[], 900, 0);
    check(&[(3, 900)], &[(3, 100)], 900, 0);
    check(&[(3, 900)], &[(2, 100), (4, 500)], 500, 1);
    check(&[(3, 900)], &[(4, 500), (5, 700)], 500, 1);
    check(&[(3, 900)], &[(4, 700), (5, 500)], 500, 1);
    check(&[(3, 900), (4, 800)], &[(4, 500)], 800, 1);
    check(&[(3, 500), (4, 500)], &[(4, 500)], 500, 0);
    check(&[(2, 900), (3, 800)], &[(3, 500), (4, 600)], 600, 2);
}

/// Events are words.
#[derive(Debug, Default, PartialEq, Eq)]
struct Words(Vec<String>);

impl Replay for Words {
    fn begin(&mut self) {
        self.0.clear();
    }

    fn snapshot_part(&mut self, part: &[u8]) -> Result<(), BoxError> {
        self.0.push(String::from_utf8(part.to_vec())?);
        Ok(())
    }

    fn event(&mut self, _: LogPosition, event: &[u8]) -> Result<(), BoxError> {
        self.0.push(String::from_utf8(event.to_vec())?);
        Ok(())
    }
}

impl Rescue for Words {
    fn gap(&mut self, _: &Gap) {
        self.0.push("a gap".to_owned());
    }
}

/// An owner, and every word that it knows with the log's end behind it.
struct Node {
    storage: FaultyStorage,
    log: SegmentLog,
    recovery: Recovery,
    words: Vec<(String, LogPosition)>,
}

impl Node {
    fn open(storage: &FaultyStorage, words: &[(String, LogPosition)]) -> Result<Self, OpenError> {
        let mut found = Words::default();
        let options = LogOptions {
            segment_size_first_bytes: 8 << 10,
            segment_size_max_bytes: 8 << 10,
            batch_size_max_bytes: 4 << 10,
            turn_space_min_bytes: 1 << 10,
            settlement_reserve_bytes: 1 << 10,
            recycled_segments_max: 0,
            ballast_size_bytes: 0,
            recent_bytes_max: 1 << 10,
            pages: crate::PageOptions::default(),
        };
        let (log, recovery) = SegmentLog::open(Arc::new(storage.clone()), options, 7, &mut found)?;
        let expected: Vec<_> = words.iter().map(|(word, _)| word.clone()).collect();
        assert_eq!(found.0, expected);
        let mut node = Self {
            storage: storage.clone(),
            log,
            recovery,
            words: words.to_vec(),
        };
        node.jobs();
        Ok(node)
    }

    fn jobs(&mut self) {
        while let Some(job) = self.log.next_job() {
            let outcome = job.run();
            self.log.complete(outcome).unwrap();
        }
    }

    fn append(&mut self, word: &str) {
        let reservation = self.log.reserve(Need::grow(0)).unwrap();
        let mut batch = BatchBuilder::at(reservation.position);
        batch.push_body(&[7; 1000]);
        batch.push_event(word.as_bytes());
        self.log.append(reservation, batch).unwrap();
        self.jobs();
        self.words.push((word.to_owned(), self.log.end()));
    }

    fn mark(&mut self) {
        assert!(self.log.mark());
        self.jobs();
    }

    /// Nothing but the words is needed any more.
    fn snapshot(&mut self) {
        let words = self.words.iter();
        let parts: Vec<_> = words.map(|(word, _)| Bytes::from(word.clone())).collect();
        let nothing = self.log.end()..self.log.end();
        self.log.snapshot(parts, &nothing).unwrap();
        self.jobs();
    }
}

/// Three segments, with claims in records, in headers, in the name of a snapshot, and in both slots of the proof.
fn claimed() -> Node {
    let mut node = Node::open(&FaultyStorage::new(), &[]).unwrap();
    for round in 0..12 {
        node.append(&format!("first owner {round}"));
        if round == 5 {
            node.snapshot();
        }
        if round >= 9 {
            node.mark();
        }
    }
    node
}

/// Lets the next epoch begin at a position, as a log does that gives way to another owner.
fn cut(storage: &FaultyStorage, position: LogPosition) {
    let survey = Survey::of(storage).unwrap();
    let (epoch, number) = (survey.epoch_max().next(), survey.number_max() + 1);
    let header = SegmentHeader {
        log: survey.log().unwrap(),
        number,
        epoch,
        first: Some(position),
        capacity_bytes: 8 << 10,
        salt: Salts::new(9).of(epoch, number),
        durable: position,
    };
    let made = segment::make(storage, header, Source::Fresh, &[]);
    assert!(made.is_ok());
}

#[test]
fn a_log_that_was_cut_opens_and_goes_on() {
    let first_owner = claimed();
    for kept in 1..first_owner.words.len() {
        let storage = first_owner.storage.kill();
        let words = &first_owner.words[..kept];
        cut(&storage, words[kept - 1].1);
        let mut node = Node::open(&storage, words).unwrap();
        assert_eq!(node.recovery.end, words[kept - 1].1);
        assert!(node.recovery.void > 0, "{kept} are kept");
        // Two snapshots let the segment go that says where the epoch began, and one mark stays of the first owner.
        for step in 0..20 {
            node.append(&format!("second owner {step}"));
            if step % 8 == 7 {
                node.snapshot();
            }
            if step == 16 {
                node.mark();
            }
            let disk = node.storage.kill();
            let before = inspected_end(&disk);
            Node::open(&disk, &node.words).unwrap();
            assert_eq!(before, node.log.end());
        }
        let first_epochs = Survey::of(&node.storage).unwrap();
        let mut first_epochs = first_epochs.chain.iter();
        assert!(first_epochs.all(|segment| segment.header.epoch > Epoch::new(2)));
    }
}

fn inspected_end(storage: &FaultyStorage) -> LogPosition {
    crate::verify(storage).unwrap().end
}

/// Snapshots of the later epoch say that it began, when no mark and no segment does.
#[test]
fn a_snapshot_says_that_an_epoch_began_before_it() {
    let mut node = claimed();
    let words = node.words[..4].to_vec();
    cut(&node.storage, words[3].1);
    node = Node::open(&node.storage.kill(), &words).unwrap();
    while node.log.segments().next().unwrap().first <= words[3].1 {
        node.append("second owner");
        node.snapshot();
    }
    let claims = Survey::of(&node.storage).unwrap().claims;
    let first_owner = claims.claimed.first_key_value().unwrap();
    assert!(*first_owner.1 > node.log.end(), "its marks are there");
    Node::open(&node.storage.kill(), &node.words).unwrap();
}

#[test]
fn damage_before_the_cut_is_still_damage() {
    let first_owner = claimed();
    let storage = first_owner.storage.kill();
    let kept = 5;
    let words = &first_owner.words[..kept];
    cut(&storage, words[kept - 1].1);
    // The snapshot lies behind the cut, so all records before it are read.
    let damaged = words[2].1;
    let chain = Survey::of(&storage).unwrap().chain;
    let segment = chain.iter().rfind(|segment| segment.first() <= damaged);
    let segment = segment.unwrap();
    let name = segment.name.clone();
    storage.flip(&name, segment.offset_of(damaged), 1);
    let error = SegmentLog::open(
        Arc::new(storage.clone()),
        LogOptions::default(),
        7,
        &mut Words::default(),
    );
    let error = error.err().unwrap().to_string();
    assert!(error.contains(&name), "{error}");
    // A repair takes everything else, and nothing of what is void.
    let salvage = Salvage::look(Arc::new(storage.clone())).unwrap();
    let mut found = Words::default();
    let gaps = salvage.read(&salvage.bases()[0], &mut found).unwrap();
    assert_eq!(gaps.len(), 1);
    let expected = [
        "first owner 0",
        "first owner 1",
        "first owner 2",
        "a gap",
        "first owner 4",
    ];
    assert_eq!(found.0, expected);
}

/// The position after damage decides: what an earlier owner wrote there does not count.
#[test]
fn a_torn_tail_of_the_later_owner_is_cut() {
    let mut node = claimed();
    let words = node.words[..4].to_vec();
    cut(&node.storage, words[3].1);
    node = Node::open(&node.storage.kill(), &words).unwrap();
    node.append("second owner");
    let disk = node.storage.kill();
    let newest = Survey::of(&disk)
        .unwrap()
        .chain
        .last()
        .unwrap()
        .name
        .clone();
    disk.flip(
        &newest,
        SEGMENT_HEADER_BLOCK_SIZE + RECORD_HEADER_SIZE as u64,
        1,
    );
    let node = Node::open(&disk, &words).unwrap();
    assert!(node.recovery.tail_cut.is_some());
}

/// Records of two epochs in one file: one that the second owner has overwritten, and older ones behind it.
#[test]
fn the_log_ends_at_a_record_of_an_earlier_epoch() {
    let storage = FaultyStorage::new();
    let log = Salts::new(9).new_log();
    let header = SegmentHeader {
        log,
        number: 1,
        epoch: Epoch::new(5),
        first: Some(at(4096)),
        capacity_bytes: 8 << 10,
        salt: 77,
        durable: at(4096),
    };
    let (mut records, mut previous) = (Vec::new(), log.chain_start());
    for (epoch, word) in [(4, "one"), (5, "two"), (4, "void"), (4, "void")] {
        let position = at(4096 + records.len() as u64);
        let mut batch = BatchBuilder::at(position);
        batch.push_event(word.as_bytes());
        let mut record = batch.into_buffer();
        let sealing = Sealing {
            chain_start: log.chain_start(),
            seal: header.seal(),
            kind: RecordKind::Batch,
            previous,
            position,
            time_ms: 0,
            epoch: Epoch::new(epoch),
            // The void ones claim each other.
            durable: position,
        };
        previous = seal_record(&mut record, sealing);
        records.extend(record);
    }
    let end = at(4096 + 2 * (records.len() as u64 / 4));
    assert!(segment::make(&storage, header, Source::Fresh, &records).is_ok());
    let words = [("one".to_owned(), end), ("two".to_owned(), end)];
    let salvage = Salvage::look(Arc::new(storage.clone())).unwrap();
    assert!(salvage.refusal().is_none());
    let mut found = Words::default();
    let gaps = salvage.read(&salvage.bases()[0], &mut found).unwrap();
    assert_eq!((gaps.len(), found.0.len()), (0, 2));
    let node = Node::open(&storage, &words).unwrap();
    assert_eq!(node.recovery.end, end);
    assert!(node.recovery.void > 0);
    assert_eq!(node.storage.list().unwrap().len(), 4);
}

/// A repair begins anew in an epoch above those that only a mark or a snapshot names. Otherwise they would say that a
/// later epoch began before the new log.
#[test]
fn a_repair_begins_above_every_epoch_that_is_named() {
    let mut node = Node::open(&FaultyStorage::new(), &[]).unwrap();
    for _ in 0..3 {
        node.append("word");
        let (storage, words) = (node.storage.kill(), node.words);
        node = Node::open(&storage, &words).unwrap();
    }
    node.append("lost");
    node.mark();
    let disk = node.storage.kill();
    let survey = Survey::of(&disk).unwrap();
    let newest = survey.epoch_max();
    for header in survey.headers().filter(|it| it.epoch.next() >= newest) {
        disk.lose_file(&names::segment(header.number));
    }
    let salvage = Salvage::look(Arc::new(disk.clone())).unwrap();
    assert!(salvage.refusal().is_some(), "the mark is there");
    let mut saved = vec![Bytes::from_static(b"saved")];
    let live = std::iter::empty();
    let options = LogOptions::default();
    let rebuilt = salvage.rebuild(&options, &mut saved, live, 7).unwrap();
    let node = Node::open(&disk, &[("saved".to_owned(), rebuilt.position)]).unwrap();
    assert!(node.recovery.epoch > newest);
    assert_eq!(node.recovery.void, 0);
}
