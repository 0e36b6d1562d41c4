//! Changes to valid bytes, determined by the bytes of a fuzz input.

/// Reads an input from start to end. After its end it yields zeros.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// A reader at the start of an input.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    /// The next number, of 8 bytes.
    pub fn number(&mut self) -> u64 {
        u64::from_le_bytes([(); 8].map(|()| self.byte()))
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let number = u64::from_le_bytes([self.byte(), self.byte(), self.byte(), 0, 0, 0, 0, 0]);
        usize::try_from(number).expect("24 bits") % limit
    }

    /// Some of the next bytes, 255 at most.
    pub fn piece(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (piece, rest) = self.0.split_at(length);
        self.0 = rest;
        piece
    }

    /// All remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

/// Numbers that code for lengths and counts often handles wrongly.
const INTERESTING: [u64; 10] = [
    0,
    1,
    0x7f,
    0x80,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x1_0000_0000,
    1 << 56,
    u64::MAX,
];

/// Makes one change.
pub fn change(bytes: &mut Vec<u8>, input: &mut Input<'_>) {
    let kind = input.byte() % 8;
    if bytes.is_empty() {
        bytes.extend_from_slice(input.piece());
        return;
    }
    let at = input.below(bytes.len());
    match kind {
        0 => bytes[at] ^= 1 << (input.byte() % 8),
        1 => bytes[at] = input.byte(),
        2 => overwrite(bytes, at, input.piece()),
        3 => bytes.truncate(at),
        4 => {
            let pick = usize::from(input.byte()) % INTERESTING.len();
            let width = [1, 2, 4, 8][usize::from(input.byte()) % 4];
            overwrite(bytes, at, &INTERESTING[pick].to_le_bytes()[..width]);
        }
        5 => {
            let piece = input.piece();
            bytes.splice(at..at, piece.iter().copied());
        }
        6 => {
            let end = (at + 1 + input.below(64)).min(bytes.len());
            bytes.drain(at..end);
        }
        _ => {
            // A block from elsewhere in the same file.
            let size = [8, 512, 4096][usize::from(input.byte()) % 3].min(bytes.len());
            let from = input.below(bytes.len() - size + 1);
            let block = bytes[from..from + size].to_vec();
            overwrite(bytes, at, &block);
        }
    }
}

/// Makes up to eight changes.
pub fn changes(bytes: &mut Vec<u8>, input: &mut Input<'_>) {
    for _ in 0..=input.byte() % 8 {
        change(bytes, input);
    }
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    let size = with.len().min(bytes.len() - at);
    bytes[at..at + size].copy_from_slice(&with[..size]);
}
