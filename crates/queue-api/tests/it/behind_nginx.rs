//! The ambiguous requests through nginx: forwarded requests are never split in another way.
//!
//! nginx logs each request that it forwards. The front end must see only those: any other was
//! smuggled. And the next client on the same connections must get the answer to its own request.
//!
//! The test looks for nginx in `$KEW_TEST_NGINX`, in `target/tools/nginx`, where `./test` puts it,
//! and in the usual places. Without it the test reports that it was skipped, or fails if nothing
//! may be skipped.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use crate::client::{Call, Door, call, put};
use crate::forms::{FIRST_LINES, FORMS};
use crate::skip::skip;

/// The time limit for an answer of nginx, and for its log.
const PATIENCE: Duration = Duration::from_secs(15);

/// Two servers: one buffers requests and is strict, which is the default, and one streams them and
/// allows as much as possible.
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

struct Nginx {
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
    async fn start(program: &Path, upstream: SocketAddr) -> Self {
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

    /// Sends bytes, with nothing behind them, and reads the whole answer.
    async fn exchange(&self, server: &str, bytes: &[u8]) -> String {
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

    /// The verbs and targets of all forwarded requests.
    fn passed(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.path("passed.log")).unwrap();
        let lines = log.lines().filter_map(|line| {
            let (status, request) = line.split_once('|')?;
            (status != "-").then(|| request.to_owned())
        });
        lines.collect()
    }

    /// The same, when there are `count` of them or no more arrive: nginx may log a request after
    /// its answer was read.
    async fn passed_once(&self, count: usize) -> Vec<String> {
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
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools");
    let named = std::env::var_os("KEW_TEST_NGINX").map(PathBuf::from);
    let candidates = [
        named,
        Some(tools.join("nginx/usr/sbin/nginx")),
        Some("/usr/sbin/nginx".into()),
        Some("/usr/local/sbin/nginx".into()),
        Some("/opt/homebrew/bin/nginx".into()),
    ];
    candidates.into_iter().flatten().find(|path| path.exists())
}

/// How many requests the front end has seen.
async fn seen(door: &Door) -> usize {
    let wire = &mut door.connect_operator();
    let page = wire
        .send(call("GET", "").target("/metrics").anonymous())
        .await;
    let counts = page.body.lines().filter_map(|line| {
        let line = line.strip_prefix("kew_requests_total{")?;
        line.rsplit(' ').next()?.parse::<usize>().ok()
    });
    counts.sum()
}

fn text(call: &Call) -> String {
    String::from_utf8(call.to_bytes()).unwrap()
}

/// Not with a macro: their output is shown only if the test fails.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[tokio::test]
async fn no_form_is_smuggled_through_nginx() {
    let Some(program) = find_nginx() else {
        skip(
            "behind_nginx",
            "no nginx",
            "install nginx, or name it with KEW_TEST_NGINX",
        );
        return;
    };
    let door = Door::open();
    door.send(call("PUT", "/orders")).await.check_status(201);
    let nginx = Nginx::start(&program, door.listen().await).await;
    let good = text(&put("orders", "", "x"));
    let first_lines = FIRST_LINES.map(|(name, part, other)| (name, good.replacen(part, other, 1)));
    let mut count = 0;
    for server in ["strict", "lenient"] {
        let forms = FORMS.map(|form| (form.name, form.of(call("POST", "/orders/messages"))));
        for (name, form) in forms.into_iter().chain(first_lines.clone()) {
            let before = seen(&door).await;
            let passed_before = nginx.passed().len();
            let smuggled = text(&call("PUT", &format!("/smuggled-{count}")));
            count += 1;
            nginx
                .exchange(server, format!("{form}{smuggled}").as_bytes())
                .await;
            // The connection to the front end is kept: this request uses the same one.
            let honest = call("GET", "/orders?comp=metadata")
                .header("x-ms-client-request-id", &format!("honest-{count}"))
                .header("Connection", "close");
            let answer = nginx.exchange(server, text(&honest).as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{name}: {answer}");
            let own = format!("x-ms-client-request-id: honest-{count}\r\n");
            assert!(answer.contains(&own), "{name}: {answer}");
            let seen = seen(&door).await - before;
            let passed = nginx.passed_once(passed_before + seen).await;
            let passed = &passed[passed_before..];
            assert!(
                seen <= passed.len(),
                "{server}, {name}: {seen} requests were seen, and these were forwarded: {passed:?}"
            );
        }
    }
    let passed: BTreeSet<String> = nginx.passed().into_iter().collect();
    let list = door.send(call("GET", "/?comp=list")).await;
    for queue in list.elements("Name") {
        let made = format!("PUT|/devstoreaccount1/{queue}");
        assert!(queue == "orders" || passed.contains(&made), "{queue}");
    }
    say(&format!(
        "forms_through_nginx={count} passed_on={}",
        passed.len()
    ));
}
