//! Records of a page that are read while the state goes on.

use super::pages::PAGE_VERSION;
use crate::bus;
use crate::table::{GroupRead, GroupToRead, run_of_page};
use crate::vocabulary::codec::{DecodeError, Reader};
use crate::vocabulary::elements::incarnation;

impl GroupToRead {
    /// Decodes the [groups of its page](GroupToRead::groups). Needs no state, so any thread can do it.
    pub fn decode(&self, groups: &[impl AsRef<[u8]>]) -> Result<GroupRead, DecodeError> {
        let error = |what| Reader::new(&[]).error(what);
        let of = groups.first().and_then(|of| of.as_ref().split_first());
        let Some((&PAGE_VERSION, of)) = of else {
            return Err(error("page version that is not known"));
        };
        if self.group.block().is_some() {
            let mut r = Reader::new(of);
            if incarnation(&mut r)? != self.group.entity {
                return Err(error("page of another entity"));
            }
            let ids = bus::pages::ids(&mut r)?;
            r.finish()?;
            return Ok(self.clone().with_ids(ids));
        }
        let messages = groups
            .get(1)
            .ok_or_else(|| error("page without its messages"))?;
        let (head, run, messages) = run_of_page([of, messages.as_ref()])?;
        if (head.entity, run) != (self.group.entity, self.group.run) {
            return Err(error("page of another run"));
        }
        Ok(self.clone().only_wanted(head.length, messages))
    }
}
