//! Message ids and pop receipts that decode to positions.
//!
//! A token is a keyed permutation of (kind, entity incarnation, sequence number, lease generation):
//! one AES-128 block under the partition's secret. So a token is looked up by decoding it, needs no
//! table, survives a restart, cannot be guessed, and never repeats, because the four numbers never
//! do.

use std::fmt;

use aes::Aes128;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};

/// One life of an entity. A queue that is deleted and created again has a new incarnation, so that
/// nothing that referred to the old one ever means the new one. Fits in 36 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(u64);

impl Incarnation {
    pub(crate) const BITS: u32 = 36;

    /// The incarnation of that number.
    ///
    /// # Panics
    ///
    /// If the number needs more than 36 bits; at a million new entities a second that takes 19
    /// hours of nothing else, and creations are durable writes.
    pub(crate) fn new(number: u64) -> Self {
        assert!(number >> Self::BITS == 0, "incarnations are used up");
        Self(number)
    }

    /// The number.
    pub fn as_u64(self) -> u64 {
        self.0
    }

    pub(crate) fn next(self) -> Self {
        Self::new(self.0 + 1)
    }

    /// The one before, if there is one.
    pub fn before(self) -> Option<Self> {
        (self.0 > 1).then(|| Self(self.0 - 1))
    }

    /// A bus queue and its two sub-queues, of the queue's own incarnation. Only a damaged history has a queue whose
    /// sub-queues would have no number; they count as the last entity.
    pub fn with_sub_queues(self) -> [Self; 3] {
        let last = (1 << Self::BITS) - 1;
        [0, 1, 2].map(|after| Self((self.0 + after).min(last)))
    }
}

/// A message's order within its entity, from 1. Never reused within an incarnation. Fits in 56 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceNumber(u64);

impl SequenceNumber {
    pub(crate) const BITS: u32 = 56;

    /// The first message of an entity.
    pub(crate) const FIRST: Self = Self(1);

    pub(crate) fn new(number: u64) -> Self {
        assert!(number >> Self::BITS == 0, "sequence numbers are used up");
        Self(number)
    }

    /// The number that a client names. A number that no message can have becomes the highest number, which
    /// no message has either.
    pub fn named(number: u64) -> Self {
        Self(number.min((1 << Self::BITS) - 2))
    }

    /// The number.
    pub fn as_u64(self) -> u64 {
        self.0
    }

    pub(crate) fn next(self) -> Self {
        Self::new(self.0 + 1)
    }
}

/// Counts the leases of a message: every new pop receipt has a higher one. Apart from the delivery
/// count, because an update makes a new receipt and is no delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseGeneration(u32);

impl LeaseGeneration {
    /// The generation of the receipt that a send answers with.
    pub(crate) const FIRST: Self = Self(1);

    pub(crate) const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    pub fn as_u32(self) -> u32 {
        self.0
    }

    /// The next generation. Wraps after four billion leases of one message, which no message lives
    /// to see; what matters is that `apply` stays total.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// An opaque 128-bit token: a message id or a pop receipt.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// The token of these bytes, as a client sent them; it may mean nothing.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes, for the front end to show in its protocol's form.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({:032x})", u128::from_be_bytes(self.0))
    }
}

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    MessageId,
    PopReceipt,
    /// A lock on a message of a bus queue.
    BusLock,
    /// A lock on a session: its number takes the sequence number's place.
    SessionLock,
}

impl TokenKind {
    const BITS: u32 = 4;

    const fn code(self) -> u128 {
        match self {
            Self::MessageId => 1,
            Self::PopReceipt => 2,
            Self::BusLock => 3,
            Self::SessionLock => 4,
        }
    }
}

/// The position that a token decodes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenPlace {
    pub(crate) incarnation: Incarnation,
    pub(crate) sequence_number: SequenceNumber,
    /// Zero in a message id.
    pub(crate) generation: LeaseGeneration,
}

/// Makes and reads the tokens of one partition.
#[derive(Clone)]
pub(crate) struct TokenCipher {
    secret: [u8; 16],
    block: Aes128,
}

