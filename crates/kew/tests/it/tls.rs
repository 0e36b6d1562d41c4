//! HTTP and HTTPS on one port, certificates that change, and clients that must not block others.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::Signal;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

use crate::server::{PATIENCE, Server, run};

/// The log text for a key that belongs to another certificate.
const REFUSED_PAIR: &str = "does not belong to the first certificate";

const REQUEST: &[u8] = b"GET /health/live HTTP/1.1\r\nhost: kew\r\n\r\n";

pub(crate) type Secure = StreamOwned<ClientConnection, TcpStream>;

/// Makes certificates in a data directory.
fn init(data_dir: &Path, more: &[&str]) -> String {
    let (ended, printed) = try_init(data_dir, more);
    assert!(ended, "tls init failed:\n{printed}");
    printed
}

fn try_init(data_dir: &Path, more: &[&str]) -> (bool, String) {
    let (ended, printed) = run(|command| {
        command.args(["tls", "init", "--data-dir"]).arg(data_dir);
        command.args(more);
    });
    (ended.status.success(), printed + &ended.log)
}

fn client_config(ca: &Path, versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(ca).expect("a certificate");
    roots.add(ca).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .expect("supported versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

pub(crate) fn dial(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

pub(crate) fn connect(address: SocketAddr, data_dir: &Path) -> Secure {
    let versions = rustls::ALL_VERSIONS;
    connect_with(
        client_config(&data_dir.join("tls/ca.pem"), versions),
        address,
    )
}

fn connect_with(config: Arc<ClientConfig>, address: SocketAddr) -> Secure {
    let name = ServerName::from(address.ip());
    let connection = ClientConnection::new(config, name).expect("a client");
    StreamOwned::new(connection, dial(address))
}

/// Sends one request, and returns the answer's head after reading all of it.
fn ask(stream: &mut (impl io::Read + io::Write)) -> io::Result<String> {
    stream.write_all(REQUEST)?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        answer.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&answer).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.parse())
    });
    let length = length.expect("a length").expect("a number");
    stream.read_exact(&mut vec![0; length])?;
    Ok(head)
}

fn check_served(stream: &mut (impl io::Read + io::Write)) {
    let head = ask(stream).expect("an answer");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
}

fn certificate(stream: &Secure) -> Vec<u8> {
    let certificates = stream
        .conn
        .peer_certificates()
        .expect("after the handshake");
    certificates[0].to_vec()
}

/// A server with certificates in its data directory.
pub(crate) fn start(more: &[&str]) -> (tempfile::TempDir, Server) {
    let place = tempfile::tempdir().expect("a temporary directory");
    init(place.path(), &[]);
    let server = Server::start_with(|command| {
        command.arg("serve").arg("--data-dir").arg(place.path());
        command.args(["--queue-listen", "127.0.0.1:0"]).args(more);
    });
    (place, server)
}

#[test]
fn one_port_serves_both_in_two_versions_of_tls() {
    let (place, server) = start(&[]);
    let address = server.addresses()[0];
    check_served(&mut dial(address));
    let ca = place.path().join("tls/ca.pem");
    for version in rustls::ALL_VERSIONS {
        let mut stream = connect_with(client_config(&ca, &[version]), address);
        check_served(&mut stream);
        check_served(&mut stream);
        assert_eq!(stream.conn.protocol_version(), Some(version.version));
    }
    let printed = server.facts("KEW_QUEUE_CONNECTION_STRING_TLS");
    let endpoint = format!("QueueEndpoint=https://localhost:{}/", address.port());
    assert!(printed[0].contains(&endpoint), "{printed:?}");
    // Idle clients get the end of the connection too.
    let mut idle = connect(address, place.path());
    check_served(&mut idle);
    server.terminate();
    assert_eq!(idle.read(&mut [0]).expect("an end that was told"), 0);
}

#[test]
fn older_versions_are_refused_with_an_alert() {
    let (_place, server) = start(&[]);
    // A ClientHello of TLS 1.1 with one cipher suite.
    let mut hello = vec![0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 2];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0xc0, 0x13, 1, 0]);
    let mut stream = dial(server.addresses()[0]);
    stream.write_all(&hello).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an end");
    // A fatal alert: of handshake_failure 40 or protocol_version 70.
    assert_eq!(answer[..1], [0x15], "{answer:?}");
    assert!(matches!(answer[5..], [2, 40 | 70]), "{answer:?}");
}

