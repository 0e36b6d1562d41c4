//! Receives: and delete, or under a lock.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use kew_amqp::codec::Uuid;
use kew_broker::{Broker, Rejection};
use kew_engine::bus::{
    Awaited, BusCommand, BusMessageState, BusOutcome, DeliveredMessage, Disposition, ReceiveMode,
};
use kew_engine::{EntityName, Incarnation, Outcome};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::super::answers::AnswerRoom;
use super::super::answers::Shown;
use super::super::answers::{Answer, HttpError, answer_of};
use super::super::call::{Call, Stopped};
use super::super::service::HttpService;
use super::broker_properties::Told;
use super::headers::{PROPERTIES_HEADER, is_custom};
use super::values;
use super::values::ascii_json;
use crate::ground::limits::Limits;
use crate::ground::submit::Submitted;
use crate::messages::batch::{Batch, batch_of, has_some};
use crate::messages::outbound::Facts;

/// How long a receive waits by default.
///
/// Source: Service Bus, REST, *Receive and Delete Message*.
const WAIT_DEFAULT: Duration = Duration::from_secs(60);

/// How many of the sender's properties a head shows, and in how many bytes: changes by settlements
/// can exceed every head. 64 KiB always fit, with any escapes.
const CUSTOM_HEADERS_MAX: usize = 12_000;
const CUSTOM_HEADERS_SIZE_BYTES_MAX: usize = 512 << 10;

/// Source: Service Bus, REST, *Receive and Delete Message (Destructive Read)* and *Peek-Lock Message
/// (Non-Destructive Read)*.
pub(super) async fn receive(
    service: &HttpService,
    call: &Call,
    queue: EntityName,
    mode: ReceiveMode,
) -> Result<Answer, HttpError> {
    let wait = wait_of(&service.shared.limits, call)?;
    let read = BusCommand::ReadQueue {
        queue: queue.clone(),
    };
    let (incarnation, size_bytes) = match Submitted::new(&service.shared.broker, read)
        .answer()
        .await?
        .outcome
    {
        Outcome::Bus(BusOutcome::Queue(view)) => {
            let size_bytes = usize::try_from(view.options.message_size_bytes_max);
            (view.incarnation, size_bytes.unwrap_or(usize::MAX))
        }
        _ => return Err(HttpError::internal()),
    };
    let waiting = Waiting {
        service,
        queue: &queue,
        mode,
        size_bytes,
        stopped: call.stopped.clone(),
    };
    let Some(Taken { batch, room }) = waiting.run(incarnation, wait).await? else {
        return Ok(answer_of(StatusCode::NO_CONTENT));
    };
    let Some((message, stored)) = batch.into_iter().next() else {
        return Err(HttpError::internal());
    };
    let (state, facts) = (message.state, Facts::from(&message));
    // Every stored body was checked to be a message.
    let shown = Shown::of(facts, stored).ok_or_else(HttpError::internal)?;
    let answer = tell(call, &queue, &shown, state, mode)?;
    let in_head: usize = answer.headers().values().map(HeaderValue::len).sum();
    Ok(room.hold(shown.size_bytes() + in_head, answer))
}

/// `timeout`, in seconds.
fn wait_of(limits: &Limits, call: &Call) -> Result<Duration, HttpError> {
    let wait = match call.head.parameter("timeout") {
        None => WAIT_DEFAULT,
        Some(text) => {
            let wrong = "timeout must be a whole number of seconds";
            let seconds = text.parse().map_err(|_| HttpError::bad_request(wrong))?;
            Duration::from_secs(seconds)
        }
    };
    Ok(wait.min(limits.session_wait_max))
}

/// A receive that may wait.
struct Waiting<'a> {
    service: &'a HttpService,
    queue: &'a EntityName,
    mode: ReceiveMode,
    /// The largest message that the queue accepts.
    size_bytes: usize,
    stopped: Stopped,
}

/// A received message, and the room for it.
struct Taken {
    batch: Batch,
    room: AnswerRoom,
}

