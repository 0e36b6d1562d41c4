//! Targets of the scaling agent in a Kubernetes cluster.
//!
//! - `KubernetesTarget` counts and changes the replicas of a workload through its scale sub-resource.
//! - `KedaTarget` counts them in the same way, and leaves the change to KEDA: it serves KEDA's external scaler.
//!
//! It knows the API of Kubernetes and the interface of KEDA, and nothing of queues. The crate is empty without its
//! feature `cluster`: `docs/scale.md` says why.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

#[cfg(feature = "cluster")]
mod api;
#[cfg(feature = "cluster")]
mod keda;
#[cfg(feature = "cluster")]
mod kubernetes;
#[cfg(all(test, feature = "cluster"))]
mod layers;

#[cfg(feature = "keda-client")]
pub use keda::protocol;
#[cfg(feature = "cluster")]
pub use keda::{KedaTarget, METRIC};
#[cfg(feature = "cluster")]
pub use kubernetes::KubernetesTarget;
