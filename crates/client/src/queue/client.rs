//! The operations of Queue Storage.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::answers;
use super::attempts::{Attempts, service_limit};
use super::model::{ListedQueue, PutMessage, QueueMessage, QueueProperties, Receipt};
use super::options::{PutOptions, QueueOptions};
use super::request::{FixedHeaders, Operation};
use crate::connection_string::{Endpoint, QueueAccount};
use crate::credential::QueueCredential;
use crate::error::{Effect, Error};
use crate::http::answer::Answer;
use crate::http::pool::Pool;
use crate::http::tokens::Tokens;
use crate::retry::Retry;
use crate::transport::Route;

/// What bearer tokens are asked for.
const SCOPE: &str = "https://storage.azure.com/.default";

/// The code of a request that took too long and did a part of its work.
const OPERATION_TIMED_OUT: &str = "OperationTimedOut";

/// The longest limit of time: clocks cannot count much further.
const TIMEOUT_MAX: Duration = Duration::from_hours(30 * 365 * 24);

/// A client of one account of Queue Storage. It is cheap to clone, and clones share their connections.
///
/// To drop the future of an operation closes its connection: whether it was carried out stays open.
#[derive(Clone, Debug)]
pub struct QueueClient {
    shared: Arc<Shared>,
}

struct Shared {
    account: QueueAccount,
    primary: Service,
    /// The read-only copy of the account, if it is known where that is.
    secondary: Option<Service>,
    tokens: Option<Tokens>,
    timeout: Duration,
    attempt_timeout: Option<Duration>,
    retry: Retry,
    page_size: u32,
}

/// An endpoint, and the way to it.
#[derive(Debug)]
struct Service {
    endpoint: Endpoint,
    headers: FixedHeaders,
    pool: Pool,
}

