//! The clients of both services.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use bus_load::Rule;
use kew_client::{
    AdminOptions, BusAdmin, BusClient, BusNamespace, BusOptions, QueueAccount, QueueClient,
    QueueOptions,
};
use queue_load::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Endpoint};

use crate::options::Target;

/// The queue of both services that is measured.
pub(crate) const QUEUE: &str = "bench";

const RULE: &str = "RootManageSharedAccessKey";
const KEY: &str = "SAS_KEY_VALUE";

impl Target {
    /// What raw connections to Queue Storage share.
    pub(crate) fn endpoint(&self) -> Arc<Endpoint> {
        Arc::new(Endpoint::development(self.queue_address))
    }

    /// A raw connection to Service Bus.
    pub(crate) async fn raw_bus(&self) -> Result<bus_load::Client> {
        let rule = Rule {
            name: RULE.to_owned(),
            key: KEY.to_owned(),
        };
        let address = self.bus_address;
        let connected = bus_load::Client::connect(address, &rule).await;
        connected.with_context(|| format!("cannot connect to {address}"))
    }

    /// The client of listeners, with so many connections at most.
    pub(crate) fn queue_client(&self, connections_max: usize) -> Result<QueueClient> {
        let account = QueueAccount::parse(&format!(
            "DefaultEndpointsProtocol=http;AccountName={DEVELOPMENT_ACCOUNT};AccountKey={DEVELOPMENT_KEY};\
             QueueEndpoint=http://{}/{DEVELOPMENT_ACCOUNT};",
            self.queue_address
        ))?;
        let options = QueueOptions {
            connections_max,
            ..QueueOptions::default()
        };
        Ok(QueueClient::new(account, options)?)
    }

    pub(crate) fn bus_client(&self) -> Result<BusClient> {
        Ok(BusClient::new(self.namespace()?, BusOptions::default())?)
    }

    pub(crate) fn bus_admin(&self) -> Result<BusAdmin> {
        Ok(BusAdmin::new(self.namespace()?, AdminOptions::default())?)
    }

    fn namespace(&self) -> Result<BusNamespace> {
        Ok(BusNamespace::parse(&format!(
            "Endpoint=sb://{};SharedAccessKeyName={RULE};SharedAccessKey={KEY};UseDevelopmentEmulator=true;",
            self.bus_address
        ))?)
    }
}
