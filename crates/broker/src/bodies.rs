//! The bodies of an answer: read already, or still to be read by its receiver.

use bytes::Bytes;
use kew_log::{Body, BodyError};

/// The bodies of an answer's messages, in their order.
#[derive(Clone, Debug)]
pub enum AnswerBodies {
    /// They were read, and are whole: the messages were handed out and removed.
    Read(Vec<Bytes>),
    /// Where they are. Their segments stay readable as long as the answer exists.
    Stored(Vec<Body>),
}

impl AnswerBodies {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Read(bodies) => bodies.len(),
            Self::Stored(bodies) => bodies.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes must be read from files.
    pub fn size_in_files_bytes(&self) -> u64 {
        match self {
            Self::Read(_) => 0,
            Self::Stored(bodies) => {
                let in_files = bodies.iter().filter(|body| body.is_in_file());
                in_files.map(Body::len_bytes).sum()
            }
        }
    }

    /// Whether one of them must be read from a file.
    pub fn is_any_in_file(&self) -> bool {
        match self {
            Self::Read(_) => false,
            Self::Stored(bodies) => bodies.iter().any(Body::is_in_file),
        }
    }

    /// The bytes, if all are in memory, be it that of the operating system. Never waits.
    pub(crate) fn read_cached(self) -> Result<Vec<Bytes>, Self> {
        match self {
            Self::Read(bodies) => Ok(bodies),
            Self::Stored(bodies) => Body::read_cached(&bodies).ok_or(Self::Stored(bodies)),
        }
    }

    /// The bytes of each. Blocks if they must be read from files, and then checks them.
    pub fn read(self) -> Vec<Result<Bytes, BodyError>> {
        match self {
            Self::Read(bodies) => bodies.into_iter().map(Ok).collect(),
            Self::Stored(bodies) => Body::read_all(&bodies),
        }
    }
}
