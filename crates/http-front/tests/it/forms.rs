//! Requests whose end is in doubt, by name. In each of them a proxy may see another request than the server
//! does. So the server must carry out none of them, nor anything after it. The tests of every service send them.

/// An ambiguous request: a good one with these lines in its head, and this after its head.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    pub(crate) name: &'static str,
    /// The signed length.
    length: &'static str,
    lines: &'static str,
    rest: &'static str,
}

const fn length(
    name: &'static str,
    length: &'static str,
    lines: &'static str,
    rest: &'static str,
) -> Form {
    Form {
        name,
        length,
        lines,
        rest,
    }
}

const fn lines(name: &'static str, lines: &'static str, rest: &'static str) -> Form {
    length(name, "", lines, rest)
}

const fn chunks(name: &'static str, rest: &'static str) -> Form {
    lines(name, "Transfer-Encoding: chunked\r\n", rest)
}

const NONE: &str = "0\r\n\r\n";

/// A length of five bytes with so many zeros before it that its line is longer than the server looks at.
const LONG_LINE_BYTES: [u8; 16 + 8200 + 3] = {
    let mut line = [b'0'; 16 + 8200 + 3];
    line.split_at_mut(16).0.copy_from_slice(b"Content-Length: ");
    line.split_at_mut(16 + 8200).1.copy_from_slice(b"5\r\n");
    line
};

const LONG_LINE: &str = match std::str::from_utf8(&LONG_LINE_BYTES) {
    Ok(line) => line,
    Err(_) => panic!("ASCII"),
};

/// Only its value.
const LONG_LENGTH: &str = LONG_LINE.split_at(16).1.split_at(8201).0;

