//! The messages of AMQP for the engine, which does not know their bytes.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{Encode as _, Map};
use kew_engine::bus::{DESCRIPTION_SIZE_BYTES_MAX, Format, Known, Made, Unfit};
use kew_filter::{Change, Message};

use crate::made::made_by;
use crate::view::View;

/// The application property with the reason for dead-lettering.
pub const DEAD_LETTER_REASON: &str = "DeadLetterReason";

/// The application property with the description of that reason.
pub const DEAD_LETTER_DESCRIPTION: &str = "DeadLetterErrorDescription";

/// Messages as Service Bus stores them: encoded by AMQP, with overlays beside them.
#[derive(Clone, Copy, Debug, Default)]
pub struct AmqpFormat;

impl Format for AmqpFormat {
    fn view<'a>(
        &self,
        message: &'a Bytes,
        overlays: &'a [Bytes],
        known: Known<'a>,
    ) -> Option<Box<dyn Message + 'a>> {
        let view = View::read_changed(message, overlays, known).ok()?;
        Some(Box::new(view))
    }

    fn made_by(&self, changes: &[Change]) -> Result<Made, Unfit> {
        made_by(changes)
    }

    fn description(&self, text: &str) -> Bytes {
        let text = text.get(..text.floor_char_boundary(DESCRIPTION_SIZE_BYTES_MAX));
        let properties = Map::build(|map| {
            map.entry(DEAD_LETTER_DESCRIPTION, text.unwrap_or_default());
        });
        let mut out = BytesMut::new();
        properties.encode(&mut out);
        out.freeze()
    }
}
