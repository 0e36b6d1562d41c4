//! Which part of the interface a request is for.

use hyper::Method;

/// The path for AMQP over WebSocket, in lower case. .NET adds a slash.
const WEBSOCKET: &str = "$servicebus/websocket";
/// The beginning of the paths of the operator's interface: no entity can have this name.
const OPERATOR: &str = "$kew";

/// A part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Whether the server works, for any client.
    Health,
    /// AMQP within a WebSocket.
    WebSocket,
    /// Functions that Azure does not have.
    Operator,
    /// Messages.
    Data,
    /// Entities.
    Atom,
}

impl Route {
    /// `path` is decoded and has no slashes around it.
    pub(super) fn of(method: &Method, path: &str, has_api_version: bool) -> Self {
        let lower = path.to_lowercase();
        if lower == WEBSOCKET {
            return Self::WebSocket;
        }
        // A queue may have that name: requests for its management name a version.
        if matches!(*method, Method::GET | Method::HEAD) && lower == "health" && !has_api_version {
            return Self::Health;
        }
        if lower == OPERATOR || lower.starts_with("$kew/") {
            return Self::Operator;
        }
        if is_data(method, &lower) {
            return Self::Data;
        }
        Self::Atom
    }
}

/// `…/messages`, `…/messages/head` and `…/messages/{id}/{lock token}`, with the methods that they
/// allow.
fn is_data(method: &Method, path: &str) -> bool {
    let mut segments = path.rsplit('/');
    let (last, second, third) = (segments.next(), segments.next(), segments.next());
    let is_message = third == Some("messages")
        && matches!(*method, Method::DELETE | Method::PUT | Method::POST)
        && segments.next().is_some();
    let is_head = (second, last) == (Some("messages"), Some("head"))
        && matches!(*method, Method::DELETE | Method::POST)
        && third.is_some();
    let is_send = last == Some("messages") && *method == Method::POST && second.is_some();
    is_message || is_head || is_send
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_methods_select_the_part() {
        for (method, path, route) in [
            (Method::GET, "health", Route::Health),
            (Method::PUT, "health", Route::Atom),
            (Method::GET, "$ServiceBus/WebSocket", Route::WebSocket),
            (Method::GET, "$kew/queues", Route::Operator),
            (Method::GET, "$kewx", Route::Atom),
            (Method::POST, "q/messages", Route::Data),
            (
                Method::POST,
                "a/b/$DeadLetterQueue/messages/head",
                Route::Data,
            ),
            (Method::DELETE, "q/Messages/Head", Route::Data),
            (Method::DELETE, "q/messages/1/2", Route::Data),
            (Method::PUT, "q/messages", Route::Atom),
            (Method::GET, "q/messages", Route::Atom),
            (Method::POST, "messages", Route::Atom),
            (Method::DELETE, "messages/1/2", Route::Atom),
            (Method::DELETE, "messages/head", Route::Atom),
            (Method::GET, "$Resources/queues", Route::Atom),
        ] {
            assert_eq!(Route::of(&method, path, false), route, "{method} {path}");
        }
        assert_eq!(Route::of(&Method::GET, "health", true), Route::Atom);
    }
}
