//! What answers are read, in which pieces, and which are refused.

use bytes::BytesMut;
use proptest::prelude::*;

use super::*;

type Read = Result<Option<(Answer, bool)>, Malformed>;

/// Reads an answer that comes in these pieces. What follows it stays in the input.
fn read_of(pieces: &[&[u8]], input: &mut BytesMut, is_head_only: bool) -> (Reading, Read) {
    let mut reading = Reading::new(is_head_only);
    for piece in pieces {
        input.extend_from_slice(piece);
        match reading.take(input) {
            Ok(None) => {}
            other => return (reading, other),
        }
    }
    (reading, Ok(None))
}

fn error_of(text: &str) -> Option<Malformed> {
    let mut input = BytesMut::new();
    read_of(&[text.as_bytes()], &mut input, false).1.err()
}

/// Answers with their bodies, and whether their connections can be used again.
const WHOLE: [(&str, &str, bool); 19] = [
    ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", true),
    ("HTTP/1.1 200\r\ncontent-length:2\r\n\r\nok", "ok", true),
    (
        "\r\n\nHTTP/1.1 200 OK\nContent-Length: 2 \n\nok",
        "ok",
        true,
    ),
    ("HTTP/1.1 204 No Content\r\n\r\n", "", true),
    ("HTTP/1.1 204 \r\nContent-Length: 0\r\n\r\n", "", true),
    ("HTTP/1.1 204 \r\nContent-Length: 9\r\n\r\n", "", false),
    (
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
        "",
        false,
    ),
    (
        "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
        "",
        true,
    ),
    (
        "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n",
        "",
        true,
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\ncontent-length: 1\r\n\r\n1",
        "1",
        true,
    ),
    (
        "HTTP/1.1 200 OK\r\nConnection: Keep-Alive, CLOSE\r\nContent-Length: 1\r\n\r\n1",
        "1",
        false,
    ),
    ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n1", "1", false),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
        "abc",
        true,
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
         00000000000000000C ; a=b;c=\"d\"\r\nhello\r\nworld\r\n1   \r\n!\r\n0\r\nx: y\r\nz:\r\n\r\n",
        "hello\r\nworld!",
        true,
    ),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0;last\r\n\r\n",
        "",
        true,
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        "a",
        false,
    ),
    (
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nContent-Length: 9\r\n\r\n\
         HTTP/1.1 400 Bad\r\nContent-Length: 1\r\n\r\n1",
        "1",
        true,
    ),
    (
        "HTTP/1.1 599 \u{e9}\r\nx-ms-meta-a: \u{e9}\r\nContent-Length: 1\r\n\r\n1",
        "1",
        true,
    ),
    (
        "HTTP/1.1 200 OK\r\nConnection:\r\nContent-Length: 0\r\n\r\n",
        "",
        true,
    ),
];

#[test]
fn an_answer_ends_where_its_framing_says() {
    for (text, body, is_kept) in WHOLE {
        let with_next = format!("{text}HTTP");
        let mut input = BytesMut::new();
        let (_, read) = read_of(&[with_next.as_bytes()], &mut input, false);
        let (answer, kept) = read.unwrap().unwrap();
        assert_eq!(
            (&answer.body[..], kept),
            (body.as_bytes(), is_kept),
            "{text}"
        );
        assert_eq!(input, "HTTP", "{text}");
    }
}

#[test]
fn an_answer_is_the_same_in_any_pieces_and_none_is_whole_early() {
    for (text, body, _) in WHOLE {
        for cut in 0..text.len() {
            let (first, rest) = text.as_bytes().split_at(cut);
            let mut input = BytesMut::new();
            let (mut reading, read) = read_of(&[first], &mut input, false);
            assert!(matches!(read, Ok(None)), "{text:?} after {cut}");
            assert_eq!(reading.end(&mut input).err(), Some(Malformed::Truncated));
            let mut input = BytesMut::new();
            let (_, read) = read_of(&[first, rest], &mut input, false);
            assert_eq!(read.unwrap().unwrap().0.body, body, "{text:?} cut at {cut}");
        }
        let bytes: Vec<_> = text.as_bytes().chunks(1).collect();
        let mut input = BytesMut::new();
        let (_, read) = read_of(&bytes, &mut input, false);
        assert_eq!(read.unwrap().unwrap().0.body, body, "{text:?}");
        assert!(input.is_empty(), "{text:?}");
    }
}

#[test]
fn an_answer_without_a_length_ends_with_its_connection() {
    let text = b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n1\r\n\r\n2";
    let (head, _) = text.split_at(text.len() - 6);
    for cut in 0..=text.len() {
        let (first, rest) = text.split_at(cut);
        let mut input = BytesMut::new();
        let (mut reading, read) = read_of(&[first, rest], &mut input, false);
        assert!(matches!(read, Ok(None)), "{read:?}");
        assert_eq!(reading.end(&mut input).unwrap().body, "1\r\n\r\n2");
        let mut input = BytesMut::new();
        let (mut reading, _) = read_of(&[first], &mut input, false);
        let ended = reading.end(&mut input);
        assert_eq!(ended.is_ok(), first.len() >= head.len(), "{ended:?}");
    }
}

#[test]
fn an_answer_to_head_has_no_body() {
    for head in [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
    ] {
        let (_, read) = read_of(&[head.as_bytes()], &mut BytesMut::new(), true);
        let (answer, is_kept) = read.unwrap().unwrap();
        assert_eq!((answer.body.len(), is_kept), (0, true));
    }
}