#[rustfmt::skip]
pub(crate) const FORMS: [Form; 85] = [
    // Two lengths, or one that is invalid.
    length("two lengths, the second larger", "5", "Content-Length: 5\r\nContent-Length: 6\r\n", "12345"),
    length("two lengths, the first larger", "6", "Content-Length: 6\r\nContent-Length: 5\r\n", "12345"),
    length("one length twice", "5", "Content-Length: 5\r\nContent-Length: 5\r\n", "12345"),
    length("a length and none, in other case", "5", "Content-Length: 5\r\ncontent-length: 0\r\n", "12345"),
    length("two lengths apart", "5", "Content-Length: 5\r\nX: y\r\nCONTENT-LENGTH: 50\r\n", "12345"),
    length("a list of one length", "5,5", "Content-Length: 5,5\r\n", "12345"),
    length("a list of two lengths", "5, 6", "Content-Length: 5, 6\r\n", "12345"),
    length("a list that ends early", "5,", "Content-Length: 5,\r\n", "12345"),
    length("a list that begins late", ",5", "Content-Length: ,5\r\n", "12345"),
    length("a length with a plus", "+5", "Content-Length: +5\r\n", "12345"),
    length("a length below nothing", "-5", "Content-Length: -5\r\n", "12345"),
    length("nothing, with a minus", "-0", "Content-Length: -0\r\n", "12345"),
    length("a length in hexadecimal", "0x5", "Content-Length: 0x5\r\n", "12345"),
    length("a length of hexadecimal digits", "A", "Content-Length: A\r\n", "1234567890"),
    length("a length in octal", "0o5", "Content-Length: 0o5\r\n", "12345"),
    length("a length with an exponent", "1e1", "Content-Length: 1e1\r\n", "1234567890"),
    length("a length with a separator", "1_0", "Content-Length: 1_0\r\n", "1234567890"),
    length("a length with a space in it", "5 5", "Content-Length: 5 5\r\n", "12345"),
    length("a length with a fraction", "5.0", "Content-Length: 5.0\r\n", "12345"),
    length("a length in quotes", "\"5\"", "Content-Length: \"5\"\r\n", "12345"),
    length("a length with a parameter", "5;x", "Content-Length: 5;x\r\n", "12345"),
    length("a length in letters of another script", "", "Content-Length: \u{665}\r\n", "12345"),
    lines("a length of nothing", "Content-Length:\r\n", "12345"),
    length("a length above 64 bits", "18446744073709551621", "Content-Length: 18446744073709551621\r\n", "12345"),
    length("a length in a line of more than 8 KiB", LONG_LENGTH, LONG_LINE, "12345"),
    length("a space before the colon of a length", "5", "Content-Length : 5\r\n", "12345"),
    length("a tab before the colon of a length", "5", "Content-Length\t: 5\r\n", "12345"),
    length("a NUL before the colon of a length", "5", "Content-Length\0: 5\r\n", "12345"),
    length("a NUL after a length", "5", "Content-Length: 5\0\r\n", "12345"),
    length("a vertical tab before a length", "5", "Content-Length: \x0b5\r\n", "12345"),
    length("a form feed after a length", "5", "Content-Length: 5\x0c\r\n", "12345"),
    length("a folded length", "5", "Content-Length:\r\n 5\r\n", "12345"),
    length("a length that continues in the next line", "5", "Content-Length: 5\r\n 0\r\n", "12345"),
    // A length and chunks.
    length("chunks after a length that is signed", "5", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", NONE),
    lines("chunks after a length", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", NONE),
    lines("a length after chunks", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", NONE),
    lines("a length of none after chunks", "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", NONE),
    lines("a length after chunks, in other case", "transfer-encoding:CHUNKED\r\nX: y\r\ncontent-length:5\r\n", NONE),
    lines("an encoding that is not chunked, and a length", "Content-Length: 5\r\nTransfer-Encoding: xchunked\r\n", "12345"),
    lines("chunks with a vertical tab, and a length", "Content-Length: 5\r\nTransfer-Encoding: \x0bchunked\r\n", "12345"),
    // Encodings other than just chunks.
    length("chunks that are then themselves, and a length", "5", "Content-Length: 5\r\nTransfer-Encoding: chunked, identity\r\n", "12345"),
    lines("an encoding of nothing", "Transfer-Encoding:\r\n", NONE),
    lines("the encoding identity", "Transfer-Encoding: identity\r\n", "12345"),
    lines("an encoding that ends in chunked", "Transfer-Encoding: xchunked\r\n", NONE),
    lines("an encoding that begins with chunked", "Transfer-Encoding: chunkedx\r\n", NONE),
    lines("chunked in quotes", "Transfer-Encoding: \"chunked\"\r\n", NONE),
    lines("chunked with a parameter", "Transfer-Encoding: chunked;q=1\r\n", NONE),
    lines("chunked with a comma behind", "Transfer-Encoding: chunked,\r\n", NONE),
    lines("chunked with a comma before", "Transfer-Encoding: , chunked\r\n", NONE),
    lines("compressed and chunked", "Transfer-Encoding: gzip, chunked\r\n", NONE),
    lines("chunked and compressed", "Transfer-Encoding: chunked, gzip\r\n", NONE),
    lines("chunked twice in a line", "Transfer-Encoding: chunked, chunked\r\n", NONE),
    lines("chunked twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", NONE),
    lines("a vertical tab before chunked", "Transfer-Encoding:\x0bchunked\r\n", NONE),
    lines("a NUL after chunked", "Transfer-Encoding: chunked\0\r\n", NONE),
    lines("a byte above ASCII after chunked", "Transfer-Encoding: chunked\u{a0}\r\n", NONE),
    lines("a space before the colon of an encoding", "Transfer-Encoding : chunked\r\n", NONE),
    lines("a vertical tab before the colon of an encoding", "Transfer-Encoding\x0b: chunked\r\n", NONE),
    lines("chunked, then identity", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", NONE),
    lines("identity, then chunked", "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", NONE),
    lines("a folded encoding", "Transfer-Encoding:\r\n chunked\r\n", NONE),
    lines("a tab before the name of an encoding", "X: y\r\n\tTransfer-Encoding: chunked\r\n", NONE),
    // Invalid lines.
    lines("a folded first line", " folded: x\r\n", ""),
    lines("a length in a folded line", "X: y\r\n Content-Length: 5\r\n", "12345"),
    lines("a space in a name", "Bad Name: x\r\n", ""),
    lines("no name", ": x\r\n", ""),
    lines("no colon", "Nothing\r\n", ""),
    lines("a NUL in a name", "X\0: y\r\n", ""),
    lines("a NUL in a value", "X: a\0b\r\n", ""),
    lines("a name above ASCII", "Content-L\u{117}ngth: 5\r\n", "12345"),
    length("a line feed alone", "5", "X: y\nContent-Length: 5\r\n", "12345"),
    length("a carriage return alone", "5", "X: y\rContent-Length: 5\r\n", "12345"),
    length("two carriage returns", "5", "X: y\r\r\nContent-Length: 5\r\n", "12345"),
    // Invalid chunks.
    chunks("a chunk above 64 bits", "FFFFFFFFFFFFFFFFF\r\n"),
    chunks("a chunk whose size ends with a line feed", "1\n1\r\n0\r\n\r\n"),
    chunks("a chunk in hexadecimal with its mark", "0x1\r\n1\r\n0\r\n\r\n"),
    chunks("an extension that ends with a line feed", "1;x=\n1\r\n0\r\n\r\n"),
    chunks("a chunk that is too long", "1\r\n12\r\n0\r\n\r\n"),
    chunks("a chunk below nothing", "-1\r\n\r\n"),
    chunks("a chunk with a plus", "+1\r\n1\r\n0\r\n\r\n"),
    chunks("a chunk with a space before", " 1\r\n1\r\n0\r\n\r\n"),
    chunks("a chunk without a size", "\r\n1\r\n0\r\n\r\n"),
    chunks("a chunk that ends with a line feed", "1\r\n1\n0\r\n\r\n"),
    chunks("a chunk with a letter too many", "1g\r\n1\r\n0\r\n\r\n"),
    chunks("two sizes of a chunk", "1 1\r\n1\r\n0\r\n\r\n"),
];

/// Invalid first lines: the part of a good one to replace, and its replacement.
#[rustfmt::skip]
pub(crate) const FIRST_LINES: [(&str, &str, &str); 14] = [
    ("two spaces after the verb", "POST ", "POST  "),
    ("a tab after the verb", "POST ", "POST\t"),
    ("a space before the verb", "POST ", " POST "),
    ("a NUL before the verb", "POST ", "\0POST "),
    ("a verb with a colon", "POST ", "POST: "),
    ("a tab after the target", " HTTP/1.1\r\n", "\tHTTP/1.1\r\n"),
    ("a target with a space", " HTTP/1.1\r\n", " x HTTP/1.1\r\n"),
    ("a target with a NUL", " HTTP/1.1\r\n", "\0 HTTP/1.1\r\n"),
    ("HTTP of another case", " HTTP/1.1\r\n", " http/1.1\r\n"),
    ("HTTP 0.9, with headers", " HTTP/1.1\r\n", "\r\n"),
    ("HTTP 1.2", " HTTP/1.1\r\n", " HTTP/1.2\r\n"),
    ("HTTP 2.0 in words", " HTTP/1.1\r\n", " HTTP/2.0\r\n"),
    ("HTTP 1.1 with more", " HTTP/1.1\r\n", " HTTP/1.1 x\r\n"),
    ("a first line that ends with a line feed", " HTTP/1.1\r\n", " HTTP/1.1\n"),
];

impl Form {
    /// The form, made of a good head that has no length and ends with an empty line. `head` is given the length
    /// to sign, if there is one.
    pub(crate) fn of(&self, head: impl FnOnce(&str) -> String) -> String {
        let Self {
            length,
            lines,
            rest,
            ..
        } = self;
        let head = head(length);
        let head = head.strip_suffix("\r\n").expect("an empty line");
        format!("{head}{lines}\r\n{rest}")
    }
}
