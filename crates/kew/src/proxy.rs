//! Connections through a proxy that the environment names: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`.
//!
//! The proxy opens a tunnel (`CONNECT`), so it sees the host and the port of the service, and with TLS nothing else.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http1::handshake;
use hyper::header::{HOST, PROXY_AUTHORIZATION};
use hyper::{Request, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use kew_client::{Dial, DialFuture, Stream};
use tokio::net::TcpStream;

/// Makes connections to services of one scheme, through a proxy if there is one for the host.
struct Proxies {
    matcher: Matcher,
    scheme: &'static str,
}

/// What makes connections to this endpoint and its secondary. `None` means directly: services on this machine need
/// no proxy.
pub(crate) fn of_environment(url: &str) -> Option<Arc<dyn Dial>> {
    let uri: Uri = url.parse().ok()?;
    let scheme = match uri.scheme_str()? {
        "https" => "https",
        _ => "http",
    };
    if uri.host().is_none_or(is_local) {
        return None;
    }
    let matcher = Matcher::from_env();
    Some(Arc::new(Proxies { matcher, scheme }))
}

fn is_local(host: &str) -> bool {
    host == "localhost" || host == "[::1]" || host.starts_with("127.")
}

impl Dial for Proxies {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> DialFuture<'a> {
        Box::pin(async move {
            let place = match host.contains(':') {
                true => format!("[{host}]:{port}"),
                false => format!("{host}:{port}"),
            };
            let uri = format!("{}://{place}", self.scheme).parse();
            let uri: Uri = uri.map_err(io::Error::other)?;
            match self.matcher.intercept(&uri) {
                Some(proxy) => tunnel(&proxy, &place).await,
                None => {
                    let stream = TcpStream::connect((host, port)).await?;
                    stream.set_nodelay(true)?;
                    Ok(Box::new(stream) as Box<dyn Stream>)
                }
            }
        })
    }
}

/// A connection to a place, through a proxy.
async fn tunnel(proxy: &Intercept, place: &str) -> io::Result<Box<dyn Stream>> {
    let (host, port) = address(proxy.uri())?;
    let failed = |error: &dyn std::fmt::Display| {
        io::Error::other(format!("the proxy {host}:{port} failed: {error}"))
    };
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await;
    let stream = stream.map_err(|error| failed(&error))?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = handshake(TokioIo::new(stream))
        .await
        .map_err(|error| failed(&error))?;
    // It ends with the tunnel.
    tokio::spawn(connection.with_upgrades());
    let mut request = Request::connect(place).header(HOST, place);
    if let Some(credentials) = proxy.basic_auth() {
        request = request.header(PROXY_AUTHORIZATION, credentials);
    }
    let request = request.body(Empty::<Bytes>::new());
    let answer = sender.send_request(request.map_err(io::Error::other)?);
    let answer = answer.await.map_err(|error| failed(&error))?;
    if !answer.status().is_success() {
        return Err(failed(&format_args!("it answered {}", answer.status())));
    }
    let tunnel = hyper::upgrade::on(answer).await;
    let tunnel = tunnel.map_err(|error| failed(&error))?;
    Ok(Box::new(TokioIo::new(tunnel)))
}

/// Where a proxy is. Fails for those that need TLS or SOCKS; the error shows no credentials.
fn address(proxy: &Uri) -> io::Result<(&str, u16)> {
    let scheme = proxy.scheme_str().unwrap_or("http");
    let host = proxy.host().filter(|_| scheme == "http");
    let host = host.ok_or_else(|| {
        let text =
            format!("the environment names a proxy of the kind {scheme}: use http://HOST:PORT");
        io::Error::new(io::ErrorKind::Unsupported, text)
    })?;
    Ok((host, proxy.port_u16().unwrap_or(80)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_on_this_machine_are_reached_directly() {
        for url in [
            "http://localhost:10001/a",
            "http://127.0.0.1:1/a",
            "https://[::1]/a",
        ] {
            assert!(of_environment(url).is_none(), "{url}");
        }
        assert!(of_environment("https://a.queue.core.windows.net").is_some());
    }

    #[test]
    fn proxies_that_need_another_protocol_are_refused() {
        let address = |uri: &'static str| address(&Uri::from_static(uri)).map(|(_, port)| port);
        assert_eq!(address("http://proxy:3128").ok(), Some(3128));
        assert_eq!(address("http://proxy").ok(), Some(80));
        for uri in ["https://proxy:3128", "socks5://proxy:1080"] {
            let error = address(uri).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{uri}");
        }
    }
}