#[test]
fn an_invalid_handshake_ends_in_time_and_disturbs_no_client() {
    let (place, server) = start(&[]);
    let address = server.addresses()[0];
    let began = Instant::now();
    let says: [&[u8]; 6] = [
        b"",
        b"\x16",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x16garbage that is no record at all",
        b"\x16\x03\x01\xff\xff\x01\x00\xff\xff",
        b"\x16\x03\x01\x40\x00\x01\xff\xff\xff",
    ];
    let streams: Vec<TcpStream> = says
        .iter()
        .map(|said| {
            let mut stream = dial(address);
            stream.write_all(said).expect("sent");
            stream
        })
        .collect();
    check_served(&mut connect(address, place.path()));
    check_served(&mut dial(address));
    for (mut stream, said) in streams.into_iter().zip(says) {
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{said:?}"),
        }
        assert!(
            answer.is_empty() || answer[0] == 0x15,
            "{said:?}: {answer:?}"
        );
    }
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_new_certificate_is_loaded_while_connections_are_open() {
    let (place, mut server) = start(&[]);
    server.expect_error(REFUSED_PAIR);
    let address = server.addresses()[0];
    let mut old = connect(address, place.path());
    check_served(&mut old);
    let first = certificate(&old);
    let presented = || {
        let mut stream = connect(address, place.path());
        check_served(&mut stream);
        certificate(&stream)
    };
    assert_eq!(presented(), first);
    // A pair that does not match is refused, with its names.
    let key_file = place.path().join("tls/server.key");
    let key = std::fs::read(&key_file).expect("a key");
    std::fs::copy(place.path().join("tls/ca.key"), &key_file).expect("copied");
    server.signal(Signal::HUP);
    server.log_with(&[REFUSED_PAIR]);
    assert_eq!(presented(), first);
    std::fs::write(&key_file, key).expect("written");
    // A pair that matches is loaded automatically.
    init(place.path(), &["--host", "a.localhost"]);
    let deadline = Instant::now() + PATIENCE;
    while presented() == first {
        assert!(Instant::now() < deadline, "the new certificate is not used");
        std::thread::yield_now();
    }
    check_served(&mut old);
    server.terminate();
}

#[test]
fn plain_requests_are_refused_if_that_is_wanted() {
    let (place, server) = start(&["--tls-only"]);
    let address = server.addresses()[0];
    check_served(&mut connect(address, place.path()));
    let head = ask(&mut dial(address)).expect("an answer");
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
    assert!(
        head.contains("x-ms-error-code: AccountRequiresHttps"),
        "{head}"
    );
    let printed = server.facts("KEW_QUEUE_CONNECTION_STRING");
    assert!(printed[0].contains("QueueEndpoint=https://"), "{printed:?}");
}

#[test]
fn files_that_cannot_be_used_are_named_at_the_start() {
    let place = tempfile::tempdir().expect("a temporary directory");
    init(place.path(), &[]);
    let tls = place.path().join("tls");
    let (cert, key, other) = (
        tls.join("server.pem"),
        tls.join("server.key"),
        tls.join("ca.key"),
    );
    let absent = tls.join("absent");
    for (cert, key, says) in [
        (&absent, &key, "cannot read"),
        (&cert, &absent, "cannot read"),
        (&key, &key, "it contains no certificate"),
        (&cert, &cert, "it contains no private key"),
        (&cert, &other, "does not belong to the first certificate"),
    ] {
        let (ended, printed) = run(|command| {
            command.args(["serve", "--ephemeral", "--queue-listen", "127.0.0.1:0"]);
            command
                .arg("--tls-cert")
                .arg(cert)
                .arg("--tls-key")
                .arg(key);
        });
        assert!(!ended.status.success() && !printed.contains("KEW_READY"));
        assert!(ended.log.contains(says), "{says}: {}", ended.log);
    }
}

