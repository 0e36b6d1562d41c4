//! How the command line asks a running server.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::bus::RuleAct;
use super::{Act, Answer, Failure, Rotation, door, socket};

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The largest answer that is read: room for many thousand accounts.
const ANSWER_SIZE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A connection to a server, for one question.
#[derive(Debug)]
pub(crate) struct Connection(UnixStream);

impl Connection {
    /// Reaches the server at a socket; `None` if nobody answers there.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>> {
        use std::io::ErrorKind::{ConnectionRefused, NotFound};
        match socket::connect(path) {
            Ok(stream) => Ok(Some(Self(stream))),
            Err(error) if matches!(error.kind(), NotFound | ConnectionRefused) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot use {}", path.display())),
        }
    }

    /// Has an act carried out.
    pub(crate) fn ask(self, act: &Act) -> Result<Result<Answer, Failure>> {
        self.exchange(act)
            .context("the server did not answer: whether it did what was asked is unknown")
    }

    fn exchange(mut self, act: &Act) -> Result<Result<Answer, Failure>> {
        let stream = &mut self.0;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let (method, path, body) = request(act)?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: kew\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(&body)?;
        let mut answer = Vec::new();
        stream
            .take(ANSWER_SIZE_BYTES_MAX)
            .read_to_end(&mut answer)?;
        let (status, body) = split(&answer)?;
        door::read_answer(status, body)
    }
}

/// The status and the body of an answer that ends with its connection.
fn split(answer: &[u8]) -> Result<(u16, &[u8])> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let head_and_body = end.and_then(|end| answer.split_at_checked(end + 4));
    let Some((head, body)) = head_and_body else {
        bail!("the answer has no end of its head");
    };
    let head = std::str::from_utf8(head).context("the answer's head is not text")?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Ok((status.context("the answer has no status")?, body))
}

/// A name in a path or query.
fn encoded(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

fn rule_request(entity: Option<&str>, act: &RuleAct) -> Result<(&'static str, String, Vec<u8>)> {
    let query = entity.map_or(String::new(), |entity| {
        format!("?entity={}", encoded(entity))
    });
    let all = "/v1/bus/rules";
    let one = |name: &str| format!("{all}/{}", encoded(name));
    Ok(match act {
        RuleAct::List => ("GET", format!("{all}{query}"), Vec::new()),
        RuleAct::Add(new) => ("POST", format!("{all}{query}"), serde_json::to_vec(new)?),
        RuleAct::Remove { name } => ("DELETE", format!("{}{query}", one(name)), Vec::new()),
        RuleAct::Keys { name } => ("GET", format!("{}/keys{query}", one(name)), Vec::new()),
        RuleAct::Regenerate { name, key } => (
            "POST",
            format!("{}/regenerate{query}", one(name)),
            serde_json::to_vec(&Rotation { key: *key })?,
        ),
    })
}

fn request(act: &Act) -> Result<(&'static str, String, Vec<u8>)> {
    let account = |name: &str| {
        // Any other name is none, and would be another path.
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            bail!("account name {name:?} is not 3 to 24 lower-case letters and digits");
        }
        Ok(format!("/v1/accounts/{name}"))
    };
    Ok(match act {
        Act::ListAccounts => ("GET", "/v1/accounts".into(), Vec::new()),
        Act::ExportBus => ("GET", "/v1/bus/config".into(), Vec::new()),
        Act::AddAccount(new) => ("POST", "/v1/accounts".into(), serde_json::to_vec(new)?),
        Act::RotateKey { name, key } => (
            "POST",
            account(name)? + "/rotate",
            serde_json::to_vec(&Rotation { key: *key })?,
        ),
        Act::ChangeAccount { name, change } => {
            ("PATCH", account(name)?, serde_json::to_vec(change)?)
        }
        Act::Rule { entity, what } => rule_request(entity.as_deref(), what)?,
        Act::RemoveAccount { name, with_queues } => (
            "DELETE",
            format!("{}?with_queues={with_queues}", account(name)?),
            Vec::new(),
        ),
    })
}
