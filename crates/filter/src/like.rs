//! `LIKE`: patterns with `%` and `_`, matched without backtracking.
//!
//! A pattern is cut at each `%` into *pieces*. The first piece stands at the beginning, the last one at the end, and each
//! of the others at its first place behind the one before. A piece with `_` in the middle is searched for with one bit for
//! each of its characters, so a text of n bytes costs n steps for each 64 characters of the piece, whatever they are.

use crate::error::Fault;
use crate::limits::PATTERN_CHARS_MAX;

const WORD_BITS: usize = u64::BITS as usize;
const WORDS_MAX: usize = PATTERN_CHARS_MAX.div_ceil(WORD_BITS);

/// How many characters of a piece with `_` take a step where it stands at an end of the pattern.
const COMPARED_PER_STEP: usize = 16;

/// A pattern.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pattern {
    first: Piece,
    /// `None` if the pattern has no `%`: then the first piece is all.
    rest: Option<Rest>,
}

/// What stands behind the first `%`.
#[derive(Clone, Debug, PartialEq)]
struct Rest {
    middle: Vec<Piece>,
    last: Piece,
}

/// Characters between two `%`.
#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Literal(Box<str>),
    Wild(Wild),
}

/// Characters with `_` among them, which is `None` here.
#[derive(Clone, Debug, PartialEq)]
struct Wild {
    chars: Box<[Option<char>]>,
    fits: Fitting,
}

impl Pattern {
    pub(crate) fn new(pattern: &str, escape: Option<char>) -> Result<Self, Fault> {
        if pattern.chars().count() > PATTERN_CHARS_MAX {
            return Err(Fault::PatternTooLong);
        }
        let mut pieces = Vec::new();
        let mut piece = Vec::new();
        let mut chars = pattern.chars();
        while let Some(next) = chars.next() {
            if Some(next) == escape {
                piece.push(Some(chars.next().ok_or(Fault::NothingEscaped)?));
            } else if next == '%' {
                pieces.push(Piece::of(std::mem::take(&mut piece)));
            } else {
                piece.push((next != '_').then_some(next));
            }
        }
        let last = Piece::of(piece);
        let mut pieces = pieces.into_iter();
        let Some(first) = pieces.next() else {
            return Ok(Self {
                first: last,
                rest: None,
            });
        };
        let middle = pieces.filter(|piece| !piece.is_empty()).collect();
        Ok(Self {
            first,
            rest: Some(Rest { middle, last }),
        })
    }

    /// The steps that a match of this text takes, at most.
    pub(crate) fn steps(&self, text: &str) -> u32 {
        let middle = self.rest.iter().flat_map(|rest| &rest.middle);
        let words = middle.map(Piece::words).max().unwrap_or(0);
        let last = self.rest.as_ref().map(|rest| &rest.last);
        let ends = last.into_iter().chain([&self.first]).map(Piece::compared);
        let ends = ends.sum::<usize>() / COMPARED_PER_STEP;
        let steps = text.len().saturating_mul(words).saturating_add(ends);
        u32::try_from(steps).map_or(u32::MAX, |it| it.saturating_add(1))
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        let Some(behind) = self.first.strip_from_start(text) else {
            return false;
        };
        let Some(rest) = &self.rest else {
            return behind.is_empty();
        };
        // The last piece first: what is left is for the others, which cannot overlap it.
        let Some(mut between) = rest.last.strip_from_end(behind) else {
            return false;
        };
        for piece in &rest.middle {
            match piece.find(between) {
                Some(behind) => between = behind,
                None => return false,
            }
        }
        true
    }
}

impl Piece {
    fn of(chars: Vec<Option<char>>) -> Self {
        let literal: Option<String> = chars.iter().copied().collect();
        match literal {
            Some(literal) => Piece::Literal(literal.into()),
            None => Piece::Wild(Wild {
                fits: Fitting::new(&chars),
                chars: chars.into(),
            }),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Piece::Literal(literal) => literal.is_empty(),
            Piece::Wild(_) => false,
        }
    }

    /// How many words a search works on for each character.
    fn words(&self) -> usize {
        match self {
            Piece::Literal(_) => 1,
            Piece::Wild(wild) => wild.fits.words,
        }
    }

    /// How many characters are compared one after the other at an end of a text.
    fn compared(&self) -> usize {
        match self {
            Piece::Literal(_) => 0,
            Piece::Wild(wild) => wild.chars.len(),
        }
    }

