use proptest::prelude::*;

use super::*;

const HEAD: &str = "PUT /a/q HTTP/1.1\r\nHost: h\r\nX-Ms-Meta-OwnerName: x-ms-meta-No: 1\r\n\
    x-ms-date: y\r\nx-ms-meta-lower:2\r\n";

/// The names of metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Names(Vec<String>);

impl Spelling for Names {
    fn hear(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        if let Some((prefix, rest)) = line.split_at_checked("x-ms-meta-".len())
            && prefix.eq_ignore_ascii_case("x-ms-meta-")
        {
            self.0.push(rest.split(':').next().unwrap().to_owned());
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    fn restore(&mut self, _: &mut [u8]) {}
}

fn names(names: &[&str]) -> Names {
    Names(names.iter().map(|name| (*name).to_owned()).collect())
}

fn heard(pieces: &[&[u8]]) -> Vec<Names> {
    let mut listener = Listener::default();
    let mut heard = Vec::new();
    for piece in pieces {
        listener.listen(piece, |names| heard.push(names));
    }
    heard
}

/// Three requests, one with each kind of body, and the names that each spells.
fn pipeline() -> (String, Vec<Names>) {
    let text = format!(
        "\r\n{HEAD}Content-Length: 19\r\n\r\nx-ms-meta-Body: 3\r\n\
         {HEAD}transfer-ENCODING:chunked\r\n\r\n\
         A;x=y\r\n\r\n\r\nx-ms-m\r\n1 \r\nx\r\n0\r\nx-ms-meta-Trailer: 1\r\n\r\n\
         GET / HTTP/1.1\r\nx-ms-META-last: 1\r\n\r\n"
    );
    let both = names(&["OwnerName", "lower"]);
    (text, vec![both.clone(), both, names(&["last"])])
}

#[test]
fn heads_are_reported_and_bodies_are_not() {
    let (text, expected) = pipeline();
    assert_eq!(heard(&[text.as_bytes()]), expected);
}

#[test]
fn every_split_of_the_bytes_gives_the_same_heads() {
    let (text, expected) = pipeline();
    for index in 0..text.len() {
        let (first, second) = text.as_bytes().split_at(index);
        assert_eq!(heard(&[first, second]), expected, "{index}");
    }
    let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
    assert_eq!(heard(&bytes), expected);
}

#[test]
fn heads_are_counted_and_bodies_are_not() {
    let head = "PUT / HTTP/1.1\r\nContent-Length: 5\r\n\r\n";
    let mut listener = Listener::<()>::default();
    let mut hear = |text: &str| {
        listener.listen(text.as_bytes(), |()| {});
        (listener.take_size_bytes(), listener.unfinished_size_bytes())
    };
    assert_eq!(hear(head), (head.len(), 0));
    assert_eq!(hear("12345GET"), (3, 3));
    assert_eq!(hear(" / "), (3, 6));
    assert_eq!(hear("HTTP/1.1\nlost"), (13, 19));
    assert_eq!(hear("more"), (4, 23));
}

#[test]
fn a_client_is_between_requests_after_the_last_byte_of_one() {
    let mut listener = Listener::<()>::default();
    let mut hear = |text: &str| {
        listener.listen(text.as_bytes(), |()| {});
        listener.is_between_requests()
    };
    assert!(hear(""));
    assert!(!hear("P"));
    assert!(!hear("UT / HTTP/1.1\r\nContent-Length: 3\r\n\r\n12"));
    assert!(hear("3"));
    assert!(hear("\r\n"), "an empty line");
    assert!(!hear(
        "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    ));
    assert!(hear("\r\n"));
    assert!(!hear("GET / HTTP/1.1\n"), "unsound");
    assert!(!hear("\r\n\r\n"));
}

#[test]
fn a_long_line_is_known_by_its_name() {
    let long = "v".repeat(3 * LINE_SIZE_BYTES_MAX);
    let text = format!("GET / HTTP/1.1\r\nx-ms-meta-Long: {long}\r\n\r\n");
    for size in [1, 1000, 100_000] {
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
        assert_eq!(heard(&pieces), [names(&["Long"])], "{size}");
    }
}

/// So many zeros that what follows them in a line is cut.
const ZEROS: &str = match std::str::from_utf8(&[b'0'; LINE_SIZE_BYTES_MAX]) {
    Ok(zeros) => zeros,
    Err(_) => panic!("ASCII"),
};

#[test]
fn an_unsound_head_is_not_reported_nor_is_any_later_one() {
    for lines in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\ncontent-length: 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length:\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "X: y\nY: z\r\n",
        &format!("Content-Length: {ZEROS}5\r\n"),
        &format!("Transfer-Encoding:{}chunked\r\n", ZEROS.replace('0', " ")),
        "\n",
    ] {
        let text = format!("POST / HTTP/1.1\r\n{lines}\r\nGET / HTTP/1.1\r\n\r\n");
        assert_eq!(heard(&[text.as_bytes()]), [], "{lines}");
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(heard(&bytes), [], "{lines}");
    }
    for chunks in [
        "5\n",
        "x\r\n",
        "\r\n",
        "ffffffffffffffff\r\n",
        "10000000000000000\r\n",
        &format!("{ZEROS}\r\n\r\n"),
    ] {
        let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let text = format!("{head}{chunks}GET / HTTP/1.1\r\n\r\n");
        assert_eq!(heard(&[text.as_bytes()]).len(), 1, "{chunks}");
    }
}

proptest! {
    #[test]
    fn listening_never_panics(pieces: Vec<Vec<u8>>) {
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        heard(&pieces);
    }

    #[test]
    fn splits_make_no_difference(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("\r\n"), Just("\n"), Just("\r"), Just("x-ms-meta-A"), Just(":"), Just("5"),
                Just("content-length:"), Just("transfer-encoding:"), Just("chunked"), Just("0"),
                Just("G\r\ncontent-length:"), Just("G\r\ntransfer-encoding:chunked\r\n\r\n"),
                Just(ZEROS), Just("5\r\n\r\n"),
            ],
            0..40,
        ),
        size in 1_usize..9,
    ) {
        let text = parts.concat();
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
        prop_assert_eq!(heard(&pieces), heard(&[text.as_bytes()]));
    }
}
