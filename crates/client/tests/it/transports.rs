//! TLS and WebSockets.

use std::io;
use std::sync::Arc;

use kew_client::{
    BusClient, BusNamespace, BusOptions, BusTransport, Dial, DialFuture, ErrorKind, Message,
    ReceiverOptions, Stream,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::server::Server;

const TLS: &str = "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;\
     SharedAccessKey=SAS_KEY_VALUE";

/// A server with TLS, and the certificate authority that it is known by.
struct Secured {
    server: Arc<Server>,
    acceptor: TlsAcceptor,
}

pub(crate) fn authority() -> (Vec<u8>, TlsAcceptor) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let own_key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let own = own.signed_by(&own_key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![own.der().clone()],
            PrivateKeyDer::try_from(own_key.serialize_der()).unwrap(),
        )
        .unwrap();
    (pem.into_bytes(), TlsAcceptor::from(Arc::new(config)))
}

impl Dial for Secured {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> DialFuture<'a> {
        Box::pin(async move {
            assert!(
                host == "localhost" && [5671, 443].contains(&port),
                "{host}:{port}"
            );
            let (ours, theirs) = tokio::io::duplex(64 << 10);
            let acceptor = self.acceptor.clone();
            self.server
                .serve(async move { acceptor.accept(theirs).await })?;
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

async fn check(client: &BusClient) {
    let sender = client.sender("jobs").await.unwrap();
    // Larger than what one message of a WebSocket or one record of TLS carries.
    let message = Message::new(vec![7; 300 << 10]);
    sender.send(&message).await.unwrap();
    let options = ReceiverOptions::default();
    let mut receiver = client.receiver("jobs", options).await.unwrap();
    let received = receiver.receive().await.unwrap();
    assert_eq!(received.body(), message.body);
    received.complete().await.unwrap();
}

#[tokio::test]
async fn all_transports_carry_messages() {
    let server = Server::start().await;
    let (roots, acceptor) = authority();
    let secured = Arc::new(Secured {
        server: server.clone(),
        acceptor,
    });
    for transport in [BusTransport::Tcp, BusTransport::WebSocket] {
        let options = BusOptions {
            extra_roots_pem: Some(roots.clone()),
            dial: Some(secured.clone()),
            ..server.options()
        };
        let namespace = BusNamespace::parse(TLS).unwrap().over(transport);
        check(&BusClient::new(namespace, options).unwrap()).await;
    }
    let namespace = BusNamespace::parse(crate::server::CONNECTION_STRING).unwrap();
    let namespace = namespace.over(BusTransport::WebSocket);
    check(&BusClient::new(namespace, server.options()).unwrap()).await;
}

#[tokio::test]
async fn tcp_carries_messages() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let accepting = server.clone();
    let accepting = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            accepting.serve(async { Ok(stream) }).unwrap();
        }
    });
    let text = format!("{TLS};UseDevelopmentEmulator=true")
        .replace("localhost", &format!("127.0.0.1:{port}"));
    let namespace = BusNamespace::parse(&text).unwrap();
    for transport in [BusTransport::Tcp, BusTransport::WebSocket] {
        let options = BusOptions {
            dial: None,
            ..server.options()
        };
        check(&BusClient::new(namespace.clone().over(transport), options).unwrap()).await;
    }
    accepting.abort();
}

#[tokio::test]
async fn a_server_that_is_not_trusted_gets_no_token() {
    let server = Server::start().await;
    let (_, acceptor) = authority();
    let (others, _) = authority();
    let secured = Arc::new(Secured {
        server: server.clone(),
        acceptor,
    });
    let options = BusOptions {
        extra_roots_pem: Some(others),
        dial: Some(secured),
        ..server.options()
    };
    let namespace = BusNamespace::parse(TLS).unwrap();
    let client = BusClient::new(namespace.clone(), options).unwrap();
    let error = client.sender("jobs").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert_eq!(server.connections(), 1, "it is not tried again");
    let options = BusOptions {
        extra_roots_pem: Some(b"no certificate".to_vec()),
        ..server.options()
    };
    let error = BusClient::new(namespace, options).unwrap_err();
    assert!(error.text().contains("no PEM certificate"), "{error}");
}

/// Answers HTTP, and takes no WebSockets.
struct NoWebSockets;

impl Dial for NoWebSockets {
    fn dial<'a>(&'a self, _: &'a str, _: u16) -> DialFuture<'a> {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        Box::pin(async move {
            let (ours, mut theirs) = tokio::io::duplex(64 << 10);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    theirs.read_buf(&mut head).await?;
                }
                let answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
                theirs.write_all(answer).await?;
                io::Result::Ok(())
            });
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

#[tokio::test]
async fn a_server_without_websockets_says_so() {
    let server = Server::start().await;
    let namespace = BusNamespace::parse(crate::server::CONNECTION_STRING).unwrap();
    let options = BusOptions {
        dial: Some(Arc::new(NoWebSockets)),
        ..server.options()
    };
    let client = BusClient::new(namespace.over(BusTransport::WebSocket), options).unwrap();
    let error = client.sender("jobs").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.text().contains("takes no WebSockets"), "{error}");
}
