//! A rule's text as a tree. Chains of one level are lists, so its depth is the depth of nesting.

use crate::arithmetic::Operator;
use crate::compare::Comparison;
use crate::like::Pattern;
use crate::message::SystemProperty;
use crate::value::OwnedValue;

/// A place in the text, in characters from 1.
pub(crate) type Column = u16;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Predicate {
    /// Two or more.
    And(Vec<Predicate>),
    /// Two or more.
    Or(Vec<Predicate>),
    Not(Box<Predicate>),
    Compare(Expression, Comparison, Expression),
    IsNull {
        property: Property,
        is_negated: bool,
    },
    In {
        of: Expression,
        list: Vec<Expression>,
        is_negated: bool,
    },
    Like(Box<Like>),
    Exists(Property),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Like {
    pub(crate) text: Expression,
    pub(crate) pattern: PatternOf,
    pub(crate) is_negated: bool,
    pub(crate) column: Column,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PatternOf {
    /// Of constants.
    Fixed(Pattern),
    Computed {
        pattern: Expression,
        escape: Option<Expression>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    Constant(OwnedValue),
    Property(Property),
    /// `property(name)`.
    Named(Box<Expression>, Column),
    NewId,
    Negated(Box<Expression>, Column),
    WithPlus(Box<Expression>, Column),
    /// Operators of the same precedence, from left to right.
    Chain(Box<Expression>, Vec<(Operator, Expression, Column)>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Property {
    User(Box<str>),
    System(SystemProperty),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Statement {
    pub(crate) property: Property,
    /// `None` removes the property.
    pub(crate) to: Option<Expression>,
    pub(crate) column: Column,
}
