//! The command line as a client of a running server.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use hyper::Method;

use super::routes::{VerbName, encoded, request_of};
use super::verb::{Administrable, Asked, Rotation, Verb};
use super::{Act, Answer, Failure, door, socket};

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The largest answer that is read: room for many thousand accounts.
const ANSWER_SIZE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A connection to a server, for one request.
#[derive(Debug)]
pub(crate) struct Connection(UnixStream);

impl Connection {
    /// Connects to the server at a socket. `None` if no server answers there.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>> {
        use std::io::ErrorKind::{ConnectionRefused, NotFound};
        match socket::connect(path) {
            Ok(stream) => Ok(Some(Self(stream))),
            Err(error) if matches!(error.kind(), NotFound | ConnectionRefused) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot use {}", path.display())),
        }
    }

    /// The connection itself, for what is not one request with one answer.
    pub(crate) fn into_stream(self) -> UnixStream {
        self.0
    }

    /// Asks the server to carry out an act.
    pub(crate) fn ask(self, act: &Act) -> Result<Result<Answer, Failure>> {
        self.exchange(act)
            .context("the server did not answer: whether it carried out the request is unknown")
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
        bail!("the head of the answer is incomplete");
    };
    let head = std::str::from_utf8(head).context("the answer's head is not text")?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Ok((status.context("the answer has no status")?, body))
}

/// The method of a request, its path with its query, and its body.
type Sent = (Method, String, Vec<u8>);

fn request(act: &Act) -> Result<Sent> {
    match act {
        Act::Account(asked) => request_for(asked),
        Act::Rule(asked) => request_for(asked),
        Act::ExportBus => Ok((Method::GET, "/v1/bus/config".into(), Vec::new())),
        Act::ListDamage => Ok((Method::GET, "/v1/damage".into(), Vec::new())),
    }
}

fn request_for<K: Administrable>(Asked { scope, verb }: &Asked<K>) -> Result<Sent> {
    let (name, body, removal) = match verb {
        Verb::List => (VerbName::List, Vec::new(), None),
        Verb::Add(new) => (VerbName::Add, serde_json::to_vec(new)?, None),
        Verb::Show { .. } => (VerbName::Show, Vec::new(), None),
        Verb::Keys { .. } => (VerbName::Keys, Vec::new(), None),
        Verb::Rotate { key, .. } => {
            let body = serde_json::to_vec(&Rotation { key: *key })?;
            (VerbName::Rotate, body, None)
        }
        Verb::Set { settings, .. } => (VerbName::Set, serde_json::to_vec(settings)?, None),
        Verb::Remove { removal, .. } => (VerbName::Remove, Vec::new(), Some(*removal)),
    };
    let (method, below) = request_of(name, verb.name().unwrap_or_default());
    let value = K::parameter(scope, removal);
    let query = value.map(|value| format!("?{}={}", K::PARAMETER, encoded(&value)));
    let path = format!("{}{below}{}", K::PATH, query.unwrap_or_default());
    Ok((method, path, body))
}
