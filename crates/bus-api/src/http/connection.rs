//! One connection over HTTP: what this service adds to the front door of all HTTP.
//!
//! [`kew_http_front::serve`] drives the connection. This module chooses the part of the interface that answers a
//! request, and determines where it comes from and what its token allows. If a request asks for AMQP within a
//! WebSocket, the front door returns the socket, and the same task continues with it.

use std::pin::pin;
use std::sync::{Arc, OnceLock};

use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};
use kew_amqp::error::{Error, condition};
use kew_http_front::{
    Activity, Connection as Reuse, Event, Front, Refusal, Service, Switched, host, judge,
};
use kew_listen::{Barred, Place};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::answers::{Answer, HttpError};
use super::audit::Actor;
use super::call::{Call, Head, Stopped};
use super::route::Route;
use super::service::HttpService;
use super::{atom, body, data, health, operator, websocket};
use crate::authorization::bad_token::BadToken;
use crate::ground::origin::Origin;
use crate::metrics::{Offered, Overdue};

/// Serves one connection until the client closes it, a limit ends it, or after `shutdown` its request
/// is answered.
pub(crate) async fn serve<S>(
    service: Arc<HttpService>,
    stream: S,
    origin: Origin,
    place: Arc<Place>,
    shutdown: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (stop, stopped) = watch::channel(false);
    let connection = Connection {
        service,
        origin,
        place,
        stopped: Stopped(stopped),
        web_socket: OnceLock::new(),
    };
    let mut shutdown = pin!(async {
        shutdown.await;
        // The answer to a request that waits for a message is that there is none.
        let _ = stop.send(true);
    });
    let switched = kew_http_front::serve(&connection, stream, shutdown.as_mut()).await;
    let (Some(Switched { io, begun }), Some(&origin)) = (switched, connection.web_socket.get())
    else {
        return;
    };
    let is_stopping = *stop.borrow();
    let shutdown = async {
        if !is_stopping {
            shutdown.await;
        }
    };
    let speaker = websocket::Speaker {
        origin,
        place: connection.place,
    };
    let shared = Arc::clone(&connection.service.shared);
    // Its state must not make other connections larger.
    Box::pin(websocket::serve(shared, io, begun, speaker, shutdown)).await;
}

/// The service, as one connection sees it.
struct Connection {
    service: Arc<HttpService>,
    origin: Origin,
    place: Arc<Place>,
    stopped: Stopped,
    /// The client of the WebSocket that the connection has become.
    web_socket: OnceLock<Origin>,
}

impl Service for Connection {
    type Spelling = ();

    fn front(&self) -> &Front {
        &self.service.front
    }

    fn place(&self) -> &Place {
        &self.place
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        (): (),
        activity: &Activity<'_, ()>,
    ) -> Answer {
        let (parts, body) = request.into_parts();
        let origin = self.speaker(&parts);
        // A body that is refused unread may still come.
        let mut reuse = match body.is_end_stream() {
            true => Reuse::Reusable,
            false => Reuse::Spent,
        };
        let answering = self.answer_as(origin, parts, body, activity, &mut reuse);
        let mut answer = answering.await;
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            // It is the last answer of the connection.
            let _ = self.web_socket.set(origin);
        } else if reuse == Reuse::Spent {
            let close = HeaderValue::from_static("close");
            answer.headers_mut().append(CONNECTION, close);
        }
        answer
    }

    fn refuse_unsound(&self, request: Request<Incoming>) -> Answer {
        let error = HttpError::bad_request(
            "the end of the request is ambiguous: end lines with CR LF, and send either one \
             Content-Length or Transfer-Encoding: chunked, but not both",
        );
        match Head::new(self.origin, request.into_parts().0) {
            Ok(head) => explain(error, head.route(), &head.path),
            Err(_) => error.into_answer(),
        }
    }

    fn refusal(&self, why: Refusal) -> Vec<u8> {
        let error = match why {
            Refusal::Crowded => HttpError::no_room(),
            Refusal::InvalidHead(StatusCode::URI_TOO_LONG) => {
                HttpError::new(StatusCode::URI_TOO_LONG, "the target is too long")
            }
            Refusal::InvalidHead(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE) => {
                let limits = &self.service.front.limits;
                let detail = format!(
                    "the head of a request may have at most {} bytes and {} headers",
                    limits.head_size_bytes_max, limits.header_count_max
                );
                HttpError::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, detail)
            }
            Refusal::InvalidHead(_) => {
                HttpError::bad_request("the head of the request is not valid HTTP/1.1")
            }
        };
        error.into_farewell()
    }

    fn note(&self, event: Event<'_>) {
        let instruments = &self.service.shared.observer.instruments;
        let peer = self.origin.peer;
        match event {
            Event::TurnCut => instruments.http_turns_cut.increment(),
            Event::Turn(requests) => instruments.http_turn_requests_max.note(requests.into()),
            Event::Overdue(overdue) => {
                tracing::debug!(%peer, ?overdue, "an HTTP connection timed out");
                instruments.note_overdue(match overdue {
                    kew_http_front::Overdue::Head => Overdue::Handshake,
                    kew_http_front::Overdue::Answer => Overdue::Answer,
                    kew_http_front::Overdue::Idle => Overdue::Idle,
                });
            }
            Event::Failed(error) => {
                tracing::debug!(%peer, %error, "an HTTP connection failed");
                instruments.broken.increment();
            }
        }
    }
}

