//! One connection: what is read and written when.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use kew_amqp::Millis;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use crate::api::Shared;
use crate::client::Client;
use crate::metrics::Overdue;
use crate::origin::Origin;

/// After what silence the buffers of a connection are given back.
const IDLE_AFTER: Duration = Duration::from_secs(2);

pub(crate) struct Driver {
    client: Client,
    began: Instant,
    /// Whether its buffers were given back since anything was said.
    is_lean: bool,
}

impl Driver {
    /// `begun` was read already.
    pub(crate) fn new(shared: Arc<Shared>, origin: Origin, begun: &[u8]) -> Self {
        let mut client = Client::new(shared, origin, Millis(0));
        client.connection.input().extend_from_slice(begun);
        client.connection.fed(Millis(0));
        Self {
            client,
            began: Instant::now(),
            is_lean: false,
        }
    }

    fn now(&self) -> Millis {
        let ms = self.began.elapsed().as_millis();
        Millis(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    pub(crate) async fn run<S>(mut self, mut stream: S, shutdown: impl Future<Output = ()>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let result = self.serve(&mut stream, shutdown).await;
        drop(stream);
        self.client.note_end(self.began.elapsed(), result.err());
        self.client.leave().await;
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
            self.client.tell(output.len());
            if !output.is_empty() {
                self.is_lean = false;
                let writing = async {
                    stream.write_all(&output).await?;
                    stream.flush().await
                };
                let Ok(written) = tokio::time::timeout(self.client.write_timeout(), writing).await
                else {
                    self.client.note_overdue(Overdue::Answer);
                    return Ok(());
                };
                written?;
                continue;
            }
            if self.client.connection.is_closed() {
                return Ok(());
            }
            let wake_at = self.client.next_timeout(self.now());
            let wait = wake_at.map_or(Duration::from_hours(1), |at| {
                Duration::from_millis(at.0.saturating_sub(self.now().0))
            });
            let wait = if self.is_lean {
                wait
            } else {
                wait.min(IDLE_AFTER)
            };
            let wants_input = self.client.wants_input();
            tokio::select! {
                read = stream.read_buf(self.client.connection.input()), if wants_input => {
                    if read? == 0 {
                        return Ok(());
                    }
                    let now = self.now();
                    self.client.connection.fed(now);
                    self.is_lean = false;
                }
                Some(done) = self.client.tasks.join_next(), if !self.client.tasks.is_empty() => {
                    self.client.on_done(done);
                }
                Ok(()) = self.client.rule_changes.changed() => self.client.judge_again(),
                () = &mut shutdown, if !is_stopping => {
                    is_stopping = true;
                    self.client.stop();
                }
                () = tokio::time::sleep(wait) => {
                    let now = self.now();
                    self.client.on_time(now);
                    self.client.connection.shrink();
                    self.is_lean = true;
                }
            }
        }
    }
}
