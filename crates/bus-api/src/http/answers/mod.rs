//! Answers to clients: success and errors, the messages and times in them, and the memory that they take.

mod answer;
mod room;
mod shown;
pub(super) mod times;

pub(crate) use answer::HttpError;
pub(super) use answer::{JSON, answer_of, with_body};
pub(super) use kew_http_front::Answer;
pub(super) use room::AnswerRoom;
pub(super) use shown::Shown;
