//! A resource over HTTP: GET counts instances, PUT changes their number.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use kew_client::Route;
use kew_scaling::Instances;
use tokio::time::timeout;

use super::number::{number_in, shown};
use super::{ActError, Ages, Happened, Target};
use crate::config::{ConfigError, Group, Http, Variable};

/// What an answer may have, in bytes.
const ANSWER_MAX: usize = 64 << 10;

/// Counts and changes instances over HTTP/1.1, with a connection for each request.
#[derive(Debug)]
pub struct HttpTarget {
    config: Http,
    token: Option<HeaderValue>,
    extra_roots_pem: Option<Vec<u8>>,
    ages: Ages,
}

impl HttpTarget {
    /// Reads the token and the certificates. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// If the variable with the token is not set, or the file with certificates cannot be used.
    pub fn open(group: &Group, config: &Http, variable: Variable<'_>) -> Result<Self, ConfigError> {
        let target = Self {
            config: config.clone(),
            token: token(config, variable)?,
            extra_roots_pem: config.extra_roots_pem()?,
            ages: Ages::new(group.law.start_delay),
        };
        let routes = [
            (&config.places.0, config.url.clone()),
            (&config.places.1, config.set_url.with(0)),
        ];
        for (place, url) in routes {
            let checked = target.address(&url).map(|_| ());
            checked.map_err(|what| place.error(what))?;
        }
        Ok(target)
    }

    /// Where an address leads.
    fn address(&self, url: &str) -> Result<(Route, Uri), String> {
        let wrong = |why: &dyn std::fmt::Display| format!("the address cannot be used: {why}");
        let uri: Uri = url.parse().map_err(|error| wrong(&error))?;
        let host = uri.host().ok_or_else(|| wrong(&"it has no host"))?;
        let is_tls = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let roots = self.extra_roots_pem.as_deref();
        let route = Route::new(host, port, is_tls, roots, None, self.config.timeout);
        Ok((route.map_err(|error| wrong(&error))?, uri))
    }

    /// Sends a request, and returns the text of the answer.
    async fn send(
        &self,
        method: Method,
        url: &str,
        body: Option<String>,
    ) -> Result<String, String> {
        let (route, uri) = self.address(url)?;
        let mut request = Request::builder().method(method).uri(path_of(&uri));
        if let Some(host) = uri.authority() {
            request = request.header(HOST, host.as_str());
        }
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, &self.config.content_type);
        }
        let body = Full::new(Bytes::from(body.unwrap_or_default()));
        let request = request.body(body).map_err(|error| error.to_string())?;
        let within = self.config.timeout;
        match timeout(within, exchange(&route, request)).await {
            Ok(answered) => answered,
            Err(_) => Err(no_answer_within(within)),
        }
    }

    async fn count(&self) -> Result<u32, String> {
        let answer = self.send(Method::GET, &self.config.url, None).await?;
        let counted = number_in(&answer, self.config.number.as_deref());
        counted.map_err(|what| format!("the answer is {what}"))
    }
}

#[async_trait]
impl Target for HttpTarget {
    async fn instances(&mut self) -> Result<Instances, ActError> {
        let counted = self.count().await.map_err(|what| {
            let url = without_query(&self.config.url);
            ActError::elsewhere(&self.config.places.0, format!("GET {url}: {what}"))
        });
        counted.map(|it| self.ages.see(it))
    }

    async fn set(&mut self, count: u32) -> Vec<Happened> {
        let url = self.config.set_url.with(count);
        let body = self.config.body.with(count);
        vec![match self.send(Method::PUT, &url, Some(body)).await {
            Ok(_) => Happened::Set(count),
            Err(what) => {
                let what = format!("PUT {} with {count} instances: {what}", without_query(&url));
                Happened::Failed(ActError::elsewhere(&self.config.places.1, what))
            }
        }]
    }
}

/// The token never shows.
fn token(config: &Http, variable: Variable<'_>) -> Result<Option<HeaderValue>, ConfigError> {
    let Some((place, name)) = &config.token_env else {
        return Ok(None);
    };
    let value = variable(name).filter(|it| !it.is_empty()).ok_or_else(|| {
        place.error(format!(
            "token_env is {name:?}, and this environment variable is not set: set it to a token"
        ))
    })?;
    let value = value.into_string().ok().map(|it| format!("Bearer {it}"));
    let value = value.and_then(|it| HeaderValue::from_str(&it).ok());
    let mut value = value.ok_or_else(|| {
        place.error(format!(
            "the environment variable {name} has characters that a token cannot have"
        ))
    })?;
    value.set_sensitive(true);
    Ok(Some(value))
}

async fn exchange(route: &Route, request: Request<Full<Bytes>>) -> Result<String, String> {
    let stream = route.open().await.map_err(|error| error.to_string())?;
    let broken = |error: hyper::Error| format!("there is no whole answer: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let answering = async {
        let answer = sender.send_request(request).await.map_err(broken)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        let body = body.map_err(|error| format!("the answer cannot be read: {error}"))?;
        let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        answered(status, text)
    };
    let mut answering = std::pin::pin!(answering);
    // The connection ends with the answer, or before it.
    tokio::select! {
        answer = &mut answering => answer,
        _ = connection => answering.await,
    }
}

fn answered(status: StatusCode, text: String) -> Result<String, String> {
    match status.is_success() {
        true => Ok(text),
        false if text.trim().is_empty() => Err(format!("the answer is {status}")),
        false => Err(format!("the answer is {status}: {}", shown(&text))),
    }
}

fn no_answer_within(within: Duration) -> String {
    format!("there was no answer within {} s", within.as_secs_f64())
}

fn path_of(uri: &Uri) -> String {
    let path = uri.path_and_query().map_or("/", |it| it.as_str());
    // An address can have a query and no path.
    match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/{path}"),
    }
}

/// A query can have a secret.
fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}
