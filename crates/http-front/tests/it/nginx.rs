//! A proxy between a client and a service, for tests of what passes through it.
//!
//! nginx is `$KEW_TEST_NGINX`, or that on `PATH`, to which `./test` adds its own, or in one of the usual places. Without
//! it a test reports that it was skipped, or fails if nothing may be skipped.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use crate::skip::skip;

/// How long an answer of nginx may take, and its log.
const PATIENCE: Duration = Duration::from_secs(15);

/// Two servers: one that buffers requests and is strict, as nginx is by default, and one that streams
/// requests and is as lenient as possible.
const CONFIGURATION: &str = "\
daemon off; master_process off; pid @/pid; error_log @/error.log warn;
events { worker_connections 256; }
http {
    log_format passed '$upstream_status|$request_method|$request_uri';
    access_log @/passed.log passed;
    client_body_temp_path @/a; proxy_temp_path @/b; fastcgi_temp_path @/c;
    uwsgi_temp_path @/d; scgi_temp_path @/e;
    upstream kew { server ADDRESS; keepalive 1; }
    proxy_http_version 1.1; proxy_set_header Connection ''; proxy_set_header Host $http_host;
    proxy_next_upstream off; proxy_ignore_client_abort on;
    proxy_read_timeout 10s; client_body_timeout 5s; client_header_timeout 5s; lingering_close off;
    server { listen unix:@/strict; location / { proxy_pass http://kew; } }
    server {
        listen unix:@/lenient; ignore_invalid_headers off; underscores_in_headers on;
        merge_slashes off;
        location / { proxy_pass http://kew; proxy_request_buffering off; }
    }
}
";

pub(crate) struct Nginx {
    child: Child,
    place: tempfile::TempDir,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Nginx {
    /// Starts nginx in front of a server. `None` if this machine has no nginx.
    pub(crate) async fn start(upstream: SocketAddr) -> Option<Self> {
        let Some(program) = find_nginx() else {
            skip(
                "behind_nginx",
                "no nginx",
                "install nginx, or name it with KEW_TEST_NGINX",
            );
            return None;
        };
        Some(Self::run(&program, upstream).await)
    }

    async fn run(program: &Path, upstream: SocketAddr) -> Self {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().to_str().unwrap();
        let configuration = CONFIGURATION
            .replace('@', path)
            .replace("ADDRESS", &upstream.to_string());
        let file = place.path().join("nginx.conf");
        std::fs::write(&file, configuration).unwrap();
        let child = Command::new(program)
            .args(["-e", "stderr", "-p", path, "-c"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let nginx = Self { child, place };
        for _ in 0..1000 {
            if UnixStream::connect(nginx.path("lenient")).await.is_ok() {
                return nginx;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("nginx does not listen");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Sends bytes, closes the sending side, and reads everything that arrives.
    pub(crate) async fn exchange(&self, server: &str, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.path(server)).await.unwrap();
        // It may close before it has read everything.
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let ended = timeout(PATIENCE, read).await;
        assert!(ended.is_ok(), "{:?}", String::from_utf8_lossy(bytes));
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The verbs and targets of all requests that were passed on.
    pub(crate) fn passed(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.path("passed.log")).unwrap();
        let lines = log.lines().filter_map(|line| {
            let (status, request) = line.split_once('|')?;
            (status != "-").then(|| request.to_owned())
        });
        lines.collect()
    }

    /// The same, when there are `count` of them or no more arrive: nginx may log a request after its answer was read.
    pub(crate) async fn passed_once(&self, count: usize) -> Vec<String> {
        let begun = Instant::now();
        loop {
            let passed = self.passed();
            if passed.len() >= count || begun.elapsed() > PATIENCE {
                return passed;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }
}

fn find_nginx() -> Option<PathBuf> {
    let named = std::env::var_os("KEW_TEST_NGINX").map(PathBuf::from);
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&paths).map(|folder| folder.join("nginx"));
    let usual = [
        "/usr/sbin/nginx",
        "/usr/local/sbin/nginx",
        "/opt/homebrew/bin/nginx",
    ];
    let mut candidates = named
        .into_iter()
        .chain(on_path)
        .chain(usual.map(PathBuf::from));
    candidates.find(|path| path.exists())
}

/// Not by a macro: the output of macros is shown only if the test fails.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
