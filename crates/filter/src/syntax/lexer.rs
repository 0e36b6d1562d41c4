//! The words of a rule's text.

use std::iter::Peekable;
use std::str::Chars;

use crate::error::{Problem, SyntaxError};

/// A word with its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) column: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// A keyword or a regular identifier.
    Word(String),
    /// An identifier in brackets or quotation marks.
    Name(String),
    Parameter(String),
    Text(String),
    /// Its digits.
    Integer(String),
    /// With a point or an exponent.
    Approximate(String),
    Sign(&'static str),
    End,
}

impl Kind {
    /// How an error names it.
    pub(super) fn shown(&self) -> String {
        match self {
            Kind::Word(word) => format!("\"{word}\""),
            Kind::Name(name) => format!("the name [{name}]"),
            Kind::Parameter(name) => format!("the parameter @{name}"),
            Kind::Text(text) => format!("the text '{text}'"),
            Kind::Integer(number) | Kind::Approximate(number) => format!("the number {number}"),
            Kind::Sign(sign) => format!("\"{sign}\""),
            Kind::End => "the end of the text".to_owned(),
        }
    }
}

/// Longer ones first.
const SIGNS: [&str; 17] = [
    "<>", "!=", ">=", "<=", "=", ">", "<", "(", ")", ",", ";", ".", "+", "-", "*", "/", "%",
];

pub(super) struct Lexer<'t> {
    chars: Peekable<Chars<'t>>,
    column: usize,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            chars: text.chars().peekable(),
            column: 1,
        }
    }

    pub(super) fn next(&mut self) -> Result<Token, SyntaxError> {
        while self.take_if(char::is_whitespace).is_some() {}
        let column = self.column;
        let kind = self.kind(column)?;
        Ok(Token { kind, column })
    }

    fn take(&mut self) -> Option<char> {
        let next = self.chars.next();
        self.column += usize::from(next.is_some());
        next
    }

    fn take_if(&mut self, wanted: impl Fn(char) -> bool) -> Option<char> {
        let next = self.chars.next_if(|next| wanted(*next));
        self.column += usize::from(next.is_some());
        next
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool + Copy) -> String {
        std::iter::from_fn(|| self.take_if(wanted)).collect()
    }

    fn kind(&mut self, column: usize) -> Result<Kind, SyntaxError> {
        let Some(&first) = self.chars.peek() else {
            return Ok(Kind::End);
        };
        match first {
            '\'' => {
                let text = self.enclosed(column, '\'', "the text", "a closing '")?;
                Ok(Kind::Text(text))
            }
            '"' => {
                let name = self.enclosed(column, '"', "the name", "a closing \"")?;
                named(name, column)
            }
            '[' => {
                let name = self.enclosed(column, ']', "the name", "a closing ]")?;
                named(name, column)
            }
            '@' => {
                self.take();
                match self.word() {
                    name if name.is_empty() => {
                        Err(self.unexpected(column, "@", "a parameter such as @name"))
                    }
                    name => Ok(Kind::Parameter(name)),
                }
            }
            _ if first.is_ascii_digit() => self.number(column),
            _ if first.is_alphabetic() => Ok(Kind::Word(self.word())),
            _ => self.sign(column, first),
        }
    }

    /// A letter, then letters, digits and underscores.
    fn word(&mut self) -> String {
        match self.take_if(char::is_alphabetic) {
            Some(first) => {
                let rest = self.take_while(|it| it.is_alphanumeric() || it == '_');
                format!("{first}{rest}")
            }
            None => String::new(),
        }
    }

    /// What stands between two marks. A doubled closing mark is one that belongs to it.
    fn enclosed(
        &mut self,
        column: usize,
        end: char,
        what: &'static str,
        ending: &'static str,
    ) -> Result<String, SyntaxError> {
        self.take();
        let mut inside = String::new();
        loop {
            match self.take() {
                Some(next) if next == end => match self.take_if(|it| it == end) {
                    Some(doubled) => inside.push(doubled),
                    None => return Ok(inside),
                },
                Some(next) => inside.push(next),
                None => {
                    let problem = Problem::Unterminated { what, end: ending };
                    return Err(SyntaxError { column, problem });
                }
            }
        }
    }

    /// `12`, `1.5`, `1E5` or `1.5E-2`.
    fn number(&mut self, column: usize) -> Result<Kind, SyntaxError> {
        let digits = |it: char| it.is_ascii_digit();
        let mut text = self.take_while(digits);
        let mut is_integer = true;
        if self.take_if(|it| it == '.').is_some() {
            is_integer = false;
            let fraction = self.take_while(digits);
            text.push('.');
            text.push_str(&fraction);
            if fraction.is_empty() {
                return Err(self.unexpected(column, &text, "digits behind the point"));
            }
        }
        if let Some(mark) = self.take_if(|it| matches!(it, 'e' | 'E')) {
            is_integer = false;
            text.push(mark);
            text.extend(self.take_if(|it| matches!(it, '+' | '-')));
            let exponent = self.take_while(digits);
            text.push_str(&exponent);
            if exponent.is_empty() {
                return Err(self.unexpected(column, &text, "digits in the exponent"));
            }
        }
        if let Some(next) = self.take_if(|it| it.is_alphanumeric() || it == '_') {
            text.push(next);
            return Err(self.unexpected(column, &text, "a number, or a name in brackets"));
        }
        Ok(match is_integer {
            true => Kind::Integer(text),
            false => Kind::Approximate(text),
        })
    }

    fn sign(&mut self, column: usize, first: char) -> Result<Kind, SyntaxError> {
        let ahead: String = self.chars.clone().take(2).collect();
        let Some(sign) = SIGNS.into_iter().find(|sign| ahead.starts_with(sign)) else {
            let allowed = match first {
                '_' => "a name that begins with a letter, or a name in brackets",
                _ => "a value, a name or an operator",
            };
            return Err(self.unexpected(column, &first.to_string(), allowed));
        };
        for _ in sign.chars() {
            self.take();
        }
        Ok(Kind::Sign(sign))
    }

    fn unexpected(&self, column: usize, found: &str, allowed: &'static str) -> SyntaxError {
        let found = format!("\"{found}\"");
        let problem = Problem::Unexpected { found, allowed };
        SyntaxError { column, problem }
    }
}

fn named(name: String, column: usize) -> Result<Kind, SyntaxError> {
    if !name.is_empty() {
        return Ok(Kind::Name(name));
    }
    let found = "an empty name".to_owned();
    let allowed = "at least one character";
    let problem = Problem::Unexpected { found, allowed };
    Err(SyntaxError { column, problem })
}
