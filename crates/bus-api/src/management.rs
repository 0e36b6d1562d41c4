//! Requests to an entity's node `$management`.

use bytes::Bytes;
use kew_amqp::codec::{Map, Symbol, Value};
use kew_amqp::error::{Error, condition};
use kew_broker::Broker;
use kew_engine::{EntityName, Token};

use crate::request::{Request, encode_answer};
use crate::sas::Right;

/// What a request is answered with.
pub(crate) struct Context {
    pub(crate) broker: Broker,
    pub(crate) entity: EntityName,
    pub(crate) is_allowed: bool,
    /// The lock of the session that the request names, if the client holds it.
    pub(crate) session: Option<Token>,
}

/// The right that an operation needs, if it is known.
pub(crate) fn right_of(operation: &str) -> Option<Right> {
    match operation.strip_prefix("com.microsoft:")? {
        "schedule-message" | "cancel-scheduled-message" => Some(Right::Send),
        _ => Some(Right::Listen),
    }
}

/// Carries out a request, and answers it encoded.
pub(crate) async fn answer(context: Context, request: Request) -> Bytes {
    let answered = carry_out(&context, &request).await;
    let (code, text, error_condition, body) = match answered {
        Ok(body) => (200, "OK".to_owned(), None, body),
        Err(error) => {
            let text = error.description.as_ref().map_or("", |text| text.as_str());
            let code = status_of(error.condition.as_str());
            let body = Value::Map(Map::default());
            (code, text.to_owned(), Some(error.condition), body)
        }
    };
    let properties = Map::build(|map| {
        map.entry("statusCode", &code);
        map.entry("statusDescription", text.as_str());
        if let Some(condition) = &error_condition {
            map.entry("errorCondition", condition as &Symbol);
        }
    });
    encode_answer(&request.asked, &properties, &body)
}

/// The status that goes with a condition.
fn status_of(error_condition: &str) -> i32 {
    match error_condition {
        condition::UNAUTHORIZED_ACCESS => 401,
        condition::NOT_IMPLEMENTED => 501,
        _ => 400,
    }
}

async fn carry_out(context: &Context, request: &Request) -> Result<Value, Error> {
    let _ = (&context.broker, &context.session);
    if !context.is_allowed {
        let text = format!("Unauthorized access. Resource: '{}'.", context.entity.name);
        return Err(Error::new(condition::UNAUTHORIZED_ACCESS, text));
    }
    let text = format!("The operation '{}' is not supported.", request.operation);
    Err(Error::new(condition::NOT_IMPLEMENTED, text))
}
