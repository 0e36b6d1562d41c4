//! A request, as the parts of the interface see it.

use bytes::Bytes;
use hyper::header::{AUTHORIZATION, AsHeaderName, HOST, HeaderMap};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use tokio::sync::watch;

use super::answers::HttpError;
use super::route::Route;
use crate::authorization::grant::{Grant, entity_of};
use crate::authorization::operation::HttpOperation;
use crate::ground::lookup::is_queue;
use crate::ground::origin::Origin;
use crate::shared::Shared;

/// The longest path, in bytes before decoding: an entity's name of 260 characters, each
/// percent-encoded as UTF-8, with its suffix.
const PATH_SIZE_BYTES_MAX: usize = 8 * 1024;

/// The properties of a request before its body is read.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) origin: Origin,
    pub(crate) method: Method,
    /// Decoded, without leading and trailing slashes, in its original case.
    pub(crate) path: String,
    query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
}

/// Notifies a waiting request that the server stops.
#[derive(Clone, Debug)]
pub(crate) struct Stopped(pub(super) watch::Receiver<bool>);

impl Stopped {
    pub(crate) async fn stopped(mut self) {
        // An error means that the connection has ended, so that no client waits for an answer.
        let _ = self.0.wait_for(|is_stopping| *is_stopping).await;
    }
}

/// A request with a valid token.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) head: Head,
    /// The rights that its token grants.
    pub(crate) grant: Grant,
    pub(crate) body: Bytes,
    pub(crate) stopped: Stopped,
}

impl Head {
    pub(crate) fn new(origin: Origin, parts: Parts) -> Result<Self, HttpError> {
        let path = parts.uri.path();
        if path.len() > PATH_SIZE_BYTES_MAX {
            let size_bytes = path.len();
            return Err(HttpError::new(
                StatusCode::URI_TOO_LONG,
                format!(
                    "the path has {size_bytes} bytes, at most {PATH_SIZE_BYTES_MAX} are allowed"
                ),
            ));
        }
        let path = decoded(path)?;
        let query = read_query(&parts.uri)?;
        Ok(Self {
            origin,
            method: parts.method,
            path: path.trim_matches('/').to_owned(),
            query,
            headers: parts.headers,
        })
    }

    /// Which part of the interface it is for.
    pub(crate) fn route(&self) -> Route {
        let has_api_version = self.parameter("api-version").is_some();
        Route::of(&self.method, &self.path, has_api_version)
    }

    /// The value of a parameter, whose name is compared without case.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let mut query = self.query.iter();
        let found = query.find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// All parameters, in their order.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        let query = self.query.iter();
        query.map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The value of a header, if it is present and text.
    pub(crate) fn header(&self, name: impl AsHeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn authorization(&self) -> Option<&str> {
        self.header(AUTHORIZATION)
    }

    /// Scheme, host and port as the client uses them, for links in answers.
    pub(crate) fn base_url(&self) -> String {
        let scheme = if self.origin.is_secure {
            "https"
        } else {
            "http"
        };
        let host = self.header(HOST).unwrap_or("localhost");
        format!("{scheme}://{host}")
    }
}

impl Call {
    /// Refuses an operation that the token does not allow. `path` is an entity's, or empty for the
    /// namespace.
    pub(crate) fn require(&self, operation: HttpOperation, path: &str) -> Result<(), HttpError> {
        match self.grant.allows(operation.right(), &path.to_lowercase()) {
            true => Ok(()),
            false => Err(unauthorized(operation, path)),
        }
    }

    /// Refuses an operation on messages that the token does not allow. The entity's path in lower
    /// case is the beginning of the request's path.
    ///
    /// A token may also be for the whole path of the request, such as `queue/messages`, which some
    /// clients sign. A queue can have such a name, too: while it exists, a token signed by a rule
    /// of the namespace is valid for that queue and for no other.
    pub(crate) async fn require_of(
        &self,
        shared: &Shared,
        operation: HttpOperation,
        entity: &str,
    ) -> Result<(), HttpError> {
        let (grant, right) = (&self.grant, operation.right());
        if grant.allows(right, entity) {
            return Ok(());
        }
        let path = self.head.path.to_lowercase();
        let is_allowed = grant.allows_request(right, entity_of(entity), &path)
            && (grant.owner.is_some() || !is_queue(&shared.broker, &grant.path).await?);
        match is_allowed {
            true => Ok(()),
            false => Err(unauthorized(operation, entity)),
        }
    }
}

fn unauthorized(operation: HttpOperation, path: &str) -> HttpError {
    let right = operation.right();
    HttpError::unauthorized(format!(
        "Unauthorized: '{right}' claim(s) are required to perform this operation. Resource: '{path}'."
    ))
    .with_sub_code(40_100)
}

fn decoded(text: &str) -> Result<String, HttpError> {
    let text = percent_decode_str(text).decode_utf8();
    let text = text.map_err(|_| HttpError::bad_request("the path or query is not UTF-8"))?;
    Ok(text.into_owned())
}

fn read_query(uri: &Uri) -> Result<Vec<(String, String)>, HttpError> {
    let pairs = uri.query().unwrap_or_default().split('&');
    pairs
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decoded(key)?, decoded(&value.replace('+', " "))?))
        })
        .collect()
}
