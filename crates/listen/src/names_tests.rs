//! Which names mean a server, and which of them admit the public key.

use rcgen::{CertificateParams, KeyPair};

use super::*;
use crate::{CertificateFiles, TlsOptions};

fn names(texts: &[&str]) -> Vec<ServerName> {
    let names = texts.iter().map(|text| text.parse());
    names.collect::<Result<_, _>>().expect("names")
}

fn example() -> ServerNames {
    ServerNames::new(ServerNamesOptions {
        given: names(&["Kew.Example.net", "*.queues.example.net", "192.0.2.9"]),
        aliases: names(&["sbemulatorns"]),
        listeners: vec![[192, 0, 2, 1].into()],
        tls: None,
    })
}

#[test]
fn every_spelling_of_loopback_is_this_server() {
    for host in [
        "localhost",
        "LocalHost:5300",
        "localhost.",
        "localhost:",
        "devstoreaccount1.queue.localhost:10001",
        "127.0.0.1",
        "127.9.8.7:1",
        "[::1]:5300",
        "[::1]",
        "::1",
        "[0:0:0:0:0:0:0:1]:5672",
        "0000:0000:0000:0000:0000:0000:0000:0001",
        "[::ffff:127.0.0.1]:1",
        "[::FFFF:7f00:1]",
    ] {
        for names in [ServerNames::default(), example()] {
            assert!(names.has(host), "{host}");
            assert!(names.admits_public_key(host), "{host}");
        }
    }
}

#[test]
fn lookalike_names_are_not_this_server() {
    for host in [
        "",
        ":",
        "evil.example:5300",
        "localhost.evil.example",
        "notlocalhost",
        ".localhost",
        "user@localhost",
        "localhost/x",
        "localhost:80:80",
        "localhost:http",
        "127.0.0.1.evil.example",
        "[::1",
        "[::1]x",
        "[localhost]",
        "128.0.0.1",
        "[::2]",
        "kew.example.net.evil.example",
        "a.b.queues.example.net",
        "queues.example.net",
        "lo\u{212a}alhost",
    ] {
        assert!(!example().has(host), "{host}");
        assert!(!example().admits_public_key(host), "{host}");
    }
}

#[test]
fn names_that_were_given_are_this_server() {
    for host in [
        "kew.example.net:5300",
        "KEW.example.NET.",
        "orders.queues.example.net",
        "192.0.2.9:10001",
        "192.0.2.1",
    ] {
        assert!(example().has(host), "{host}");
        assert!(example().admits_public_key(host), "{host}");
        assert!(!ServerNames::default().has(host), "{host}");
    }
}

#[test]
fn an_alias_is_read_and_admits_no_public_key() {
    assert!(example().has("SBEmulatorNS:5672"));
    assert!(!example().admits_public_key("sbemulatorns"));
}

#[test]
fn a_listener_for_all_addresses_is_called_by_any_address() {
    let names = ServerNames::new(ServerNamesOptions {
        listeners: vec![Ipv4Addr::UNSPECIFIED.into()],
        ..ServerNamesOptions::default()
    });
    assert!(names.admits_public_key("10.0.0.5:10001"));
    assert!(!names.has("10.0.0.5:10001"));
    assert!(!names.admits_public_key("evil.example"));
}

#[test]
fn invalid_names_cannot_be_configured() {
    for text in [
        "",
        "*",
        "*.",
        "*.127.0.0.1",
        "a b",
        "http://x",
        "x/y",
        "a..b",
    ] {
        let error = text.parse::<ServerName>().expect_err(text);
        assert!(error.to_string().contains("kew.example.net"), "{error}");
    }
}

fn asked<'a>(host: &'a str, pages: &'a [&'a [u8]], site: Option<&'a [u8]>) -> AskedFrom<'a> {
    AskedFrom {
        host: Some(host),
        pages,
        site,
    }
}

#[test]
fn pages_of_this_machine_and_of_the_server_itself_may_ask() {
    let own = "kew.example.net:5300";
    for (host, page, expected) in [
        ("localhost:5300", "http://localhost:3000", Ok(())),
        ("localhost:5300", "https://LOCALHOST", Ok(())),
        ("127.0.0.1:5300", "http://[::1]:8080", Ok(())),
        (own, "http://kew.example.net:5300", Ok(())),
        ("kew.example.net", "https://kew.example.net:443", Ok(())),
        (own, "http://kew.example.net:9999", Err(Barred::Page)),
        (own, "http://evil.example", Err(Barred::Page)),
        ("localhost", "null", Err(Barred::Page)),
        ("localhost", "localhost", Err(Barred::Page)),
        (
            "localhost",
            "https://localhost.evil.example",
            Err(Barred::Page),
        ),
        // What a rebound name looks like: the page and the host are the same.
        ("evil.example", "http://evil.example", Err(Barred::Host)),
    ] {
        let pages = [page.as_bytes()];
        let judged = example().judge(&asked(host, &pages, Some(b"same-origin")));
        assert_eq!(judged, expected, "{page} {host}");
    }
    let both: [&[u8]; 2] = [b"http://localhost", b"http://evil.example"];
    let judged = example().judge(&asked("localhost", &both, None));
    assert_eq!(judged, Err(Barred::Page));
}

#[test]
fn a_request_without_a_page_may_still_be_that_of_a_browser() {
    for (host, site, expected) in [
        ("localhost", None, Ok(())),
        ("localhost", Some("none"), Ok(())),
        ("localhost", Some("same-origin"), Ok(())),
        ("localhost", Some("same-site"), Ok(())),
        ("localhost", Some("cross-site"), Err(Barred::Page)),
        ("kew.example.net", Some("same-site"), Err(Barred::Page)),
    ] {
        let judged = example().judge(&asked(host, &[], site.map(str::as_bytes)));
        assert_eq!(judged, expected, "{host} {site:?}");
    }
    for host in [None, Some("")] {
        let nameless = AskedFrom {
            host,
            pages: &[],
            site: None,
        };
        assert_eq!(ServerNames::default().judge(&nameless), Ok(()));
    }
}

#[test]
fn the_names_are_those_of_the_certificate_in_use() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = CertificateFiles {
        certificate: dir.path().join("server.pem"),
        key: dir.path().join("server.key"),
    };
    let write = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(names).expect("names");
        let certificate = params.self_signed(&key).expect("a certificate");
        std::fs::write(&files.certificate, certificate.pem()).expect("written");
        std::fs::write(&files.key, key.serialize_pem()).expect("written");
    };
    write(&["one.example.net", "*.example.org", "192.0.2.7"]);
    let tls = Tls::open(TlsOptions {
        files: files.clone(),
        protocols: Vec::new(),
    });
    let tls = Arc::new(tls.expect("a certificate"));
    let names = ServerNames::new(ServerNamesOptions {
        tls: Some(Arc::clone(&tls)),
        ..ServerNamesOptions::default()
    });
    let check = |expected: [bool; 4]| {
        let hosts = [
            "one.example.net:1",
            "a.example.org",
            "192.0.2.7",
            "two.example.net",
        ];
        assert_eq!(hosts.map(|host| names.admits_public_key(host)), expected);
        assert_eq!(hosts.map(|host| names.has(host)), expected);
    };
    check([true, true, true, false]);
    write(&["two.example.net"]);
    tls.reload().expect("a certificate");
    check([false, false, false, true]);
}
