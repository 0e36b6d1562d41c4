//! The content of a golden data directory whose snapshots have pages: a fixed history, with fixed entropy, on any storage.
//!
//! The state is a list of words, each on a page. Two starts write snapshots, so that there are two pairs of files. A later
//! snapshot names pages of an earlier one, replaces one and adds one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use kew_log::{
    BatchBuilder, BoxError, LogOptions, LogPosition, Need, PageContent, PageNumber, PageOptions,
    PlannedSnapshot, Replay, SegmentLog, SnapshotContent, Storage,
};

use super::scenario;

/// Small files of pages, which are left as soon as they are full.
pub(crate) fn options() -> LogOptions {
    LogOptions {
        pages: PageOptions {
            file_size_bytes: 12 << 10,
            copied_bytes_max: 1 << 10,
            pairs_max: 3,
        },
        ..scenario::options()
    }
}

/// The state, and the page of each word.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    pub(crate) words: Vec<String>,
    pages: Arc<Mutex<BTreeMap<usize, PageNumber>>>,
}

impl Words {
    /// An event has the index of a word, and the word.
    fn set(&mut self, index: usize, word: &str) {
        match self.words.get_mut(index) {
            Some(old) => word.clone_into(old),
            None => self.words.push(word.to_owned()),
        }
        self.pages().remove(&index);
    }

    fn pages(&self) -> MutexGuard<'_, BTreeMap<usize, PageNumber>> {
        self.pages.lock().expect("nobody panics with it")
    }
}

impl Replay for Words {
    fn begin(&mut self) {
        *self = Self::default();
    }

    fn snapshot_part(&mut self, part: &[u8]) -> Result<(), BoxError> {
        match part {
            b"words" => Ok(()),
            _ => Err("it is not the part of this state".into()),
        }
    }

    fn snapshot_page(&mut self, page: PageNumber, content: &PageContent) -> Result<(), BoxError> {
        let index = self.words.len();
        let number = content.group(0).ok_or("there is no index")?;
        let is_whole = content.kind == number_of(index) % 3 && number == [number_of(index)];
        if !is_whole {
            return Err("it is the page of another word".into());
        }
        let word = content.group(1).ok_or("there is no word")?;
        self.words.push(String::from_utf8(word.to_vec())?);
        self.pages().insert(index, page);
        Ok(())
    }

    fn event(&mut self, _: LogPosition, event: &[u8]) -> Result<(), BoxError> {
        let (index, word) = event.split_first().ok_or("the event is empty")?;
        self.set(usize::from(*index), std::str::from_utf8(word)?);
        Ok(())
    }
}

impl SnapshotContent for Words {
    fn plan(&mut self) -> PlannedSnapshot {
        PlannedSnapshot {
            parts: 1,
            pages: self.words.len(),
        }
    }

    fn put_part(&self, _: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(b"words");
    }

    fn page(&self, index: usize) -> Option<PageNumber> {
        self.pages().get(&index).copied()
    }

    fn put_page(&self, index: usize, page: &mut PageContent) {
        page.begin(number_of(index) % 3);
        page.add_group(|out| out.push(number_of(index)));
        page.add_group(|out| out.extend_from_slice(self.words[index].as_bytes()));
    }

    fn keep(&self, index: usize, page: PageNumber) {
        self.pages().insert(index, page);
    }
}

fn number_of(index: usize) -> u8 {
    u8::try_from(index).expect("there are few words")
}

/// Writes the history into an empty storage. Returns the words at its end.
pub(crate) fn write(storage: &Arc<dyn Storage>) -> Vec<String> {
    let mut words = Words::default();
    let mut log = open(storage, 0x1111, &mut words);
    for index in 0..6 {
        set(&mut log, &mut words, index, "first");
    }
    snapshot(&mut log, &words);
    set(&mut log, &mut words, 2, "changed");
    snapshot(&mut log, &words);

    let expected = words.words.clone();
    let mut log = open(storage, 0x2222, &mut words);
    assert_eq!(words.words, expected);
    set(&mut log, &mut words, 4, "changed again");
    set(&mut log, &mut words, 6, "added");
    snapshot(&mut log, &words);
    set(&mut log, &mut words, 1, "behind the snapshot");
    assert!(log.mark());
    jobs(&mut log);
    words.words
}

fn open(storage: &Arc<dyn Storage>, entropy: u64, words: &mut Words) -> SegmentLog {
    let (mut log, _) =
        SegmentLog::open(Arc::clone(storage), options(), entropy, words).expect("a whole log");
    jobs(&mut log);
    log
}

fn set(log: &mut SegmentLog, words: &mut Words, index: u8, text: &str) {
    let word = format!("{text} {index} ").repeat(9);
    let reservation = log.reserve(Need::grow(0)).expect("room");
    let mut batch = BatchBuilder::at(reservation.position);
    batch.push_event_with(|buffer| {
        buffer.push(index);
        buffer.extend_from_slice(word.as_bytes());
    });
    log.append(reservation, batch).expect("it was reserved");
    jobs(log);
    words.set(index.into(), &word);
}

fn snapshot(log: &mut SegmentLog, words: &Words) {
    let all = LogPosition::new(0)..log.end();
    log.snapshot(words.clone(), &all).expect("all is durable");
    jobs(log);
}

fn jobs(log: &mut SegmentLog) {
    while let Some(job) = log.next_job() {
        let outcome = job.run();
        log.complete(outcome).expect("the storage works");
    }
}
