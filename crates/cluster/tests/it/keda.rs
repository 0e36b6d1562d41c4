//! KEDA's questions, asked by a client that is generated from the same interface.

use std::time::Duration;

use kew_cluster::protocol::external_scaler_client::ExternalScalerClient;
use kew_cluster::protocol::{GetMetricsRequest, IsActiveResponse, ScaledObjectRef};
use kew_cluster::{KedaTarget, METRIC};
use kew_scale::{Happened, Target as _};
use tempfile::TempDir;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use crate::fake::{FakeApi, Fault};
use crate::support::{group, keda};

const TARGET: &str = "[group.target.keda]\nlisten = '127.0.0.1:0'\n\
    [group.target.keda.workload]\nname = 'worker'\nkubeconfig = {file}\n";
const PATIENCE: Duration = Duration::from_secs(60);

struct Scaler {
    place: TempDir,
    api: FakeApi,
    target: KedaTarget,
    client: ExternalScalerClient<Channel>,
}

impl Scaler {
    async fn start(wanted: i64) -> Self {
        let place = tempfile::tempdir().unwrap();
        let api = FakeApi::start(wanted, wanted).await;
        let group = group(&place, &api, TARGET);
        let target = KedaTarget::open(&group, keda(&group)).await.unwrap();
        let client = client(&target).await;
        Self {
            place,
            api,
            target,
            client,
        }
    }

    async fn metric(&mut self) -> Result<(i64, f64), Status> {
        let request = GetMetricsRequest {
            scaled_object_ref: Some(object()),
            metric_name: METRIC.to_owned(),
        };
        let answer = self.client.get_metrics(request).await?.into_inner();
        assert_eq!(answer.metric_values.len(), 1, "{answer:?}");
        let value = &answer.metric_values[0];
        assert_eq!(value.metric_name, METRIC);
        Ok((value.metric_value, value.metric_value_float))
    }

    async fn is_active(&mut self) -> Result<bool, Status> {
        Ok(self.client.is_active(object()).await?.into_inner().result)
    }

    async fn stream(&mut self) -> Streaming<IsActiveResponse> {
        let stream = self.client.stream_is_active(object()).await;
        stream.unwrap().into_inner()
    }
}

async fn client(target: &KedaTarget) -> ExternalScalerClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", target.listen())).unwrap();
    ExternalScalerClient::new(endpoint.connect().await.unwrap())
}

fn object_with(metadata: &[(&str, &str)]) -> ScaledObjectRef {
    let owned = metadata
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ScaledObjectRef {
        name: "worker".to_owned(),
        namespace: "billing".to_owned(),
        scaler_metadata: owned.collect(),
    }
}

/// KEDA sends all of a trigger's metadata.
fn object() -> ScaledObjectRef {
    object_with(&[
        ("scalerAddress", "kew-scale.billing:9090"),
        ("group", "billing"),
    ])
}

async fn next(stream: &mut Streaming<IsActiveResponse>) -> bool {
    let next = timeout(PATIENCE, stream.message())
        .await
        .expect("a message in time");
    next.unwrap().expect("the stream goes on").result
}

#[tokio::test]
async fn keda_learns_the_number_that_was_decided() {
    let mut scaler = Scaler::start(3).await;
    let spec = scaler
        .client
        .get_metric_spec(object())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(spec.metric_specs.len(), 1, "{spec:?}");
    let spec = &spec.metric_specs[0];
    assert_eq!((spec.metric_name.as_str(), spec.target_size), (METRIC, 1));
    assert!((spec.target_size_float - 1.0).abs() < f64::EPSILON);
    // The number comes from the cluster, and what KEDA is told is no part of it.
    let found = scaler.target.instances().await.unwrap();
    assert_eq!((found.ready, found.starting), (3, 0));
    let happened = scaler.target.set(17).await;
    assert!(matches!(happened[..], [Happened::Told(17)]), "{happened:?}");
    assert_eq!(scaler.metric().await.unwrap(), (17, 17.0));
    assert!(scaler.is_active().await.unwrap());
    let found = scaler.target.instances().await.unwrap();
    assert_eq!((found.ready, found.starting), (3, 0));
    // The same again is nothing new.
    let happened = scaler.target.set(17).await;
    assert!(happened.is_empty(), "{happened:?}");
    scaler.target.hold(3);
    assert_eq!(scaler.metric().await.unwrap(), (3, 3.0));
    scaler.target.set(0).await;
    assert_eq!(scaler.metric().await.unwrap(), (0, 0.0));
    assert!(!scaler.is_active().await.unwrap());
    // The agent asks for the scale, and changes nothing.
    let requests = scaler.api.state().requests.clone();
    assert!(
        requests.iter().all(|(it, _)| it.starts_with("GET ")),
        "{requests:?}"
    );
    assert_eq!(requests.len(), 2);
}

