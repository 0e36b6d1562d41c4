//! A workload whose replicas KEDA changes: it asks the agent how many there should be.
//!
//! The metric is the number of instances, and an instance takes 1 of it. So KEDA's autoscaler comes to that number. Until
//! the agent knows a number, each question is answered with an error: KEDA then leaves what runs as it is.

mod incoming;
mod places;
mod service;

use async_trait::async_trait;
use kew_scale::{ActError, ConfigError, Group, Happened, Keda, Place, Target};
use kew_scaling::Instances;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::kubernetes::KubernetesTarget;
pub use service::METRIC;

/// What is generated from KEDA's interface.
#[expect(missing_docs, unused_qualifications, reason = "the code is generated")]
pub mod protocol {
    tonic::include_proto!("externalscaler");
}

/// Counts the replicas of a workload, and serves the number that there should be.
#[derive(Debug)]
pub struct KedaTarget {
    counting: KubernetesTarget,
    wanted: watch::Sender<Option<u32>>,
    listen: std::net::SocketAddr,
    place: Place,
    server: Option<JoinHandle<Result<(), tonic::transport::Error>>>,
}

impl KedaTarget {
    /// Reads how to reach the API of Kubernetes, and begins to serve. Needs a runtime.
    ///
    /// # Errors
    ///
    /// If the API cannot be used, or nothing can listen at the address.
    pub async fn open(group: &Group, keda: &Keda) -> Result<Self, ConfigError> {
        let counting = KubernetesTarget::open(group, &keda.workload).await?;
        let refused = |error: std::io::Error| {
            keda.place.error(format!(
                "listen is {}, and nothing can listen there: {error}",
                keda.listen
            ))
        };
        let listener = TcpListener::bind(keda.listen).await.map_err(refused)?;
        let listen = listener.local_addr().map_err(refused)?;
        let (wanted, asked) = watch::channel(None);
        let serving = service::serve(group.name.clone(), listener, asked);
        Ok(Self {
            counting,
            wanted,
            listen,
            place: keda.place.clone(),
            server: Some(tokio::spawn(serving)),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn listen(&self) -> std::net::SocketAddr {
        self.listen
    }

    /// Whether the number is a new one.
    fn tell(&mut self, count: u32) -> bool {
        self.wanted
            .send_if_modified(|wanted| wanted.replace(count) != Some(count))
    }
}

#[async_trait]
impl Target for KedaTarget {
    async fn instances(&mut self) -> Result<Instances, ActError> {
        self.counting.instances().await
    }

    async fn set(&mut self, count: u32) -> Vec<Happened> {
        match self.tell(count) {
            true => vec![Happened::Told(count)],
            // KEDA is on the way to it.
            false => Vec::new(),
        }
    }

    fn hold(&mut self, count: u32) {
        self.tell(count);
    }

    async fn changed(&mut self) -> Vec<Happened> {
        let Some(server) = &mut self.server else {
            return std::future::pending().await;
        };
        let ended = server.await;
        self.server = None;
        let why = match ended {
            Ok(Ok(())) => "it has ended".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        let what = format!("KEDA gets no answers any more, start the agent again: {why}");
        vec![Happened::Failed(ActError::elsewhere(&self.place, what))]
    }
}

impl Drop for KedaTarget {
    fn drop(&mut self) {
        if let Some(server) = &self.server {
            server.abort();
        }
    }
}