#[test]
fn headers_are_found_in_any_case() {
    let text = "HTTP/1.1 200 OK: fine\r\nX-Ms-A:  b c \r\nx-ms-a: second\r\nEmpty:\r\n\
         x-ms-meta-Raw: \u{e9}\r\ncolon: a:b\r\nContent-Length: 0\r\n\r\n";
    let (_, read) = read_of(&[text.as_bytes()], &mut BytesMut::new(), false);
    let headers = read.unwrap().unwrap().0.headers;
    for (name, value) in [
        ("x-ms-a", Some("b c")),
        ("EMPTY", Some("")),
        ("x-ms-meta-raw", Some("\u{e9}")),
        ("colon", Some("a:b")),
        ("http/1.1 200 ok", None),
        ("b c", None),
    ] {
        assert_eq!(headers.get(name), value, "{name}");
    }
    assert_eq!(headers.iter().count(), 6);
}

#[test]
fn what_is_in_doubt_is_refused() {
    let with = |header: &str| error_of(&format!("HTTP/1.1 200 OK\r\n{header}\r\n\r\n1"));
    for header in [
        "content-length: +1",
        "content-length: -1",
        "content-length: 0x1",
        "content-length: 1 1",
        "content-length: 1, 2",
        "content-length: 1,",
        "content-length:",
        "content-length: 99999999999999999999",
        "content-length: 1\r\ncontent-length: 2",
    ] {
        assert_eq!(with(header), Some(Malformed::Length), "{header}");
    }
    for header in [
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: identity",
        "transfer-encoding: chunked, chunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        "transfer-encoding:",
    ] {
        assert_eq!(with(header), Some(Malformed::Encoding), "{header}");
    }
    for header in ["no colon", " folded", "a : b", "a\0: b", "a: \0"] {
        assert!(matches!(with(header), Some(Malformed::Head(_))), "{header}");
    }
    for text in [
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 20\r\n\r\n",
        "<html>\n\n",
    ] {
        assert!(matches!(error_of(text), Some(Malformed::Head(_))), "{text}");
    }
    let switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n";
    assert_eq!(error_of(switched), Some(Malformed::OtherProtocol));
    for chunks in [
        "\r\n",
        "x\r\n",
        "-1\r\n",
        "+1\r\n",
        "1 1\r\n",
        ";\r\n",
        "1\n1\r\n",
        "1\r\n12\r\n",
        "1\r\n1\n",
        "0\r\n\n",
        "11111111111111111\r\n",
    ] {
        let text = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}");
        assert_eq!(error_of(&text), Some(Malformed::Chunk), "{chunks:?}");
    }
}

#[test]
fn all_that_is_kept_has_a_limit() {
    let ok = "HTTP/1.1 200 OK\r\n";
    let chunked = format!("{ok}transfer-encoding: chunked\r\n\r\n");
    let many = |part: &str| part.repeat(HEAD_SIZE_MAX / part.len() + 1);
    for (text, expected) in [
        // It is refused before its end.
        (format!("{ok}a: {}", many("b")), Malformed::LongHead),
        (many("\r\n"), Malformed::LongHead),
        (many("HTTP/1.1 100 Continue\r\n\r\n"), Malformed::LongHead),
        (
            format!("{ok}{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1)),
            Malformed::Head(httparse::Error::TooManyHeaders),
        ),
        (
            format!("{ok}content-length: {}\r\n\r\n", BODY_SIZE_MAX + 1),
            Malformed::LongBody,
        ),
        (
            format!("{chunked}{:x}\r\n", BODY_SIZE_MAX + 1),
            Malformed::LongBody,
        ),
        (
            format!("{chunked}1\r\na\r\nffffffffffffffff\r\n"),
            Malformed::LongBody,
        ),
        (
            format!("{chunked}{}", "0".repeat(CHUNK_LINE_MAX)),
            Malformed::Chunk,
        ),
        (
            format!("{chunked}{}", many("1;abcdefg\r\na\r\n").repeat(3)),
            Malformed::LongHead,
        ),
        (
            format!("{chunked}0\r\n{}", many("a: b\r\n").repeat(2)),
            Malformed::LongHead,
        ),
    ] {
        let begin = text.get(..99).unwrap_or(&text);
        assert_eq!(error_of(&text), Some(expected), "{begin}");
    }
    let mut input = BytesMut::new();
    let endless = [
        format!("{ok}\r\n").into_bytes(),
        vec![b'a'; BODY_SIZE_MAX + 1],
    ];
    let pieces: Vec<&[u8]> = endless.iter().map(Vec::as_slice).collect();
    let (_, read) = read_of(&pieces, &mut input, false);
    assert_eq!(read.err(), Some(Malformed::LongBody));
}

proptest! {
    #[test]
    fn the_outcome_does_not_depend_on_the_pieces(
        which in 0..WHOLE.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let mut bytes = WHOLE[which].0.as_bytes().to_vec();
        for (at, byte) in changes {
            *at.get_mut(&mut bytes) = byte;
        }
        let mut cuts: Vec<_> = cuts.iter().map(|it| it.index(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|it| &bytes[it[0]..it[1]]).collect();
        let outcome = |pieces: &[&[u8]]| {
            let mut input = BytesMut::new();
            let (mut reading, read) = read_of(pieces, &mut input, false);
            match read? {
                Some((answer, is_kept)) => Ok((answer.status, answer.body, is_kept)),
                None => reading.end(&mut input).map(|it| (it.status, it.body, false)),
            }
        };
        prop_assert_eq!(outcome(&[&bytes]), outcome(&pieces));
    }
}
