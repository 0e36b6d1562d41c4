//! Messages that are received and deleted while the disk is slow or fails, for clients that go away meanwhile.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use kew_amqp::Event;
use kew_amqp::message::Message;
use kew_log::{MemoryStorage, Storage, StorageFile};

use crate::client::{Client, Server, message};

/// What becomes of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    Succeed,
    Fail,
    Wait,
}

/// A disk whose reads can be made to fail or to wait.
struct SlowDisk {
    disk: MemoryStorage,
    gate: Arc<Gate>,
}

struct Gate {
    reads: Mutex<Reads>,
    changed: Condvar,
    waiting: AtomicU64,
    failed: AtomicU64,
}

impl Gate {
    fn pass(&self) -> io::Result<()> {
        let mut reads = self.reads.lock().unwrap();
        self.waiting.fetch_add(1, Ordering::Relaxed);
        while *reads == Reads::Wait {
            reads = self.changed.wait(reads).unwrap();
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        match *reads {
            Reads::Fail => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                Err(io::Error::other("the sector is bad"))
            }
            Reads::Succeed | Reads::Wait => Ok(()),
        }
    }
}

impl SlowDisk {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            disk: MemoryStorage::new(),
            gate: Arc::new(Gate {
                reads: Mutex::new(Reads::Succeed),
                changed: Condvar::new(),
                waiting: AtomicU64::new(0),
                failed: AtomicU64::new(0),
            }),
        })
    }

    fn set(&self, reads: Reads) {
        *self.gate.reads.lock().unwrap() = reads;
        self.gate.changed.notify_all();
    }

    fn gated(&self, file: Arc<dyn StorageFile>) -> Arc<dyn StorageFile> {
        Arc::new(SlowFile {
            file,
            gate: Arc::clone(&self.gate),
        })
    }
}

impl Storage for SlowDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.disk.create(name).map(|file| self.gated(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        self.disk.open(name).map(|file| self.gated(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.disk.free_bytes()
    }
}

struct SlowFile {
    file: Arc<dyn StorageFile>,
    gate: Arc<Gate>,
}

impl StorageFile for SlowFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.gate.pass()?;
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

async fn until(is_so: impl Fn() -> bool) {
    let so = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let so = tokio::time::timeout(Duration::from_secs(60), so).await;
    so.expect("the disk is read");
}

async fn taken(client: &mut Client) -> String {
    let delivery = client.delivery().await;
    let message = Message::scan(delivery.payload).unwrap();
    String::from_utf8(message.data().unwrap().to_vec()).unwrap()
}

/// How a client goes away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goes {
    Detaches,
    /// Its connection is gone.
    Vanishes,
}

/// A link goes while its receive waits for the disk: its first look, or one of its task after the disk has failed.
async fn check_a_link_that_goes_deletes_nothing(has_failed: bool, goes: Goes) {
    let disk = SlowDisk::new();
    let server = Server::start_forgetful(disk.clone()).await;
    let mut client = server.trusted().await;
    let to = client.sender("jobs").await.unwrap();
    for body in ["one", "two", "three"] {
        client.send(to, 0, message(body)).await;
    }
    disk.set(match has_failed {
        true => Reads::Fail,
        false => Reads::Wait,
    });
    let gone = client.taker("jobs").await;
    client.connection.grant(gone, 3);
    client.say().await;
    if has_failed {
        until(|| disk.gate.failed.load(Ordering::Relaxed) > 0).await;
        disk.set(Reads::Wait);
    }
    until(|| disk.gate.waiting.load(Ordering::Relaxed) > 0).await;
    match goes {
        Goes::Detaches => {
            client.connection.detach(gone, true, None);
            let detached = client.until(|event| match event {
                Event::Detached { link, .. } => (*link == gone).then_some(()),
                _ => None,
            });
            detached.await;
        }
        Goes::Vanishes => {
            drop(client);
            // The connection waits for the disk, too. It has noticed that its client is gone once its task was polled.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
    }
    disk.set(Reads::Succeed);
    let mut other = server.trusted().await;
    let from = other.taker("jobs").await;
    other.connection.grant(from, 3);
    for body in ["one", "two", "three"] {
        assert_eq!(taken(&mut other).await, body);
    }
}

#[tokio::test]
async fn a_link_that_is_detached_while_it_waits_for_the_disk_deletes_nothing() {
    check_a_link_that_goes_deletes_nothing(false, Goes::Detaches).await;
}

#[tokio::test]
async fn a_link_that_is_detached_after_the_disk_has_failed_deletes_nothing() {
    check_a_link_that_goes_deletes_nothing(true, Goes::Detaches).await;
}

#[tokio::test]
async fn a_connection_that_is_gone_while_its_link_waits_for_the_disk_deletes_nothing() {
    check_a_link_that_goes_deletes_nothing(false, Goes::Vanishes).await;
}

#[tokio::test]
async fn a_connection_that_is_gone_after_the_disk_has_failed_deletes_nothing() {
    check_a_link_that_goes_deletes_nothing(true, Goes::Vanishes).await;
}
