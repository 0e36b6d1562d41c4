//! Kew's own count of requests.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The requests of Queue Storage that Kew has answered, without those for its metrics.
pub async fn requests(address: SocketAddr) -> Result<u64> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    if !answer.starts_with("HTTP/1.1 200 ") {
        bail!("no metrics: {}", answer.lines().next().unwrap_or_default());
    }
    count(&answer)
}

fn count(page: &str) -> Result<u64> {
    let counts = page.lines().filter(|line| {
        line.starts_with("kew_requests_total{")
            && line.contains("protocol=\"queue\"")
            && !line.contains("operation=\"Metrics\"")
    });
    let mut sum = 0;
    for line in counts {
        let (_, value) = line.rsplit_once(' ').context("a metric without value")?;
        sum += value.parse::<u64>().with_context(|| line.to_owned())?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_of_queue_storage_count() {
        let page = "HTTP/1.1 200 OK\r\n\
            kew_requests_total{protocol=\"queue\",operation=\"GetMessages\",status=\"200\"} 5\n\
            kew_requests_total{protocol=\"queue\",operation=\"Metrics\",status=\"200\"} 100\n\
            kew_requests_total{protocol=\"bus\",operation=\"SendMessage\",status=\"201\"} 1000\n\
            kew_up 1\n";
        assert_eq!(count(page).ok(), Some(5));
        assert!(count("kew_requests_total{protocol=\"queue\"} many").is_err());
    }
}
