//! A log without readers: records go into a file that was filled before, with one write and one
//! fdatasync for all waiting records, and from its beginning again after its end.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Writes are padded to this.
const BLOCK_SIZE_BYTES: usize = 4096;

/// Records that wait for the next sync.
#[derive(Default)]
struct Group {
    bytes: Vec<u8>,
    waiters: Vec<oneshot::Sender<()>>,
}

/// The log; its thread ends with the process.
pub(crate) struct Log {
    group: Mutex<Group>,
    filled: Condvar,
}

impl Log {
    /// Writes `size_mib` MiB of zeros to a new file at `path` and starts the thread that syncs.
    pub(crate) fn create(path: &Path, size_mib: u32) -> io::Result<Arc<Self>> {
        let file = File::create(path)?;
        let zeros = vec![0; 1 << 20];
        for mib in 0..u64::from(size_mib) {
            file.write_all_at(&zeros, mib << 20)?;
        }
        file.sync_all()?;
        let log = Arc::new(Self {
            group: Mutex::default(),
            filled: Condvar::new(),
        });
        let size_bytes = u64::from(size_mib) << 20;
        let shared = log.clone();
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || shared.sync_groups(&file, size_bytes))?;
        Ok(log)
    }

    /// Appends a record and returns when it is on stable storage.
    pub(crate) async fn append(&self, record: &[u8]) {
        let (sender, durable) = oneshot::channel();
        {
            let mut group = self.lock();
            group.bytes.extend_from_slice(record);
            group.waiters.push(sender);
        }
        self.filled.notify_one();
        durable
            .await
            .expect("the log's thread lives as long as the process");
    }

    fn sync_groups(&self, file: &File, size_bytes: u64) {
        let mut at = 0;
        let mut mine = Group::default();
        loop {
            let mut group = self.lock();
            while group.waiters.is_empty() {
                group = self
                    .filled
                    .wait(group)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            std::mem::swap(&mut *group, &mut mine);
            drop(group);

            mine.bytes
                .resize(mine.bytes.len().next_multiple_of(BLOCK_SIZE_BYTES), 0);
            let length = mine.bytes.len() as u64;
            if at + length > size_bytes {
                at = 0;
            }
            let written = file
                .write_all_at(&mine.bytes, at)
                .and_then(|()| file.sync_data());
            written.expect("a yardstick that cannot write measures nothing");
            at += length;
            mine.bytes.clear();
            for waiter in mine.waiters.drain(..) {
                // A disconnected client does not wait any more.
                let _ = waiter.send(());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Group> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
