//! One command starts everything, submits, checks, reports and stops.

use std::process::Stdio;
use std::time::Duration;

use kew_billing::start::find_kew;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

use crate::fleet::programs;

const PATIENCE: Duration = Duration::from_secs(180);

/// What the page shows as JSON.
async fn state(address: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /state HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_thousand_transactions_are_charged_by_one_command() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(programs().join("billing"));
    command.args(["run", "--transactions", "1000", "--listen", "127.0.0.1:0"]);
    command.args(["--package-size", "300", "--part-size", "50", "--data"]);
    command.arg(folder.path().join("data"));
    command.env(
        "KEW_BINARY",
        find_kew(&programs()).unwrap().canonicalize().unwrap(),
    );
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut text = String::new();
    let read = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some(address) = line.strip_prefix("the page is at http://") {
                let shown = state(address).await;
                assert!(shown.contains(r#""name":"billing-items""#), "{shown}");
                assert!(shown.contains(r#""program":"initiator""#), "{shown}");
            }
            text.push_str(&line);
            text.push('\n');
        }
        child.wait().await.unwrap()
    };
    let status = timeout(PATIENCE, read).await.expect("it ends");
    assert!(status.success(), "{text}");
    for expected in [
        "packages=4 complete=4 transactions=1000 charged_once=1000",
        "faults=0",
        "every submitted transaction is charged exactly once",
        "storage_requests=",
        "kew stopped: exit status: 0",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}
