//! Random numbers by named streams: one more draw for one purpose changes nothing for the others.

/// A stream of numbers determined by a seed and a name (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Stream(u64);

impl Stream {
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        let mut stream = Self(seed);
        for byte in name.bytes() {
            stream.0 = stream.next() ^ u64::from(byte);
        }
        stream
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is above zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn below_u32(&mut self, end: u32) -> u32 {
        u32::try_from(self.below(u64::from(end))).expect("below a u32")
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below a usize")
    }

    /// True `per_mille` times in a thousand.
    pub(crate) fn happens(&mut self, per_mille: u32) -> bool {
        self.below(1000) < u64::from(per_mille)
    }
}
