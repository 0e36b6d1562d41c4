//! Runs kew, and Azurite if it is installed, on free ports, and makes clients for them.

use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use kew_client::{QueueAccount, QueueClient, QueueOptions, Retry};

const ACCOUNT: &str = "devstoreaccount1";

const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// The servers. They end when this is dropped.
pub(crate) struct Services {
    processes: Vec<Child>,
    directory: PathBuf,
    doors: Vec<Door>,
}

/// One way to one service.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    service: Service,
    /// The URL of the account.
    url: String,
}

#[derive(Clone, Copy, Debug)]
enum Service {
    Kew,
    Azurite,
}

impl Services {
    pub(crate) fn start() -> Self {
        let name = format!("kew-client-{}", std::process::id());
        let mut services = Self {
            processes: Vec::new(),
            directory: std::env::temp_dir().join(name),
            doors: Vec::new(),
        };
        let kew = services.start_kew();
        services.add(Service::Kew, &format!("http://{kew}"));
        services.add(Service::Kew, &format!("https://{kew}"));
        // Its program, if Node is there.
        if let Some(program) = std::env::var_os("AZURITE_QUEUE") {
            for scheme in ["http", "https"] {
                let port = services.start_azurite(Path::new(&program), scheme);
                services.add(Service::Azurite, &format!("{scheme}://127.0.0.1:{port}"));
            }
        }
        services
    }

    /// Every scenario runs through each door.
    pub(crate) fn doors(&self) -> Vec<Door> {
        self.doors.clone()
    }

    fn add(&mut self, service: Service, url: &str) {
        let url = format!("{url}/{ACCOUNT}");
        self.doors.push(Door { service, url });
    }

    /// The address of kew, for both schemes.
    fn start_kew(&mut self) -> String {
        let mut command = Command::new(std::env::var("KEW_BINARY").expect("KEW_BINARY"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("KEW_")) {
            command.env_remove(name);
        }
        command
            .arg("serve")
            .arg("--data-dir")
            .arg(self.directory.join("kew"))
            .args(["--queue-listen", "127.0.0.1:0"])
            .arg("--tls-cert")
            .arg(certificate("server.pem"))
            .arg("--tls-key")
            .arg(certificate("server.key"));
        std::fs::create_dir_all(&self.directory).expect("a folder for data");
        let lines = self.spawn(command, "KEW_READY=1");
        let listen = lines
            .iter()
            .find_map(|it| it.strip_prefix("KEW_QUEUE_LISTEN="));
        listen.expect("an address").replace('\'', "")
    }

    /// The port of an Azurite that speaks this scheme.
    fn start_azurite(&mut self, program: &Path, scheme: &str) -> u16 {
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("it is bound").port();
        drop(free);
        let mut command = Command::new("node");
        command
            .arg(program)
            .args(["--queueHost", "127.0.0.1", "--queuePort"])
            .arg(port.to_string())
            .arg("--location")
            .arg(self.directory.join(format!("azurite-{scheme}")))
            .args(["--silent", "--disableTelemetry"]);
        if scheme == "https" {
            command
                .arg("--cert")
                .arg(certificate("server.pem"))
                .arg("--key")
                .arg(certificate("server.key"));
        }
        self.spawn(command, "successfully listens");
        port
    }

    /// Starts a server and waits for the line that says that it is ready. Returns the lines until then.
    fn spawn(&mut self, mut command: Command, ready: &str) -> Vec<String> {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = process.stdout.take().expect("standard output");
        self.processes.push(process);
        let mut lines = Vec::new();
        let mut output = BufReader::new(output).lines();
        // Without that line it has ended: the reason is on its standard error.
        loop {
            let line = output.next().expect("the server is ready");
            lines.push(line.expect("a line"));
            if lines.last().is_some_and(|line| line.contains(ready)) {
                break;
            }
        }
        // What it prints later is of no interest, and must not fill the pipe.
        std::thread::spawn(move || output.for_each(drop));
        lines
    }
}

impl Drop for Services {
    /// Asks them to stop. The log of kew shows how it ended; the suite checks it at its end.
    fn drop(&mut self) {
        for process in &mut self.processes {
            // The shell's builtin: not every machine has a program of that name.
            let asked = Command::new("sh")
                .args(["-c", "kill \"$1\"", "sh"])
                .arg(process.id().to_string())
                .status();
            if !asked.is_ok_and(|status| status.success()) {
                // It has ended already, or will be noticed by the suite.
                let _ = process.kill();
            }
            let _ = process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, _) = self.url.split_once("://").unwrap_or_default();
        write!(f, "{:?}, {scheme}", self.service)
    }
}

impl Door {
    /// The account, known by its key.
    pub(crate) fn account(&self) -> QueueAccount {
        self.account_with(KEY)
    }

    pub(crate) fn account_with(&self, key: &str) -> QueueAccount {
        let url = &self.url;
        let text = format!("AccountName={ACCOUNT};AccountKey={key};QueueEndpoint={url}");
        QueueAccount::parse(&text).expect("a connection string")
    }

    /// The account, known by the signature in an address of the service or of a queue.
    pub(crate) fn signed(&self, address: &str) -> QueueAccount {
        let (_, query) = address.split_once('?').expect("a signature");
        QueueAccount::parse(&format!("{}?{query}", self.url)).expect("an address")
    }

    pub(crate) fn client(&self) -> QueueClient {
        self.client_of(self.account())
    }

    pub(crate) fn client_of(&self, account: QueueAccount) -> QueueClient {
        QueueClient::new(account, self.options()).expect("a client")
    }

    /// Without retries, which would hide an answer.
    pub(crate) fn options(&self) -> QueueOptions {
        let roots = std::fs::read(certificate("ca.pem")).expect("an authority");
        QueueOptions {
            retry: Retry {
                retries: 0,
                ..Retry::default()
            },
            extra_roots_pem: Some(roots),
            ..QueueOptions::default()
        }
    }

    /// A queue that is new, and a client for it.
    pub(crate) async fn fresh(&self) -> (QueueClient, String) {
        let (client, queue) = (self.client(), new_name());
        client.create_queue(&queue, &[]).await.expect("a new queue");
        (client, queue)
    }
}

/// A name that no other scenario uses.
pub(crate) fn new_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("client-{number}")
}

fn certificate(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("KEW_TEST_TLS").expect("KEW_TEST_TLS")).join(name)
}
