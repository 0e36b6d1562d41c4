//! How much of a log is read at once, when it is opened.

/// What a piece still has room for.
#[derive(Debug)]
pub(crate) struct Room {
    left_bytes: u64,
    is_untouched: bool,
}

impl Room {
    /// All of the log is one piece.
    pub(crate) const fn unlimited() -> Self {
        Self::of_bytes(u64::MAX)
    }

    /// Room for so many bytes, or for one thing that is larger.
    pub(crate) const fn of_bytes(size_bytes: u64) -> Self {
        Self {
            left_bytes: size_bytes,
            is_untouched: true,
        }
    }

    /// Whether something of this size fits. The first thing always does.
    pub(crate) fn fits(&self, size_bytes: u64) -> bool {
        self.is_untouched || size_bytes <= self.left_bytes
    }

    /// Whether nothing fits any more.
    pub(crate) fn is_full(&self) -> bool {
        !self.fits(1)
    }

    /// Takes room for something that was read.
    pub(crate) fn take(&mut self, size_bytes: u64) {
        self.is_untouched = false;
        self.left_bytes = self.left_bytes.saturating_sub(size_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_has_room_for_its_size_or_for_one_thing() {
        let mut room = Room::of_bytes(10);
        assert!(room.fits(11), "the first thing fits");
        room.take(4);
        assert!(room.fits(6) && !room.fits(7) && !room.is_full());
        room.take(6);
        assert!(room.is_full());
        let mut room = Room::of_bytes(10);
        room.take(11);
        assert!(room.is_full());
        let mut room = Room::unlimited();
        room.take(1 << 60);
        assert!(room.fits(1 << 60));
    }
}
