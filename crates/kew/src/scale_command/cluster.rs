//! Targets in a cluster, which only builds with the feature `cluster` have.

use kew_scale::{ConfigError, Group, Keda, Target, Workload};

#[cfg(feature = "cluster")]
pub(super) async fn kubernetes(
    group: &Group,
    workload: &Workload,
) -> Result<Box<dyn Target>, ConfigError> {
    let opened = kew_cluster::KubernetesTarget::open(group, workload).await;
    Ok(Box::new(opened?))
}

#[cfg(feature = "cluster")]
pub(super) async fn keda(group: &Group, keda: &Keda) -> Result<Box<dyn Target>, ConfigError> {
    let opened = kew_cluster::KedaTarget::open(group, keda).await?;
    tracing::info!(group = group.name, "KEDA is served at {}", opened.listen());
    Ok(Box::new(opened))
}

#[cfg(not(feature = "cluster"))]
pub(super) async fn kubernetes(
    group: &Group,
    _: &Workload,
) -> Result<Box<dyn Target>, ConfigError> {
    Err(not_built(group))
}

#[cfg(not(feature = "cluster"))]
pub(super) async fn keda(group: &Group, _: &Keda) -> Result<Box<dyn Target>, ConfigError> {
    Err(not_built(group))
}

#[cfg(not(feature = "cluster"))]
fn not_built(group: &Group) -> ConfigError {
    group.target_place.error(
        "this kew was built without the targets kubernetes and keda: build it with \
         `cargo build --release -p kew --features cluster`, or use another target",
    )
}
