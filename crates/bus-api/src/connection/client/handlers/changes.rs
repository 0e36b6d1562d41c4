//! Handles links whose entity is changed or deleted.
//!
//! A link is detached when its entity is deleted, or no longer supports the link's purpose. That
//! holds for idle links as well as for waiting ones.

use kew_amqp::LinkId;
use kew_broker::Rejection;
use kew_engine::bus::{BusCommand, BusQueueView};

use crate::connection::client::Client;
use crate::connection::client::links::attached::{check_usable, view_of};
use crate::connection::client::links::link::Link;
use crate::connection::client::parts::done::Done;
use crate::connection::client::patience::BUSY_PAUSE;
use crate::ground::refusal::{error_of, not_found};
use crate::ground::submit::Submitted;

impl Client {
    /// Reads the current settings of a link's entity.
    pub(super) fn look(&mut self, link: LinkId) {
        let Some(attached) = self.links.get(&link).and_then(Link::attached) else {
            return;
        };
        let queue = attached.entity.clone();
        let read = Submitted::new(&self.broker, BusCommand::ReadQueue { queue });
        self.load.begin_look();
        self.tasks.spawn(async move {
            let view = read.answer().await.map(view_of);
            Done::Looked(link, view)
        });
    }

    pub(super) fn on_looked(
        &mut self,
        link: LinkId,
        view: Result<Option<Box<BusQueueView>>, Rejection>,
    ) {
        let Some(own) = self.links.get(&link) else {
            return;
        };
        let (Some(attached), Some(role)) = (own.attached(), own.role()) else {
            return;
        };
        // What its entity does not accept becomes a failed transfer, or is refused one by one.
        let stays = matches!(own, Link::Sender(sender) if sender.is_after_first);
        let error = match view {
            Ok(_) | Err(Rejection::Refused(_)) if stays => None,
            // By now another queue may have that name. It is not the queue of this link.
            Ok(Some(view)) if view.incarnation == attached.incarnation => {
                check_usable(&view, role).err()
            }
            Ok(_) => Some(not_found(&attached.entity.name)),
            Err(rejection @ Rejection::Refused(_)) => Some(error_of(&rejection)),
            // The entity is read again when the broker has room.
            Err(
                Rejection::Busy
                | Rejection::NotOwner
                | Rejection::Unknown
                | Rejection::Full
                | Rejection::ReadFailed,
            ) => {
                self.tasks.spawn(async move {
                    tokio::time::sleep(BUSY_PAUSE).await;
                    Done::LookAgain(link)
                });
                None
            }
            Err(Rejection::Stopped) => None,
        };
        if let Some(error) = error {
            self.detach(link, error);
        }
    }
}