/// KEDA takes an answer of 0 as a reason to stop everything, and leaves all as it is after an error.
#[tokio::test]
async fn before_a_decision_each_question_is_an_error() {
    let mut scaler = Scaler::start(12).await;
    let expected = "the agent has not decided yet how many instances the group \"billing\" needs";
    for _ in 0..2 {
        let error = scaler.metric().await.unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            (Code::Unavailable, expected)
        );
        let error = scaler.is_active().await.unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            (Code::Unavailable, expected)
        );
        // A look that cannot count decides nothing.
        scaler.api.fail(Fault::Answer(503, String::new()));
        scaler.target.instances().await.unwrap_err();
    }
    let mut stream = scaler.stream().await;
    let early = timeout(Duration::from_millis(200), stream.message()).await;
    assert!(early.is_err(), "{early:?}");
    scaler.target.hold(12);
    assert!(next(&mut stream).await);
    assert_eq!(scaler.metric().await.unwrap(), (12, 12.0));
}

#[tokio::test]
async fn a_stream_has_each_change_of_activity() {
    let mut scaler = Scaler::start(0).await;
    scaler.target.hold(0);
    let mut first = scaler.stream().await;
    assert!(!next(&mut first).await, "it begins with what is");
    scaler.target.set(4).await;
    assert!(next(&mut first).await);
    let mut second = scaler.stream().await;
    assert!(next(&mut second).await);
    // Other numbers are no other activity.
    scaler.target.set(9).await;
    scaler.target.set(2).await;
    scaler.target.set(0).await;
    assert!(!next(&mut first).await);
    assert!(!next(&mut second).await);
    // The stream of a client that has gone leaves the others as they are.
    drop(first);
    scaler.target.set(1).await;
    assert!(next(&mut second).await);
}

