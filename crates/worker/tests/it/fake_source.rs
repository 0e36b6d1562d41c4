//! The service in memory as a source: like Queue Storage, or like Service Bus, which waits and has fixed locks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use kew_worker::{
    Ask, Attempt, Burial, Checkpoints, ChosenLease, Incoming, Intake, Lease, Meta, Source,
    SourceError, SourceName,
};
use tokio::time::Instant;

use crate::fake::{LOCK, Service, Stored};

/// A source that waits for messages, or not.
#[derive(Clone, Debug)]
pub(crate) struct FakeSource<const WAITS: bool> {
    service: Arc<Service>,
    name: SourceName,
}

/// Like Queue Storage.
pub(crate) type Polled = FakeSource<false>;

/// Like Service Bus.
pub(crate) type Waited = FakeSource<true>;

impl<const WAITS: bool> FakeSource<WAITS> {
    pub(crate) fn new(service: &Arc<Service>) -> Self {
        Self {
            service: service.clone(),
            name: SourceName::new("account", "jobs"),
        }
    }
}

impl<const WAITS: bool> Source for FakeSource<WAITS> {
    type Lease = FakeLease<WAITS>;
    type Intake = FakeIntake<WAITS>;
    const CHOOSES_LEASE: bool = !WAITS;

    fn name(&self) -> &SourceName {
        &self.name
    }

    fn batch_size_max(&self) -> u32 {
        32
    }

    async fn open(&self) -> Result<Self::Intake, SourceError> {
        Ok(FakeIntake(self.clone()))
    }

    async fn depth(&self) -> Result<Option<u64>, SourceError> {
        self.service.count().await.map(Some)
    }
}

impl ChosenLease for Polled {}

pub(crate) struct FakeIntake<const WAITS: bool>(FakeSource<WAITS>);

impl<const WAITS: bool> Intake for FakeIntake<WAITS> {
    type Lease = FakeLease<WAITS>;
    const WAITS: bool = WAITS;

    async fn receive(&mut self, ask: Ask) -> Result<Vec<Self::Lease>, SourceError> {
        let service = &self.0.service;
        loop {
            let arrived = service.arrived.notified();
            let lease = if WAITS { LOCK } else { ask.lease };
            let asked_at = Instant::now();
            let name = if WAITS { "receive" } else { "get" };
            let got = service.get(name, ask.count, lease).await?;
            if !got.is_empty() || !WAITS {
                let leases = got.into_iter();
                let leases = leases.map(|(id, stored)| {
                    FakeLease::new(service.clone(), id, stored, lease, asked_at + lease)
                });
                return Ok(leases.collect());
            }
            // A lease that ends by itself is announced by nobody either.
            let _ = tokio::time::timeout(Duration::from_secs(1), arrived).await;
        }
    }

    async fn close(self) -> Result<(), SourceError> {
        Ok(())
    }
}

pub(crate) struct FakeLease<const WAITS: bool> {
    service: Arc<Service>,
    id: u64,
    receipt: u64,
    incoming: Incoming,
    /// How long it is each time.
    lease: Duration,
    ends_at: Instant,
    is_buried: bool,
    /// Only its delete is called from now on.
    is_handled: bool,
}

impl<const WAITS: bool> FakeLease<WAITS> {
    fn new(
        service: Arc<Service>,
        id: u64,
        stored: Stored,
        lease: Duration,
        ends_at: Instant,
    ) -> Self {
        let mut meta = Meta::new("jobs".into(), id.to_string(), stored.attempt);
        meta.history = stored.history;
        meta.checkpoint = stored.checkpoint;
        meta.set_properties(stored.properties);
        Self {
            service,
            id,
            receipt: stored.receipt,
            incoming: Incoming {
                body: stored.body,
                meta: meta.into(),
            },
            lease,
            ends_at,
            is_buried: false,
            is_handled: false,
        }
    }

    async fn change(
        &mut self,
        name: &'static str,
        hidden_for: Duration,
        change: impl FnOnce(&mut Stored) + Send + 'static,
    ) -> Result<(), SourceError> {
        if self.is_handled {
            self.service
                .violates(format!("{name} of a message that was handled"));
        }
        let asked_at = Instant::now();
        let changed = self
            .service
            .change(name, self.id, self.receipt, hidden_for, change);
        self.receipt = changed.await?;
        self.ends_at = asked_at + hidden_for;
        Ok(())
    }
}

impl<const WAITS: bool> Lease for FakeLease<WAITS> {
    fn incoming(&self) -> &Incoming {
        &self.incoming
    }

    fn ends_at(&self) -> Instant {
        self.ends_at
    }

    async fn renew(&mut self, duration: Duration) -> Result<(), SourceError> {
        self.lease = if WAITS { LOCK } else { duration };
        self.change("renew", self.lease, |_| {}).await
    }

    fn handled(&mut self) {
        self.is_handled = true;
        self.incoming.body = Bytes::new();
    }

    async fn complete(&mut self) -> Result<(), SourceError> {
        self.service.complete(self.id, self.receipt).await
    }

    const COMPLETES_TOGETHER: bool = WAITS;

    /// At the same time, as over a link.
    async fn complete_all(leases: Vec<&mut Self>) -> Vec<Result<(), SourceError>> {
        if let Some(first) = leases.first() {
            first.service.completes_together(leases.len());
        }
        join_all(leases.into_iter().map(Self::complete)).await
    }

    fn hides_released(&self) -> bool {
        !WAITS
    }

    async fn release(&mut self, delay: Duration, history: &[Attempt]) -> Result<(), SourceError> {
        assert!(!WAITS || delay.is_zero(), "it cannot hide messages");
        let history = history.to_vec();
        self.change("release", delay, |it| it.history = history)
            .await
    }

    async fn bury(&mut self, burial: &Burial) -> Result<(), SourceError> {
        if WAITS {
            let burial = burial.clone();
            return self.service.bury(self.id, self.receipt, burial).await;
        }
        // As on Queue Storage: put first, and deleted after.
        if !self.is_buried {
            self.service.bury_copy(self.id, burial.clone()).await?;
            self.is_buried = true;
        }
        self.service.delete_buried(self.id, self.receipt).await
    }

    fn is_buried(&self) -> bool {
        self.is_buried
    }
}

impl Checkpoints for FakeLease<false> {
    async fn save(&mut self, progress: Bytes) -> Result<(), SourceError> {
        let kept = progress.clone();
        self.change("save", self.lease, |it| it.checkpoint = Some(kept))
            .await?;
        Arc::make_mut(&mut self.incoming.meta).checkpoint = Some(progress);
        Ok(())
    }
}
