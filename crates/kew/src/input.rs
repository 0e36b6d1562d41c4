//! Messages from a file or from standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Read as _};
use std::path::Path;

use crate::queue_command::{Failure, note};

/// The most bytes read as one message. Services accept far less, and refuse the rest themselves.
const MESSAGE_SIZE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Where messages are read from.
pub(crate) struct Input {
    reader: Box<dyn BufRead>,
    name: String,
    line: u64,
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
        self.checked(read, bytes)
    }

    /// The next line, without its LF or CRLF; `None` after the last.
    pub(crate) fn line(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        self.line += 1;
        let mut bytes = Vec::new();
        let mut limited = (&mut self.reader).take(MESSAGE_SIZE_BYTES_MAX + 1);
        let read = limited.read_until(b'\n', &mut bytes);
        let mut bytes = self.checked(read, bytes)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        if bytes.ends_with(b"\n") {
            bytes.pop();
        }
        if bytes.ends_with(b"\r") {
            bytes.pop();
        }
        Ok(Some(bytes))
    }

    fn checked(&self, read: io::Result<usize>, bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
        read.map_err(|error| unreadable(&self.place(), &error))?;
        if bytes.len() as u64 > MESSAGE_SIZE_BYTES_MAX {
            return Err(Failure::Usage(format!(
                "{} is longer than {MESSAGE_SIZE_BYTES_MAX} bytes, which no service accepts",
                self.place()
            )));
        }
        Ok(bytes)
    }
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::Usage(format!("cannot read {name}: {error}"))
}
