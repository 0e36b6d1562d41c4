//! A client of the web service, for the command line and the tests.

use std::io;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header::HOST;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::contract::MESSAGE_ID;

/// How long a call may take. Longer than the web service takes for any answer.
const TIME_MAX: Duration = Duration::from_secs(20);

/// A client of one address.
#[derive(Clone, Debug)]
pub struct Client {
    address: String,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Bytes,
}

impl Client {
    /// A client of `http://host:port`. `None` if the address is not of that form.
    pub fn new(url: &str) -> Option<Self> {
        let address = url.strip_prefix("http://")?.trim_end_matches('/');
        let is_address = address.contains(':') && !address.contains('/');
        is_address.then(|| Self {
            address: address.to_owned(),
        })
    }

    /// Calls the service. With an error it is open whether the call was carried out: repeat it with the same id.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        id: Option<&str>,
        body: impl Into<Bytes>,
    ) -> io::Result<Reply> {
        let request = Request::builder().method(method).uri(path);
        let request = request.header(HOST, &self.address);
        let request = match id {
            Some(id) => request.header(MESSAGE_ID, id),
            None => request,
        };
        let request = request.body(Full::new(body.into()));
        let request = request.map_err(io::Error::other)?;
        timeout(TIME_MAX, self.exchange(request)).await?
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> io::Result<Reply> {
        let stream = TcpStream::connect(&self.address).await?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(io::Error::other)?;
        let answer = async {
            let answer = sender.send_request(request).await?;
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await?.to_bytes();
            Ok::<_, hyper::Error>(Reply { status, body })
        };
        tokio::pin!(connection);
        tokio::select! {
            biased;
            answer = answer => answer.map_err(io::Error::other),
            ended = &mut connection => Err(match ended {
                Ok(()) => io::ErrorKind::UnexpectedEof.into(),
                Err(error) => io::Error::other(error),
            }),
        }
    }
}
