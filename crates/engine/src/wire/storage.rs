//! Commands, outcomes and refusals about storage queues.

use super::received::{Received, put_list, put_token};
use crate::catalogue::QuotaLimit;
use crate::storage::metadata::{metadata, put_metadata};
use crate::storage::policy::{policies, put_policies};
use crate::storage::{
    ListedQueue, PeekedMessage, QueuePage, QueueView, ReceivedMessage, SentMessage, StorageCommand,
    StorageOutcome, StorageRefusal,
};
use crate::table::codec::{encoding, put_encoding};
use crate::vocabulary::VisibilityTimeout;
use crate::vocabulary::codec::{DecodeError, put_bytes, put_optional, put_str, put_varint};
use crate::vocabulary::elements::{
    location, name, put_location, put_name, put_service, put_time, service,
};

pub(super) fn put_storage_command(out: &mut Vec<u8>, command: &StorageCommand) {
    match command {
        StorageCommand::CreateQueue { queue, metadata } => {
            out.push(1);
            put_name(out, queue);
            put_metadata(out, metadata);
        }
        StorageCommand::DeleteQueue { queue } => {
            out.push(2);
            put_name(out, queue);
        }
        StorageCommand::ReadQueue { queue } => {
            out.push(3);
            put_name(out, queue);
        }
        StorageCommand::SetQueueMetadata { queue, metadata } => {
            out.push(4);
            put_name(out, queue);
            put_metadata(out, metadata);
        }
        StorageCommand::ListQueues {
            service,
            account,
            prefix,
            from,
            limit,
            metadata_size_bytes_max,
        } => {
            out.push(5);
            put_service(out, *service);
            put_str(out, account);
            put_str(out, prefix);
            put_str(out, from);
            put_varint(out, u64::from(*limit));
            let size = metadata_size_bytes_max.map(|size| size as u64);
            put_optional(out, size, put_varint);
        }
        StorageCommand::Send {
            queue,
            body,
            encoding,
            time_to_live_seconds,
            visibility_timeout,
        } => {
            out.push(6);
            put_name(out, queue);
            put_bytes(out, body);
            put_encoding(out, *encoding);
            put_optional(out, time_to_live_seconds.map(u64::from), put_varint);
            put_timeout(out, *visibility_timeout);
        }
        StorageCommand::Receive {
            queue,
            count,
            visibility_timeout,
        } => {
            out.push(7);
            put_name(out, queue);
            put_varint(out, u64::from(*count));
            put_timeout(out, *visibility_timeout);
        }
        StorageCommand::Peek { queue, count } => {
            out.push(8);
            put_name(out, queue);
            put_varint(out, u64::from(*count));
        }
        StorageCommand::Update {
            queue,
            message,
            receipt,
            visibility_timeout,
            body,
        } => {
            out.push(9);
            put_name(out, queue);
            put_token(out, *message);
            put_token(out, *receipt);
            put_timeout(out, *visibility_timeout);
            put_optional(out, body.as_ref(), |out, (encoding, body)| {
                put_encoding(out, *encoding);
                put_bytes(out, body);
            });
        }
        StorageCommand::Delete {
            queue,
            message,
            receipt,
        } => {
            out.push(10);
            put_name(out, queue);
            put_token(out, *message);
            put_token(out, *receipt);
        }
        StorageCommand::Clear { queue } => {
            out.push(11);
            put_name(out, queue);
        }
        StorageCommand::SetQueuePolicies { queue, policies } => {
            out.push(12);
            put_name(out, queue);
            put_policies(out, policies);
        }
    }
}