impl QueueClient {
    /// A client. Nothing is connected yet.
    ///
    /// Fails if TLS cannot be set up, for example because `extra_roots_pem` has no certificate.
    pub fn new(account: QueueAccount, options: QueueOptions) -> Result<Self, Error> {
        let secondary = account.secondary().map(|it| Service::new(it, &options));
        let secondary = secondary.transpose()?;
        let primary = Service::new(account.endpoint(), &options)?;
        let tokens = match account.credential() {
            QueueCredential::Bearer(source) => Some(Tokens::new(source.clone(), SCOPE)),
            QueueCredential::SharedKey(_) | QueueCredential::Signature(_) => None,
        };
        let shared = Shared {
            account,
            primary,
            secondary,
            tokens,
            timeout: options.timeout.min(TIMEOUT_MAX),
            attempt_timeout: options.attempt_timeout.map(|it| it.min(TIMEOUT_MAX)),
            retry: options.retry,
            page_size: options.page_size,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// A page of the queues whose names begin with `prefix`, in order, and where the next page begins, if there is
    /// one.
    pub async fn list_queues(
        &self,
        prefix: &str,
        with_metadata: bool,
        marker: Option<&str>,
    ) -> Result<(Vec<ListedQueue>, Option<String>), Error> {
        let mut list = Operation::new("GET", &[], Effect::Read)
            .query("comp", "list")
            .number("maxresults", self.shared.page_size);
        if let Some(marker) = marker {
            list = list.query("marker", marker);
        }
        if !prefix.is_empty() {
            list = list.query("prefix", prefix);
        }
        if with_metadata {
            list = list.query("include", "metadata");
        }
        let answer = self.call(&list, &[200]).await?;
        let page = answers::read(&answer, "EnumerationResults", Effect::Read, answers::page)?;
        // A service that stays where it is would be asked for ever.
        match marker.is_some() && page.1.as_deref() == marker {
            true => Err(answers::unreadable(
                "a list that does not end",
                Effect::Read,
            )),
            false => Ok(page),
        }
    }

    /// Creates a queue; `false` if it was there with the same metadata.
    pub async fn create_queue(
        &self,
        queue: &str,
        metadata: &[(String, String)],
    ) -> Result<bool, Error> {
        let create = Operation::repeatable("PUT", &[queue]).metadata(metadata);
        let answer = self.call(&create, &[201, 204]).await?;
        Ok(answer.status == 201)
    }

    /// Deletes a queue with everything in it.
    pub async fn delete_queue(&self, queue: &str) -> Result<(), Error> {
        let delete = Operation::new("DELETE", &[queue], Effect::Change);
        self.call(&delete, &[204]).await.map(drop)
    }

    /// Reads metadata and approximate count.
    pub async fn queue_properties(&self, queue: &str) -> Result<QueueProperties, Error> {
        let read = Operation::new("GET", &[queue], Effect::Read).query("comp", "metadata");
        let answer = self.call(&read, &[200]).await?;
        let name = "x-ms-approximate-messages-count";
        let count = answers::header(&answer, name, Effect::Read)?.parse();
        Ok(QueueProperties {
            metadata: answers::metadata(&answer.headers),
            approximate_message_count: count
                .map_err(|_| answers::unreadable("a bad count", Effect::Read))?,
        })
    }

    /// Replaces all metadata of a queue.
    pub async fn set_metadata(
        &self,
        queue: &str,
        metadata: &[(String, String)],
    ) -> Result<(), Error> {
        let set = Operation::repeatable("PUT", &[queue])
            .query("comp", "metadata")
            .metadata(metadata);
        self.call(&set, &[204]).await.map(drop)
    }

    /// Puts a message. If the outcome is unknown it may be there, and another put makes another message.
    pub async fn put(
        &self,
        queue: &str,
        text: &str,
        options: PutOptions,
    ) -> Result<PutMessage, Error> {
        let mut put = Operation::new("POST", &[queue, "messages"], Effect::Change);
        if let Some(seconds) = options.visibility_timeout {
            put = put.number("visibilitytimeout", seconds);
        }
        if let Some(seconds) = options.time_to_live {
            put = put.number("messagettl", seconds);
        }
        let answer = self.call(&put.text(text)?, &[201]).await?;
        answers::read(&answer, "QueueMessagesList", Effect::Change, answers::put)
    }

    /// Receives up to `count` messages, at most 32, and hides each for `visibility_timeout` seconds (the service's
    /// default is 30). It never waits for one.
    ///
    /// If the outcome is unknown or the future dropped, messages may be hidden that nobody got: they come back when
    /// their time is over. The client does not ask again then, because each time would hide others.
    pub async fn get(
        &self,
        queue: &str,
        count: u32,
        visibility_timeout: Option<u32>,
    ) -> Result<Vec<QueueMessage>, Error> {
        let mut get = Operation::new("GET", &[queue, "messages"], Effect::Change)
            .number("numofmessages", count);
        if let Some(seconds) = visibility_timeout {
            get = get.number("visibilitytimeout", seconds);
        }
        self.messages(&get, true).await
    }

    /// Looks at up to `count` visible messages, at most 32.
    pub async fn peek(&self, queue: &str, count: u32) -> Result<Vec<QueueMessage>, Error> {
        let peek = Operation::new("GET", &[queue, "messages"], Effect::Read)
            .query("peekonly", "true")
            .number("numofmessages", count);
        self.messages(&peek, false).await
    }

    /// Hides a message for another `visibility_timeout` seconds and, if `text` is given, replaces its text. The
    /// old receipt stops working.
    pub async fn update(
        &self,
        queue: &str,
        id: &str,
        receipt: &str,
        visibility_timeout: u32,
        text: Option<&str>,
    ) -> Result<Receipt, Error> {
        let effect = Effect::Change;
        let mut update = Operation::new("PUT", &[queue, "messages", id], effect)
            .query("popreceipt", receipt)
            .number("visibilitytimeout", visibility_timeout);
        if let Some(text) = text {
            update = update.text(text)?;
        }
        let answer = self.call(&update, &[204]).await?;
        let next_visible = answers::header(&answer, "x-ms-time-next-visible", effect)?;
        let value = answers::header(&answer, "x-ms-popreceipt", effect)?;
        Ok(Receipt {
            value: value.to_owned(),
            next_visible: httpdate::parse_http_date(next_visible)
                .map_err(|_| answers::unreadable("a bad time", effect))?,
        })
    }

    /// Deletes a message that was received.
    pub async fn delete_message(&self, queue: &str, id: &str, receipt: &str) -> Result<(), Error> {
        let path = [queue, "messages", id];
        let delete = Operation::new("DELETE", &path, Effect::Change);
        let delete = delete.query("popreceipt", receipt);
        self.call(&delete, &[204]).await.map(drop)
    }

    /// Deletes every message of a queue.
    ///
    /// With many messages the service may answer `OperationTimedOut` after it has deleted some; then it is asked
    /// again, as often as the options say.
    pub async fn clear(&self, queue: &str) -> Result<(), Error> {
        let clear = Operation::repeatable("DELETE", &[queue, "messages"]);
        self.call(&clear, &[204]).await.map(drop)
    }

    /// Deletes messages of a queue for as long as the service spends on one request.
    ///
    /// It is [`clear`](Self::clear) for callers that show how far it is: when the service answers `OperationTimedOut`
    /// after it has deleted some messages, the caller gets this error at once, looks, and asks again. Without an answer
    /// the outcome is unknown: another try would delete messages that have come meanwhile.
    pub async fn clear_once(&self, queue: &str) -> Result<(), Error> {
        let mut clear = Operation::new("DELETE", &[queue, "messages"], Effect::Change);
        clear.reports_timeouts = true;
        let answer = self.call(&clear, &[204]).await?;
        match answer.status {
            204 => Ok(()),
            _ => Err(answers::error_of(&answer, clear.effect)),
        }
    }

    async fn messages(
        &self,
        operation: &Operation,
        is_leased: bool,
    ) -> Result<Vec<QueueMessage>, Error> {
        let answer = self.call(operation, &[200]).await?;
        answers::messages(&answer, operation.effect, is_leased)
    }

    /// Sends a request until it succeeds with one of these statuses, or fails in a way that another try does not
    /// change.
    pub(super) async fn call(
        &self,
        operation: &Operation,
        success: &[u16],
    ) -> Result<Answer, Error> {
        let shared = &self.shared;
        let deadline = Instant::now() + shared.timeout;
        let mut attempts = self.attempts(operation);
        let attempt = || {
            let limit = attempts.next_limit();
            async move {
                let until = limit.and_then(|limit| Instant::now().checked_add(limit));
                let until = until.map_or(deadline, |until| until.min(deadline));
                let answer = self.call_once(operation, until).await?;
                if success.contains(&answer.status) {
                    return Ok(answer);
                }
                let error = answers::error_of(&answer, operation.effect);
                match operation.reports_timeouts && error.code() == Some(OPERATION_TIMED_OUT) {
                    true => Ok(answer),
                    false => Err(error),
                }
            }
        };
        match operation.is_repeatable {
            true => shared.retry.run_repeatable(deadline, attempt).await,
            false => shared.retry.run(deadline, attempt).await,
        }
    }

    fn attempts(&self, operation: &Operation) -> Attempts {
        let shared = &self.shared;
        match shared.attempt_timeout {
            Some(first) => Attempts::growing(first),
            None if operation.may_time_out() => Attempts::within(shared.timeout, shared.retry),
            None => Attempts::unlimited(),
        }
    }

    /// Sends a request once. The service is told how long it may take.
    async fn call_once(&self, operation: &Operation, until: Instant) -> Result<Answer, Error> {
        let shared = &self.shared;
        let (account, tokens) = (&shared.account, shared.tokens.as_ref());
        let no_secondary = || Error::refused("the account has no secondary endpoint");
        let service = match operation.is_for_secondary {
            false => &shared.primary,
            true => shared.secondary.as_ref().ok_or_else(no_secondary)?,
        };
        let left = until.saturating_duration_since(Instant::now());
        let limit = service_limit(left);
        let (endpoint, headers) = (&service.endpoint, &service.headers);
        let request = operation.signed(account, endpoint, tokens, headers, limit);
        let request = request.await?;
        // It is large, and futures around it are moved.
        Box::pin(service.pool.send(&request, operation.effect, until)).await
    }
}

impl Service {
    fn new(endpoint: &Endpoint, options: &QueueOptions) -> Result<Self, Error> {
        let default_port = if endpoint.is_tls { 443 } else { 80 };
        let route = Route::new(
            &endpoint.host,
            endpoint.port.unwrap_or(default_port),
            endpoint.is_tls,
            options.extra_roots_pem.as_deref(),
            options.dial.clone(),
            options.connect_timeout,
        )?;
        Ok(Self {
            endpoint: endpoint.clone(),
            headers: FixedHeaders::new(endpoint, &options.user_agent),
            pool: Pool::new(route, options.connections_max),
        })
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("account", &self.account)
            .field("pool", &self.primary.pool)
            .finish_non_exhaustive()
    }
}