impl TokenCipher {
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        Self {
            secret,
            block: Aes128::new(&Array::from(secret)),
        }
    }

    pub(crate) fn secret(&self) -> &[u8; 16] {
        &self.secret
    }

    pub(crate) fn seal(&self, kind: TokenKind, place: TokenPlace) -> Token {
        let generation_bits = u32::BITS;
        let sequence_shift = generation_bits;
        let incarnation_shift = sequence_shift + SequenceNumber::BITS;
        let kind_shift = incarnation_shift + Incarnation::BITS;
        let plain = kind.code() << kind_shift
            | u128::from(place.incarnation.0) << incarnation_shift
            | u128::from(place.sequence_number.0) << sequence_shift
            | u128::from(place.generation.0);
        let mut block = Array::from(plain.to_be_bytes());
        self.block.encrypt_block(&mut block);
        Token(block.into())
    }

    /// The position that the token names, if the token is of this kind. A forged token fails here. With a
    /// chance of one in 2^32 at best it names a position with the wrong generation.
    pub(crate) fn open(&self, kind: TokenKind, token: Token) -> Option<TokenPlace> {
        let mut block = Array::from(token.0);
        self.block.decrypt_block(&mut block);
        let plain = u128::from_be_bytes(block.into());
        let bits = |shift: u32, count: u32| {
            let field = plain >> shift & ((1 << count) - 1);
            u64::try_from(field).expect("a field has at most 56 bits")
        };
        let sequence_shift = u32::BITS;
        let incarnation_shift = sequence_shift + SequenceNumber::BITS;
        let kind_shift = incarnation_shift + Incarnation::BITS;
        if u128::from(bits(kind_shift, TokenKind::BITS)) != kind.code() {
            return None;
        }
        Some(TokenPlace {
            incarnation: Incarnation(bits(incarnation_shift, Incarnation::BITS)),
            sequence_number: SequenceNumber(bits(sequence_shift, SequenceNumber::BITS)),
            generation: LeaseGeneration(
                u32::try_from(bits(0, u32::BITS)).expect("the field has 32 bits"),
            ),
        })
    }
}

impl TokenCipher {
    /// A keyed hash: a CBC-MAC, under a key of its own, of the text with its length in front.
    pub(crate) fn hash(&self, text: &[u8]) -> u128 {
        let mut key = Array::from([0xff; 16]);
        self.block.encrypt_block(&mut key);
        let cipher = Aes128::new(&key);
        let mut chain = Array::from((text.len() as u128).to_be_bytes());
        cipher.encrypt_block(&mut chain);
        for block in text.chunks(16) {
            for (byte, more) in chain.iter_mut().zip(block) {
                *byte ^= more;
            }
            cipher.encrypt_block(&mut chain);
        }
        u128::from_be_bytes(chain.into())
    }
}

impl PartialEq for TokenCipher {
    fn eq(&self, other: &Self) -> bool {
        self.secret == other.secret
    }
}

impl fmt::Debug for TokenCipher {
    /// Does not show the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenCipher(..)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(incarnation: u64, sequence_number: u64, generation: u32) -> TokenPlace {
        TokenPlace {
            incarnation: Incarnation(incarnation),
            sequence_number: SequenceNumber(sequence_number),
            generation: LeaseGeneration(generation),
        }
    }

    #[test]
    fn a_token_is_one_aes_block() {
        // The layout is part of the format: receipts outlive the version that made them.
        let cipher = TokenCipher::new([7; 16]);
        let token = cipher.seal(TokenKind::PopReceipt, place(1, 2, 3));
        let mut plain = Array::from(*token.as_bytes());
        cipher.block.decrypt_block(&mut plain);
        assert_eq!(
            u128::from_be_bytes(plain.into()),
            0x2000_0000_0100_0000_0000_0002_0000_0003
        );
    }

    #[test]
    fn a_receipt_is_no_message_id() {
        let cipher = TokenCipher::new([1; 16]);
        let token = cipher.seal(TokenKind::PopReceipt, place(1, 1, 1));
        assert_eq!(cipher.open(TokenKind::MessageId, token), None);
        assert_eq!(
            TokenCipher::new([2; 16]).open(TokenKind::PopReceipt, token),
            None
        );
    }

    proptest! {
        #[test]
        fn opening_undoes_sealing(
            secret: [u8; 16],
            incarnation in 0u64..1 << 36,
            sequence_number in 0u64..1 << 56,
            generation: u32,
        ) {
            let cipher = TokenCipher::new(secret);
            let place = place(incarnation, sequence_number, generation);
            for kind in [
                TokenKind::MessageId,
                TokenKind::PopReceipt,
                TokenKind::BusLock,
                TokenKind::SessionLock,
            ] {
                let token = cipher.seal(kind, place);
                prop_assert_eq!(cipher.open(kind, token), Some(place));
            }
        }
    }
}
