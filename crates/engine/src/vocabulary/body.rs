//! Where a body is in the log.

/// The location of a body in the log: a logical place, known before the append, and how its holder counts it.
///
/// Only the log maps it to a file. It stays the same when a record is copied to another segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyLocation {
    /// Log position of the record that holds the body.
    pub record: u64,
    /// The offset, and two bits for the hold.
    pub(crate) place: u32,
    /// Its length in bytes.
    pub length: u32,
}

/// Whether other messages have the same body, and which of them counts its length. It takes no memory: a batch is at
/// most 16 MiB, so an offset has bits to spare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hold {
    /// No other message has it.
    #[default]
    Alone,
    /// Others may have it, too, and count nothing for its length.
    Lends,
    /// Another one counts its length, or did.
    Borrows,
}

impl BodyLocation {
    /// The highest offset.
    pub const OFFSET_MAX: u32 = (1 << 30) - 1;

    const LENDS: u32 = 1 << 30;
    const BORROWS: u32 = 1 << 31;

    /// A body of one message, which begins there in its record's payload.
    pub const fn new(record: u64, offset: u32, length: u32) -> Self {
        assert!(offset <= Self::OFFSET_MAX, "a batch is much smaller");
        Self {
            record,
            place: offset,
            length,
        }
    }

    /// A location as its bytes have it. `None` if no hold has these bits.
    pub(crate) fn of_place(record: u64, place: u32, length: u32) -> Option<Self> {
        let both = Self::LENDS | Self::BORROWS;
        (place & both != both).then_some(Self {
            record,
            place,
            length,
        })
    }

    /// Where the body begins in its record's payload.
    pub fn offset(self) -> u32 {
        self.place & Self::OFFSET_MAX
    }

    /// The offset with the bits of the hold.
    pub(crate) fn place(self) -> u32 {
        self.place
    }

    /// Whether other messages have it.
    pub fn hold(self) -> Hold {
        match self.place & !Self::OFFSET_MAX {
            0 => Hold::Alone,
            Self::LENDS => Hold::Lends,
            _ => Hold::Borrows,
        }
    }

    /// The same place with another hold.
    #[must_use]
    pub fn with(self, hold: Hold) -> Self {
        let bits = match hold {
            Hold::Alone => 0,
            Hold::Lends => Self::LENDS,
            Hold::Borrows => Self::BORROWS,
        };
        Self {
            place: self.offset() | bits,
            ..self
        }
    }

    /// The same with another position.
    #[must_use]
    pub(crate) fn at_record(self, record: u64) -> Self {
        Self { record, ..self }
    }

    /// Whether it is the same body, whatever counts its length.
    pub fn is_same_place(self, other: Self) -> bool {
        self.with(Hold::Alone) == other.with(Hold::Alone)
    }

    /// How many bytes another message counts for it.
    pub(crate) fn borrowed_bytes(self) -> u64 {
        match self.hold() {
            Hold::Alone | Hold::Lends => 0,
            Hold::Borrows => self.length.into(),
        }
    }

    /// Whether it is the place of a body: none begins where the framing of the first record does.
    pub(crate) fn is_of_a_body(self) -> bool {
        self != Self::default()
    }
}

/// What is known of the bytes of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyRead {
    /// They are what was written, and stay in memory until the decision is answered.
    Whole,
    /// They are not what was written.
    Damaged,
    /// They were not read yet.
    Missing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_has_a_hold_beside_its_offset() {
        let alone = BodyLocation::new(7, BodyLocation::OFFSET_MAX, 100);
        for (hold, bits, borrowed_bytes) in [
            (Hold::Alone, 0, 0),
            (Hold::Lends, 1, 0),
            (Hold::Borrows, 2, 100),
        ] {
            let held = alone.with(hold);
            assert_eq!(held.hold(), hold);
            assert_eq!(held.offset(), BodyLocation::OFFSET_MAX);
            assert_eq!(held.place() >> 30, bits);
            assert_eq!(held.borrowed_bytes(), borrowed_bytes);
            assert!(held.is_same_place(alone) && held.with(Hold::Alone) == alone);
            assert_eq!(held == alone, hold == Hold::Alone);
            assert_eq!(BodyLocation::of_place(7, held.place(), 100), Some(held));
            assert_eq!(alone.with(Hold::Borrows).with(hold), held);
        }
        assert!(!alone.is_same_place(alone.at_record(8)));
        assert_eq!(BodyLocation::of_place(7, 3 << 30, 100), None);
    }
}
