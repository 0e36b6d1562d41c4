//! A small disk: a tmpfs in a user and mount namespace of its own, which a holder process keeps
//! between restarts of the server. If a machine does not allow such namespaces, the test reports
//! that.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::server::{Ended, Server, run};
use crate::skip::skip;

/// A tmpfs that only processes in its namespace see.
pub(crate) struct SmallDisk {
    holder: Child,
    mount_point: PathBuf,
}

impl SmallDisk {
    /// `None` if this machine does not allow it. A file takes `taken_mib` of its `size_mib`, and is
    /// deleted later.
    pub(crate) fn new(mount_point: &Path, size_mib: u32, taken_mib: u32) -> Option<Self> {
        std::fs::create_dir(mount_point).expect("writable");
        let script = format!(
            "mount -t tmpfs -o size={size_mib}m kew-test \"$1\" \
             && head -c {taken_mib}M /dev/zero >\"$1/taken\" && echo mounted && exec cat"
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
                skip(
                    "full_disk",
                    &format!("no unshare ({error})"),
                    "install util-linux",
                );
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
            skip(
                "full_disk",
                "no tmpfs in a user namespace",
                "allow unprivileged user namespaces, or run as root with CAP_SYS_ADMIN",
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

    pub(crate) fn start(&self) -> Server {
        self.start_with(&[])
    }

    pub(crate) fn start_with(&self, arguments: &[&str]) -> Server {
        Server::start_with(|command| {
            let mut entered = self.enter();
            entered.arg(command.get_program());
            entered
                .arg("serve")
                .arg("--data-dir")
                .arg(self.mount_point.join("data"));
            entered.args(["--queue-listen", "127.0.0.1:0"]);
            entered.args(arguments);
            *command = entered;
        })
    }

    /// Runs `kew` to its end where it sees the disk.
    pub(crate) fn run(&self, arrange: impl FnOnce(&mut Command)) -> (Ended, String) {
        run(|command| {
            let mut entered = self.enter();
            entered.arg(command.get_program());
            arrange(&mut entered);
            *command = entered;
        })
    }

    pub(crate) fn free_what_was_taken(&self) {
        let removed = self
            .enter()
            .arg("rm")
            .arg(self.mount_point.join("taken"))
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
