//! Drives one connection: when to read and write.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use kew_amqp::{Connection, Millis};
use kew_listen::Place;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;

use super::client::Client;
use crate::ground::origin::Origin;
use crate::metrics::Overdue;
use crate::shared::Shared;

/// After how much silence the buffers of a connection are freed.
const IDLE_AFTER: Duration = Duration::from_secs(2);

/// How much is read at once, in bytes.
const READ_SIZE: usize = 32 * 1024;

/// The longest wait before the driver checks whether something is due.
const WAIT_MAX: Duration = Duration::from_hours(1);

pub(crate) struct Driver {
    client: Client,
    began: Instant,
    /// Whether its buffers are freed since the last input or output.
    is_lean: bool,
}

impl Driver {
    /// `begun` was read already.
    pub(crate) fn new(
        shared: Arc<Shared>,
        origin: Origin,
        place: Arc<Place>,
        begun: &[u8],
    ) -> Self {
        let mut client = Client::new(shared, origin, place, Millis(0));
        client.connection.input().extend_from_slice(begun);
        client.connection.fed(Millis(0));
        Self {
            client,
            began: Instant::now(),
            is_lean: false,
        }
    }

    fn now(&self) -> Millis {
        since(self.began)
    }

    /// When the next timer is due, or when to free the buffers of a silent connection.
    fn wake_at(&self) -> Instant {
        let now = Instant::now();
        let due_at = match self.client.next_timeout(self.now()) {
            Some(at) => self.began + Duration::from_millis(at.0),
            None => now + WAIT_MAX,
        };
        if self.is_lean {
            due_at
        } else {
            due_at.min(now + IDLE_AFTER)
        }
    }

    /// Boxed: a future stores the values that it passes on more than once, and there are thousands
    /// of these.
    pub(crate) async fn run<S>(self: Box<Self>, mut stream: S, shutdown: impl Future<Output = ()>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut driver = self;
        let result = driver.serve(&mut stream, shutdown).await;
        drop(stream);
        driver.client.note_end(driver.began.elapsed(), result.err());
        driver.client.leave().await;
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
        let mut alarm = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
        loop {
            let is_more_due = self.client.take_turn();
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
            // Earlier input is handled first, and other connections have their turn before.
            let is_done = !is_more_due;
            if is_done && self.client.connection.is_closed() {
                return Ok(());
            }
            let wake_at = self.wake_at();
            // Most events move the alarm to a later time, so it may fire too early.
            if alarm.is_elapsed() || wake_at < alarm.deadline() {
                alarm.as_mut().reset(wake_at);
            }
            let wants_input = is_done && self.client.wants_input();
            let (connection, began) = (&mut self.client.connection, self.began);
            tokio::select! {
                () = tokio::task::yield_now(), if is_more_due => self.client.renew_steps(),
                read = read(stream, connection, began), if wants_input => {
                    if read? == 0 {
                        return Ok(());
                    }
                    self.is_lean = false;
                }
                () = self.client.orders.answers.ready(), if is_done => self.client.on_answers(),
                Some(done) = self.client.tasks.join_next(), if is_done && !self.client.tasks.is_empty() => {
                    self.client.on_done(done);
                    while self.client.has_steps()
                        && let Some(done) = self.client.tasks.try_join_next()
                    {
                        self.client.on_done(done);
                    }
                }
                Ok(()) = self.client.credentials.rule_changes.changed() => self.client.judge_again(),
                () = self.client.stirred.changes.notified() => self.client.on_changes(),
                () = &mut shutdown, if !is_stopping => {
                    is_stopping = true;
                    self.client.stop();
                }
                () = &mut alarm => {
                    let now = self.now();
                    self.client.on_time(now);
                    self.client.shrink();
                    self.is_lean = true;
                }
            }
        }
    }
}

fn since(began: Instant) -> Millis {
    let ms = began.elapsed().as_millis();
    Millis(u64::try_from(ms).unwrap_or(u64::MAX))
}

/// Reads the available input. The buffer is not allocated while there is none: an idle connection
/// has no buffer, and a busy one is not read in small pieces. Returns the number of bytes.
async fn read<S: AsyncRead + Unpin>(
    stream: &mut S,
    connection: &mut Connection,
    began: Instant,
) -> io::Result<usize> {
    std::future::poll_fn(|context| {
        let mut space = [MaybeUninit::uninit(); READ_SIZE];
        let mut buffer = ReadBuf::uninit(&mut space);
        std::task::ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer))?;
        connection.feed(buffer.filled(), since(began));
        Poll::Ready(Ok(buffer.filled().len()))
    })
    .await
}
