//! The targets beside a fake API of Kubernetes and a client that asks as KEDA does, over loopback.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fake;
mod keda;
mod kubernetes;
mod support;
mod wire;
