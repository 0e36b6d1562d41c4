//! The grammar of filters and actions, read from left to right without going back.
//!
//! Parentheses enclose predicates and expressions alike. So every level reads a [`Part`], which is one or the other, and
//! an operator says which it needs.
//!
//! Source: Service Bus, *Subscription Rule SQL Filter Syntax* and *SQL Action Syntax*.

use super::lexer::{Kind, Lexer, Token};
use super::tree::{Column, Expression, Like, PatternOf, Predicate, Property, Statement};
use crate::arithmetic::Operator;
use crate::compare::Comparison;
use crate::error::{Fault, Problem, SyntaxError};
use crate::like::Pattern;
use crate::limits::{DEPTH_MAX, STATEMENTS_MAX, TEXT_CHARS_MAX};
use crate::message::SystemProperty;
use crate::message::same_name;
use crate::value::{OwnedValue, Value};

/// The values of parameters, such as `@color`. Names are given with or without `@`, in upper or lower case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters {
    values: Vec<(String, OwnedValue)>,
}

impl Parameters {
    /// Sets the value of a parameter. A later value replaces an earlier one.
    pub fn set(&mut self, name: &str, value: OwnedValue) {
        let name = name.strip_prefix('@').unwrap_or(name);
        self.values.retain(|(it, _)| !same_name(it, name));
        self.values.push((name.to_owned(), value));
    }

    fn value(&self, name: &str) -> Option<&OwnedValue> {
        let found = self.values.iter().find(|(it, _)| same_name(it, name));
        found.map(|(_, value)| value)
    }
}

/// The predicate of a filter's text.
pub(crate) fn parse_filter(text: &str, parameters: &Parameters) -> Result<Predicate, SyntaxError> {
    let mut parser = Parser::new(text, parameters)?;
    let part = parser.either()?;
    let predicate = parser.condition(part)?;
    parser.end("AND, OR or the end of the text")?;
    Ok(predicate)
}

/// The statements of an action's text.
pub(crate) fn parse_action(
    text: &str,
    parameters: &Parameters,
) -> Result<Vec<Statement>, SyntaxError> {
    let mut parser = Parser::new(text, parameters)?;
    let mut statements = vec![parser.statement()?];
    loop {
        while parser.take_sign(&[",", ";"])?.is_some() {}
        if parser.token.kind == Kind::End {
            return Ok(statements);
        }
        if statements.len() == STATEMENTS_MAX {
            return Err(parser.error(Problem::TooManyStatements));
        }
        statements.push(parser.statement()?);
    }
}

/// Words that are not names, unless in brackets.
const KEYWORDS: [&str; 11] = [
    "AND", "ESCAPE", "EXISTS", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE",
];

const VALUE: &str = "a value, a property, a function, a parameter, a sign or \"(\"";

struct Parser<'t> {
    lexer: Lexer<'t>,
    /// The next word, and the one behind it.
    token: Token,
    ahead: Token,
    depth: usize,
    parameters: &'t Parameters,
}

/// What was read, with the place where it begins.
struct Part {
    kind: Either,
    column: usize,
}

enum Either {
    Predicate(Predicate),
    Expression(Expression),
}

impl Part {
    fn expression(self) -> Result<Expression, SyntaxError> {
        match self.kind {
            Either::Expression(expression) => Ok(expression),
            Either::Predicate(_) => Err(self.wrong_kind("a condition", "a value")),
        }
    }

    fn wrong_kind(&self, found: &str, allowed: &'static str) -> SyntaxError {
        let found = found.to_owned();
        SyntaxError {
            column: self.column,
            problem: Problem::Unexpected { found, allowed },
        }
    }
}

impl<'t> Parser<'t> {
    fn new(text: &'t str, parameters: &'t Parameters) -> Result<Self, SyntaxError> {
        let chars = text.chars().count();
        if chars > TEXT_CHARS_MAX {
            let column = TEXT_CHARS_MAX + 1;
            let problem = Problem::TooLong { chars };
            return Err(SyntaxError { column, problem });
        }
        let mut lexer = Lexer::new(text);
        Ok(Self {
            token: lexer.next()?,
            ahead: lexer.next()?,
            lexer,
            depth: 0,
            parameters,
        })
    }

