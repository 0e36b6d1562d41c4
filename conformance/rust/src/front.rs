//! A proxy before the server: counts connections, and answers the first requests itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

const BODY: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>ServerBusy</Code>\
    <Message>The server is currently unable to receive requests.</Message></Error>";

pub struct Front {
    pub port: u16,
    connections: Arc<AtomicUsize>,
}

impl Front {
    pub async fn open(kew: u16, busy: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let busy = count.fetch_add(1, Ordering::Relaxed) < busy;
                // The scenario reports errors of this task.
                tokio::spawn(serve(client, kew, busy));
            }
        });
        Self { port, connections }
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

async fn serve(mut client: TcpStream, kew: u16, busy: bool) -> std::io::Result<()> {
    if busy {
        client.read(&mut [0; 65536]).await?;
        let answer = format!(
            "HTTP/1.1 503 Service Unavailable\r\nx-ms-error-code: ServerBusy\r\n\
             Content-Type: application/xml\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{BODY}",
            BODY.len()
        );
        client.write_all(answer.as_bytes()).await?;
        return client.shutdown().await;
    }
    let mut kew = TcpStream::connect(("127.0.0.1", kew)).await?;
    copy_bidirectional(&mut client, &mut kew).await.map(drop)
}