#[test]
fn other_machines_are_not_served_without_tls_unless_that_is_allowed() {
    let (ended, _) = run(|command| {
        command.args(["serve", "--ephemeral", "--allow-public-key"]);
        command.args(["--queue-listen", "0.0.0.0:0"]);
    });
    assert_eq!(ended.status.code(), Some(2));
    assert!(ended.log.contains("kew tls init"), "{}", ended.log);
    assert!(ended.log.contains("--allow-plain-http"), "{}", ended.log);
}

#[test]
fn keys_are_private_and_an_authority_is_kept() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let tls = place.path().join("tls");
    let read = |name: &str| std::fs::read(tls.join(name)).expect("it was made");
    init(place.path(), &["--host", "queues.example.com"]);
    for (name, mode) in [("ca.key", 0o600), ("server.key", 0o600), ("ca.pem", 0o644)] {
        let metadata = std::fs::metadata(tls.join(name)).expect("it was made");
        assert_eq!(metadata.permissions().mode() & 0o777, mode, "{name}");
    }
    let (ca, server) = (read("ca.pem"), read("server.pem"));
    let printed = init(place.path(), &["--json"]);
    assert_eq!(read("ca.pem"), ca);
    assert_ne!(read("server.pem"), server);
    let printed: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    let hosts = printed["server"]["hosts"].as_array().expect("hosts");
    assert!(hosts.iter().any(|host| host == "queues.example.com"));
    assert_eq!(printed["authority"]["is_new"], false);
    // Clients would not let it vouch for others.
    let renewed = read("server.pem");
    let (is_made, said) = try_init(place.path(), &["--host", "other.example.com"]);
    assert!(!is_made && said.contains("--force"), "{said}");
    assert_eq!(read("server.pem"), renewed);
    // A single file of an authority is not replaced automatically either.
    std::fs::remove_file(tls.join("ca.key")).expect("removed");
    let (is_made, said) = try_init(place.path(), &[]);
    assert!(!is_made && said.contains("--force"), "{said}");
    init(place.path(), &["--force", "--host", "other.example.com"]);
    assert_ne!(read("ca.pem"), ca);
}

/// The log text for SIGHUP without TLS.
const NOTHING_TO_LOAD: &str = "SIGHUP: nothing to load";

#[test]
fn a_hangup_never_ends_a_server_without_tls() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let server = Server::start(place.path());
    server.signal(Signal::HUP);
    server.log_with(&[NOTHING_TO_LOAD, "kew tls init"]);
    check_served(&mut dial(server.addresses()[0]));
    // Its listeners were opened without TLS: it logs that it needs a restart.
    init(place.path(), &[]);
    server.signal(Signal::HUP);
    server.log_with(&["restart it to use the certificate in", "tls/server.pem"]);
    check_served(&mut dial(server.addresses()[0]));
    server.terminate();

    let server = Server::start_with(|command| {
        command.args(["serve", "--ephemeral", "--queue-listen", "127.0.0.1:0"]);
    });
    server.signal(Signal::HUP);
    server.log_with(&[NOTHING_TO_LOAD]);
    server.terminate();
}

#[test]
fn a_hangup_before_the_settings_are_read_is_answered_when_the_server_is_ready() {
    let place = tempfile::tempdir().expect("a temporary directory");
    init(place.path(), &[]);
    for (tls, answer) in [
        ("", NOTHING_TO_LOAD),
        ("server.pem", "the certificate was read again"),
    ] {
        // A server that waits for the end of its configuration has not read anything else yet.
        let pipe = place.path().join(format!("config{tls}"));
        mkfifoat(CWD, &pipe, Mode::from_raw_mode(0o600)).expect("a pipe");
        let server = Server::spawn(|command| {
            command.arg("serve").arg("--config").arg(&pipe);
        });
        let mut config = std::fs::File::create(&pipe).expect("the server opens it");
        server.signal(Signal::HUP);
        let mut text = "ephemeral = true\nqueue_listen = [\"127.0.0.1:0\"]\n".to_owned();
        if !tls.is_empty() {
            let file = |name: &str| place.path().join("tls").join(name).display().to_string();
            text += &format!("tls_cert = {:?}\n", file(tls));
            text += &format!("tls_key = {:?}\n", file("server.key"));
        }
        config.write_all(text.as_bytes()).expect("it is read");
        drop(config);
        server.log_with(&["ready: Queue Storage", answer]);
        server.terminate();
    }
}
