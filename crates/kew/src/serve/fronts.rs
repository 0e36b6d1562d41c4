//! The front ends of a server, their listeners, and the tasks that accept connections for each listener.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use kew_broker::Broker;
use kew_bus_api::{BusApi, BusApiOptions};
use kew_issuer::Issuers;
use kew_listen::{Door, ServerNames};
use kew_queue_api::{
    AccountStore, OperatorOptions, OtherMetrics, QueueApi, QueueApiOptions, Reach, StorageAccounts,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{METRICS_LISTEN, QUEUE_LISTEN, Sockets, open, reachable};
use crate::accept::{Acceptor, Role};
use crate::admin::Administered;
use crate::admin::account::Endpoint;
use crate::admin::backup::{Backups, Seen};
use crate::admin::rule::BusEndpoint;
use crate::bus::{self, BusAcceptor};
use crate::open_files::{self, TurnedAwayPlaces};
use crate::settings::{Place, PublicKey, Settings, is_loopback};

/// The front ends, which answer the requests of all listeners.
pub(super) struct Fronts {
    queue: QueueApi,
    accounts: AccountStore,
    bus: BusApi,
    turned_away: TurnedAwayPlaces,
    broker: Broker,
    backups_seen: Arc<Seen>,
    data_dir: Option<PathBuf>,
    /// Whether there is an account besides the well-known one.
    pub(super) has_accounts: bool,
    /// Whether there is a rule of the namespace besides the well-known one.
    pub(super) has_rules: bool,
}

impl Fronts {
    pub(super) async fn open(
        settings: &Settings,
        issuers: Issuers,
        names: ServerNames,
        open_files_max: u64,
        has_bus_listeners: bool,
        broker: &Broker,
    ) -> Result<Self> {
        let mut options = QueueApiOptions {
            operator: operator_options(settings),
            issuers: issuers.clone(),
            names: names.clone(),
            queue_deletion_delay: settings.queue_deletion_delay,
            ..QueueApiOptions::default()
        };
        let mut bus_options = BusApiOptions {
            issuers,
            names,
            ..BusApiOptions::default()
        };
        let places = open_files::share(
            open_files_max,
            options.limits.connections_max,
            bus_options.limits.connections_max,
            has_bus_listeners,
        );
        options.places = Some(places.queue);
        bus_options.places = Some(places.bus);
        let bus = BusApi::open(broker.clone(), bus_options)
            .await
            .context("cannot read the rules of Service Bus")?;
        let counted = bus.clone();
        let bus_metrics = OtherMetrics::new(move || counted.metrics());
        options.operator.others.push(bus_metrics);
        let data_dir = options.operator.data_dir.clone();
        let backups_seen = Seen::open(data_dir.as_deref());
        if data_dir.is_some() {
            let seen = Arc::clone(&backups_seen);
            let metrics = OtherMetrics::new(move || seen.metrics());
            options.operator.others.push(metrics);
        }
        let queue = QueueApi::new(broker.clone(), options);
        let well_known = settings.public_key != PublicKey::Nowhere;
        let accounts = StorageAccounts::open(broker.clone(), queue.accounts().clone(), well_known)
            .await
            .context("cannot read the accounts")?;
        let all = accounts
            .list(&())
            .await
            .context("cannot read the accounts")?;
        Ok(Self {
            has_accounts: !all.is_empty(),
            has_rules: !bus.rules().served().is_empty(),
            queue,
            accounts,
            bus,
            turned_away: places.turned_away,
            broker: broker.clone(),
            backups_seen,
            data_dir,
        })
    }

    /// The accounts and rules that the administration socket changes. Connection strings for Queue Storage have
    /// this `address`.
    pub(super) fn administered(
        self,
        address: SocketAddr,
        bus_endpoint: BusEndpoint,
        stopping: watch::Receiver<bool>,
    ) -> Result<Administered> {
        let data_dir = self.data_dir.as_deref();
        let broker = self.broker.clone();
        let backups = Backups::new(self.broker, data_dir, self.backups_seen, stopping)?;
        Ok(Administered {
            accounts: self.accounts,
            endpoint: Endpoint(reachable(address)),
            bus: self.bus,
            bus_endpoint,
            broker,
            backups: Some(backups),
        })
    }

    /// Accepts connections at every listener until the server stops, each in a task.
    pub(super) fn accept(
        &self,
        tasks: &mut JoinSet<()>,
        listeners: Listeners,
        settings: &Settings,
        door: &Door,
        stopping: &watch::Receiver<bool>,
    ) {
        let may_use_public_key = |listener: &TcpListener| {
            let address = listener.local_addr();
            address.is_ok_and(|address| settings.public_key.is_served_at(address))
        };
        let Listeners {
            queue,
            bus,
            metrics,
        } = listeners;
        let queue = queue.into_iter().map(|listener| (listener, Role::Queue));
        let metrics = metrics
            .into_iter()
            .map(|listener| (listener, Role::Operator));
        for (listener, role) in queue.chain(metrics) {
            let acceptor = Acceptor {
                reach: reach(&listener),
                may_use_public_key: may_use_public_key(&listener),
                role,
                api: self.queue.clone(),
                door: door.clone(),
                plain: settings.tls.plain,
                turned_away: self.turned_away.clone(),
                stopping: stopping.clone(),
            };
            tasks.spawn(acceptor.run(listener));
        }
        for listener in bus {
            let acceptor = BusAcceptor {
                may_use_public_key: may_use_public_key(&listener),
                api: self.bus.clone(),
                door: door.clone(),
                plain: settings.tls.plain,
                turned_away: self.turned_away.clone(),
                stopping: stopping.clone(),
            };
            tasks.spawn(acceptor.run(listener));
        }
    }
}

/// Which clients can reach a listener. If its address cannot be read, the strictest case is assumed.
fn reach(listener: &TcpListener) -> Reach {
    let address = listener.local_addr();
    match address.is_ok_and(|address| !is_loopback(address.ip())) {
        true => Reach::Anywhere,
        false => Reach::Loopback,
    }
}

fn operator_options(settings: &Settings) -> OperatorOptions {
    let observing = &settings.observing;
    OperatorOptions {
        metrics_queues_max: observing.metrics_queues,
        slow_request: observing.slow_request,
        data_dir: match &settings.place {
            Place::Memory => None,
            Place::Directory(path) => Some(path.clone()),
        },
        ..OperatorOptions::default()
    }
}

/// The open ports.
pub(super) struct Listeners {
    pub(super) queue: Vec<TcpListener>,
    pub(super) bus: Vec<TcpListener>,
    pub(super) metrics: Vec<TcpListener>,
}

impl Listeners {
    pub(super) fn open(sockets: Sockets, settings: &Settings) -> Result<Self> {
        Ok(Self {
            queue: open(sockets.queue, QUEUE_LISTEN)?,
            bus: bus::open(sockets.bus, settings.bus_listen.is_default)?,
            metrics: open(sockets.metrics, METRICS_LISTEN)?,
        })
    }
}
