//! How clients spell names in heads.

/// The spelling of the names in a head, for a service that preserves it. The HTTP library passes names on in lower
/// case. So the spelling is noted as the bytes of a head arrive, and written back into the bytes of an answer.
///
/// A service that does not preserve the spelling uses `()`.
pub trait Spelling: Default + Send + Unpin {
    /// Notes a line of a head, without its end: the first line or a header.
    fn hear(&mut self, line: &[u8]);

    /// Whether there is nothing to write back.
    fn is_empty(&self) -> bool;

    /// Adds the spelling of the next answer.
    fn append(&mut self, other: Self);

    /// Writes the spelling into the heads in `bytes`, and removes from itself what it has written.
    fn restore(&mut self, bytes: &mut [u8]);
}

impl Spelling for () {
    fn hear(&mut self, _: &[u8]) {}

    fn is_empty(&self) -> bool {
        true
    }

    fn append(&mut self, (): Self) {}

    fn restore(&mut self, _: &mut [u8]) {}
}