#[tokio::test]
async fn a_trigger_of_another_group_is_refused() {
    let mut scaler = Scaler::start(1).await;
    scaler.target.hold(1);
    let wrong = [
        (
            object_with(&[("group", "orders")]),
            Code::NotFound,
            "the trigger of billing/worker has the group \"orders\", and this address serves \"billing\"",
        ),
        (
            object_with(&[]),
            Code::InvalidArgument,
            "the trigger of billing/worker has no group: add the metadata group: \"billing\"",
        ),
    ];
    for (object, code, text) in wrong {
        let metrics = GetMetricsRequest {
            scaled_object_ref: Some(object.clone()),
            metric_name: METRIC.to_owned(),
        };
        let errors = [
            scaler.client.is_active(object.clone()).await.unwrap_err(),
            scaler
                .client
                .stream_is_active(object.clone())
                .await
                .unwrap_err(),
            scaler
                .client
                .get_metric_spec(object.clone())
                .await
                .unwrap_err(),
            scaler.client.get_metrics(metrics).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!((error.code(), error.message()), (code, text));
        }
    }
    let nothing = GetMetricsRequest::default();
    let error = scaler.client.get_metrics(nothing).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    let other = GetMetricsRequest {
        scaled_object_ref: Some(object()),
        metric_name: "s0-instances".to_owned(),
    };
    let error = scaler.client.get_metrics(other).await.unwrap_err();
    let expected = "there is no metric \"s0-instances\": the metric is \"instances\"";
    assert_eq!((error.code(), error.message()), (Code::NotFound, expected));
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused() {
    let mut scaler = Scaler::start(1).await;
    scaler.target.hold(1);
    let long = "x".repeat(1 << 20);
    let object = object_with(&[("group", "billing"), ("other", &long)]);
    let error = scaler.client.is_active(object).await.unwrap_err();
    assert_eq!(error.code(), Code::OutOfRange, "{error}");
    assert!(scaler.is_active().await.unwrap());
}

#[tokio::test]
async fn an_address_in_use_is_an_error_of_the_file() {
    let scaler = Scaler::start(1).await;
    let address = scaler.target.listen();
    let target = TARGET.replace("127.0.0.1:0", &address.to_string());
    let group = group(&scaler.place, &scaler.api, &target);
    let error = KedaTarget::open(&group, keda(&group))
        .await
        .unwrap_err()
        .to_string();
    let expected = format!("scale.toml:11:10: listen is {address}, and nothing can listen there: ");
    assert!(error.starts_with(&expected), "{error}");
}

#[tokio::test]
async fn the_port_is_free_when_the_target_has_ended() {
    let mut scaler = Scaler::start(1).await;
    let address = scaler.target.listen();
    let mut stream = scaler.stream().await;
    drop(scaler.target);
    let ended = timeout(PATIENCE, stream.message())
        .await
        .expect("an end in time");
    assert!(!matches!(ended, Ok(Some(_))), "{ended:?}");
    let free = async {
        while tokio::net::TcpListener::bind(address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, free).await.expect("a free port");
}

/// A program that looks whether the port is open, and forgets its connections.
#[tokio::test]
async fn silent_connections_give_their_places_back() {
    let mut scaler = Scaler::start(2).await;
    scaler.target.hold(2);
    let address = scaler.target.listen();
    let mut silent = Vec::new();
    for _ in 0..70 {
        silent.push(tokio::net::TcpStream::connect(address).await.unwrap());
    }
    let late = async { client(&scaler.target).await.is_active(object()).await };
    let answered = timeout(PATIENCE, late).await;
    assert!(
        answered
            .expect("a place in time")
            .unwrap()
            .into_inner()
            .result
    );
    // One that has said something stays.
    assert!(scaler.is_active().await.unwrap());
    drop(silent);
}

/// They begin as clients of HTTP/2 do, and answer pings, so they never seem dead. Some ask about another group.
#[tokio::test]
async fn clients_that_ask_nothing_give_way() {
    let mut scaler = Scaler::start(2).await;
    scaler.target.hold(2);
    let mut stream = scaler.stream().await;
    assert!(next(&mut stream).await);
    let mut idle = Vec::new();
    for round in 0..140 {
        let mut client = client(&scaler.target).await;
        if round % 2 == 0 {
            let other = object_with(&[("group", "orders")]);
            let refused = timeout(PATIENCE, client.is_active(other)).await;
            let refused = refused.expect("an answer in time").unwrap_err();
            assert_eq!(refused.code(), Code::NotFound, "{refused}");
        }
        idle.push(client);
    }
    // Others are served, also several one after the other.
    for _ in 0..3 {
        let late = async { client(&scaler.target).await.is_active(object()).await };
        let answered = timeout(PATIENCE, late).await.expect("a place in time");
        assert!(answered.unwrap().into_inner().result);
    }
    // KEDA's connection was there first, and nothing has happened to it.
    scaler.target.set(0).await;
    assert!(!next(&mut stream).await);
    drop(idle);
}

/// KEDA then goes on with its questions.
#[tokio::test]
async fn a_stream_of_specifications_is_not_implemented() {
    let mut scaler = Scaler::start(2).await;
    scaler.target.hold(2);
    let refused = scaler.client.stream_metric_spec(object()).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unimplemented);
    assert_eq!(scaler.metric().await.unwrap(), (2, 2.0));
}
