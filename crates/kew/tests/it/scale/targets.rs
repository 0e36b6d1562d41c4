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
