//! Runs `kew queue` to its end, against a server or against prepared answers.

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use serde_json::Value;

use crate::server::Server;

/// How a command ended and what it printed.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Done {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).expect("UTF-8")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.out)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }

    /// Checks that it ended with this code, and that its error is one line with these parts.
    pub(crate) fn check_error(&self, code: i32, named: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        for part in named {
            assert!(self.err.contains(part), "no {part}: {self:?}");
        }
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
    }
}

/// A `kew` without the environment of the test run.
pub(crate) fn command(connection: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kew"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("KEW_") || text.starts_with("AZURE_") || text.contains("proxy") {
            command.env_remove(name);
        }
    }
    command
        .env("KEW_CONNECTION_STRING", connection)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs a command to its end with this input.
pub(crate) fn finish(mut command: Command, input: &[u8]) -> Done {
    let mut child = command.spawn().expect("kew was built with this test");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // A command that fails early does not read everything.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("our own child");
    writer.join().expect("it does not panic");
    Done {
        code: output.status.code().expect("it was not killed"),
        out: output.stdout,
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// A connection string for an endpoint, with a key that no error may contain.
pub(crate) fn connection_to(endpoint: &str) -> String {
    format!("AccountName=a1;AccountKey=c2VjcmV0LWtleQ==;QueueEndpoint={endpoint}")
}

/// Asks one service.
pub(crate) struct Shell {
    connection: String,
}

impl Shell {
    pub(crate) fn of(server: &Server) -> Self {
        let printed = server.facts("KEW_QUEUE_CONNECTION_STRING");
        Self {
            connection: printed.first().expect("it prints one").clone(),
        }
    }

    pub(crate) fn at(endpoint: &str) -> Self {
        Self {
            connection: connection_to(endpoint),
        }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(&self.connection);
        command.arg("queue").args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        self.run_with(arguments, b"")
    }

    pub(crate) fn run_with(&self, arguments: &[&str], input: &[u8]) -> Done {
        finish(self.command(arguments), input)
    }

    /// Runs a command that must succeed and print JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let done = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(done.code, 0, "{arguments:?}: {done:?}");
        done.json()
    }

    /// Runs a command that must succeed.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let done = self.run(arguments);
        assert_eq!(done.code, 0, "{arguments:?}: {done:?}");
        done.text().to_owned()
    }
}

/// A service that sends prepared answers, one per connection, and then closes its port.
pub(crate) struct Script {
    pub(crate) shell: Shell,
    pub(crate) address: SocketAddr,
    thread: JoinHandle<Vec<String>>,
}

impl Script {
    pub(crate) fn start(answers: &[String]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let answers = answers.to_vec();
        let thread = std::thread::spawn(move || {
            answers
                .iter()
                .map(|answer| {
                    let (stream, _) = listener.accept().expect("a client");
                    let mut reader = BufReader::new(&stream);
                    let request = read_request(&mut reader);
                    (&stream).write_all(answer.as_bytes()).expect("it is read");
                    request
                })
                .collect()
        });
        Self {
            shell: Shell::at(&format!("http://{address}/a1")),
            address,
            thread,
        }
    }

    /// The first lines of the requests, after all answers were sent.
    pub(crate) fn requests(self) -> Vec<String> {
        self.thread.join().expect("every answer was asked for")
    }
}

/// Reads a request completely and returns its first line.
fn read_request(reader: &mut impl std::io::BufRead) -> String {
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).expect("a request");
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a header");
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    first.trim_end().to_owned()
}

/// An answer of one connection.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
}
