//! UUIDs from their text.

use kew_amqp::codec::Uuid;

/// The UUID of a text, such as that of a lock token: 32 hexadecimal digits, and hyphens between them.
pub fn uuid_of(text: &str) -> Option<Uuid> {
    let digits: String = text.chars().filter(|&c| c != '-').collect();
    let is_long = digits.len() == 32 && text.len() <= 36 && digits.is_ascii();
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| is_long)?;
    let is_signed = digits.starts_with('+');
    (!is_signed).then(|| Uuid(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids() {
        let text = "00010203-0405-0607-0809-0a0b0c0d0e0f";
        let uuid = Uuid([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!((uuid_of(text), &*uuid.text()), (Some(uuid), text));
        for wrong in ["", "x", "+0010203040506070809a0b0c0d0e0f00", &text[1..]] {
            assert_eq!(uuid_of(wrong), None, "{wrong}");
        }
    }
}
