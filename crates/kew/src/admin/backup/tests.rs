//! How long files are kept for a command, in a time that does not pass by itself.

use std::sync::atomic::Ordering;

use tokio::io::{DuplexStream, duplex};
use tokio::time::sleep;

use super::*;

#[test]
fn a_disk_has_too_little_by_its_share_and_by_the_amount() {
    const GIB: u64 = 1 << 30;
    for (free_bytes, size_bytes, is_little) in [
        (0, 0, false),
        (9 << 20, 100 << 20, true),
        (10 << 20, 100 << 20, false),
        (4 * GIB - 1, 41 * GIB, true),
        (4 * GIB, 10_000 * GIB, false),
        (4 * GIB - 1, 10_000 * GIB, true),
    ] {
        assert_eq!(
            is_too_little(free_bytes, size_bytes),
            is_little,
            "{free_bytes} of {size_bytes}"
        );
    }
}

/// A backup of a server in memory, and the command's side of its connection.
struct Backup {
    broker: Broker,
    seen: Arc<Seen>,
    command: BufReader<DuplexStream>,
    task: JoinHandle<Result<String, Failure>>,
    _data_dir: tempfile::TempDir,
    _stop: watch::Sender<bool>,
}

impl Backup {
    async fn begin() -> Self {
        let broker = Broker::start_in_memory().unwrap();
        let data_dir = tempfile::tempdir().unwrap();
        let seen = Arc::new(Seen::default());
        let (stop, stopping) = watch::channel(false);
        let path = Some(data_dir.path());
        let backups = Backups::new(broker.clone(), path, Arc::clone(&seen), stopping).unwrap();
        let pin = broker.begin_backup().await.unwrap();
        let begun = Begun {
            plan: pin.plan().clone(),
            data_dir: data_dir.path().to_owned(),
            taken_at_ms: 1000,
        };
        let held = Held::new(pin, &seen);
        let (ours, theirs) = duplex(1 << 16);
        let task = tokio::spawn(attend(backups, held, begun, ours));
        let mut backup = Self {
            broker,
            seen,
            command: BufReader::new(theirs),
            task,
            _data_dir: data_dir,
            _stop: stop,
        };
        let first = backup.receive().await;
        assert!(matches!(first, ServerLine::Begun(_)), "{first:?}");
        backup
    }

    async fn receive(&mut self) -> ServerLine {
        let mut line = String::new();
        self.command.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn send(&mut self, line: CommandLine) {
        let mut json = serde_json::to_string(&line).unwrap();
        json.push('\n');
        let written = self.command.get_mut().write_all(json.as_bytes()).await;
        written.unwrap();
    }

    fn in_progress(&self) -> u64 {
        self.seen.in_progress.load(Ordering::Relaxed)
    }
}

#[tokio::test(start_paused = true)]
async fn files_are_kept_for_a_slow_step_and_not_for_a_stopped_command() {
    let mut backup = Backup::begin().await;
    assert_eq!(backup.in_progress(), 1);
    // No progress for hours.
    for _ in 0..100 {
        sleep(SILENCE_MAX - Duration::from_secs(1)).await;
        backup.send(CommandLine::Progress { done_bytes: 7 }).await;
        assert!(matches!(backup.receive().await, ServerLine::Noted));
    }
    let failed = backup.receive().await;
    let ServerLine::Failed(failure) = failed else {
        panic!("{failed:?}");
    };
    assert_eq!(failure.error, "timeout");
    assert_eq!(backup.in_progress(), 0);
    // The files are free for the next one.
    let next = Held::new(backup.broker.begin_backup().await.unwrap(), &backup.seen);
    // And if the stopped one has copied everything, its time counts.
    let whole = CommandLine::Whole {
        size_bytes: 9,
        copied_bytes: 5,
    };
    backup.send(whole).await;
    assert!(matches!(backup.receive().await, ServerLine::Noted));
    assert_eq!(backup.seen.last_at_ms.load(Ordering::Relaxed), 1000);
    assert_eq!(backup.in_progress(), 1);
    drop(next);
    let ended = backup.task.await.unwrap();
    assert_eq!(ended.ok().unwrap(), "9 bytes, of which 5 were copied");
    backup.broker.stop();
}

#[tokio::test(start_paused = true)]
async fn the_files_of_a_killed_command_are_free_at_once() {
    let backup = Backup::begin().await;
    drop(backup.command);
    let ended = backup.task.await.unwrap();
    assert_eq!(ended.err().unwrap().error, "gone");
    let seen = backup.seen.in_progress.load(Ordering::Relaxed);
    assert_eq!(seen, 0);
    backup.broker.begin_backup().await.unwrap();
    backup.broker.stop();
}