pub(super) fn storage_command(r: &mut Received<'_>) -> Result<StorageCommand, DecodeError> {
    Ok(match r.u8()? {
        1 => StorageCommand::CreateQueue {
            queue: name(r)?,
            metadata: metadata(r)?,
        },
        2 => StorageCommand::DeleteQueue { queue: name(r)? },
        3 => StorageCommand::ReadQueue { queue: name(r)? },
        4 => StorageCommand::SetQueueMetadata {
            queue: name(r)?,
            metadata: metadata(r)?,
        },
        5 => StorageCommand::ListQueues {
            service: service(r)?,
            account: r.text()?,
            prefix: r.text()?,
            from: r.text()?,
            limit: r.varint_u32()?,
            metadata_size_bytes_max: r.optional(Received::size)?,
        },
        6 => StorageCommand::Send {
            queue: name(r)?,
            body: r.body()?,
            encoding: encoding(r)?,
            time_to_live_seconds: r.optional(|r| r.varint_u32())?,
            visibility_timeout: timeout(r)?,
        },
        7 => StorageCommand::Receive {
            queue: name(r)?,
            count: r.varint_u32()?,
            visibility_timeout: timeout(r)?,
        },
        8 => StorageCommand::Peek {
            queue: name(r)?,
            count: r.varint_u32()?,
        },
        9 => StorageCommand::Update {
            queue: name(r)?,
            message: r.token()?,
            receipt: r.token()?,
            visibility_timeout: timeout(r)?,
            body: r.optional(|r| Ok((encoding(r)?, r.body()?)))?,
        },
        10 => StorageCommand::Delete {
            queue: name(r)?,
            message: r.token()?,
            receipt: r.token()?,
        },
        11 => StorageCommand::Clear { queue: name(r)? },
        12 => StorageCommand::SetQueuePolicies {
            queue: name(r)?,
            policies: policies(r)?,
        },
        _ => return Err(r.error("command about storage queues that is not known")),
    })
}

fn put_timeout(out: &mut Vec<u8>, timeout: VisibilityTimeout) {
    put_varint(out, u64::from(timeout.as_seconds()));
}

fn timeout(r: &mut Received<'_>) -> Result<VisibilityTimeout, DecodeError> {
    let timeout = VisibilityTimeout::from_seconds(r.varint_u32()?);
    timeout.map_err(|_| r.error("visibility timeout out of range"))
}

pub(super) fn put_storage_outcome(out: &mut Vec<u8>, outcome: &StorageOutcome) {
    match outcome {
        StorageOutcome::QueueCreated => out.push(1),
        StorageOutcome::QueueUnchanged => out.push(2),
        StorageOutcome::QueueDeleted => out.push(3),
        StorageOutcome::Queue(view) => {
            out.push(4);
            put_metadata(out, &view.metadata);
            put_varint(out, view.approximate_message_count);
            put_policies(out, &view.policies);
        }
        StorageOutcome::QueueMetadataSet => out.push(5),
        StorageOutcome::Queues(page) => {
            out.push(6);
            put_list(out, &page.queues, |out, queue| {
                put_str(out, &queue.name);
                put_metadata(out, &queue.metadata);
            });
            put_optional(out, page.next.as_deref(), put_str);
        }
        StorageOutcome::Sent(message) => {
            out.push(7);
            put_token(out, message.message);
            put_token(out, message.receipt);
            put_time(out, message.inserted_at);
            put_time(out, message.expires_at);
            put_time(out, message.visible_at);
        }
        StorageOutcome::Received(messages) => {
            out.push(8);
            put_list(out, messages, put_received);
        }
        StorageOutcome::Peeked(messages) => {
            out.push(9);
            put_list(out, messages, put_peeked);
        }
        StorageOutcome::Updated {
            receipt,
            visible_at,
        } => {
            out.push(10);
            put_token(out, *receipt);
            put_time(out, *visible_at);
        }
        StorageOutcome::Deleted => out.push(11),
        StorageOutcome::Cleared => out.push(12),
        StorageOutcome::QueuePoliciesSet => out.push(13),
    }
}

pub(super) fn storage_outcome(r: &mut Received<'_>) -> Result<StorageOutcome, DecodeError> {
    Ok(match r.u8()? {
        1 => StorageOutcome::QueueCreated,
        2 => StorageOutcome::QueueUnchanged,
        3 => StorageOutcome::QueueDeleted,
        4 => StorageOutcome::Queue(QueueView {
            metadata: metadata(r)?,
            approximate_message_count: r.varint()?,
            policies: policies(r)?,
        }),
        5 => StorageOutcome::QueueMetadataSet,
        6 => StorageOutcome::Queues(QueuePage {
            queues: r.list(|r| {
                Ok(ListedQueue {
                    name: r.text()?,
                    metadata: metadata(r)?,
                })
            })?,
            next: r.optional_text()?,
        }),
        7 => StorageOutcome::Sent(SentMessage {
            message: r.token()?,
            receipt: r.token()?,
            inserted_at: r.time()?,
            expires_at: r.time()?,
            visible_at: r.time()?,
        }),
        8 => StorageOutcome::Received(r.list(received)?),
        9 => StorageOutcome::Peeked(r.list(peeked)?),
        10 => StorageOutcome::Updated {
            receipt: r.token()?,
            visible_at: r.time()?,
        },
        11 => StorageOutcome::Deleted,
        12 => StorageOutcome::Cleared,
        13 => StorageOutcome::QueuePoliciesSet,
        _ => return Err(r.error("outcome about storage queues that is not known")),
    })
}

