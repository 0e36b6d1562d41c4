//! What is wrong with the text of a rule, and what fails when it is evaluated.

use thiserror::Error;

use crate::limits::{
    DEPTH_MAX, MADE_TEXT_BYTES_MAX, PATTERN_CHARS_MAX, STATEMENTS_MAX, STEPS_MAX, TEXT_CHARS_MAX,
};

/// A text that is not a filter or not an action.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("column {column}: {problem}")]
pub struct SyntaxError {
    /// The place in the text, in characters. The first one is 1; the end of the text is one behind the last.
    pub column: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong with the text of a rule.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Problem {
    /// The grammar allows something else here.
    #[error("found {found}, expected {allowed}")]
    Unexpected {
        /// What stands there.
        found: String,
        /// What may stand there.
        allowed: &'static str,
    },
    /// A text or a name does not end.
    #[error("{what} does not end: add {end}")]
    Unterminated {
        /// What begins there.
        what: &'static str,
        /// What ends it.
        end: &'static str,
    },
    /// The text is too long.
    #[error("the text has {chars} characters, the maximum is {TEXT_CHARS_MAX}")]
    TooLong {
        /// How many it has.
        chars: usize,
    },
    /// Parentheses, `NOT`, signs or calls are nested too deeply.
    #[error("nested more than {DEPTH_MAX} levels deep")]
    TooDeep,
    /// An action has too many statements.
    #[error("more than {STATEMENTS_MAX} statements")]
    TooManyStatements,
    /// A number that its type cannot express.
    #[error("the number {text} is out of range: {range}")]
    NumberOutOfRange {
        /// The number.
        text: String,
        /// Which ones are in range.
        range: &'static str,
    },
    /// `sys.` with a name that no message has.
    #[error(
        "there is no system property {name:?}, expected one such as sys.Label or sys.MessageId"
    )]
    NoSystemProperty {
        /// The name.
        name: String,
    },
    /// An action changes a system property that only the service sets.
    #[error("the system property {name} cannot be changed by an action")]
    ReadOnly {
        /// The name.
        name: &'static str,
    },
    /// A function that does not exist.
    #[error("there is no function {name:?}, expected newid(), property(name) or p(name)")]
    NoFunction {
        /// The name.
        name: String,
    },
    /// A parameter without a value.
    #[error("the parameter @{name} has no value")]
    NoParameter {
        /// The name, without `@`.
        name: String,
    },
    /// A constant that no evaluation could use.
    #[error(transparent)]
    Constant(#[from] Fault),
}

/// An evaluation that failed: at a place of the rule's text, for a reason. It can be the reason of a dead letter.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("column {column}: {fault}")]
pub struct EvaluationError {
    /// The place in the text of the filter or action, as in [`SyntaxError`].
    pub column: usize,
    /// Why it failed.
    pub fault: Fault,
}

/// Characters of a message's text in an error, at most: errors of many rules may be kept for one message.
const SHOWN_CHARS_MAX: usize = 64;

/// The beginning of a text, for an error.
pub(crate) fn beginning_of(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

/// Why an evaluation failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Fault {
    /// C# has no such operator for these types.
    #[error("the operator {operator} is not defined for {left} and {right}")]
    NoOperator {
        /// The operator.
        operator: char,
        /// The type of the left operand.
        left: &'static str,
        /// The type of the right operand.
        right: &'static str,
    },
    /// The sign of a value that has none.
    #[error("the sign {operator} is not defined for {of}")]
    NoSign {
        /// The sign.
        operator: char,
        /// The type of the operand.
        of: &'static str,
    },
    /// An integer divided by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// The result has no room in its type.
    #[error("the result of {operator} does not fit into its type")]
    Overflow {
        /// The operator.
        operator: char,
    },
    /// A text that became too long.
    #[error("the joined text is longer than {MADE_TEXT_BYTES_MAX} bytes")]
    TextTooLong,
    /// The pattern of `LIKE` is not a text.
    #[error("the pattern of LIKE is {found}, expected a text")]
    PatternNotText {
        /// Its type.
        found: &'static str,
    },
    /// The pattern of `LIKE` is too long.
    #[error("the pattern of LIKE is longer than {PATTERN_CHARS_MAX} characters")]
    PatternTooLong,
    /// The escape character is not one character.
    #[error("ESCAPE needs a text of one character")]
    EscapeNotOneCharacter,
    /// The pattern ends with its escape character.
    #[error("the pattern of LIKE ends with its escape character")]
    NothingEscaped,
    /// The name given to `property()` is not a text.
    #[error("the name of a property is {found}, expected a text")]
    NameNotText {
        /// Its type.
        found: &'static str,
    },
    /// `property('sys.…')` with a name that no message has.
    #[error("there is no system property {name:?}")]
    NoSystemProperty {
        /// The beginning of the name.
        name: String,
    },
    /// A system property cannot have the value that an action computed.
    #[error("the system property {name} cannot be {found}, expected {allowed}")]
    CannotSet {
        /// The name.
        name: &'static str,
        /// The type of the value.
        found: &'static str,
        /// Which types it may have.
        allowed: &'static str,
    },
    /// An action sets a duration to a text that is not a duration.
    #[error("the text {text:?} is not a duration, expected one such as '00:10:00' or '7.00:00:00'")]
    NotADuration {
        /// Its beginning.
        text: String,
    },
    /// More steps than allowed.
    #[error("the evaluation takes more than {STEPS_MAX} steps")]
    TooManySteps,
}
