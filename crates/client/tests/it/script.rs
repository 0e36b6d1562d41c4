//! A service over HTTP that replies as a test says.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use kew_client::{Dial, DialFuture, Stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// What a service does with a request.
pub(crate) enum Reply {
    Answer(String),
    /// It closes the connection.
    Close,
    /// It says nothing.
    Silence,
}

/// A service that replies as the test says, and keeps connections open.
pub(crate) struct Script {
    replies: Mutex<VecDeque<Reply>>,
    heads: Mutex<Vec<String>>,
    /// The bodies of requests.
    bodies: Mutex<Vec<String>>,
    pub(crate) connections: Mutex<usize>,
}

impl Script {
    pub(crate) fn of(replies: impl IntoIterator<Item = Reply>) -> Arc<Self> {
        Arc::new(Self {
            replies: Mutex::new(replies.into_iter().collect()),
            heads: Mutex::new(Vec::new()),
            bodies: Mutex::new(Vec::new()),
            connections: Mutex::new(0),
        })
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    pub(crate) fn bodies(&self) -> Vec<String> {
        self.bodies.lock().unwrap().clone()
    }

    async fn serve(self: Arc<Self>, mut stream: DuplexStream) -> io::Result<()> {
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await?);
            }
            let head = String::from_utf8(head).unwrap().to_lowercase();
            let length = head.split("content-length: ").nth(1);
            let length = length.map_or(0, |it| it.split("\r\n").next().unwrap().parse().unwrap());
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await?;
            let body = String::from_utf8(body).unwrap();
            self.bodies.lock().unwrap().push(body);
            self.heads.lock().unwrap().push(head);
            let reply = self.replies.lock().unwrap().pop_front();
            match reply.unwrap() {
                Reply::Answer(answer) => stream.write_all(answer.as_bytes()).await?,
                Reply::Close => return Ok(()),
                Reply::Silence => std::future::pending().await,
            }
        }
    }
}

pub(crate) struct Door(pub(crate) Arc<Script>);

impl Dial for Door {
    fn dial<'a>(&'a self, _: &'a str, _: u16) -> DialFuture<'a> {
        Box::pin(async move {
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            *self.0.connections.lock().unwrap() += 1;
            tokio::spawn(self.0.clone().serve(theirs));
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

pub(crate) fn answer(text: &str) -> Reply {
    Reply::Answer(text.to_owned())
}
