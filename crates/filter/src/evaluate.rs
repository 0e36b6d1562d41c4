//! One evaluation of a predicate or an expression: each part at most once, from left to right.

use crate::arithmetic::{Computed, negated, operate, with_plus};
use crate::compare::{Comparison, Truth, compare, steps_of, steps_to_compare};
use crate::error::{EvaluationError, Fault, beginning_of};
use crate::like::Pattern;
use crate::limits::STEPS_MAX;
use crate::message::{Message, NewIds, SystemProperty};
use crate::syntax::tree::{Column, Expression, Like, PatternOf, Predicate, Property};
use crate::syntax::{escape_of, pattern_of};
use crate::value::Value;

/// An evaluation that is under way.
pub(crate) struct Run<'v, M: ?Sized> {
    message: &'v M,
    ids: &'v dyn NewIds,
    ids_made: u32,
    steps: u32,
}

type Done<T> = Result<T, EvaluationError>;

fn steps(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn at(column: Column) -> impl Fn(Fault) -> EvaluationError {
    move |fault| EvaluationError {
        column: column.into(),
        fault,
    }
}

impl<'v, M: Message + ?Sized> Run<'v, M> {
    pub(crate) fn new(message: &'v M, ids: &'v dyn NewIds) -> Self {
        Self {
            message,
            ids,
            ids_made: 0,
            steps: 0,
        }
    }

    /// The same for another message, with what this one has used.
    pub(crate) fn on<'o, O: ?Sized>(&self, message: &'o O) -> Run<'o, O>
    where
        'v: 'o,
    {
        Run {
            message,
            ids: self.ids,
            ids_made: self.ids_made,
            steps: self.steps,
        }
    }

    /// Goes on from what another one has used.
    pub(crate) fn after<O: ?Sized>(&mut self, other: &Run<'_, O>) {
        self.ids_made = other.ids_made;
        self.steps = other.steps;
    }

    /// How many steps it took.
    pub(crate) fn steps(&self) -> u32 {
        self.steps
    }

    #[inline]
    fn spend(&mut self, steps: u32, column: Column) -> Done<()> {
        self.steps = self.steps.saturating_add(steps);
        match self.steps > STEPS_MAX {
            true => Err(at(column)(Fault::TooManySteps)),
            false => Ok(()),
        }
    }

    /// Whether the predicate selects the message. Of a chain of `AND`, what follows a part that does not hold is not
    /// evaluated, so it cannot fail either. The index relies on that.
    #[inline]
    pub(crate) fn selects(&mut self, predicate: &'v Predicate) -> Done<bool> {
        if let Predicate::And(all) = predicate {
            for part in all {
                if !self.selects(part)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        Ok(self.truth(predicate)? == Truth::True)
    }

    /// Source: the tables of *Property evaluation semantics*. `AND` and `OR` end where the outcome is known.
    fn truth(&mut self, predicate: &'v Predicate) -> Done<Truth> {
        self.spend(1, 1)?;
        match predicate {
            Predicate::And(all) => self.chain(all, Truth::False, Truth::True),
            Predicate::Or(all) => self.chain(all, Truth::True, Truth::False),
            Predicate::Not(inner) => Ok(self.truth(inner)?.not()),
            Predicate::Compare(left, operator, right) => {
                let left = self.value(left)?;
                let right = self.value(right)?;
                match (left.value(), right.value()) {
                    (Some(left), Some(right)) => {
                        self.spend(steps_to_compare(left, right), 1)?;
                        Ok(compare(left, *operator, right))
                    }
                    (Some(_) | None, None) | (None, Some(_)) => Ok(Truth::Unknown),
                }
            }
            Predicate::IsNull {
                property,
                is_negated,
            } => {
                let is_null = matches!(self.property(property), None | Some(Value::Null));
                Ok(Truth::of(is_null != *is_negated))
            }
            Predicate::Exists(property) => {
                let is_there = match (property, self.property(property)) {
                    (Property::User(_), found) => found.is_some(),
                    (Property::System(_), found) => found != Some(Value::Null),
                };
                Ok(Truth::of(is_there))
            }
            Predicate::In {
                of,
                list,
                is_negated,
            } => self.is_in(of, list).map(|it| it.not_if(*is_negated)),
            Predicate::Like(like) => self.like(like).map(|it| it.not_if(like.is_negated)),
        }
    }

    /// A chain that ends with `end`, is `otherwise`, or unknown if a part is.
    fn chain(&mut self, all: &'v [Predicate], end: Truth, otherwise: Truth) -> Done<Truth> {
        let mut outcome = otherwise;
        for part in all {
            match self.truth(part)? {
                truth if truth == end => return Ok(end),
                Truth::Unknown => outcome = Truth::Unknown,
                Truth::True | Truth::False => {}
            }
        }
        Ok(outcome)
    }

    /// Source: *Unknown evaluation in [NOT] IN*: only the left operand makes it unknown. A value of the list that is
    /// unknown is equal to nothing.
    fn is_in(&mut self, of: &'v Expression, list: &'v [Expression]) -> Done<Truth> {
        let of = self.value(of)?;
        let Some(of) = of.value() else {
            return Ok(Truth::Unknown);
        };
        for listed in list {
            let listed = self.value(listed)?;
            self.spend(1, 1)?;
            let Some(listed) = listed.value() else {
                continue;
            };
            self.spend(steps_to_compare(of, listed), 1)?;
            if compare(of, Comparison::Equal, listed) == Truth::True {
                return Ok(Truth::True);
            }
        }
        Ok(Truth::False)
    }

    fn like(&mut self, like: &'v Like) -> Done<Truth> {
        let fault = at(like.column);
        let text = self.value(&like.text)?;
        match &like.pattern {
            PatternOf::Fixed(pattern) => self.matches(&text, pattern, like.column),
            PatternOf::Computed { pattern, escape } => {
                let pattern = self.value(pattern)?;
                let escape = match escape {
                    Some(escape) => Some(self.value(escape)?),
                    None => None,
                };
                let (Some(_), Some(pattern)) = (text.value(), pattern.value()) else {
                    return Ok(Truth::Unknown);
                };
                let escape = match &escape {
                    Some(escape) => match escape.value() {
                        Some(escape) => Some(escape_of(escape).map_err(&fault)?),
                        None => return Ok(Truth::Unknown),
                    },
                    None => None,
                };
                let size_bytes = pattern.as_text().map_or(0, str::len);
                self.spend(steps(size_bytes), like.column)?;
                let pattern = pattern_of(pattern, escape).map_err(&fault)?;
                self.matches(&text, &pattern, like.column)
            }
        }
    }

    /// Null is like nothing, and a value that is neither null nor a text cannot be compared with a pattern.
    fn matches(&mut self, text: &Computed<'_>, pattern: &Pattern, column: Column) -> Done<Truth> {
        let mut buffer = [0; 4];
        let text = match text.value() {
            Some(Value::Null) => return Ok(Truth::False),
            Some(Value::Char(character)) => &*character.encode_utf8(&mut buffer),
            Some(value) => match value.as_text() {
                Some(text) => text,
                None => return Ok(Truth::Unknown),
            },
            None => return Ok(Truth::Unknown),
        };
        self.spend(pattern.steps(text), column)?;
        Ok(Truth::of(pattern.matches(text)))
    }

    #[inline]
    fn property(&self, property: &'v Property) -> Option<Value<'v>> {
        match property {
            Property::User(name) => self.message.user(name),
            Property::System(system) => Some(self.message.system(*system)),
        }
    }

    /// What an expression is for this message.
    #[inline]
    pub(crate) fn value(&mut self, expression: &'v Expression) -> Done<Computed<'v>> {
        match expression {
            Expression::Constant(value) => Ok(Computed::Value(value.as_value())),
            Expression::Property(property) => Ok(match self.property(property) {
                Some(value) => Computed::Value(value),
                None => Computed::Unknown,
            }),
            Expression::Named(..)
            | Expression::NewId
            | Expression::Negated(..)
            | Expression::WithPlus(..)
            | Expression::Chain(..) => self.computed(expression),
        }
    }

    fn computed(&mut self, expression: &'v Expression) -> Done<Computed<'v>> {
        self.spend(1, 1)?;
        match expression {
            Expression::Constant(_) | Expression::Property(_) => self.value(expression),
            Expression::NewId => {
                let id = self.ids.id(self.ids_made);
                self.ids_made += 1;
                Ok(Computed::Value(Value::Uuid(id)))
            }
            Expression::Named(name, column) => {
                let name = self.value(name)?;
                self.named(&name, *column)
            }
            Expression::Negated(inner, column) => {
                let inner = self.value(inner)?;
                let Some(value) = inner.value() else {
                    return Ok(Computed::Unknown);
                };
                negated(value).map(Computed::Value).map_err(at(*column))
            }
            Expression::WithPlus(inner, column) => {
                let inner = self.value(inner)?;
                if let Some(value) = inner.value() {
                    with_plus(value).map_err(at(*column))?;
                }
                Ok(inner)
            }
            Expression::Chain(first, rest) => {
                let mut made = self.value(first)?;
                for (operator, operand, column) in rest {
                    self.spend(1, *column)?;
                    let operand = self.value(operand)?;
                    made = match (made.value(), operand.value()) {
                        (Some(left), Some(right)) => {
                            operate(left, *operator, right).map_err(at(*column))?
                        }
                        (Some(_) | None, None) | (None, Some(_)) => Computed::Unknown,
                    };
                    if let Computed::Made(text) = &made {
                        self.spend(steps_of(text.len()), *column)?;
                    }
                }
                Ok(made)
            }
        }
    }

    /// `property(name)`: an application property, or with `sys.` before its name a system property.
    fn named(&mut self, name: &Computed<'v>, column: Column) -> Done<Computed<'v>> {
        let Some(value) = name.value() else {
            return Ok(Computed::Unknown);
        };
        let Some(name) = value.as_text() else {
            return Err(at(column)(Fault::NameNotText {
                found: value.type_name(),
            }));
        };
        // It is compared with the names that the message has, in one case of letters.
        self.spend(steps(name.len() / 8), column)?;
        let scoped = |scope: &str| {
            let start = name.get(..scope.len())?;
            let rest = name.get(scope.len()..)?;
            start.eq_ignore_ascii_case(scope).then_some(rest)
        };
        if let Some(name) = scoped("sys.") {
            let property = SystemProperty::named(name).ok_or_else(|| {
                at(column)(Fault::NoSystemProperty {
                    name: beginning_of(name),
                })
            })?;
            return Ok(Computed::Value(self.message.system(property)));
        }
        let name = scoped("user.").unwrap_or(name);
        let found = self.message.user(name);
        Ok(found.map_or(Computed::Unknown, Computed::Value))
    }
}
