//! One connection: what is read and written when.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use kew_amqp::Millis;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use crate::api::Shared;
use crate::client::Client;
use crate::origin::Origin;

pub(crate) struct Driver {
    client: Client,
    began: Instant,
    write_timeout: Duration,
}

impl Driver {
    /// `begun` was read already.
    pub(crate) fn new(shared: Arc<Shared>, origin: Origin, begun: &[u8]) -> Self {
        let write_timeout = shared.limits.write_timeout;
        let mut client = Client::new(shared, origin, Millis(0));
        client.connection.input().extend_from_slice(begun);
        client.connection.fed(Millis(0));
        Self {
            client,
            began: Instant::now(),
            write_timeout,
        }
    }

    fn now(&self) -> Millis {
        let ms = self.began.elapsed().as_millis();
        Millis(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    pub(crate) async fn run<S>(
        mut self,
        mut stream: S,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let result = self.serve(&mut stream, shutdown).await;
        self.client.leave().await;
        result
    }

    async fn serve<S>(
        &mut self,
        stream: &mut S,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut is_stopping = false;
        loop {
            self.client.turn();
            let output = self.client.connection.take_output(self.now());
            if !output.is_empty() {
                let writing = async {
                    stream.write_all(&output).await?;
                    stream.flush().await
                };
                tokio::time::timeout(self.write_timeout, writing)
                    .await
                    .map_err(|_| io::ErrorKind::TimedOut)??;
                continue;
            }
            if self.client.connection.is_closed() {
                return Ok(());
            }
            let wake_at = self.client.next_timeout(self.now());
            let wait = wake_at.map_or(Duration::from_hours(1), |at| {
                Duration::from_millis(at.0.saturating_sub(self.now().0))
            });
            let wants_input = self.client.wants_input();
            tokio::select! {
                read = stream.read_buf(self.client.connection.input()), if wants_input => {
                    if read? == 0 {
                        return Ok(());
                    }
                    let now = self.now();
                    self.client.connection.fed(now);
                }
                Some(done) = self.client.tasks.join_next(), if !self.client.tasks.is_empty() => {
                    self.client.on_done(done);
                }
                Ok(()) = self.client.rule_changes.changed() => self.client.judge_again(),
                () = self.client.changes.notified() => self.client.on_changes(),
                () = &mut shutdown, if !is_stopping => {
                    is_stopping = true;
                    self.client.stop();
                }
                () = tokio::time::sleep(wait) => {
                    let now = self.now();
                    self.client.on_time(now);
                }
            }
        }
    }
}