impl Waiting<'_> {
    /// One message, if one arrives within the time. Nothing is reserved while there is none.
    async fn run(
        self,
        incarnation: Incarnation,
        wait: Duration,
    ) -> Result<Option<Taken>, HttpError> {
        let broker = &self.service.shared.broker;
        let until = Instant::now() + wait;
        let mut watch = (!wait.is_zero()).then(|| broker.watch(incarnation, Awaited::Message));
        loop {
            // A receive without room passes its wake-up on with the watch.
            let taken = self.look().await?;
            if let Some(watch) = &mut watch {
                watch.looked();
            }
            if taken.is_some() {
                return Ok(taken);
            }
            let Some(watch) = &mut watch else {
                return Ok(None);
            };
            // A received message is not lost when the server stops: that only ends waiting.
            tokio::select! {
                () = watch.woken() => {}
                () = sleep_until(until) => return Ok(None),
                () = self.stopped.clone().stopped() => return Ok(None),
            }
        }
    }

    /// Takes a message if there is one. It reserves room first, so that it never locks a message
    /// that it cannot deliver. It waits for room only if there is a message.
    async fn look(&self) -> Result<Option<Taken>, HttpError> {
        let broker = &self.service.shared.broker;
        let room = match AnswerRoom::try_of(self.service, self.size_bytes) {
            Some(room) => room,
            None if !has_some(broker, self.queue).await? => return Ok(None),
            None => AnswerRoom::of(self.service, self.size_bytes).await?,
        };
        let taken = take(broker, self.queue, self.mode, room).await?;
        Ok((!taken.batch.is_empty()).then_some(taken))
    }
}

/// Takes a message if there is one. If the caller disconnects meanwhile, the lock ends, so that
/// other receivers get the message at once. Nobody waits any more for a message that is to be deleted.
async fn take(
    broker: &Broker,
    queue: &EntityName,
    mode: ReceiveMode,
    room: AnswerRoom,
) -> Result<Taken, HttpError> {
    let command = BusCommand::Receive {
        queue: queue.clone(),
        count: 1,
        mode,
        session: None,
    };
    let submitted = Submitted::new(broker, command);
    let (mut teller, told) = oneshot::channel::<Result<Taken, Rejection>>();
    let (broker, queue) = (broker.clone(), queue.clone());
    tokio::spawn(async move {
        let answer = tokio::select! {
            answer = submitted.answer() => answer,
            // A message that waits for the disk is not deleted then.
            () = teller.closed(), if mode == ReceiveMode::ReceiveAndDelete => return,
        };
        let taken = answer.map(|answer| Taken {
            batch: batch_of(answer),
            room,
        });
        if let Err(Ok(unwanted)) = teller.send(taken) {
            give_back(&broker, queue, &unwanted.batch).await;
        }
    });
    let taken = told.await.map_err(|_| HttpError::internal())?;
    Ok(taken?)
}

async fn give_back(broker: &Broker, queue: EntityName, unwanted: &Batch) {
    let locks = unwanted
        .iter()
        .filter_map(|(message, _): &(DeliveredMessage, _)| message.lock);
    let settlements: Vec<_> = locks.map(|lock| (lock, Disposition::Release)).collect();
    if settlements.is_empty() {
        return;
    }
    let settle = BusCommand::Settle { queue, settlements };
    if let Err(rejection) = Submitted::new(broker, settle).answer().await {
        // The lock expires instead.
        tracing::debug!(%rejection, "a message could not be released");
    }
}

/// A message as an answer: its body, and everything else in headers.
fn tell(
    call: &Call,
    queue: &EntityName,
    shown: &Shown,
    state: BusMessageState,
    mode: ReceiveMode,
) -> Result<Answer, HttpError> {
    let mut answer = Answer::new(shown.body().into());
    let headers = answer.headers_mut();
    let mut put = |name: HeaderName, text: &str| {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    };
    let (mut count, mut size_bytes) = (0, 0);
    for (name, value) in shown.application_properties() {
        // Not every property name is a valid header name.
        let header = HeaderName::try_from(&name).ok();
        let header = header.filter(|name| is_custom(name.as_str()));
        let (Some(header), Some(text)) = (header, values::write(&value)) else {
            continue;
        };
        count += 1;
        size_bytes += header.as_str().len() + text.len();
        if count > CUSTOM_HEADERS_MAX || size_bytes > CUSTOM_HEADERS_SIZE_BYTES_MAX {
            break;
        }
        put(header, &text);
    }
    if let Some(content_type) = shown.content_type() {
        put(CONTENT_TYPE, content_type);
    }
    if let Some(encoding) = &shown.properties.content_encoding {
        put(CONTENT_ENCODING, encoding.as_str());
    }
    let told = serde_json::to_string(&Told::of(shown, state));
    let told = told.map_err(|_| HttpError::internal())?;
    put(
        HeaderName::from_static(PROPERTIES_HEADER),
        &ascii_json(&told),
    );
    if let (ReceiveMode::PeekLock, Some(lock)) = (mode, shown.facts.lock) {
        let location = format!(
            "{}/{}/messages/{}/{}",
            call.head.base_url(),
            queue.name,
            shown.facts.sequence_number,
            Uuid(*lock.as_bytes()).text(),
        );
        put(LOCATION, &location);
        *answer.status_mut() = StatusCode::CREATED;
    }
    Ok(answer)
}
