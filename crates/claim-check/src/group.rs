//! Several messages in one: their sizes, and then their bytes.
//!
//! `kewg`, the number of messages, and then each message with its size before it. Numbers have 4 bytes, the highest
//! first. Nothing comes after the last message.

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::error::Error;

const MAGIC: &[u8; 4] = b"kewg";

/// The size of a number.
const NUMBER_SIZE: usize = 4;

/// Collects messages until there are enough for one group.
#[derive(Clone, Debug)]
pub struct Group {
    items: Vec<Bytes>,
    size_bytes: u64,
    items_max: u32,
    size_max_bytes: u64,
}

impl Group {
    pub(crate) fn new(items_max: u32, size_max_bytes: u64) -> Self {
        Self {
            items: Vec::new(),
            size_bytes: header_size(),
            items_max,
            size_max_bytes,
        }
    }

    /// Adds a message. Returns it if the group has no room for it: send the group, and begin another one.
    ///
    /// A message that an empty group has no room for is too large for any.
    pub fn push(&mut self, item: impl Into<Bytes>) -> Result<(), Bytes> {
        let item = item.into();
        let size_bytes = self.size_bytes.saturating_add(item_size(&item));
        let count = u32::try_from(self.items.len()).unwrap_or(u32::MAX);
        if count >= self.items_max || size_bytes > self.size_max_bytes {
            return Err(item);
        }
        self.size_bytes = size_bytes;
        self.items.push(item);
        Ok(())
    }

    /// How many messages it has.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether it has no messages.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Its size, in bytes, before compression.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The messages, for [`Content::group`](crate::Content::group).
    pub fn into_items(self) -> Vec<Bytes> {
        self.items
    }
}

fn header_size() -> u64 {
    to_u64(MAGIC.len() + NUMBER_SIZE)
}

fn item_size(item: &Bytes) -> u64 {
    to_u64(item.len()).saturating_add(to_u64(NUMBER_SIZE))
}

pub(crate) fn to_u64(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

/// The size of a group, in bytes.
pub(crate) fn packed_size(items: &[Bytes]) -> u64 {
    items
        .iter()
        .map(item_size)
        .fold(header_size(), u64::saturating_add)
}

/// The bytes of a group, whose size has been checked.
pub(crate) fn pack(items: &[Bytes]) -> Result<Bytes, Error> {
    let number = |count: usize| {
        u32::try_from(count).map_err(|_| Error::invalid("a group has less than 4 GiB"))
    };
    let size = usize::try_from(packed_size(items));
    let mut out = BytesMut::with_capacity(size.unwrap_or(0));
    out.put_slice(MAGIC);
    out.put_u32(number(items.len())?);
    for item in items {
        out.put_u32(number(item.len())?);
        out.put_slice(item);
    }
    Ok(out.freeze())
}

/// The messages of a group. `count` is what the message says. They share the memory of `data`.
pub(crate) fn unpack(mut data: Bytes, count: u32) -> Result<Vec<Bytes>, String> {
    if data.len() < MAGIC.len() || data.split_to(MAGIC.len()) != MAGIC[..] {
        return Err("it does not begin with kewg".to_owned());
    }
    let told = take_number(&mut data)?;
    if told != count {
        return Err(format!("it has {told} messages, and {count} were sent"));
    }
    // Each message has 4 bytes at least, so a false count reserves no more than the data has.
    let room = data.len() / NUMBER_SIZE;
    let mut items = Vec::with_capacity(room.min(usize::try_from(count).unwrap_or(room)));
    for index in 0..count {
        let size = usize::try_from(take_number(&mut data)?).unwrap_or(usize::MAX);
        if size > data.len() {
            let left = data.len();
            return Err(format!(
                "message {index} has {size} bytes, and {left} are left"
            ));
        }
        items.push(data.split_to(size));
    }
    match data.len() {
        0 => Ok(items),
        left => Err(format!("{left} bytes follow the last message")),
    }
}

fn take_number(data: &mut Bytes) -> Result<u32, String> {
    let (number, _) = data
        .split_first_chunk::<NUMBER_SIZE>()
        .ok_or("it ends too early")?;
    let number = u32::from_be_bytes(*number);
    let _ = data.split_to(NUMBER_SIZE);
    Ok(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn items(texts: &[&'static str]) -> Vec<Bytes> {
        texts
            .iter()
            .map(|text| Bytes::from_static(text.as_bytes()))
            .collect()
    }

    #[test]
    fn a_group_has_its_bytes() {
        let packed = pack(&items(&["ab", ""])).unwrap();
        assert_eq!(packed, b"kewg\0\0\0\x02\0\0\0\x02ab\0\0\0\0"[..]);
        assert_eq!(to_u64(packed.len()), packed_size(&items(&["ab", ""])));
        assert_eq!(pack(&[]).unwrap(), b"kewg\0\0\0\0"[..]);
    }

    #[test]
    fn a_group_ends_where_it_says() {
        let packed = pack(&items(&["ab", "c"])).unwrap();
        for end in 0..packed.len() {
            assert!(unpack(packed.slice(..end), 2).is_err(), "{end}");
        }
        let mut longer = packed.to_vec();
        longer.push(0);
        assert!(
            unpack(longer.into(), 2)
                .unwrap_err()
                .contains("1 bytes follow")
        );
        assert!(unpack(packed, 3).unwrap_err().contains("3 were sent"));
    }

    #[test]
    fn a_false_count_reserves_nothing() {
        let packed = Bytes::from_static(b"kewg\xff\xff\xff\xff\0\0\0\0");
        assert!(unpack(packed, u32::MAX).is_err());
    }

    #[test]
    fn a_full_group_returns_the_message() {
        let mut group = Group::new(2, 8 + 5 + 6);
        assert!(group.is_empty());
        group.push("a").unwrap();
        assert_eq!(group.push("abc").unwrap_err(), "abc");
        group.push("ab").unwrap();
        assert_eq!(group.push("").unwrap_err(), "");
        assert_eq!((group.len(), group.size_bytes()), (2, 19));
        assert_eq!(packed_size(&group.into_items()), 19);
    }

    proptest! {
        #[test]
        fn packed_messages_are_unpacked(bodies: Vec<Vec<u8>>) {
            let items: Vec<Bytes> = bodies.into_iter().map(Bytes::from).collect();
            let count = u32::try_from(items.len()).unwrap();
            prop_assert_eq!(unpack(pack(&items).unwrap(), count).unwrap(), items);
        }

        #[test]
        fn any_bytes_are_unpacked_or_refused(bytes: Vec<u8>, count in 0_u32..9) {
            let mut data = b"kewg".to_vec();
            data.extend(bytes);
            let _ = unpack(data.into(), count);
        }
    }
}
