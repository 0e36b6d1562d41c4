//! Runs kew as a process on a free port, and makes clients for it.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use azure_core::credentials::Secret;
use azure_core::error::ErrorKind;
use azure_core::hmac::hmac_sha256;
use azure_core::http::{ClientOptions, RetryOptions, Transport, Url};
use azure_core::time::{OffsetDateTime, to_rfc3339};
use azure_storage_queue::{
    QueueClient, QueueClientOptions, QueueServiceClient, QueueServiceClientOptions,
};

const PATIENCE: Duration = Duration::from_secs(30);

/// The version for signatures. It determines the string to sign.
const SIGNED_VERSION: &str = "2026-04-06";

pub struct Server {
    process: Child,
    directory: PathBuf,
    facts: Arc<HashMap<String, String>>,
}

impl Server {
    pub fn start() -> Self {
        let directory = std::env::temp_dir().join(format!("kew-rust-{}", std::process::id()));
        let mut command = Command::new(std::env::var("KEW_BINARY").expect("KEW_BINARY"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("KEW_")) {
            command.env_remove(name);
        }
        let mut process = command
            .arg("serve")
            .arg("--data-dir")
            .arg(&directory)
            .args(["--queue-listen", "127.0.0.1:0"])
            .arg("--tls-cert")
            .arg(certificate("server.pem"))
            .arg("--tls-key")
            .arg(certificate("server.key"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("kew starts");
        let mut facts = HashMap::new();
        let output = process.stdout.take().expect("standard output");
        // Ends without KEW_READY if kew ends: the reason is in its log.
        for line in BufReader::new(output).lines() {
            let line = line.expect("a line");
            let (name, value) = line.split_once('=').expect("NAME=value");
            facts.insert(name.to_owned(), value.replace('\'', ""));
            if name == "KEW_READY" {
                break;
            }
        }
        assert!(facts.contains_key("KEW_READY"), "kew did not become ready");
        Self {
            process,
            directory,
            facts: Arc::new(facts),
        }
    }

    /// Every scenario runs through each door.
    pub fn doors(&self) -> Vec<Door> {
        let hosts = [None, Some("queue.localhost")];
        let ways = ["http", "https"]
            .into_iter()
            .flat_map(|scheme| hosts.map(|host| (scheme, host)));
        ways.map(|(scheme, host)| Door {
            scheme,
            host,
            facts: Arc::clone(&self.facts),
        })
        .collect()
    }
}

impl Drop for Server {
    /// Asks it to stop. The log shows how it ended; the suite checks it at its end.
    fn drop(&mut self) {
        // The shell's builtin: not every machine has a program of that name.
        let asked = Command::new("sh")
            .args(["-c", "kill \"$1\"", "sh"])
            .arg(self.process.id().to_string())
            .status();
        if !asked.is_ok_and(|status| status.success()) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// One way to the server: the options of the SDK's client.
#[derive(Clone)]
pub struct Door {
    pub scheme: &'static str,
    /// The part of the host's name after the account, if the account is in the host and not in the
    /// path.
    host: Option<&'static str>,
    facts: Arc<HashMap<String, String>>,
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.host.is_some() { "host" } else { "path" };
        write!(f, "{}, account in the {place}", self.scheme)
    }
}

impl Door {
    fn part(&self, name: &str) -> &str {
        self.facts["KEW_QUEUE_CONNECTION_STRING"]
            .split(';')
            .filter_map(|part| part.split_once('='))
            .find_map(|(key, value)| (key == name).then_some(value))
            .expect("a part of the connection string")
    }

    pub fn account(&self) -> &str {
        self.part("AccountName")
    }

    pub fn port(&self) -> u16 {
        let address = &self.facts["KEW_QUEUE_LISTEN"];
        address
            .rsplit(':')
            .next()
            .expect("a port")
            .parse()
            .expect("a number")
    }

    /// The address of the account or, with a suffix, of its secondary.
    pub fn url_at(&self, port: u16, suffix: &str) -> Url {
        let (scheme, account) = (self.scheme, self.account());
        let text = match self.host {
            Some(host) => format!("{scheme}://{account}{suffix}.{host}:{port}"),
            None => format!("{scheme}://127.0.0.1:{port}/{account}{suffix}"),
        };
        Url::parse(&text).expect("an address")
    }

    pub fn url(&self) -> Url {
        self.url_at(self.port(), "")
    }

    fn sign(&self, text: &str) -> String {
        let key = Secret::new(self.part("AccountKey").to_owned());
        hmac_sha256(text, &key).expect("a key in Base64")
    }

    /// The query of an account's signature. The SDK has no shared key, so it is made here.
    pub fn account_sas(&self, types: &str, permissions: &str) -> String {
        let (expiry, version) = (rfc3339(600), SIGNED_VERSION);
        let signature = self.sign(&format!(
            "{}\n{permissions}\nq\n{types}\n\n{expiry}\n\n\n{version}\n\n",
            self.account()
        ));
        query(&[
            ("sv", version),
            ("ss", "q"),
            ("srt", types),
            ("sp", permissions),
            ("se", &expiry),
            ("sig", &signature),
        ])
    }

    /// The query of a queue's signature; empty fields are left out.
    pub fn queue_sas(&self, queue: &str, sas: &QueueSas) -> String {
        let start = sas.start_seconds.map_or(String::new(), rfc3339);
        let expiry = rfc3339(sas.expiry_seconds);
        let signature = self.sign(&format!(
            "{}\n{start}\n{expiry}\n/queue/{}/{queue}\n\n{}\n{}\n{SIGNED_VERSION}",
            sas.permissions,
            self.account(),
            sas.addresses,
            sas.protocols
        ));
        query(&[
            ("sv", SIGNED_VERSION),
            ("sp", sas.permissions),
            ("st", &start),
            ("se", &expiry),
            ("sip", sas.addresses),
            ("spr", sas.protocols),
            ("sig", &signature),
        ])
    }

    fn client_options(&self, retry: RetryOptions) -> ClientOptions {
        // Not every resolver knows that all names under localhost are this machine.
        let loopback = ([127, 0, 0, 1], 0).into();
        let mut client = reqwest::Client::builder()
            .resolve("devstoreaccount1.queue.localhost", loopback)
            .resolve("devstoreaccount1-secondary.queue.localhost", loopback);
        let pem = std::fs::read(certificate("ca.pem")).expect("the authority's certificate");
        let authority = reqwest::Certificate::from_pem(&pem).expect("a certificate");
        client = client.tls_certs_only([authority]);
        ClientOptions {
            retry,
            transport: Some(Transport::new(Arc::new(client.build().expect("a client")))),
            ..Default::default()
        }
    }

    /// A client of the service with this query. Without retries: the test must see answers that a
    /// retry would hide.
    pub fn service_by(&self, mut url: Url, query: &str, retry: RetryOptions) -> QueueServiceClient {
        url.set_query((!query.is_empty()).then_some(query));
        let options = QueueServiceClientOptions {
            client_options: self.client_options(retry),
            ..Default::default()
        };
        QueueServiceClient::new(url, None, Some(options)).expect("a client")
    }

    pub fn service(&self) -> QueueServiceClient {
        let all = self.account_sas("sco", "rwdlacup");
        self.service_by(self.url(), &all, RetryOptions::none())
    }

    /// A client of a queue with only this query as credential.
    pub fn queue_by(&self, name: &str, query: &str) -> QueueClient {
        let mut url = self.url();
        url.path_segments_mut()
            .expect("a base")
            .pop_if_empty()
            .push(name);
        url.set_query((!query.is_empty()).then_some(query));
        let options = QueueClientOptions {
            client_options: self.client_options(RetryOptions::none()),
            ..Default::default()
        };
        QueueClient::new(url, None, Some(options)).expect("a client")
    }

    /// A client of a queue that does not exist.
    pub fn absent(&self) -> QueueClient {
        self.service().queue_client(&new_name()).expect("a client")
    }

    /// A client of a new, empty queue.
    pub async fn fresh(&self) -> QueueClient {
        let queue = self.absent();
        queue.create(None).await.expect("a queue");
        queue
    }
}

/// The fields of a queue's signature.
pub struct QueueSas {
    pub permissions: &'static str,
    pub start_seconds: Option<i64>,
    pub expiry_seconds: i64,
    pub addresses: &'static str,
    pub protocols: &'static str,
}

impl Default for QueueSas {
    fn default() -> Self {
        Self {
            permissions: "r",
            start_seconds: None,
            expiry_seconds: 600,
            addresses: "",
            protocols: "",
        }
    }
}

/// This many seconds from now.
fn rfc3339(seconds: i64) -> String {
    let now = OffsetDateTime::now_utc();
    let whole =
        OffsetDateTime::from_unix_timestamp(now.unix_timestamp() + seconds).expect("a time");
    to_rfc3339(&whole)
}

fn query(pairs: &[(&str, &str)]) -> String {
    let present = pairs.iter().filter(|(_, value)| !value.is_empty());
    url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(present)
        .finish()
}

fn certificate(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("KEW_TEST_TLS").expect("KEW_TEST_TLS")).join(name)
}

/// A name that no other queue has.
pub fn new_name() -> String {
    static NAMES: AtomicU32 = AtomicU32::new(0);
    format!("scenario-{}", NAMES.fetch_add(1, Ordering::Relaxed))
}

pub fn name_of(queue: &QueueClient) -> String {
    let mut segments = queue.url().path_segments().expect("a path");
    segments.next_back().expect("a segment").to_owned()
}

/// Expects an error with this status and code, as the SDK shows it.
#[track_caller]
pub fn refused<T>(result: azure_core::Result<T>, status: u16, code: &str) {
    let error = result
        .err()
        .unwrap_or_else(|| panic!("expected {code}, not success"));
    let ErrorKind::HttpResponse {
        status: got,
        error_code,
        ..
    } = error.kind()
    else {
        panic!("expected {code}, got {error}");
    };
    assert_eq!(
        (u16::from(*got), error_code.as_deref()),
        (status, Some(code)),
        "{error}"
    );
}

/// Asks again until the answer is something.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, ask: impl Fn() -> F) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
