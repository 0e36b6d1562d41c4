//! Handles the events of a client's connection, and the results of its tasks.

use kew_amqp::codec::Text;
use kew_amqp::error::{Error, condition};
use kew_amqp::performative::DeliveryState;
use kew_amqp::sasl::SaslCode;
use kew_amqp::{By, Event};
use tokio::task::JoinError;

use crate::connection::client::Client;
use crate::connection::client::links::link::Link;
use crate::connection::client::parts::done::Done;
use crate::connection::client::parts::transactions::gone;
use crate::connection::client::parts::turn::ATTACH_STEPS;
use crate::metrics::{Offered, Scope};

impl Client {
    pub(super) fn on_event(&mut self, event: Event) {
        match event {
            Event::SaslInit {
                mechanism,
                response,
                ..
            } => self.on_sasl(mechanism.as_str(), response.as_deref()),
            Event::SaslResponse { .. } => self.connection.sasl_outcome(SaslCode::Auth),
            Event::Attach { link, attach } => {
                self.turn.steps.charge(ATTACH_STEPS);
                // Its session may be that of a message which was sent or settled before.
                self.hand_over();
                self.on_attach(link, attach);
            }
            Event::Delivery(delivery) => match self.links.get(&delivery.link) {
                Some(Link::Sender(_)) => self.on_message(&delivery),
                Some(Link::Requests(_)) => self.on_request(&delivery),
                Some(Link::Coordinator) => self.on_control(&delivery),
                // No messages arrive over these.
                Some(Link::Opening(_) | Link::Receiver(_) | Link::Replies(_)) => {}
                None => self
                    .transactions
                    .fail_if_meant(delivery.state.as_ref(), gone),
            },
            Event::Oversized(oversized) => self.on_oversized(oversized),
            Event::Disposition {
                delivery,
                link,
                is_settled,
                state,
                ..
            } => {
                self.stirred.links.insert(link);
                self.on_disposition(link, delivery, is_settled, state);
            }
            Event::Credit {
                link,
                is_drain,
                properties,
                ..
            } => match properties.is_some_and(|it| it.get("txn-id").is_some()) {
                true => self.refuse_acquisition(link),
                false => self.on_credit(link, is_drain),
            },
            Event::Writable { session } => self.stirred.blocked.note_room(session),
            Event::Detached {
                link, by, error, ..
            } => {
                // A link that was detached on our side is already forgotten.
                if by == By::Us && self.links.contains_key(&link) {
                    self.note_broken_rule(Scope::Link, error.as_ref());
                    self.fail_transactions_over(link, error);
                }
                self.forget(link);
            }
            Event::Ended {
                session, by, error, ..
            } => {
                if by == By::Us {
                    self.note_broken_rule(Scope::Session, error.as_ref());
                    let mut links = self.links.range(session.links());
                    if links.any(|(_, link)| link.may_be_in_transactions()) {
                        self.transactions.fail_all(&error.unwrap_or_else(gone));
                    }
                }
                self.links.forget_first_of(session);
                self.forget_all_of(session);
            }
            Event::Closed { by, error } => {
                if by == By::Us {
                    self.note_broken_rule(Scope::Connection, error.as_ref());
                }
                self.peer.ended = error;
                self.forget_all();
            }
            Event::Opened(open) => {
                self.on_hostname(open.hostname.as_ref().map(Text::as_str));
                let is_proven = self.peer.is_proven();
                let container = open.container_id.as_str();
                self.shared
                    .observer
                    .note_opened(&self.peer.origin, container, is_proven);
            }
            // The connection has answered these.
            Event::Begun { .. } | Event::Available { .. } => {}
            Event::Unmatched { state } => {
                self.transactions
                    .fail_if_meant(Some(&DeliveryState::Transactional(state)), gone);
            }
            // These do not happen on a server.
            Event::SaslChallenge { .. } | Event::Attached { .. } | Event::Drained { .. } => {}
        }
    }

    /// Counts and logs an error that ended something here and was sent to the client.
    fn note_broken_rule(&self, scope: Scope, error: Option<&Error>) {
        let Some(error) = error else {
            return;
        };
        self.shared
            .observer
            .note_refusal(&self.peer.origin, scope, error);
        if error.condition == condition::FRAMING_ERROR || error.condition == condition::DECODE_ERROR
        {
            self.shared.observer.instruments.broken.increment();
        }
    }

    fn on_sasl(&mut self, mechanism: &str, response: Option<&[u8]>) {
        let code = match mechanism {
            // Some clients send EXTERNAL and mean that tokens will follow.
            "ANONYMOUS" | "MSSBCBS" | "EXTERNAL" => SaslCode::Ok,
            "PLAIN" => self.take_password(response.unwrap_or_default()),
            _ => SaslCode::Auth,
        };
        if code == SaslCode::Auth {
            let error = Error::new(
                condition::UNAUTHORIZED_ACCESS,
                "the name or the key is missing or wrong",
            );
            let offered = match mechanism {
                "PLAIN" => Offered::Plain,
                _ => Offered::Other,
            };
            self.shared
                .observer
                .note_denied(&self.peer.origin, offered, &error);
        }
        self.connection.sasl_outcome(code);
    }

    /// The client is authenticated: its limits become larger.
    pub(super) fn trust(&mut self) {
        if self.peer.prove() {
            self.set_wire_limits();
        }
    }

    pub(crate) fn on_done(&mut self, done: Result<Done, JoinError>) {
        self.turn.steps.charge(1);
        match done {
            Ok(Done::Opened(link, opened, is_look)) => {
                if is_look {
                    self.load.end_look();
                }
                self.on_opened(link, opened);
            }
            Ok(Done::Received(link, entity, batch)) => self.on_received(link, entity, batch),
            Ok(Done::Answered(asker, reply)) => {
                self.load.end_request();
                if let Some((lock, until)) = reply.renewed {
                    self.on_session_renewed(lock, until);
                }
                self.reply(&asker, reply);
            }
            Ok(Done::Judged(judged)) => self.on_judged(judged),
            Ok(Done::JudgedAgain(judged)) => self.on_judged_again(&judged),
            Ok(Done::Cancelling(cancelling, view)) => self.on_cancelling(*cancelling, view),
            Ok(Done::Looked(link, view)) => {
                self.load.end_look();
                self.on_looked(link, view);
            }
            Ok(Done::LookAgain(link)) => self.look(link),
            Ok(Done::SessionLookedAt(link, lock, held)) => {
                self.on_session_looked_at(link, lock, held);
            }
            Ok(Done::Settled(settlements, reply, began)) => {
                self.load.end_request();
                self.on_settled(settlements, reply, began.elapsed());
            }
            Ok(Done::Released) => self.load.end_forgotten(),
            Err(error) => {
                tracing::error!(%error, "a request of a Service Bus client panicked, which is a bug");
                let text = "The server was unable to process the request.";
                self.connection
                    .close(Some(Error::new(condition::INTERNAL_ERROR, text)));
            }
        }
    }
}
