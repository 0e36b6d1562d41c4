//! What a rule may take: at its creation and at each evaluation.

/// Characters of a filter's or an action's text, at most.
///
/// Source: Service Bus quotas, *Maximum length of filter condition string*.
pub const TEXT_CHARS_MAX: usize = 1024;

/// Statements of an action, at most.
///
/// Source: Service Bus quotas, *Maximum number of expressions per rule action*.
pub const STATEMENTS_MAX: usize = 32;

/// How deep parentheses, `NOT`, signs and calls may be nested. Chains of `AND`, `OR` and arithmetic are not nested.
pub const DEPTH_MAX: usize = 64;

/// Steps of one evaluation, at most. A step is a part of the expression, or what `LIKE` does for one byte of the text
/// and 64 characters of the pattern.
pub const STEPS_MAX: u32 = 1_000_000;

/// Steps that each rule of a set takes besides those of its filter. It is found among many rules, which takes several
/// waits for memory: with 100,000 candidates about as long as eight operators.
pub const RULE_STEPS: u32 = 8;

/// Characters of a pattern, at most: also of one that is computed from the message.
pub const PATTERN_CHARS_MAX: usize = 1024;

/// Bytes of a text that an expression makes, at most.
///
/// Source: Service Bus quotas, *Message property size*.
pub const MADE_TEXT_BYTES_MAX: usize = 32 * 1024;

/// Bytes of a stored definition, at most.
pub const DEFINITION_BYTES_MAX: usize = 32 * 1024;

/// Properties of a correlation filter, at most.
pub const EQUALITIES_MAX: usize = 128;

/// Parameters of a filter or an action, at most.
pub const PARAMETERS_MAX: usize = 128;
