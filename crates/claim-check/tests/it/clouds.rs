//! A store of a cloud: Azure Blob Storage, as Azurite has it. `AZURITE_BLOB` names its program, and node must be
//! installed: `proof/run clouds` does both.

use std::net::TcpListener;
use std::process::{Child, Command};
use std::time::{Duration, SystemTime};

use kew_claim_check::{ClaimCheck, ClaimCheckOptions, ClaimStore, Content, Error};
use kew_client::{HttpRequest, SharedKey};
use object_store::azure::MicrosoftAzureBuilder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const VERSION: &str = "2021-08-06";

/// Azurite on a free port. It is killed when it is dropped.
struct Azurite {
    process: Child,
    port: u16,
    _location: tempfile::TempDir,
}

impl Azurite {
    async fn start(program: &std::ffi::OsStr) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let location = tempfile::tempdir().unwrap();
        let process = Command::new("node")
            .arg(program)
            .args(["--blobHost", "127.0.0.1", "--blobPort"])
            .arg(port.to_string())
            .arg("--location")
            .arg(location.path())
            .args(["--silent", "--disableTelemetry"])
            .spawn()
            .unwrap();
        let mut azurite = Self {
            process,
            port,
            _location: location,
        };
        let began = std::time::Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            let ended = azurite.process.try_wait().unwrap();
            assert!(ended.is_none(), "Azurite has ended: {ended:?}");
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "it does not start"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        azurite
    }

    /// Clients of object stores create no containers.
    async fn create_container(&self, name: &str) {
        let path = format!("/{ACCOUNT}/{name}");
        let date = httpdate::fmt_http_date(SystemTime::now());
        let headers = [("x-ms-date", date.as_str()), ("x-ms-version", VERSION)];
        let authorization = SharedKey::new(ACCOUNT, KEY)
            .unwrap()
            .authorization(&HttpRequest {
                method: "PUT",
                path: &path,
                query: &[("restype", "container")],
                headers: &headers,
                content_length: 0,
            });
        let request = format!(
            "PUT {path}?restype=container HTTP/1.1\r\nhost: 127.0.0.1:{}\r\nx-ms-date: {date}\r\nx-ms-version: {VERSION}\r\n\
             authorization: {authorization}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            self.port
        );
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }
}

impl Drop for Azurite {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn content_comes_back_from_azurite() {
    let program = std::env::var_os("AZURITE_BLOB").expect("AZURITE_BLOB names the program");
    let azurite = Azurite::start(&program).await;
    azurite.create_container("orders").await;
    let store = || {
        let blobs = MicrosoftAzureBuilder::new()
            .with_account(ACCOUNT)
            .with_access_key(KEY)
            .with_container_name("orders")
            .with_endpoint(format!("http://127.0.0.1:{}/{ACCOUNT}", azurite.port))
            .with_allow_http(true)
            .build();
        ClaimStore::new(blobs.unwrap())
    };
    let claims = ClaimCheck::new(store(), ClaimCheckOptions::default()).unwrap();
    // More than one part of an upload.
    let mut number = 1_u32;
    let random = std::iter::repeat_with(|| {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (number >> 24) as u8
    });
    let items = vec![
        random.take(12 << 20).collect::<Vec<u8>>().into(),
        "small".into(),
    ];
    let content = Content::group("application/octet-stream", items);
    let sent = claims.check_in(content.clone()).await.unwrap();
    let other = ClaimCheck::new(store(), ClaimCheckOptions::default()).unwrap();
    let received = other.check_out(&sent.body).await.unwrap();
    assert!(received.content == content);
    other.release(&received.claim).await.unwrap();
    let missing = claims.check_out(&sent.body).await.unwrap_err();
    assert!(matches!(missing, Error::Missing { .. }), "{missing}");
}
