//! The scale sub-resource: counted, changed, and what goes wrong with it.

use kew_cluster::KubernetesTarget;
use kew_scale::{ActError, Happened, Target as _};
use kew_scaling::Instances;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fake::{FakeApi, Fault, SCALE, failure_text};
use crate::support::{group, workload};

const TARGET: &str =
    "[group.target.kubernetes]\nname = 'worker'\nkubeconfig = {file}\ntimeout = '2s'\n";

struct Cluster {
    _place: TempDir,
    api: FakeApi,
    target: KubernetesTarget,
}

impl Cluster {
    async fn start(wanted: i64, present: i64) -> Self {
        Self::with(TARGET, wanted, present).await
    }

    async fn with(target: &str, wanted: i64, present: i64) -> Self {
        let place = tempfile::tempdir().unwrap();
        let api = FakeApi::start(wanted, present).await;
        let group = group(&place, &api, target);
        let target = KubernetesTarget::open(&group, workload(&group)).await;
        Self {
            _place: place,
            api,
            target: target.unwrap(),
        }
    }

    async fn count(&mut self) -> (u32, u32) {
        let found: Instances = self.target.instances().await.unwrap();
        (found.ready, found.starting)
    }

    /// The text of an error, which names the place in the file.
    async fn uncounted(&mut self) -> String {
        let ActError::Elsewhere(text) = self.target.instances().await.unwrap_err() else {
            panic!("another error");
        };
        text
    }

    async fn set(&mut self, count: u32) -> String {
        let mut happened = self.target.set(count).await;
        assert_eq!(happened.len(), 1, "{happened:?}");
        happened.pop().unwrap().to_string()
    }

    fn wanted(&self) -> Option<i64> {
        self.api.state().wanted
    }
}

#[tokio::test]
async fn replicas_are_counted_and_changed_with_the_version_that_was_read() {
    let mut cluster = Cluster::start(3, 3).await;
    assert_eq!(cluster.count().await, (3, 0));
    assert_eq!(cluster.set(5).await, "the number of instances was set to 5");
    assert_eq!(cluster.wanted(), Some(5));
    assert_eq!(cluster.count().await, (3, 2));
    cluster.api.state().present = 5;
    assert_eq!(
        cluster.count().await,
        (3, 2),
        "a new pod is not ready at once"
    );
    assert_eq!(cluster.set(0).await, "the number of instances was set to 0");
    // The API leaves out a 0. The pods end, and do not count.
    assert_eq!(cluster.count().await, (0, 0));
    let requests = cluster.api.state().requests.clone();
    let gets = requests
        .iter()
        .filter(|(it, _)| *it == format!("GET {SCALE}"));
    assert_eq!(gets.count(), 4, "{requests:?}");
    let patches = requests.iter().filter(|(it, _)| it.starts_with("PATCH "));
    let patches: Vec<Value> = patches
        .map(|(_, it)| serde_json::from_str(it).unwrap())
        .collect();
    let patch = |count: u32, version: &str| json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": count}});
    assert_eq!(patches, [patch(5, "100"), patch(0, "101")]);
}

#[tokio::test]
async fn pods_that_cannot_be_made_start_forever() {
    let mut cluster = Cluster::start(6, 2).await;
    assert_eq!(cluster.count().await, (2, 4));
    cluster.api.state().present = 9;
    assert_eq!(cluster.count().await, (6, 0), "pods that end do not count");
}

#[tokio::test]
async fn a_workload_that_was_changed_meanwhile_is_left_as_it_is() {
    let mut cluster = Cluster::start(3, 3).await;
    assert_eq!(cluster.count().await, (3, 0));
    cluster.api.fail(Fault::Changed);
    let told = cluster.set(9).await;
    assert_eq!(
        told,
        "scale.toml:11:8: cannot change the scale of deployments.apps \"worker\" in the namespace \"billing\": the \
         answer is 409 Conflict: Operation cannot be fulfilled on deployments.apps \"worker\": the object has been \
         modified; please apply your changes to the latest version and try again; the next look decides again"
    );
    assert_eq!(cluster.wanted(), Some(3));
    // The next look reads the new version.
    assert_eq!(cluster.count().await, (3, 0));
    assert_eq!(cluster.set(9).await, "the number of instances was set to 9");
    assert_eq!(cluster.wanted(), Some(9));
}

