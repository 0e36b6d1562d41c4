//! Starts kew and Azurite on free ports, with their data in a folder of the run. Two suites share it.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Servers. They end when this is dropped.
pub(crate) struct Processes {
    processes: Vec<Child>,
    directory: PathBuf,
}

impl Processes {
    /// None yet. The folder for data has this name.
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        Self {
            processes: Vec::new(),
            directory: std::env::temp_dir().join(name),
        }
    }

    /// Starts kew with a certificate, and returns the facts that it prints: `NAME='value'`.
    pub(crate) fn start_kew(&mut self, arguments: &[&str]) -> Vec<String> {
        let mut command = Command::new(std::env::var("KEW_BINARY").expect("KEW_BINARY"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("KEW_")) {
            command.env_remove(name);
        }
        command
            .arg("serve")
            .arg("--data-dir")
            .arg(self.directory.join("kew"))
            .args(arguments)
            .arg("--tls-cert")
            .arg(certificate("server.pem"))
            .arg("--tls-key")
            .arg(certificate("server.key"));
        std::fs::create_dir_all(&self.directory).expect("a folder for data");
        self.spawn(command, "KEW_READY=1")
    }

    /// The port of an Azurite that speaks this scheme, or `None` if Node is missing.
    pub(crate) fn start_azurite(&mut self, scheme: &str) -> Option<u16> {
        let program = std::env::var_os("AZURITE_QUEUE")?;
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("it is bound").port();
        drop(free);
        let mut command = Command::new("node");
        command
            .arg(Path::new(&program))
            .args(["--queueHost", "127.0.0.1", "--queuePort"])
            .arg(port.to_string())
            .arg("--location")
            .arg(self.directory.join(format!("azurite-{scheme}")))
            .args(["--silent", "--disableTelemetry"]);
        if scheme == "https" {
            command
                .arg("--cert")
                .arg(certificate("server.pem"))
                .arg("--key")
                .arg(certificate("server.key"));
        }
        self.spawn(command, "successfully listens");
        Some(port)
    }

    /// Starts a server and waits for the line that says that it is ready. Returns the lines until then.
    fn spawn(&mut self, mut command: Command, ready: &str) -> Vec<String> {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = process.stdout.take().expect("standard output");
        self.processes.push(process);
        let mut lines = Vec::new();
        let mut output = BufReader::new(output).lines();
        // Without that line it has ended: the reason is on its standard error.
        loop {
            let line = output.next().expect("the server is ready");
            lines.push(line.expect("a line"));
            if lines.last().is_some_and(|line| line.contains(ready)) {
                break;
            }
        }
        // What it prints later is of no interest, and must not fill the pipe.
        std::thread::spawn(move || output.for_each(drop));
        lines
    }
}

impl Drop for Processes {
    /// Asks them to stop. The log of kew shows how it ended; the suite checks it at its end.
    fn drop(&mut self) {
        for process in &mut self.processes {
            // The shell's builtin: not every machine has a program of that name.
            let asked = Command::new("sh")
                .args(["-c", "kill \"$1\"", "sh"])
                .arg(process.id().to_string())
                .status();
            if !asked.is_ok_and(|status| status.success()) {
                // It has ended already, or will be noticed by the suite.
                let _ = process.kill();
            }
            let _ = process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A fact that kew has printed.
pub(crate) fn fact(lines: &[String], name: &str) -> String {
    let found = lines.iter().find_map(|line| {
        let (is, value) = line.split_once('=')?;
        (is == name).then_some(value)
    });
    found
        .unwrap_or_else(|| panic!("kew printed no {name}"))
        .replace('\'', "")
}

/// A file of the authority that the suite trusts.
pub(crate) fn certificate(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("KEW_TEST_TLS").expect("KEW_TEST_TLS")).join(name)
}
