//! Fetches the public keys of an issuer, independently of requests.
//!
//! They are read at the start, every hour, and when a token has an unknown key, but then at most
//! twice a minute: clients that send such tokens cannot make Kew fetch more often. A failed fetch
//! changes nothing. A fetch follows no redirects, accepts only status 200, and is bounded in size
//! and time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, HOST};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use kew_issuer::Issuer;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use crate::cli::with_causes;
use crate::settings::issuer::{IssuerSettings, KeySource, is_trusted};

/// How long keys count as current.
const REFRESH_INTERVAL: Duration = Duration::from_secs(3600);

/// The least time between two reads.
const READ_INTERVAL_MIN: Duration = Duration::from_secs(30);

/// How long a fetch may take, and how large its answer may be.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
const DOCUMENT_SIZE_BYTES_MAX: usize = 1024 * 1024;

/// Keeps the keys of an issuer current.
pub(crate) struct KeyKeeper {
    pub(crate) issuer: Arc<Issuer>,
    source: KeySource,
    /// For fetches with TLS.
    tls: Option<TlsConnector>,
}

/// The parts of a discovery document that Kew reads.
#[derive(Deserialize)]
struct Discovered {
    issuer: String,
    jwks_uri: String,
}

impl KeyKeeper {
    /// Refuses unusable keys in a file. If an issuer is unreachable, Kew starts and retries.
    pub(crate) fn start(settings: IssuerSettings) -> Result<Self> {
        let IssuerSettings { options, keys } = settings;
        let issuer = Arc::new(Issuer::new(options));
        let tls = match &keys {
            KeySource::File(path) => {
                let document = read_file(path)?;
                take(&issuer, &document).with_context(|| path.display().to_string())?;
                None
            }
            KeySource::Url(_) | KeySource::Discovery(_) => Some(connector()?),
        };
        Ok(Self {
            issuer,
            source: keys,
            tls,
        })
    }

    /// Reads the keys again and again. Never ends.
    pub(crate) async fn run(self) {
        loop {
            let is_current = match self.read().await {
                Ok(count) => {
                    let issuer = &*self.issuer.options().issuer;
                    tracing::debug!(issuer, count, "the issuer's keys were read");
                    true
                }
                Err(error) => {
                    let issuer = &*self.issuer.options().issuer;
                    tracing::warn!(
                        issuer,
                        "cannot read the issuer's keys, the old ones stay in use: {}",
                        with_causes(&error)
                    );
                    false
                }
            };
            sleep(READ_INTERVAL_MIN).await;
            if is_current {
                tokio::select! {
                    () = self.issuer.keys_wanted() => {}
                    () = sleep(REFRESH_INTERVAL) => {}
                }
            }
        }
    }

    async fn read(&self) -> Result<usize> {
        let document = match &self.source {
            KeySource::File(path) => {
                let path = path.clone();
                tokio::task::spawn_blocking(move || read_file(&path)).await??
            }
            KeySource::Url(url) => self.fetch(url).await?,
            KeySource::Discovery(url) => {
                let document = self.fetch(url).await?;
                let url = self
                    .discovered(&document)
                    .with_context(|| url.to_string())?;
                self.fetch(&url).await?
            }
        };
        take(&self.issuer, &document)
    }

    fn discovered(&self, document: &[u8]) -> Result<Uri> {
        let found: Discovered =
            serde_json::from_slice(document).context("the document is not a discovery document")?;
        let expected = &self.issuer.options().issuer;
        ensure!(
            *found.issuer == **expected,
            "the document names the issuer {:?}, not {expected:?}",
            found.issuer
        );
        let url: Uri = found.jwks_uri.parse().context("jwks_uri is not a URL")?;
        ensure!(
            url.scheme_str() == Some("https") || is_trusted(&url),
            "jwks_uri {url} is not an https URL"
        );
        Ok(url)
    }

    async fn fetch(&self, url: &Uri) -> Result<Bytes> {
        match timeout(FETCH_TIMEOUT, self.fetch_at_length(url)).await {
            Ok(result) => result,
            Err(_) => Err(anyhow!("it takes longer than {FETCH_TIMEOUT:?}")),
        }
        .with_context(|| format!("cannot fetch {url}"))
    }

    async fn fetch_at_length(&self, url: &Uri) -> Result<Bytes> {
        let host = url.host().context("it has no host")?;
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let is_secure = url.scheme_str() == Some("https");
        let port = url.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let stream = TcpStream::connect((name, port)).await?;
        match &self.tls {
            Some(tls) if is_secure => {
                let name = ServerName::try_from(name.to_owned())?;
                get(tls.connect(name, stream).await?, url).await
            }
            Some(_) | None if !is_secure => get(stream, url).await,
            _ => bail!("there is no TLS for it"),
        }
    }
}

