//! The client of a command, which does one thing after another: it waits for the end of each request.

use kew_client::{Error, ErrorKind, ListedQueue, QueueAccount, QueueClient, QueueOptions};
use tokio::runtime::Runtime;

use super::failure::Failure;

/// A client of one account, for a thread that may wait.
#[derive(Debug)]
pub(super) struct Client {
    runtime: Runtime,
    service: QueueClient,
    /// The endpoint, without credentials.
    url: String,
}

/// An error of a request to Queue Storage, with the endpoint that it was for.
#[derive(Debug)]
pub(crate) struct ServiceError {
    url: String,
    error: Error,
}

/// The pages of a list of queues. Each is read when it is needed.
pub(super) struct QueuePages<'a> {
    client: &'a Client,
    prefix: &'a str,
    with_metadata: bool,
    next: Next,
}

/// Which page comes next.
enum Next {
    First,
    After(String),
    None,
}

impl Client {
    /// Sends nothing yet. Fails if TLS cannot be set up.
    pub(super) fn new(account: QueueAccount, options: QueueOptions) -> Result<Self, Failure> {
        let url = account.endpoint().url();
        let service = QueueClient::new(account, options);
        let service = service.map_err(|error| Failure::Usage(error.text().to_owned()))?;
        // One thread of its own keeps connections alive while the command does something else.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        Ok(Self {
            runtime,
            service,
            url,
        })
    }

    /// The endpoint, without credentials.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The service, for requests that run side by side on the runtime.
    pub(super) fn service(&self) -> &QueueClient {
        &self.service
    }

    pub(super) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Sends a request and waits for its end.
    pub(super) fn ask<'a, T, F>(
        &'a self,
        request: impl FnOnce(&'a QueueClient) -> F,
    ) -> Result<T, ServiceError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let done = self.runtime.block_on(request(&self.service));
        done.map_err(|error| self.failed(error))
    }

    /// An error of one of its requests.
    pub(super) fn failed(&self, error: Error) -> ServiceError {
        ServiceError {
            url: self.url.clone(),
            error,
        }
    }

    /// The queues whose names begin with `prefix`, in order, page by page.
    pub(super) fn queues<'a>(&'a self, prefix: &'a str, with_metadata: bool) -> QueuePages<'a> {
        QueuePages {
            client: self,
            prefix,
            with_metadata,
            next: Next::First,
        }
    }
}

impl Iterator for QueuePages<'_> {
    type Item = Result<Vec<ListedQueue>, ServiceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let marker = match std::mem::replace(&mut self.next, Next::None) {
            Next::First => None,
            Next::After(marker) => Some(marker),
            Next::None => return None,
        };
        let page = self
            .client
            .ask(|it| it.list_queues(self.prefix, self.with_metadata, marker.as_deref()));
        Some(page.map(|(queues, next)| {
            self.next = next.map_or(Next::None, Next::After);
            queues
        }))
    }
}

impl ServiceError {
    /// The service's code, if it answered with one.
    pub(crate) fn code(&self) -> Option<&str> {
        self.error.code()
    }

    /// The status of the service's answer, if it answered.
    pub(super) fn status(&self) -> Option<u16> {
        self.error.status()
    }

    /// The service's name for the request.
    pub(super) fn request_id(&self) -> Option<&str> {
        self.error.request_id()
    }

    /// Whether the service said no, so that the same command fails again.
    pub(super) fn is_refusal(&self) -> bool {
        self.error.kind() == ErrorKind::Refused
    }

    /// Whether the request was sent, and nobody knows what came of it.
    pub(super) fn is_outcome_unknown(&self) -> bool {
        self.error.kind() == ErrorKind::OutcomeUnknown
    }

    /// Whether nothing has changed, and the same request may succeed later.
    pub(super) fn is_temporary(&self) -> bool {
        self.error.kind() == ErrorKind::TryAgainLater
    }
}

impl std::fmt::Display for ServiceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (url, text) = (&self.url, self.error.text());
        match (self.status(), self.code()) {
            (Some(status), Some(code)) => write!(f, "{text} ({code}, status {status})")?,
            (Some(status), None) => write!(f, "{url}: {text} (status {status})")?,
            (None, _) if self.is_temporary() => write!(f, "cannot reach {url}: {text}")?,
            (None, _) => write!(f, "{url}: {text}")?,
        }
        match self.error.kind() {
            ErrorKind::OutcomeUnknown => f.write_str(
                "; the outcome is unknown: look at the queue before you repeat the command",
            ),
            ErrorKind::Refused | ErrorKind::TryAgainLater => Ok(()),
        }
    }
}