fn put_received(out: &mut Vec<u8>, message: &ReceivedMessage) {
    put_token(out, message.message);
    put_token(out, message.receipt);
    put_time(out, message.inserted_at);
    put_time(out, message.expires_at);
    put_time(out, message.visible_at);
    put_varint(out, u64::from(message.delivery_count));
    put_encoding(out, message.encoding);
    put_location(out, message.body);
}

fn received(r: &mut Received<'_>) -> Result<ReceivedMessage, DecodeError> {
    Ok(ReceivedMessage {
        message: r.token()?,
        receipt: r.token()?,
        inserted_at: r.time()?,
        expires_at: r.time()?,
        visible_at: r.time()?,
        delivery_count: r.varint_u32()?,
        encoding: encoding(r)?,
        body: location(r)?,
    })
}

fn put_peeked(out: &mut Vec<u8>, message: &PeekedMessage) {
    put_token(out, message.message);
    put_time(out, message.inserted_at);
    put_time(out, message.expires_at);
    put_varint(out, u64::from(message.delivery_count));
    put_encoding(out, message.encoding);
    put_location(out, message.body);
}

fn peeked(r: &mut Received<'_>) -> Result<PeekedMessage, DecodeError> {
    Ok(PeekedMessage {
        message: r.token()?,
        inserted_at: r.time()?,
        expires_at: r.time()?,
        delivery_count: r.varint_u32()?,
        encoding: encoding(r)?,
        body: location(r)?,
    })
}

pub(super) fn put_storage_refusal(out: &mut Vec<u8>, refusal: &StorageRefusal) {
    match refusal {
        StorageRefusal::QueueNotFound { queue } => {
            out.push(1);
            put_str(out, queue);
        }
        StorageRefusal::QueueAlreadyExists { queue } => {
            out.push(2);
            put_str(out, queue);
        }
        StorageRefusal::MessageNotFound => out.push(3),
        StorageRefusal::PopReceiptMismatch => out.push(4),
        StorageRefusal::HiddenBeyondExpiry {
            visibility_timeout_seconds,
            time_to_live_seconds,
        } => {
            out.push(5);
            put_varint(out, u64::from(*visibility_timeout_seconds));
            put_varint(out, u64::from(*time_to_live_seconds));
        }
        StorageRefusal::AccountQuotaExceeded {
            account,
            limit,
            needed,
            allowed,
        } => {
            out.push(6);
            put_str(out, account);
            out.push(match limit {
                QuotaLimit::Queues => 1,
                QuotaLimit::SizeBytes => 2,
            });
            put_varint(out, *needed);
            put_varint(out, *allowed);
        }
        StorageRefusal::BodyTooLarge {
            size_bytes,
            limit_bytes,
        } => {
            out.push(7);
            put_varint(out, *size_bytes as u64);
            put_varint(out, *limit_bytes as u64);
        }
    }
}

pub(super) fn storage_refusal(r: &mut Received<'_>) -> Result<StorageRefusal, DecodeError> {
    Ok(match r.u8()? {
        1 => StorageRefusal::QueueNotFound { queue: r.text()? },
        2 => StorageRefusal::QueueAlreadyExists { queue: r.text()? },
        3 => StorageRefusal::MessageNotFound,
        4 => StorageRefusal::PopReceiptMismatch,
        5 => StorageRefusal::HiddenBeyondExpiry {
            visibility_timeout_seconds: r.varint_u32()?,
            time_to_live_seconds: r.varint_u32()?,
        },
        6 => StorageRefusal::AccountQuotaExceeded {
            account: r.text()?,
            limit: match r.u8()? {
                1 => QuotaLimit::Queues,
                2 => QuotaLimit::SizeBytes,
                _ => return Err(r.error("limit of an account that is not known")),
            },
            needed: r.varint()?,
            allowed: r.varint()?,
        },
        7 => StorageRefusal::BodyTooLarge {
            size_bytes: r.size()?,
            limit_bytes: r.size()?,
        },
        _ => return Err(r.error("refusal about storage queues that is not known")),
    })
}