impl Connection {
    /// The origin of a request. A foreign web page may not use the public key, nor may a client that calls the
    /// server by a name that is not its own.
    fn speaker(&self, head: &Parts) -> Origin {
        let names = &self.service.shared.names;
        let offered = self.origin.public_key;
        Origin {
            public_key: offered.and_then(|()| judge(names, &head.uri, &head.headers, |host| host)),
            ..self.origin
        }
    }

    async fn answer_as(
        &self,
        origin: Origin,
        parts: Parts,
        body: Incoming,
        activity: &Activity<'_, ()>,
        reuse: &mut Reuse,
    ) -> Answer {
        if host(&parts).is_err() {
            let error =
                HttpError::bad_request("the request must have exactly one Host header, in ASCII");
            return error.into_answer();
        }
        let head = match Head::new(origin, parts) {
            Ok(head) => head,
            Err(error) => return error.into_answer(),
        };
        let (route, path) = (head.route(), head.path.clone());
        let answered = self.dispatch(route, head, body, activity, reuse).await;
        answered.unwrap_or_else(|error| explain(error, route, &path))
    }

    async fn dispatch(
        &self,
        route: Route,
        head: Head,
        body: Incoming,
        activity: &Activity<'_, ()>,
        reuse: &mut Reuse,
    ) -> Result<Answer, HttpError> {
        let service = &self.service;
        let shared = &service.shared;
        if route == Route::Health {
            return Ok(health::answer(&shared.broker));
        }
        if route == Route::WebSocket {
            return websocket::accept(&head.method, &head.headers);
        }
        let origin = head.origin;
        // Nothing is read for a client without a token.
        let denied = |offered, error: HttpError| {
            if error.status == StatusCode::UNAUTHORIZED {
                let told = Error::new(condition::UNAUTHORIZED_ACCESS, error.detail());
                shared.observer.note_denied(&origin, offered, &told);
            }
            error
        };
        let authorization = head.authorization().ok_or_else(|| {
            let detail = "MissingToken: The Authorization header is missing.";
            denied(Offered::None, HttpError::unauthorized(detail))
        })?;
        let grant = shared
            .authority
            .grant_of(authorization, &head.path, origin)
            .await;
        let grant = grant.map_err(|error| {
            let BadToken::PublicKey(barred) = error else {
                return denied(Offered::Token, error.into());
            };
            let called = called(&head.headers, barred);
            shared.observer.note_barred(&origin, barred, called);
            let called = called.map_or(String::new(), |called| {
                format!(" (this request: '{called}')")
            });
            let told = HttpError::unauthorized(format!("{error}{called}"));
            denied(Offered::Token, told)
        })?;
        activity.prove();
        let (body, connection) = body::read(body, &head.headers, &service.front).await;
        *reuse = connection;
        let body = body?;
        let call = Call {
            head,
            grant,
            body,
            stopped: self.stopped.clone(),
        };
        match route {
            Route::Data => data::answer(service, call).await,
            _ if call.head.method == Method::GET => manage(Arc::clone(service), route, call).await,
            _ => {
                // A change runs to its end and is recorded even if the client disconnects.
                let managing = tokio::spawn(manage(Arc::clone(service), route, call));
                managing.await.unwrap_or_else(|error| {
                    tracing::error!(%error, "a request of management panicked, which is a bug");
                    Err(HttpError::internal())
                })
            }
        }
    }
}

/// The answer for an error, in the form of its route.
fn explain(error: HttpError, route: Route, path: &str) -> Answer {
    match route {
        Route::Operator => error.into_json_answer(),
        // As Azure does for every error: of the token, the request or the entity.
        Route::Atom | Route::Data => error.tracked(path).into_answer(),
        Route::Health | Route::WebSocket => error.into_answer(),
    }
}

/// The reason why a request is barred: the name by which it calls the server, or the page that it comes from.
fn called(headers: &HeaderMap, barred: Barred) -> Option<&str> {
    let name = match barred {
        Barred::Listener => return None,
        Barred::Host => HOST,
        Barred::Page => ORIGIN,
    };
    headers.get(name)?.to_str().ok()
}

/// Carries out a request of management, or of an operator.
async fn manage(service: Arc<HttpService>, route: Route, call: Call) -> Result<Answer, HttpError> {
    if route == Route::Operator {
        return operator::answer(&service, &call).await;
    }
    let answered = atom::answer(&service, &call).await;
    let head = &call.head;
    Actor::of(&service.refused_acts, &call).managed(&head.method, &head.path, &answered);
    answered
}