fn read_file(path: &std::path::Path) -> Result<Bytes> {
    use std::io::Read as _;
    let mut document = Vec::new();
    let limit = u64::try_from(DOCUMENT_SIZE_BYTES_MAX).unwrap_or(u64::MAX);
    std::fs::File::open(path)
        .and_then(|file| file.take(limit).read_to_end(&mut document))
        .with_context(|| format!("cannot read the issuer's keys in {}", path.display()))?;
    Ok(document.into())
}

fn take(issuer: &Issuer, document: &[u8]) -> Result<usize> {
    issuer
        .replace_keys(document)
        .context("the issuer's keys cannot be used")
}

/// Trusts the authorities of this machine, or those in `SSL_CERT_FILE`.
fn connector() -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        tracing::warn!(
            "this machine trusts no certificate authority, so no issuer can be reached with TLS: \
             install the system's authorities, or set SSL_CERT_FILE"
        );
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("cannot prepare TLS")?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// One request on a connection of its own.
async fn get<IO>(stream: IO, url: &Uri) -> Result<Bytes>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut connection = std::pin::pin!(connection);
    let host = url.authority().context("it has no host")?.as_str();
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path)
        .header(HOST, host)
        .header(ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        ensure!(status == StatusCode::OK, "it answers {status}");
        let body = Limited::new(response.into_body(), DOCUMENT_SIZE_BYTES_MAX);
        let body = body.collect().await.map_err(|error| anyhow!(error))?;
        Ok(body.to_bytes())
    };
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        result = &mut exchange => result,
        ended = &mut connection => {
            ended?;
            exchange.await
        }
    }
}

#[cfg(test)]
mod tests {
    use kew_issuer::IssuerOptions;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const KEYS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1",
        "x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    fn ok(body: &str) -> String {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    /// The result of such answers; the first is for the first request.
    async fn read(is_discovery: bool, answers: &[&dyn Fn(&str) -> String]) -> Result<usize> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let url: Uri = format!("{base}/path").parse().unwrap();
        let answers: Vec<String> = answers.iter().map(|answer| answer(&base)).collect();
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = [0; 1024];
                let count = stream.read(&mut head).await.unwrap();
                assert!(head[..count].starts_with(b"GET /"));
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let keeper = KeyKeeper::start(IssuerSettings {
            options: IssuerOptions::new(&base),
            keys: if is_discovery {
                KeySource::Discovery(url)
            } else {
                KeySource::Url(url)
            },
        })?;
        keeper.read().await
    }

    async fn refused(answer: &dyn Fn(&str) -> String, part: &str) {
        let error = format!("{:#}", read(false, &[answer]).await.unwrap_err());
        assert!(error.contains(part), "{error}");
    }

    #[tokio::test]
    async fn keys_are_fetched_where_they_are() {
        assert_eq!(read(false, &[&|_| ok(KEYS)]).await.unwrap(), 1);
        let found = |base: &str| {
            ok(&format!(
                "{{\"issuer\":\"{base}\",\"jwks_uri\":\"{base}/k\",\"x\":1}}"
            ))
        };
        assert_eq!(read(true, &[&found, &|_| ok(KEYS)]).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn only_keys_are_accepted_as_keys() {
        refused(
            &|base| format!("HTTP/1.1 302 Found\r\nLocation: {base}\r\n\r\n"),
            "302",
        )
        .await;
        let failing = ok(KEYS).replace("200 OK", "500 Oops");
        refused(&|_| failing.clone(), "500").await;
        let partial = ok(KEYS).replace("200 OK", "203 Other");
        refused(&|_| partial.clone(), "203").await;
        refused(&|_| ok("{}"), "cannot be used").await;
        refused(
            &|_| ok(&" ".repeat(DOCUMENT_SIZE_BYTES_MAX + 1)),
            "length limit",
        )
        .await;
        refused(&|_| String::new(), "cannot fetch").await;
    }

    #[tokio::test]
    async fn a_discovery_document_is_valid_only_for_its_issuer() {
        for document in [
            r#"{"issuer":"https://other.example","jwks_uri":"BASE/k"}"#,
            r#"{"issuer":"BASE","jwks_uri":"http://other.example/k"}"#,
            r#"{"issuer":"BASE","jwks_uri":"file:///etc/passwd"}"#,
            r#"{"issuer":"BASE"}"#,
            "[]",
        ] {
            let answer = |base: &str| ok(&document.replace("BASE", base));
            assert!(read(true, &[&answer]).await.is_err(), "{document}");
        }
    }

    #[tokio::test]
    async fn keys_in_a_file_are_wanted_at_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.json");
        let start = || {
            KeyKeeper::start(IssuerSettings {
                options: IssuerOptions::new("https://login.example"),
                keys: KeySource::File(path.clone()),
            })
        };
        assert!(start().is_err());
        std::fs::write(&path, "{\"keys\":[]}").unwrap();
        assert!(start().is_err());
        std::fs::write(&path, KEYS).unwrap();
        assert_eq!(start().unwrap().read().await.unwrap(), 1);
    }
}
