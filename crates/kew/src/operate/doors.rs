//! The namespace to use: where it is, what opens it, and the clients that speak to it.

use std::future::Future;
use std::time::Duration;

use kew_client::{
    AdminOptions, BusAdmin, BusClient, BusNamespace, BusOptions, BusTransport, Error, Retry,
};
use tokio::runtime::{Builder, Runtime};

use super::failing::{failure_of, not_set_up};
use super::own::Own;
use crate::operate_args::Common;
use crate::proxy;
use crate::queue_command::{Failure, read_certificates};

/// The variables for a connection string, in this order, if the command line has none.
const VARIABLES: [&str; 2] = ["KEW_BUS_CONNECTION_STRING", "SERVICEBUS_CONNECTION_STRING"];

/// The emulator's rule at this machine, at the ports that Kew and the emulator use: 5672 for AMQP, 5300 for management.
const DEFAULT: &str = "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;\
     SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true";

/// A namespace, and the clients that speak to it. Nothing is connected before it is used.
pub(super) struct Doors {
    runtime: Runtime,
    pub(super) namespace: BusNamespace,
    pub(super) bus: BusClient,
    pub(super) admin: BusAdmin,
    /// For a question whose failure is an answer.
    admin_once: BusAdmin,
    /// How long an operation may take.
    pub(super) timeout: Duration,
}

impl Doors {
    pub(super) fn open(common: &Common) -> Result<Self, Failure> {
        if common.timeout.is_zero() {
            return Err(Failure::Usage("--timeout must be longer than 0".into()));
        }
        let namespace = find(common.connection_string.as_deref())?;
        let roots = read_certificates(common.ca_cert.as_deref())?;
        // One thread keeps connections alive while this one waits for input.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let retry = |retries| Retry {
            retries,
            ..Retry::default()
        };
        let admin = |retries| {
            let options = AdminOptions {
                timeout: Some(common.timeout),
                connect_timeout: common.timeout,
                retry: retry(retries),
                extra_roots_pem: roots.clone(),
                dial: proxy::of_environment(&management_url(&namespace)),
                ..AdminOptions::default()
            };
            BusAdmin::new(namespace.clone(), options).map_err(|error| not_set_up(&error))
        };
        let (admin, admin_once) = (admin(common.retries)?, admin(0)?);
        let options = BusOptions {
            timeout: Some(common.timeout),
            connect_timeout: common.timeout,
            retry: retry(common.retries),
            extra_roots_pem: roots.clone(),
            // A proxy of the environment is one of HTTP.
            dial: match namespace.transport() {
                BusTransport::WebSocket => proxy::of_environment(&management_url(&namespace)),
                BusTransport::Tcp => None,
            },
            ..BusOptions::default()
        };
        let bus = {
            let _context = runtime.enter();
            BusClient::new(namespace.clone(), options).map_err(|error| not_set_up(&error))?
        };
        Ok(Self {
            runtime,
            namespace,
            bus,
            admin,
            admin_once,
            timeout: common.timeout,
        })
    }

    /// Kew's own interface, if this is Kew.
    pub(super) fn own(&self) -> Own<'_> {
        Own::new(self, &self.admin, &self.admin_once)
    }

    /// Waits for an operation over AMQP.
    pub(super) fn over_amqp<T>(
        &self,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        let done = self.runtime.block_on(operation);
        done.map_err(|error| self.failed_over_amqp(&error))
    }

    /// Waits for an operation over AMQP for a time. `None`: it did not end in time.
    pub(super) fn over_amqp_within<T>(
        &self,
        within: Duration,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<Option<T>, Failure> {
        let done = self
            .runtime
            .block_on(async { tokio::time::timeout(within, operation).await });
        match done {
            Ok(done) => done
                .map(Some)
                .map_err(|error| self.failed_over_amqp(&error)),
            Err(_) => Ok(None),
        }
    }

    /// Waits for an operation of management.
    pub(super) fn over_http<T>(
        &self,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        let done = self.runtime.block_on(operation);
        done.map_err(|error| self.failed_over_http(&error))
    }

    /// Does something beside the command.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Waits for anything.
    pub(super) fn wait<T>(&self, operation: impl Future<Output = T>) -> T {
        self.runtime.block_on(operation)
    }

    pub(super) fn failed_over_amqp(&self, error: &Error) -> Failure {
        let (is_tls, port) = (self.namespace.is_tls(), self.namespace.amqp_port());
        let scheme = if is_tls { "amqps" } else { "amqp" };
        failure_of(
            error,
            &format!("{scheme}://{}:{port}", self.namespace.host()),
            is_tls,
        )
    }

    pub(super) fn failed_over_http(&self, error: &Error) -> Failure {
        failure_of(error, &self.url(), self.namespace.is_tls())
    }

    /// Where management is.
    pub(super) fn url(&self) -> String {
        management_url(&self.namespace)
    }
}

fn management_url(namespace: &BusNamespace) -> String {
    let scheme = if namespace.is_tls() { "https" } else { "http" };
    format!("{scheme}://{}:{}", namespace.host(), namespace.http_port())
}

/// From the command line, or the environment, or the emulator's on this machine. Errors contain no values, because a
/// value may be a secret.
pub(super) fn find(text: Option<&str>) -> Result<BusNamespace, Failure> {
    let (name, text) = text_of(text)?;
    BusNamespace::parse(&text).map_err(|error| {
        let error = error.to_string();
        let told = error
            .strip_prefix("the connection string ")
            .unwrap_or(&error);
        Failure::Usage(format!("{name} {told}"))
    })
}

/// A connection string, and what it is called in errors.
pub(super) fn text_of(text: Option<&str>) -> Result<(&'static str, String), Failure> {
    if let Some(text) = text {
        return Ok(("the connection string", text.to_owned()));
    }
    for name in VARIABLES {
        let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else {
            continue;
        };
        let text = value.into_string();
        let text = text.map_err(|_| Failure::Usage(format!("{name} is not UTF-8")))?;
        return Ok((name, text));
    }
    Ok(("the default", DEFAULT.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_place_and_no_value() {
        assert!(find(Some(DEFAULT)).is_ok());
        for (text, what) in [
            ("", "the connection string is empty"),
            (
                "Endpoint=sb://h/;SharedAccessKeyName=r",
                "has a SharedAccessKeyName and no",
            ),
            (
                "secret",
                "the connection string is not NAME=VALUE in part 1",
            ),
            (
                "Endpoint=sb://h/;Secret=secret",
                "the connection string has part 2",
            ),
        ] {
            let error = find(Some(text)).unwrap_err().message();
            assert!(error.contains(what) && !error.contains("secret"), "{error}");
        }
    }
}