#[tokio::test]
async fn nothing_is_changed_that_was_not_read() {
    let mut cluster = Cluster::start(3, 3).await;
    assert!(cluster.set(9).await.ends_with("the scale was not read"));
    assert_eq!(cluster.count().await, (3, 0));
    cluster.api.fail(Fault::Answer(
        503,
        failure_text(503, "ServiceUnavailable", "the server is busy"),
    ));
    let text = cluster.uncounted().await;
    assert!(
        text.ends_with("the answer is 503 Service Unavailable: the server is busy"),
        "{text}"
    );
    assert!(cluster.set(9).await.ends_with("the scale was not read"));
    assert_eq!(cluster.wanted(), Some(3));
    assert_eq!(cluster.count().await, (3, 0));
    // A version is for one change.
    assert_eq!(cluster.set(4).await, "the number of instances was set to 4");
    assert!(cluster.set(5).await.ends_with("the scale was not read"));
}

#[tokio::test]
async fn what_fails_is_said_in_one_line_and_tried_once() {
    let mut cluster = Cluster::start(3, 3).await;
    let forbidden = failure_text(
        403,
        "Forbidden",
        "deployments.apps \"worker\" is forbidden: User \"system:serviceaccount:billing:kew\" cannot get resource \
         \"deployments/scale\"",
    );
    let cases = [
        (
            Fault::Answer(403, forbidden),
            "cannot get resource \"deployments/scale\"; allow get and patch of its sub-resource scale in a Role",
        ),
        (Fault::Answer(503, "upstream\n\nis down".into()), "the answer is 503 Service Unavailable"),
        (Fault::Answer(500, String::new()), "the answer is 500 Internal Server Error"),
        (Fault::Answer(429, failure_text(429, "TooManyRequests", "slow down")), "the answer is 429 Too Many Requests: slow down"),
        (Fault::Answer(302, String::new()), "the answer is 302 Found"),
        (Fault::Answer(200, "<html>".into()), "the answer is not a scale: expected value at line 1 column 1"),
        (Fault::Answer(200, "{}".into()), "the answer is not a scale: "),
        (
            Fault::Answer(200, r#"{"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {}}"#.into()),
            "the answer is not a scale: it has no spec",
        ),
        (
            Fault::Answer(200, r#"{"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {}, "spec": {"replicas": -1}}"#.into()),
            "the answer is not a scale: it has -1 replicas",
        ),
        (Fault::Answer(200, " ".repeat(2 << 20)), "the answer cannot be read: length limit exceeded"),
        (Fault::Lost, "connection closed before message completed"),
        (Fault::Silence, "there was no answer within 2 s"),
    ];
    for (fault, expected) in cases {
        let before = cluster.api.state().requests.len();
        cluster.api.fail(fault.clone());
        let text = cluster.uncounted().await;
        assert!(text.contains(expected), "{fault:?}: {text}");
        let begin = "scale.toml:11:8: cannot read the scale of deployments.apps \"worker\" in the namespace \"billing\": ";
        assert!(text.starts_with(begin), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains(crate::fake::TOKEN), "{text}");
        assert_eq!(cluster.api.state().requests.len(), before + 1, "{fault:?}");
    }
    assert_eq!(cluster.count().await, (3, 0));
}

#[tokio::test]
async fn a_deployment_that_is_missing_cannot_be_counted() {
    let mut cluster = Cluster::start(3, 3).await;
    cluster.api.state().wanted = None;
    let text = cluster.uncounted().await;
    assert!(
        text.ends_with("the answer is 404 Not Found: deployments.apps \"worker\" not found"),
        "{text}"
    );
    cluster.api.state().wanted = Some(2);
    assert_eq!(cluster.count().await, (2, 0));
}

/// Whether a change that got no answer took effect is seen by the next look.
#[tokio::test]
async fn a_change_without_an_answer_is_read_again() {
    let mut cluster = Cluster::start(3, 3).await;
    assert_eq!(cluster.count().await, (3, 0));
    cluster.api.fail(Fault::LostAfter);
    let told = cluster.set(8).await;
    assert!(told.contains("cannot change the scale of"), "{told}");
    assert_eq!(cluster.count().await, (3, 5));
    assert_eq!(cluster.set(7).await, "the number of instances was set to 7");
}

#[tokio::test]
async fn an_api_that_cannot_be_reached_is_an_error_of_the_look() {
    let mut cluster = Cluster::start(3, 3).await;
    let address = cluster.api.address;
    let api = FakeApi::start(1, 1).await;
    // The listener ends, and its port with it.
    drop(std::mem::replace(&mut cluster.api, api));
    let mut text = String::new();
    for _ in 0..100 {
        // A connection that was made before its end is closed without an answer.
        text = cluster.uncounted().await;
        if text.contains("Connection refused") {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(text.contains("Connection refused"), "{address}: {text}");
}

#[tokio::test]
async fn other_kinds_and_namespaces_have_other_paths() {
    let target = format!(
        "{TARGET}api = 'argoproj.io/v1alpha1'\nresource = 'rollouts'\nnamespace = 'jobs'\ncontext = 'elsewhere'\n"
    );
    let mut cluster = Cluster::with(&target, 3, 3).await;
    let text = cluster.uncounted().await;
    assert!(
        text.contains("the scale of rollouts.argoproj.io \"worker\" in the namespace \"jobs\""),
        "{text}"
    );
    let path = "GET /apis/argoproj.io/v1alpha1/namespaces/jobs/rollouts/worker/scale";
    assert_eq!(cluster.api.state().requests[0].0, path);
    // Without a namespace it is that of the context.
    let mut cluster = Cluster::with(&format!("{TARGET}context = 'elsewhere'\n"), 3, 3).await;
    cluster.uncounted().await;
    let path = "GET /apis/apps/v1/namespaces/other/deployments/worker/scale";
    assert_eq!(cluster.api.state().requests[0].0, path);
}

#[tokio::test]
async fn a_wrong_configuration_of_the_client_is_an_error_of_the_file() {
    let place = tempfile::tempdir().unwrap();
    let api = FakeApi::start(1, 1).await;
    for (target, expected) in [
        (format!("{TARGET}context = 'absent'\n"), "absent"),
        (
            TARGET.replace("{file}", "'/absent/kubeconfig'"),
            "/absent/kubeconfig",
        ),
    ] {
        let group = group(&place, &api, &target);
        let opened = KubernetesTarget::open(&group, workload(&group)).await;
        let error = opened.unwrap_err().to_string();
        let begin = "scale.toml:11:8: it is not known how to reach the API of Kubernetes: ";
        assert!(
            error.starts_with(begin) && error.contains(expected),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[tokio::test]
async fn a_token_is_not_sent_to_another_machine_without_tls() {
    let place = tempfile::tempdir().unwrap();
    let api = FakeApi::start(1, 1).await;
    let group = group(&place, &api, TARGET);
    let file = place.path().join("kubeconfig");
    let elsewhere = api
        .kubeconfig()
        .replace("http://127.0.0.1", "http://10.0.0.1");
    std::fs::write(&file, &elsewhere).unwrap();
    let opened = KubernetesTarget::open(&group, workload(&group)).await;
    let error = opened.unwrap_err().to_string();
    let begin = "scale.toml:11:8: the kubeconfig has http://10.0.0.1:";
    assert!(error.starts_with(begin), "{error}");
    std::fs::write(&file, elsewhere.replace("http://", "https://")).unwrap();
    let opened = KubernetesTarget::open(&group, workload(&group)).await;
    opened.unwrap();
}

#[tokio::test]
async fn a_failure_is_a_warning_and_a_change_is_not() {
    let mut cluster = Cluster::start(3, 3).await;
    cluster.count().await;
    let happened = cluster.target.set(4).await;
    assert!(matches!(happened[..], [Happened::Set(4)]), "{happened:?}");
    let happened = cluster.target.set(4).await;
    assert!(
        matches!(happened[..], [Happened::Failed(_)]),
        "{happened:?}"
    );
}