    fn take(&mut self) -> Result<Token, SyntaxError> {
        let next = self.lexer.next()?;
        let ahead = std::mem::replace(&mut self.ahead, next);
        Ok(std::mem::replace(&mut self.token, ahead))
    }

    fn error(&self, problem: Problem) -> SyntaxError {
        let column = self.token.column;
        SyntaxError { column, problem }
    }

    fn unexpected(&self, allowed: &'static str) -> SyntaxError {
        let found = self.token.kind.shown();
        self.error(Problem::Unexpected { found, allowed })
    }

    fn column(&self) -> Column {
        // Texts are shorter than that: see `TEXT_CHARS_MAX`.
        Column::try_from(self.token.column).unwrap_or(Column::MAX)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(&self.token.kind, Kind::Word(it) if it.eq_ignore_ascii_case(word))
    }

    fn take_word(&mut self, word: &str) -> Result<bool, SyntaxError> {
        let is_there = self.is_word(word);
        if is_there {
            self.take()?;
        }
        Ok(is_there)
    }

    fn take_sign(&mut self, signs: &[&str]) -> Result<Option<&'static str>, SyntaxError> {
        match self.token.kind {
            Kind::Sign(sign) if signs.contains(&sign) => {
                self.take()?;
                Ok(Some(sign))
            }
            Kind::Sign(_)
            | Kind::Word(_)
            | Kind::Name(_)
            | Kind::Parameter(_)
            | Kind::Text(_)
            | Kind::Integer(_)
            | Kind::Approximate(_)
            | Kind::End => Ok(None),
        }
    }

    fn expect_sign(&mut self, sign: &str, allowed: &'static str) -> Result<(), SyntaxError> {
        match self.take_sign(&[sign])? {
            Some(_) => Ok(()),
            None => Err(self.unexpected(allowed)),
        }
    }

    fn end(&self, allowed: &'static str) -> Result<(), SyntaxError> {
        match self.token.kind {
            Kind::End => Ok(()),
            _ => Err(self.unexpected(allowed)),
        }
    }

    fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<T, SyntaxError> {
        if self.depth == DEPTH_MAX {
            return Err(self.error(Problem::TooDeep));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// A part that has to be a predicate, or the error at the word that keeps it from being one.
    fn condition(&self, part: Part) -> Result<Predicate, SyntaxError> {
        match (part.kind, &self.token.kind) {
            (Either::Predicate(predicate), _) => Ok(predicate),
            (Either::Expression(_), Kind::Word(_) | Kind::Name(_) | Kind::Sign("."))
                if !self.is_word("AND") && !self.is_word("OR") =>
            {
                Err(self.unexpected("a comparison, IS, IN, LIKE or an operator of arithmetic"))
            }
            (kind @ Either::Expression(_), _) => {
                let part = self.part(part.column, kind);
                let allowed = "a condition, such as a comparison of the value";
                Err(part.wrong_kind("a value", allowed))
            }
        }
    }

    fn part(&self, column: usize, kind: Either) -> Part {
        Part { kind, column }
    }

    /// Anything: a predicate or an expression.
    fn either(&mut self) -> Result<Part, SyntaxError> {
        self.joined("OR", Self::conjunction, Predicate::Or)
    }

    fn conjunction(&mut self) -> Result<Part, SyntaxError> {
        self.joined("AND", Self::negation, Predicate::And)
    }

    /// Parts with a word between them.
    fn joined(
        &mut self,
        word: &str,
        read: impl Fn(&mut Self) -> Result<Part, SyntaxError>,
        join: impl FnOnce(Vec<Predicate>) -> Predicate,
    ) -> Result<Part, SyntaxError> {
        let first = read(self)?;
        if !self.is_word(word) {
            return Ok(first);
        }
        let column = first.column;
        let mut all = vec![self.condition(first)?];
        while self.take_word(word)? {
            let next = read(self)?;
            all.push(self.condition(next)?);
        }
        Ok(self.part(column, Either::Predicate(join(all))))
    }

    fn negation(&mut self) -> Result<Part, SyntaxError> {
        let column = self.token.column;
        if !self.take_word("NOT")? {
            return self.comparison();
        }
        let negated = self.nested(Self::negation)?;
        let negated = self.condition(negated)?;
        let not = Predicate::Not(Box::new(negated));
        Ok(self.part(column, Either::Predicate(not)))
    }

    fn comparison(&mut self) -> Result<Part, SyntaxError> {
        let left = self.sum()?;
        let column = left.column;
        let predicate = if let Some(operator) = self.take_comparison()? {
            let right = self.sum()?;
            Predicate::Compare(left.expression()?, operator, right.expression()?)
        } else if self.is_word("IS") {
            self.null_test(left)?
        } else {
            let is_negated = self.take_word("NOT")?;
            let at = self.column();
            if self.take_word("IN")? {
                let of = left.expression()?;
                let list = self.list()?;
                Predicate::In {
                    of,
                    list,
                    is_negated,
                }
            } else if self.take_word("LIKE")? {
                self.like(left.expression()?, is_negated, at)?
            } else if is_negated {
                return Err(self.unexpected("IN or LIKE behind NOT"));
            } else {
                return Ok(left);
            }
        };
        Ok(self.part(column, Either::Predicate(predicate)))
    }

    fn take_comparison(&mut self) -> Result<Option<Comparison>, SyntaxError> {
        let sign = self.take_sign(&["=", "<>", "!=", "<", "<=", ">", ">="])?;
        Ok(sign.map(|sign| match sign {
            "=" => Comparison::Equal,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => Comparison::NotEqual,
        }))
    }

    fn null_test(&mut self, left: Part) -> Result<Predicate, SyntaxError> {
        let Either::Expression(Expression::Property(property)) = left.kind else {
            return Err(left.wrong_kind("something else", "a property before IS"));
        };
        self.take()?;
        let is_negated = self.take_word("NOT")?;
        if !self.take_word("NULL")? {
            return Err(self.unexpected(if is_negated {
                "NULL"
            } else {
                "NULL or NOT NULL"
            }));
        }
        Ok(Predicate::IsNull {
            property,
            is_negated,
        })
    }

    fn list(&mut self) -> Result<Vec<Expression>, SyntaxError> {
        self.expect_sign("(", "\"(\" behind IN")?;
        let mut list = Vec::new();
        loop {
            list.push(self.nested(Self::sum)?.expression()?);
            if self.take_sign(&[","])?.is_none() {
                self.expect_sign(")", "\",\", \")\" or an operator")?;
                return Ok(list);
            }
        }
    }

    fn like(
        &mut self,
        text: Expression,
        is_negated: bool,
        column: Column,
    ) -> Result<Predicate, SyntaxError> {
        let pattern = self.sum()?;
        let pattern_column = pattern.column;
        let pattern = pattern.expression()?;
        let mut escape_column = pattern_column;
        let escape = match self.take_word("ESCAPE")? {
            true => {
                let escape = self.sum()?;
                escape_column = escape.column;
                Some(escape.expression()?)
            }
            false => None,
        };
        let fault_at = |column: usize| {
            move |fault: Fault| SyntaxError {
                column,
                problem: Problem::Constant(fault),
            }
        };
        let escape_constant = match &escape {
            Some(Expression::Constant(value)) => {
                let character = escape_of(value.as_value());
                Some(Some(character.map_err(fault_at(escape_column))?))
            }
            Some(_) => None,
            None => Some(None),
        };
        let pattern = match (&pattern, escape_constant) {
            (Expression::Constant(value), Some(escape)) => {
                let made = pattern_of(value.as_value(), escape);
                PatternOf::Fixed(made.map_err(fault_at(pattern_column))?)
            }
            (_, _) => PatternOf::Computed { pattern, escape },
        };
        Ok(Predicate::Like(Box::new(Like {
            text,
            pattern,
            is_negated,
            column,
        })))
    }

    fn sum(&mut self) -> Result<Part, SyntaxError> {
        self.chain(&["+", "-"], Self::product)
    }

    fn product(&mut self) -> Result<Part, SyntaxError> {
        self.chain(&["*", "/", "%"], Self::signed)
    }

    fn chain(
        &mut self,
        signs: &[&str],
        read: impl Fn(&mut Self) -> Result<Part, SyntaxError>,
    ) -> Result<Part, SyntaxError> {
        let first = read(self)?;
        let column = first.column;
        let mut at = self.column();
        let Some(sign) = self.take_sign(signs)? else {
            return Ok(first);
        };
        let first = Box::new(first.expression()?);
        let mut rest = vec![(operator_of(sign), read(self)?.expression()?, at)];
        loop {
            at = self.column();
            let Some(sign) = self.take_sign(signs)? else {
                let chain = Expression::Chain(first, rest);
                return Ok(self.part(column, Either::Expression(chain)));
            };
            rest.push((operator_of(sign), read(self)?.expression()?, at));
        }
    }

    fn signed(&mut self) -> Result<Part, SyntaxError> {
        let column = self.token.column;
        let at = self.column();
        let Some(sign) = self.take_sign(&["+", "-"])? else {
            return self.primary();
        };
        // With its sign, the smallest integer is in range.
        if let (Kind::Integer(digits), "-") = (&self.token.kind, sign) {
            let value = self.integer(&format!("-{digits}"))?;
            self.take()?;
            return Ok(self.constant(column, value));
        }
        let inner = Box::new(self.nested(Self::signed)?.expression()?);
        let expression = match sign {
            "-" => Expression::Negated(inner, at),
            _ => Expression::WithPlus(inner, at),
        };
        Ok(self.part(column, Either::Expression(expression)))
    }

    fn constant(&self, column: usize, value: Value<'static>) -> Part {
        let constant = Expression::Constant(OwnedValue::Plain(value));
        self.part(column, Either::Expression(constant))
    }

    fn integer(&self, text: &str) -> Result<Value<'static>, SyntaxError> {
        let range = "integers have 64 bits";
        let text = text.to_owned();
        match text.parse() {
            Ok(value) => Ok(Value::Long(value)),
            Err(_) => Err(self.error(Problem::NumberOutOfRange { text, range })),
        }
    }

    fn approximate(&self, text: &str) -> Result<Value<'static>, SyntaxError> {
        let range = "numbers with a point are doubles";
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Value::Double(value)),
            Ok(_) | Err(_) => {
                let text = text.to_owned();
                Err(self.error(Problem::NumberOutOfRange { text, range }))
            }
        }
    }

    fn primary(&mut self) -> Result<Part, SyntaxError> {
        let column = self.token.column;
        let expression = match &self.token.kind {
            Kind::Integer(digits) => Expression::Constant(OwnedValue::Plain(self.integer(digits)?)),
            Kind::Approximate(digits) => {
                Expression::Constant(OwnedValue::Plain(self.approximate(digits)?))
            }
            Kind::Text(text) => Expression::Constant(OwnedValue::Text(text.as_str().into())),
            Kind::Parameter(name) => match self.parameters.value(name) {
                Some(value) => Expression::Constant(value.clone()),
                None => {
                    let name = name.clone();
                    return Err(self.error(Problem::NoParameter { name }));
                }
            },
            Kind::Sign("(") => return self.in_parentheses(),
            Kind::Word(_) => return self.worded(),
            Kind::Name(_) => {
                let property = Expression::Property(self.property()?);
                return Ok(self.part(column, Either::Expression(property)));
            }
            Kind::Sign(_) | Kind::End => return Err(self.unexpected(VALUE)),
        };
        self.take()?;
        Ok(self.part(column, Either::Expression(expression)))
    }

    fn in_parentheses(&mut self) -> Result<Part, SyntaxError> {
        let column = self.token.column;
        self.take()?;
        let inner = self.nested(Self::either)?;
        self.expect_sign(")", "\")\" or an operator")?;
        Ok(self.part(column, inner.kind))
    }

    /// A keyword, a function or a property.
    fn worded(&mut self) -> Result<Part, SyntaxError> {
        let column = self.token.column;
        let constants = [
            ("TRUE", Value::Boolean(true)),
            ("FALSE", Value::Boolean(false)),
            ("NULL", Value::Null),
        ];
        for (word, value) in constants {
            if self.take_word(word)? {
                return Ok(self.constant(column, value));
            }
        }
        if self.take_word("EXISTS")? {
            self.expect_sign("(", "\"(\" behind EXISTS")?;
            let property = self.property()?;
            self.expect_sign(")", "\")\"")?;
            return Ok(self.part(column, Either::Predicate(Predicate::Exists(property))));
        }
        let is_keyword = matches!(&self.token.kind, Kind::Word(word) if is_keyword(word));
        let expression = match self.ahead.kind {
            _ if is_keyword => return Err(self.unexpected(VALUE)),
            Kind::Sign("(") => self.function()?,
            _ => Expression::Property(self.property()?),
        };
        Ok(self.part(column, Either::Expression(expression)))
    }

    fn function(&mut self) -> Result<Expression, SyntaxError> {
        let at = self.column();
        let is_new_id = self.is_word("newid");
        if !is_new_id && !self.is_word("property") && !self.is_word("p") {
            return Err(match &self.token.kind {
                Kind::Word(name) => {
                    let name = name.clone();
                    self.error(Problem::NoFunction { name })
                }
                _ => self.unexpected(VALUE),
            });
        }
        self.take()?;
        self.take()?;
        if is_new_id {
            self.expect_sign(")", "\")\": newid() has no argument")?;
            return Ok(Expression::NewId);
        }
        let name = self.nested(Self::sum)?.expression()?;
        self.expect_sign(")", "\")\" or an operator")?;
        Ok(Expression::Named(Box::new(name), at))
    }

    fn property(&mut self) -> Result<Property, SyntaxError> {
        let is_scoped = self.ahead.kind == Kind::Sign(".");
        let is_system = self.is_word("sys");
        if is_scoped && (is_system || self.is_word("user")) {
            self.take()?;
            self.take()?;
            if is_system {
                return self.system_property();
            }
        }
        self.name().map(|name| Property::User(name.into()))
    }

    fn system_property(&mut self) -> Result<Property, SyntaxError> {
        let column = self.token.column;
        let name = self.name()?;
        match SystemProperty::named(&name) {
            Some(property) => Ok(Property::System(property)),
            None => Err(SyntaxError {
                column,
                problem: Problem::NoSystemProperty { name },
            }),
        }
    }

    fn name(&mut self) -> Result<String, SyntaxError> {
        match &self.token.kind {
            Kind::Word(word) if is_keyword(word) => {
                Err(self.unexpected("a property; a name that is a keyword needs brackets"))
            }
            Kind::Word(name) | Kind::Name(name) => {
                let name = name.clone();
                self.take()?;
                Ok(name)
            }
            Kind::Parameter(_)
            | Kind::Text(_)
            | Kind::Integer(_)
            | Kind::Approximate(_)
            | Kind::Sign(_)
            | Kind::End => Err(self.unexpected("a property")),
        }
    }

    fn statement(&mut self) -> Result<Statement, SyntaxError> {
        let at = self.column();
        let is_set = self.take_word("SET")?;
        if !is_set && !self.take_word("REMOVE")? {
            return Err(self.unexpected("SET or REMOVE"));
        }
        let place = self.token.column;
        let property = self.property()?;
        if let Property::System(system) = &property
            && system.settable().is_none()
        {
            return Err(SyntaxError {
                column: place,
                problem: Problem::ReadOnly {
                    name: system.name(),
                },
            });
        }
        let to = match is_set {
            true => {
                self.expect_sign("=", "\"=\" behind the property")?;
                Some(self.sum()?.expression()?)
            }
            false => None,
        };
        Ok(Statement {
            property,
            to,
            column: at,
        })
    }
}

fn is_keyword(word: &str) -> bool {
    KEYWORDS.iter().any(|it| it.eq_ignore_ascii_case(word))
}

fn operator_of(sign: &str) -> Operator {
    match sign {
        "+" => Operator::Add,
        "-" => Operator::Subtract,
        "*" => Operator::Multiply,
        "/" => Operator::Divide,
        _ => Operator::Remainder,
    }
}

/// The one character of an escape.
pub(crate) fn escape_of(value: Value<'_>) -> Result<char, Fault> {
    if let Value::Char(character) = value {
        return Ok(character);
    }
    let mut chars = value.as_text().unwrap_or_default().chars();
    match (chars.next(), chars.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) | (None, _) => Err(Fault::EscapeNotOneCharacter),
    }
}

/// The pattern that a value is.
pub(crate) fn pattern_of(value: Value<'_>, escape: Option<char>) -> Result<Pattern, Fault> {
    if let Value::Char(character) = value {
        return Pattern::new(character.encode_utf8(&mut [0; 4]), escape);
    }
    match value.as_text() {
        Some(text) => Pattern::new(text, escape),
        None => Err(Fault::PatternNotText {
            found: value.type_name(),
        }),
    }
}
