//! The limits that the server announces, and that they hold.

use bytes::BytesMut;
use kew_amqp::frame::{Frame, take_frame};
use kew_amqp::performative::{Attach, Begin, Performative, Role, Source, Target};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use crate::client::Server;
use crate::hostile::{frame, open, opened};

/// The highest channel, and the highest handle.
const HIGHEST: u16 = 8_191;

fn begin() -> Begin {
    Begin {
        remote_channel: None,
        next_outgoing_id: 0,
        incoming_window: 1,
        outgoing_window: 1,
        handle_max: 7,
        offered_capabilities: Default::default(),
        desired_capabilities: Default::default(),
        properties: None,
    }
}

/// Incoming frames, one by one.
struct Incoming {
    stream: DuplexStream,
    bytes: BytesMut,
}

impl Incoming {
    /// Past the header of the protocol, which answers ours.
    async fn of(mut stream: DuplexStream) -> Self {
        let mut header = [0; 8];
        stream.read_exact(&mut header).await.unwrap();
        assert_eq!(&header, b"AMQP\0\x01\0\0");
        Self {
            stream,
            bytes: BytesMut::new(),
        }
    }

    async fn next(&mut self) -> (Frame, Performative) {
        loop {
            if let Some(frame) = take_frame(&mut self.bytes, 65_536).unwrap() {
                let (performative, _) = Performative::decode(&frame.body).unwrap();
                return (frame, performative);
            }
            let count = self.stream.read_buf(&mut self.bytes).await.unwrap();
            assert!(count > 0, "it has hung up");
        }
    }
}

/// The defaults of these fields differ from the expected values in each of these cases, so this
/// shows that all fields are sent.
#[tokio::test]
async fn open_and_begin_announce_every_limit() {
    let server = Server::start().await;
    let mut stream = opened(&server, &open()).await;
    stream.write_all(&frame(HIGHEST, &begin())).await.unwrap();
    let mut incoming = Incoming::of(stream).await;

    let (_, performative) = incoming.next().await;
    let Performative::Open(open) = performative else {
        panic!("{performative:?}")
    };
    assert!(!open.container_id.as_str().is_empty());
    assert_eq!(open.max_frame_size, 65_536);
    assert_eq!(open.channel_max, HIGHEST);
    // Half of the time after which it gives up.
    assert_eq!(open.idle_time_out, Some(120_000));

    let (_, performative) = incoming.next().await;
    let Performative::Begin(begin) = performative else {
        panic!("{performative:?}")
    };
    assert_eq!(begin.remote_channel, Some(HIGHEST));
    assert_eq!(begin.incoming_window, 8_192);
    assert_eq!(begin.outgoing_window, 0x7fff_ffff);
    assert_eq!(begin.handle_max, u32::from(HIGHEST));
}

/// A client that exceeds an announced limit is closed, and gets the size of the limit.
#[tokio::test]
async fn announced_limits_hold() {
    let server = Server::start().await;
    let mut attach = Attach::new("one too many".into(), Role::Sender);
    attach.handle = u32::from(HIGHEST) + 1;
    attach.source = Some(Source::new("here".into()));
    attach.target = Some(Target::new("jobs".into()));
    let beyond = [
        (vec![frame(HIGHEST + 1, &begin())], "channel 8192"),
        (vec![frame(0, &begin()), frame(0, &attach)], "handle 8192"),
    ];
    for (frames, named) in beyond {
        let mut stream = opened(&server, &open()).await;
        for frame in frames {
            stream.write_all(&frame).await.unwrap();
        }
        let mut incoming = Incoming::of(stream).await;
        let close = loop {
            if let (_, Performative::Close(close)) = incoming.next().await {
                break close;
            }
        };
        let error = close.error.unwrap();
        assert_eq!(error.condition, "amqp:connection:framing-error");
        let text = error.description.unwrap();
        assert!(text.as_str().contains(named), "{}", text.as_str());
    }
}
