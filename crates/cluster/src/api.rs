//! The scale sub-resource of a workload, through the API of Kubernetes.

use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use k8s_openapi::api::autoscaling::v1::Scale;
use kew_scale::{ConfigError, Workload, is_loopback};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{Request as Path, Status};
use kube::{Client, Config, Resource as _};
use serde_json::json;
use tokio::time::timeout;

/// What an answer may have, in bytes. That of a scale has a few hundred.
const ANSWER_MAX: usize = 1 << 20;

/// How many replicas a workload should have, and has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Replicas {
    /// How many it should have.
    pub(crate) wanted: u32,
    /// How many there are. Those that start and those that end count, too.
    pub(crate) present: u32,
    /// The version of the workload that was read.
    version: Option<String>,
}

/// The scale sub-resource of a workload.
pub(crate) struct ScaleResource {
    client: Client,
    path: Path,
    name: String,
    timeout: Duration,
    /// As errors name it.
    shown: String,
}

impl ScaleResource {
    /// Reads how to reach the API. Nothing is connected yet.
    pub(crate) async fn open(workload: &Workload) -> Result<Self, ConfigError> {
        let mut config = config(workload).await.map_err(|what| {
            let what = format!("it is not known how to reach the API of Kubernetes: {what}");
            workload.place.error(one_line(&what))
        })?;
        no_token_in_clear(&config).map_err(|what| workload.place.error(what))?;
        config.connect_timeout = Some(workload.timeout);
        config.read_timeout = Some(workload.timeout);
        config.reset_reader_on_write = true;
        config.write_timeout = Some(workload.timeout);
        // The next look is another try.
        config.default_retry = false;
        let namespace = workload.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(|error| {
            let what = format!("the API of Kubernetes cannot be used: {error}");
            workload.place.error(one_line(&what))
        })?;
        let (group, version) = &workload.api;
        let kind = GroupVersionKind::gvk(group, version, "");
        let resource = ApiResource::from_gvk_with_plural(&kind, &workload.resource);
        let path = DynamicObject::url_path(&resource, Some(&namespace));
        Ok(Self {
            client,
            path: Path::new(path),
            name: workload.name.clone(),
            timeout: workload.timeout,
            shown: format!(
                "{}.{group} {:?} in the namespace {namespace:?}",
                workload.resource, workload.name
            ),
        })
    }

    /// Reads how many replicas there are.
    pub(crate) async fn read(&self) -> Result<Replicas, String> {
        let request = self.path.get_subresource("scale", &self.name);
        let request = request.map_err(|error| self.failed("read", &error.to_string()))?;
        let sent = self.send(request).await.and_then(replicas);
        sent.map_err(|what| self.failed("read", &what))
    }

    /// Changes how many there should be, unless somebody has changed the workload since it was read.
    pub(crate) async fn write(&self, count: u32, read: &Replicas) -> Result<Replicas, String> {
        let spec = json!({ "replicas": count });
        let patch = match &read.version {
            Some(version) => json!({ "metadata": { "resourceVersion": version }, "spec": spec }),
            None => json!({ "spec": spec }),
        };
        let params = PatchParams::default();
        let request =
            self.path
                .patch_subresource("scale", &self.name, &params, &Patch::Merge(patch));
        let request = request.map_err(|error| self.failed("change", &error.to_string()))?;
        let sent = self.send(request).await.and_then(replicas);
        sent.map_err(|what| self.failed("change", &what))
    }

    fn failed(&self, what: &str, why: &str) -> String {
        format!("cannot {what} the scale of {}: {why}", self.shown)
    }

    /// Sends a request, and reads the whole answer, in time.
    async fn send(&self, request: Request<Vec<u8>>) -> Result<Vec<u8>, String> {
        let exchange = async {
            let answer = self.client.send(request.map(Into::into)).await;
            let answer = answer.map_err(|error| with_sources(&error))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
            let body = body.map_err(|error| format!("the answer cannot be read: {error}"))?;
            answered(status, body.to_bytes().to_vec())
        };
        let answered = timeout(self.timeout, exchange).await;
        let seconds = self.timeout.as_secs_f64();
        answered.unwrap_or_else(|_| Err(format!("there was no answer within {seconds} s")))
    }
}

impl std::fmt::Debug for ScaleResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScaleResource")
            .field("of", &self.shown)
            .finish_non_exhaustive()
    }
}

/// The file that is named, the one of `kubectl`, or the account of the agent's own pod.
async fn config(workload: &Workload) -> Result<Config, String> {
    // Other builds have two of them, and then none is the default.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let options = KubeConfigOptions {
        context: workload.context.clone(),
        ..KubeConfigOptions::default()
    };
    match &workload.kubeconfig {
        Some(file) => {
            let read = Kubeconfig::read_from(file).map_err(|error| with_sources(&error))?;
            let config = Config::from_custom_kubeconfig(read, &options).await;
            config.map_err(|error| with_sources(&error))
        }
        None if workload.context.is_some() => {
            let config = Config::from_kubeconfig(&options).await;
            config.map_err(|error| with_sources(&error))
        }
        None => Config::infer().await.map_err(|error| with_sources(&error)),
    }
}

/// Without TLS, everybody on the way can read a token.
fn no_token_in_clear(config: &Config) -> Result<(), String> {
    let url = &config.cluster_url;
    let authority = url.authority().map_or("", |it| it.as_str());
    let auth = &config.auth_info;
    let has_secret = auth.token.is_some()
        || auth.token_file.is_some()
        || auth.password.is_some()
        || auth.exec.is_some()
        || auth.auth_provider.is_some();
    if has_secret && url.scheme_str() == Some("http") && !is_loopback(authority) {
        return Err(format!(
            "the kubeconfig has http://{authority} as its server, which is another machine, and a user with a token or \
             password: write https:// there"
        ));
    }
    Ok(())
}

/// The body of an answer, or what the API says of a failure.
fn answered(status: StatusCode, body: Vec<u8>) -> Result<Vec<u8>, String> {
    if status.is_success() {
        return Ok(body);
    }
    let said = serde_json::from_slice::<Status>(&body).map(|it| it.message);
    let said = said.ok().filter(|it| !it.is_empty());
    let what = match (status, said) {
        (status, Some(said)) => format!("the answer is {status}: {said}"),
        (status, None) => format!("the answer is {status}"),
    };
    Err(match status {
        StatusCode::CONFLICT => format!("{what}; the next look decides again"),
        StatusCode::FORBIDDEN => {
            format!("{what}; allow get and patch of its sub-resource scale in a Role")
        }
        _ => what,
    })
}

fn replicas(body: Vec<u8>) -> Result<Replicas, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("the answer is not a scale: {why}");
    let scale: Scale = serde_json::from_slice(&body).map_err(|error| wrong(&error))?;
    let spec = scale.spec.ok_or_else(|| wrong(&"it has no spec"))?;
    // A 0 is not written.
    let wanted = spec.replicas.unwrap_or(0);
    let present = scale.status.map_or(wanted, |it| it.replicas);
    let count = |it: i32| u32::try_from(it).map_err(|_| wrong(&format!("it has {it} replicas")));
    Ok(Replicas {
        wanted: count(wanted)?,
        present: count(present)?,
        version: scale.metadata.resource_version,
    })
}

/// An error and why, as errors of libraries often do not say it themselves.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let why = inner.to_string();
        if !text.contains(&why) {
            text = format!("{text}: {why}");
        }
        source = inner.source();
    }
    one_line(&text)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
