//! Targets beside processes: programs, services, and those that other builds have.

use super::*;

impl Yard {
    /// The same settings with another target.
    fn with_target(target: &str) -> Self {
        let yard = Self::new(SETTINGS);
        let text = std::fs::read_to_string(yard.file()).expect("it was written");
        let (before, _) = text.split_once("[group.target").expect("it has a target");
        let folder = yard.place.path().display().to_string();
        let target = target.replace("{}", &folder);
        std::fs::write(yard.file(), format!("{before}{target}")).expect("writable");
        yard
    }

    fn number(&self) -> String {
        let text = std::fs::read_to_string(self.place.path().join("number"));
        text.expect("the program writes it").trim().to_owned()
    }

    fn set_number(&self, number: &str) {
        std::fs::write(self.place.path().join("number"), number).expect("writable");
    }

    fn wait_for_number(&self, number: &str) {
        let since = Instant::now();
        while self.number() != number {
            assert!(
                since.elapsed() < PATIENCE,
                "{} and not {number}",
                self.number()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A number in a file, which is replaced whole.
const PROGRAMS: &str = "[group.target.command]\ncount = ['cat', '{}/number']\n\
    set = ['sh', '-c', 'echo $KEW_INSTANCES > {}/new && mv {}/new {}/number']\n";

#[test]
fn programs_count_and_change_instances() {
    let yard = Yard::with_target(PROGRAMS);
    yard.set_number("0");
    yard.put(100);
    let done = yard.scale("explain");
    assert_eq!(done.code, 0, "{done:?}");
    assert!(
        done.text().contains("  instances: 0 ready, 0 starting"),
        "{done:?}"
    );
    let dry = yard.agent_with(&["--dry-run"]);
    dry.log_with(&["start instances until there are 3: "]);
    dry.terminate();
    assert_eq!(yard.number(), "0");
    let agent = yard.agent();
    yard.wait_for_number("3");
    agent.log_with(&["the number of instances was set to 3"]);
    // What cannot be counted stays as it is.
    yard.set_number("many");
    agent.log_with(&[
        "the instances cannot be counted: ",
        ":15:9: count (\"cat\"): it has printed \"many\", and a whole number of instances was expected",
        "the instances cannot be counted, so their number stays",
    ]);
    assert_eq!(yard.number(), "many");
    yard.set_number("1");
    yard.wait_for_number("3");
    yard.drain();
    yard.wait_for_number("0");
    agent.terminate();
    yard.set_number("2");
    let done = yard.scale("stop");
    assert_eq!(done.code, 0, "{done:?}");
    assert!(
        done.text()
            .contains("jobs: the number of instances was set to 0"),
        "{done:?}"
    );
    assert_eq!(yard.number(), "0");
    yard.set_number("many");
    let done = yard.scale("stop");
    assert_eq!(done.code, 1, "{done:?}");
}

#[test]
fn a_service_that_does_not_answer_is_left_alone() {
    // A port that was free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let yard = Yard::with_target(&format!(
        "[group.target.http]\nurl = 'http://{address}/n'\n"
    ));
    yard.put(1);
    let done = yard.scale("explain");
    assert_eq!(done.code, 1, "{done:?}");
    let expected = format!(
        ":15:7: GET http://{address}/n: try again later: cannot connect to {address}: Connection refused"
    );
    for text in [
        expected.as_str(),
        "the instances cannot be counted, so their number stays",
    ] {
        assert!(done.text().contains(text), "{text}: {done:?}");
    }
    let done = yard.scale("stop");
    assert_eq!(done.code, 1, "{done:?}");
}

const KUBERNETES: &str =
    "[group.target.kubernetes]\nname = 'worker'\nkubeconfig = '/absent/kubeconfig'\n";
const KEDA: &str = "[group.target.keda]\nlisten = '127.0.0.1:0'\n\
    [group.target.keda.workload]\nname = 'worker'\nkubeconfig = '/absent/kubeconfig'\n";

/// The gate's binary has no targets in a cluster, and says how to get them.
#[cfg(not(feature = "cluster"))]
#[test]
fn targets_of_another_build_are_refused_with_the_command_that_makes_it() {
    for target in [KUBERNETES, KEDA] {
        let yard = Yard::with_target(target);
        for name in ["run", "explain"] {
            let done = yard.scale(name);
            let place = format!("{}:14:", yard.file().display());
            let build = "`cargo build --release -p kew --features cluster`";
            done.check_error(
                2,
                &[&place, "without the targets kubernetes and keda", build],
            );
        }
    }
}

/// A part of the API of Kubernetes: a workload with two replicas, which takes changes and keeps none.
#[cfg(feature = "cluster")]
struct Api {
    address: std::net::SocketAddr,
    /// Method, path and body of each request.
    requests: std::sync::Arc<std::sync::Mutex<Vec<String>>>,
}

#[cfg(feature = "cluster")]
impl Api {
    fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let api = Self {
            address: listener.local_addr().expect("it is bound"),
            requests: std::sync::Arc::default(),
        };
        let requests = api.requests.clone();
        // It ends with the process of the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                if let Some(request) = Self::answer(stream) {
                    requests.lock().expect("no panic").push(request);
                }
            }
        });
        api
    }

    fn answer(stream: std::net::TcpStream) -> Option<String> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut first = String::new();
        reader.read_line(&mut first).ok()?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let line = line.trim().to_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        std::io::Read::read_exact(&mut reader, &mut body).ok()?;
        let scale = r#"{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"worker","namespace":"billing",
            "resourceVersion":"7"},"spec":{"replicas":2},"status":{"replicas":2}}"#;
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{scale}",
            scale.len()
        );
        std::io::Write::write_all(&mut &stream, answer.as_bytes()).ok()?;
        Some(format!("{}{}", first, String::from_utf8_lossy(&body)))
    }

    fn requests(&self, method: &str) -> Vec<String> {
        let requests = self.requests.lock().expect("no panic");
        let of = requests.iter().filter(|it| it.starts_with(method));
        of.cloned().collect()
    }

    /// A yard whose target has a client's configuration for it.
    fn yard(&self, target: &str) -> Yard {
        let yard = Yard::with_target(&target.replace("/absent", "{}"));
        let server = format!("http://{}", self.address);
        let text = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "fake", "cluster": {"server": server}}],
            "users": [{"name": "agent", "user": {"token": "secret"}}],
            "contexts": [{"name": "here", "context": {"cluster": "fake", "user": "agent", "namespace": "billing"}}],
        });
        let file = yard.place.path().join("kubeconfig");
        std::fs::write(file, text.to_string()).expect("writable");
        yard.put(100);
        yard
    }
}

