//! Requests whose end is in doubt. The bytes after one of them must never be read as another request.

use std::collections::BTreeSet;

use tokio::io::AsyncWriteExt as _;

use crate::forms::{FIRST_LINES, FORMS};
use crate::plain::{Server, rest};

const HEAD: &str = "POST /good HTTP/1.1\r\nHost: h\r\nknown: yes\r\n\r\n";
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";

#[test]
fn every_form_has_a_name_of_its_own() {
    let names = FORMS.iter().map(|form| form.name);
    let names = names.chain(FIRST_LINES.iter().map(|(name, _, _)| *name));
    let names: BTreeSet<&str> = names.collect();
    assert_eq!(names.len(), FORMS.len() + FIRST_LINES.len());
}

#[tokio::test]
async fn a_request_in_doubt_is_refused_with_everything_after_it() {
    let server = Server::new();
    let forms = FORMS
        .iter()
        .map(|form| (form.name, form.of(|_| HEAD.to_owned())));
    let first_lines = FIRST_LINES
        .iter()
        .map(|(name, part, other)| (*name, HEAD.replacen(part, other, 1)));
    for (name, text) in forms.chain(first_lines) {
        // Whole, and in pieces that cut lines.
        for size in [100_000, 7] {
            let (mut stream, serving) = server.connect();
            for piece in format!("{text}{SMUGGLED}").as_bytes().chunks(size) {
                // The server may close before everything is sent.
                let _ = stream.write_all(piece).await;
                tokio::task::yield_now().await;
            }
            let answer = rest(&mut stream).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{name}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{name}: {answer}");
            drop(stream);
            assert!(serving.await.unwrap().is_none());
        }
    }
    let told = server.told.all();
    assert!(!told.contains(&"asked /smuggled".to_owned()), "{told:?}");
}

/// The end of the body is certain here, but the line is longer than the server looks at.
#[tokio::test]
async fn what_follows_a_chunk_size_of_more_than_8_kib_is_refused() {
    let head = HEAD.replacen("known: yes", "Transfer-Encoding: chunked", 1);
    let size = format!("{}5", "0".repeat(8200));
    let text = format!("{head}{size}\r\n12345\r\n0\r\n\r\n{SMUGGLED}{SMUGGLED}");
    for piece_size in [100_000, 7] {
        let server = Server::new();
        let (mut stream, _serving) = server.connect();
        for piece in text.as_bytes().chunks(piece_size) {
            // It may be closed before all is sent.
            let _ = stream.write_all(piece).await;
            tokio::task::yield_now().await;
        }
        let answers = rest(&mut stream).await;
        assert!(answers.contains("/good 5HTTP/1.1 400 "), "{answers}");
        assert!(answers.ends_with("unsound"), "{answers}");
        assert_eq!(server.told.all(), ["asked /good"]);
    }
}
