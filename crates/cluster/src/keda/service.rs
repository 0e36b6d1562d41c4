//! The external scaler itself: it answers by the last number that the agent has decided.

use std::pin::Pin;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::incoming::incoming;
use super::places::Caller;
use super::protocol::external_scaler_server::{ExternalScaler, ExternalScalerServer};
use super::protocol::{
    GetMetricSpecResponse, GetMetricsRequest, GetMetricsResponse, IsActiveResponse, MetricSpec,
    MetricValue, ScaledObjectRef,
};

/// The name of the metric.
pub const METRIC: &str = "instances";
/// The key of a trigger's metadata that names the group.
const GROUP: &str = "group";

/// A request has a few hundred bytes.
const REQUEST_MAX: usize = 64 << 10;
/// Requests and streams of a connection at the same time. KEDA has one connection for all its workloads.
const STREAMS_MAX: u32 = 64;
/// A peer that does not answer within the second time is disconnected.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(20));

struct Scaler {
    group: String,
    wanted: watch::Receiver<Option<u32>>,
}

/// Serves until it is dropped.
pub(super) async fn serve(
    group: String,
    listener: TcpListener,
    wanted: watch::Receiver<Option<u32>>,
) -> Result<(), tonic::transport::Error> {
    let service = ExternalScalerServer::new(Scaler { group, wanted });
    let service = service.max_decoding_message_size(REQUEST_MAX);
    Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE.0))
        .http2_keepalive_timeout(Some(KEEPALIVE.1))
        .add_service(service)
        .serve_with_incoming(incoming(listener))
        .await
}

impl Scaler {
    /// Whether the trigger means this group. A wrong port would scale it by another group's queues.
    fn check<T>(&self, request: &Request<T>, of: Option<&ScaledObjectRef>) -> Result<(), Status> {
        let of = of.ok_or_else(|| Status::invalid_argument("the request names no ScaledObject"))?;
        let object = format!("{}/{}", of.namespace, of.name);
        match of.scaler_metadata.get(GROUP) {
            Some(group) if *group == self.group => {
                // One that knows the group is KEDA, and keeps its place.
                if let Some(caller) = request.extensions().get::<Caller>() {
                    caller.asked();
                }
                Ok(())
            }
            Some(group) => Err(Status::not_found(format!(
                "the trigger of {object} has the group {group:?}, and this address serves {:?}",
                self.group
            ))),
            None => Err(Status::invalid_argument(format!(
                "the trigger of {object} has no group: add the metadata group: {:?}",
                self.group
            ))),
        }
    }

    fn wanted(&self) -> Result<u32, Status> {
        let wanted = *self.wanted.borrow();
        wanted.ok_or_else(|| {
            Status::unavailable(format!(
                "the agent has not decided yet how many instances the group {:?} needs",
                self.group
            ))
        })
    }
}

#[tonic::async_trait]
impl ExternalScaler for Scaler {
    async fn is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<IsActiveResponse>, Status> {
        self.check(&request, Some(request.get_ref()))?;
        let result = self.wanted()? > 0;
        Ok(Response::new(IsActiveResponse { result }))
    }

    type StreamIsActiveStream =
        Pin<Box<dyn Stream<Item = Result<IsActiveResponse, Status>> + Send + 'static>>;

    async fn stream_is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamIsActiveStream>, Status> {
        self.check(&request, Some(request.get_ref()))?;
        let mut before = None;
        let changes = WatchStream::new(self.wanted.clone()).filter_map(move |wanted| {
            let result = wanted? > 0;
            let is_new = before.replace(result) != Some(result);
            is_new.then_some(Ok(IsActiveResponse { result }))
        });
        Ok(Response::new(Box::pin(changes)))
    }

    async fn get_metric_spec(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<GetMetricSpecResponse>, Status> {
        self.check(&request, Some(request.get_ref()))?;
        let spec = MetricSpec {
            metric_name: METRIC.to_owned(),
            target_size: 1,
            target_size_float: 1.0,
        };
        let metric_specs = vec![spec];
        Ok(Response::new(GetMetricSpecResponse { metric_specs }))
    }

    async fn get_metrics(
        &self,
        request: Request<GetMetricsRequest>,
    ) -> Result<Response<GetMetricsResponse>, Status> {
        let asked = request.get_ref();
        self.check(&request, asked.scaled_object_ref.as_ref())?;
        if asked.metric_name != METRIC {
            return Err(Status::not_found(format!(
                "there is no metric {:?}: the metric is {METRIC:?}",
                asked.metric_name
            )));
        }
        let wanted = self.wanted()?;
        let value = MetricValue {
            metric_name: METRIC.to_owned(),
            metric_value: i64::from(wanted),
            metric_value_float: f64::from(wanted),
        };
        let metric_values = vec![value];
        Ok(Response::new(GetMetricsResponse { metric_values }))
    }

    type StreamMetricSpecStream =
        Pin<Box<dyn Stream<Item = Result<GetMetricSpecResponse, Status>> + Send + 'static>>;

    /// It is optional: KEDA asks for the specification as before if a scaler does not have it.
    async fn stream_metric_spec(
        &self,
        _: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamMetricSpecStream>, Status> {
        Err(Status::unimplemented(
            "the specification never changes: use GetMetricSpec",
        ))
    }
}
