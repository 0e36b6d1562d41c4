//! The end of a connection on which the client may still be sending.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::limits::FarewellLimits;

/// How many bytes are read and discarded at once.
const SINK_SIZE_BYTES: usize = 4 * 1024;

/// Writes the last bytes of a connection, or none if they were written already, and gives the client time to read
/// them. Closing a socket with unread input would destroy bytes on their way. Bounded in time and in bytes.
pub async fn say_farewell<IO>(mut io: IO, answer: &[u8], limits: &FarewellLimits)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let farewell = async {
        io.write_all(answer).await?;
        io.shutdown().await?;
        let mut left_bytes = limits.size_bytes_max;
        // On the heap: in the future, it would make every connection larger.
        let mut sink = vec![0; SINK_SIZE_BYTES];
        while left_bytes > 0 {
            match io.read(&mut sink).await? {
                0 => break,
                size_bytes => left_bytes = left_bytes.saturating_sub(size_bytes),
            }
        }
        Ok::<_, io::Error>(())
    };
    // The connection is closed in any case.
    let _ = timeout(limits.timeout, farewell).await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    const LIMITS: FarewellLimits = FarewellLimits {
        timeout: Duration::from_secs(2),
        size_bytes_max: 10_000,
    };

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_a_silent_client_but_not_for_one_that_closes() {
        for (closes, expected_s) in [(false, 2), (true, 0)] {
            let (mut ours, theirs) = tokio::io::duplex(64 << 10);
            if closes {
                ours.shutdown().await.unwrap();
            }
            let begun = Instant::now();
            say_farewell(theirs, b"bye", &LIMITS).await;
            assert_eq!(begun.elapsed().as_secs(), expected_s);
            let mut answer = Vec::new();
            ours.read_to_end(&mut answer).await.unwrap();
            assert_eq!(answer, b"bye");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_keeps_sending_is_read_up_to_the_limit() {
        let (mut ours, theirs) = tokio::io::duplex(64 << 10);
        ours.write_all(&[0; 50_000]).await.unwrap();
        let begun = Instant::now();
        say_farewell(theirs, b"", &LIMITS).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
