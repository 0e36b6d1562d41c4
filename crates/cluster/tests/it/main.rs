//! The targets beside a fake API of Kubernetes and a client that asks as KEDA does, over loopback.

mod fake;
mod keda;
mod kubernetes;
mod support;
mod wire;
