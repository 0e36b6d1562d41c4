//! Messages from a file or from standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Read as _};
use std::path::Path;

use crate::queue_command::{Failure, note};

/// The most bytes read as one message. Services accept far less, and refuse the rest themselves.
const MESSAGE_SIZE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The most bytes of a line that holds a whole message: one of 101 MiB whose text takes six bytes for each of its own.
const RECORD_SIZE_BYTES_MAX: u64 = 640 * 1024 * 1024;

/// Where messages are read from.
pub(crate) struct Input {
    reader: Box<dyn BufRead>,
    name: String,
    line: u64,
    line_size_bytes_max: u64,
}

impl Input {
    /// The file, or standard input, which `-` means too.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        if let Some(path) = path.filter(|path| path.as_os_str() != "-") {
            let name = path.display().to_string();
            let file = File::open(path).map_err(|error| unreadable(&name, &error))?;
            return Ok(Self::of(BufReader::new(file), name));
        }
        if io::stdin().is_terminal() {
            note("reading standard input until Ctrl-D");
        }
        Ok(Self::of(io::stdin().lock(), "standard input".to_owned()))
    }

    fn of(reader: impl BufRead + 'static, name: String) -> Self {
        Self {
            reader: Box::new(reader),
            name,
            line: 0,
            line_size_bytes_max: MESSAGE_SIZE_BYTES_MAX,
        }
    }

    /// Has lines be as long as exported messages are.
    pub(crate) fn of_records(self) -> Self {
        Self {
            line_size_bytes_max: RECORD_SIZE_BYTES_MAX,
            ..self
        }
    }

    /// The source of the last message.
    pub(crate) fn place(&self) -> String {
        match self.line {
            0 => self.name.clone(),
            line => format!("{}, line {line}", self.name),
        }
    }

    /// The whole input as one message.
    pub(crate) fn whole(&mut self) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        let mut limited = (&mut self.reader).take(MESSAGE_SIZE_BYTES_MAX + 1);
        let read = limited.read_to_end(&mut bytes);
        read.map_err(|error| unreadable(&self.place(), &error))?;
        match bytes.len() as u64 > MESSAGE_SIZE_BYTES_MAX {
            true => Err(self.too_long(MESSAGE_SIZE_BYTES_MAX)),
            false => Ok(bytes),
        }
    }

    /// The next line, without its LF or CRLF; `None` after the last.
    pub(crate) fn line(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        self.line_or_wrong()?.transpose()
    }

    /// The same, with a line that is too long apart from an input that cannot be read: after such a line comes the next
    /// one.
    pub(crate) fn line_or_wrong(&mut self) -> Result<Option<Result<Vec<u8>, Failure>>, Failure> {
        self.line += 1;
        let size_bytes_max = self.line_size_bytes_max;
        let mut bytes = Vec::new();
        let mut limited = (&mut self.reader).take(size_bytes_max + 1);
        let read = limited.read_until(b'\n', &mut bytes);
        read.map_err(|error| unreadable(&self.place(), &error))?;
        if bytes.is_empty() {
            return Ok(None);
        }
        if bytes.ends_with(b"\n") {
            bytes.pop();
        } else if bytes.len() as u64 > size_bytes_max {
            let skipped = self.reader.skip_until(b'\n');
            skipped.map_err(|error| unreadable(&self.place(), &error))?;
            return Ok(Some(Err(self.too_long(size_bytes_max))));
        }
        if bytes.ends_with(b"\r") {
            bytes.pop();
        }
        Ok(Some(Ok(bytes)))
    }

    fn too_long(&self, size_bytes_max: u64) -> Failure {
        Failure::Usage(format!(
            "{} is longer than {size_bytes_max} bytes, which no service accepts",
            self.place()
        ))
    }
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::Usage(format!("cannot read {name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails after its bytes, as a broken disk does.
    struct Broken(&'static [u8]);

    impl io::Read for Broken {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            match self.0.read(out)? {
                0 => Err(io::Error::other("broken")),
                count => Ok(count),
            }
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_to_its_end() {
        let mut input = Input::of(&b"a\r\n12345\n1234\n123456"[..], "input".into());
        input.line_size_bytes_max = 4;
        let mut next = || input.line_or_wrong().unwrap();
        assert_eq!(next().unwrap().unwrap(), b"a");
        let error = next().unwrap().unwrap_err().message();
        assert!(error.contains("input, line 2 is longer than 4"), "{error}");
        assert_eq!(next().unwrap().unwrap(), b"1234");
        assert!(next().unwrap().is_err());
        assert!(next().is_none());
    }

    #[test]
    fn what_cannot_be_read_is_no_wrong_line() {
        let mut input = Input::of(BufReader::new(Broken(b"a\nb")), "input".into());
        assert_eq!(input.line_or_wrong().unwrap().unwrap().unwrap(), b"a");
        let error = input.line_or_wrong().unwrap_err().message();
        assert!(error.contains("broken"), "{error}");
    }
}