    /// What follows, if the text begins with this piece.
    fn strip_from_start<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Piece::Literal(literal) => text.strip_prefix(&**literal),
            Piece::Wild(wild) => {
                let mut rest = text.chars();
                let fits = |wanted: &Option<char>| {
                    let found = rest.next();
                    found.is_some_and(|found| wanted.is_none_or(|wanted| wanted == found))
                };
                wild.chars.iter().all(fits).then_some(rest.as_str())
            }
        }
    }

    /// What precedes, if the text ends with this piece.
    fn strip_from_end<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Piece::Literal(literal) => text.strip_suffix(&**literal),
            Piece::Wild(wild) => {
                let mut rest = text.chars();
                let fits = |wanted: &Option<char>| {
                    let found = rest.next_back();
                    found.is_some_and(|found| wanted.is_none_or(|wanted| wanted == found))
                };
                wild.chars.iter().rev().all(fits).then_some(rest.as_str())
            }
        }
    }

    /// What follows the first place of this piece.
    fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        match self {
            Piece::Literal(literal) => text.split_once(&**literal).map(|(_, behind)| behind),
            Piece::Wild(wild) => wild.find(text),
        }
    }
}

impl Wild {
    /// Follows all places at once: bit `i` says whether the last characters are the first `i` + 1 of the piece.
    fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        let mut bits = [0u64; WORDS_MAX];
        let last = self.chars.len() - 1;
        for (at, character) in text.char_indices() {
            let mut carry = 1;
            for (word, allowed) in bits.iter_mut().zip(self.fits.of(character)) {
                let out = *word >> (WORD_BITS - 1);
                *word = ((*word << 1) | carry) & allowed;
                carry = out;
            }
            let end = bits.get(last / WORD_BITS).copied().unwrap_or(0);
            if (end >> (last % WORD_BITS)) & 1 == 1 {
                return text.get(at + character.len_utf8()..);
            }
        }
        None
    }
}

/// At which places of a piece each character fits: a bit for each place.
#[derive(Clone, Debug, PartialEq)]
struct Fitting {
    /// How many words the places take.
    words: usize,
    /// The characters of the piece, in their order.
    chars: Box<[char]>,
    /// The places of each of them, and behind them those of all other characters.
    places: Box<[u64]>,
}

impl Fitting {
    fn new(piece: &[Option<char>]) -> Self {
        let mut chars: Vec<char> = piece.iter().flatten().copied().collect();
        chars.sort_unstable();
        chars.dedup();
        let words = piece.len().div_ceil(WORD_BITS);
        let set = |row: &mut [u64], at: usize| {
            if let Some(word) = row.get_mut(at / WORD_BITS) {
                *word |= 1 << (at % WORD_BITS);
            }
        };
        // `_` fits each character. A pattern may come with the message, so each row is not searched for by itself.
        let mut others = vec![0; words];
        for (at, _) in piece.iter().enumerate().filter(|(_, it)| it.is_none()) {
            set(&mut others, at);
        }
        let mut places = others.repeat(chars.len() + 1);
        for (at, wanted) in piece.iter().enumerate() {
            let row = wanted.and_then(|wanted| chars.binary_search(&wanted).ok());
            if let Some(row) = row.and_then(|row| places.get_mut(row * words..)) {
                set(row, at);
            }
        }
        Self {
            words,
            chars: chars.into(),
            places: places.into(),
        }
    }

    fn of(&self, character: char) -> &[u64] {
        let found = self.chars.binary_search(&character);
        let row = found.unwrap_or(self.chars.len()) * self.words;
        self.places.get(row..row + self.words).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, word for word.
    fn slowly(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('%', rest)) => (0..=text.len()).any(|skipped| slowly(rest, &text[skipped..])),
            Some(('_', rest)) => !text.is_empty() && slowly(rest, &text[1..]),
            Some((wanted, rest)) => text.first() == Some(wanted) && slowly(rest, &text[1..]),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_pattern_matches_as_it_is_defined(pattern in "[ab_%é]{0,9}", text in "[abé]{0,12}") {
            let [slow_pattern, slow_text] = [&pattern, &text].map(|it| it.chars().collect::<Vec<_>>());
            let fast = Pattern::new(&pattern, None).unwrap();
            prop_assert_eq!(fast.matches(&text), slowly(&slow_pattern, &slow_text));
        }
    }

    #[test]
    fn long_pieces_need_several_words() {
        let piece = format!("%{}_{}%", "a".repeat(100), "b".repeat(100));
        let pattern = Pattern::new(&piece, None).unwrap();
        let text = |middle: &str| format!("xx{}{middle}{}yy", "a".repeat(130), "b".repeat(100));
        assert!(pattern.matches(&text("c")));
        assert!(pattern.matches(&text("")));
        assert!(!pattern.matches(&text("cc")));
        assert_eq!(pattern.steps("1234"), 4 * 4 + 1);
    }

    #[test]
    fn only_the_escaped_is_literal() {
        let pattern = Pattern::new(r"a\%\_\\%", Some('\\')).unwrap();
        assert!(pattern.matches(r"a%_\rest"));
        assert!(!pattern.matches(r"axy\rest"));
        assert_eq!(Pattern::new(r"a\", Some('\\')), Err(Fault::NothingEscaped));
        let long = "a".repeat(PATTERN_CHARS_MAX + 1);
        assert_eq!(Pattern::new(&long, None), Err(Fault::PatternTooLong));
    }
}