/// The binary with both targets: a dry run counts, an agent changes the workload or tells KEDA.
#[cfg(feature = "cluster")]
#[test]
fn a_dry_run_in_a_cluster_changes_nothing() {
    for (target, told) in [
        (KUBERNETES, "the number of instances was set to 3"),
        (KEDA, "KEDA is told a new number of instances: 3"),
    ] {
        let api = Api::start();
        let yard = api.yard(target);
        let dry = yard.agent_with(&["--dry-run"]);
        dry.log_with(&["start instances until there are 3: "]);
        let log = dry.terminate();
        assert!(
            !log.contains(told) && !log.contains("KEDA is served"),
            "{log}"
        );
        assert!(!api.requests("GET").is_empty());
        let done = yard.scale("explain");
        assert_eq!(done.code, 0, "{done:?}");
        assert!(
            done.text().contains("  instances: 2 ready, 0 starting"),
            "{done:?}"
        );
        assert_eq!(api.requests("PATCH"), [""; 0]);
        let agent = yard.agent();
        agent.log_with(&[told]);
        agent.terminate();
        let patches = api.requests("PATCH");
        assert_eq!(patches.is_empty(), target == KEDA, "{patches:?}");
        let is_change =
            |it: &String| it.contains("\"replicas\":3") && it.contains("\"resourceVersion\":\"7\"");
        assert!(patches.iter().all(is_change), "{patches:?}");
    }
}

/// Where both are built, the first thing that is missing is the client's configuration.
#[cfg(feature = "cluster")]
#[test]
fn targets_in_a_cluster_need_a_configuration_of_the_client() {
    for target in [KUBERNETES, KEDA] {
        let yard = Yard::with_target(target);
        for name in ["run", "explain"] {
            let done = yard.scale(name);
            let expected = "it is not known how to reach the API of Kubernetes: ";
            done.check_error(2, &[expected, "/absent/kubeconfig"]);
        }
    }
}

#[test]
fn instances_that_keda_runs_are_not_stopped_by_the_agent() {
    let yard = Yard::with_target(KEDA);
    let done = yard.scale("stop");
    let place = format!("{}:15:10: ", yard.file().display());
    done.check_error(2, &[&place, "autoscaling.keda.sh/paused-replicas: \"0\""]);
}
