//! A disk that fills up, is drained while it is full, and gets space again.
//!
//! The disk is a small tmpfs in a user and mount namespace of its own, which a holder process keeps
//! between restarts of the server. Where a machine does not allow such namespaces the test says so.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use queue_load::{Client, Error, PutOptions};

use crate::load::{self, Ending, Load, Mix, Style, stop_in_order};
use crate::server::{PATIENCE, Server, show};

const DISK_SIZE_MIB: u32 = 24;

/// What somebody else takes of it, and gives back later.
const BALLAST_MIB: u32 = 8;

/// A tmpfs that only processes in its namespace see.
struct SmallDisk {
    holder: Child,
    mount_point: PathBuf,
}

impl SmallDisk {
    /// `None` if this machine does not allow it.
    fn new(mount_point: &Path) -> Option<Self> {
        std::fs::create_dir(mount_point).expect("writable");
        let script = format!(
            "mount -t tmpfs -o size={DISK_SIZE_MIB}m kew-test \"$1\" \
             && head -c {BALLAST_MIB}M /dev/zero >\"$1/ballast\" && echo mounted && exec cat"
        );
        let holder = Command::new("unshare")
            .args([
                "--user",
                "--map-root-user",
                "--mount",
                "sh",
                "-c",
                &script,
                "sh",
            ])
            .arg(mount_point)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut holder = match holder {
            Ok(holder) => holder,
            Err(error) => {
                show(&format!("SKIPPED: a full disk needs unshare: {error}"));
                return None;
            }
        };
        let mut line = String::new();
        let stdout = holder.stdout.as_mut().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("UTF-8");
        let disk = Self {
            holder,
            mount_point: mount_point.to_owned(),
        };
        if line != "mounted\n" {
            show(
                "SKIPPED: a full disk needs user namespaces with tmpfs, which this machine forbids",
            );
            return None;
        }
        Some(disk)
    }

    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        let holder = self.holder.id().to_string();
        command.args([
            "--target",
            &holder,
            "--user",
            "--mount",
            "--preserve-credentials",
        ]);
        command
    }

    fn start(&self) -> Server {
        Server::start_with(|command| {
            let mut entered = self.enter();
            entered.arg(command.get_program());
            entered
                .arg("serve")
                .arg("--data-dir")
                .arg(self.mount_point.join("data"));
            entered.args(["--queue-listen", "127.0.0.1:0"]);
            *command = entered;
        })
    }

    fn free_the_ballast(&self) {
        let removed = self
            .enter()
            .arg("rm")
            .arg(self.mount_point.join("ballast"))
            .status();
        assert!(removed.expect("nsenter").success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[test]
fn a_full_disk_is_drained_and_works_again_when_freed() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let Some(disk) = SmallDisk::new(&place.path().join("disk")) else {
        return;
    };
    let seed = load::seed();
    load::run(fill(&disk, seed));
}

async fn fill(disk: &SmallDisk, seed: u64) {
    let mut load = Load::new(seed, &Style::default());
    let server = disk.start();
    load.create_queues(&server).await;

    load.begin_writers(&server.endpoint(), Mix::Puts, Ending::Full);
    load.ended(2 * PATIENCE).await;
    let kept = load.ledger.live_count();
    let mut client = server.client();
    assert!(
        is_refused(&mut client).await,
        "it does not say that it is full"
    );

    // What is there can be received and deleted: half of it is.
    load.begin_writers(&server.endpoint(), Mix::Drain, Ending::Told);
    let begun = Instant::now();
    while load.ledger.live_count() > kept / 2 {
        assert!(begun.elapsed() < PATIENCE, "a full disk cannot be drained");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    load.end().await;
    show(&format!(
        "messages_on_a_full_disk={kept} drained_to={} puts_work_before_space_was_freed={}",
        load.ledger.live_count(),
        !is_refused(&mut client).await
    ));

    disk.free_the_ballast();
    let begun = Instant::now();
    while is_refused(&mut client).await {
        assert!(
            begun.elapsed() < PATIENCE,
            "it does not notice that there is space"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    show(&format!("puts_work_again_after={:?}", begun.elapsed()));

    load.begin(&server.endpoint(), Ending::Unanswered);
    load.acknowledged(500).await;
    server.kill();
    load.server_is_gone().await;
    let server = disk.start();
    load.check(&server).await;
    load.empty_at_last(&server).await;
    stop_in_order(server).await;
    load.show_report();
}

/// Whether a put is refused for want of space. One that is not leaves nothing behind.
async fn is_refused(client: &mut Client) -> bool {
    client.create_queue("beside", &[]).await.ok();
    match client.put("beside", "text", PutOptions::default()).await {
        Ok(sent) => {
            let deleted = client.delete("beside", &sent.id, &sent.receipt).await;
            deleted.expect("deleted");
            false
        }
        Err(Error::Refused {
            status: 503 | 404, ..
        }) => true,
        Err(error) => panic!("an answer that was not expected: {error}"),
    }
}
