//! Format codes (AMQP 1.0, 1.6).

pub(crate) const DESCRIBED: u8 = 0x00;
pub(crate) const NULL: u8 = 0x40;
pub(crate) const TRUE: u8 = 0x41;
pub(crate) const FALSE: u8 = 0x42;
pub(crate) const UINT0: u8 = 0x43;
pub(crate) const ULONG0: u8 = 0x44;
pub(crate) const LIST0: u8 = 0x45;
pub(crate) const UBYTE: u8 = 0x50;
pub(crate) const BYTE: u8 = 0x51;
pub(crate) const SMALL_UINT: u8 = 0x52;
pub(crate) const SMALL_ULONG: u8 = 0x53;
pub(crate) const SMALL_INT: u8 = 0x54;
pub(crate) const SMALL_LONG: u8 = 0x55;
pub(crate) const BOOLEAN: u8 = 0x56;
pub(crate) const USHORT: u8 = 0x60;
pub(crate) const SHORT: u8 = 0x61;
pub(crate) const UINT: u8 = 0x70;
pub(crate) const INT: u8 = 0x71;
pub(crate) const FLOAT: u8 = 0x72;
pub(crate) const CHAR: u8 = 0x73;
pub(crate) const DECIMAL32: u8 = 0x74;
pub(crate) const ULONG: u8 = 0x80;
pub(crate) const LONG: u8 = 0x81;
pub(crate) const DOUBLE: u8 = 0x82;
pub(crate) const TIMESTAMP: u8 = 0x83;
pub(crate) const DECIMAL64: u8 = 0x84;
pub(crate) const DECIMAL128: u8 = 0x94;
pub(crate) const UUID: u8 = 0x98;
pub(crate) const BINARY8: u8 = 0xa0;
pub(crate) const STRING8: u8 = 0xa1;
pub(crate) const SYMBOL8: u8 = 0xa3;
pub(crate) const BINARY32: u8 = 0xb0;
pub(crate) const STRING32: u8 = 0xb1;
pub(crate) const SYMBOL32: u8 = 0xb3;
pub(crate) const LIST8: u8 = 0xc0;
pub(crate) const MAP8: u8 = 0xc1;
pub(crate) const LIST32: u8 = 0xd0;
pub(crate) const MAP32: u8 = 0xd1;
pub(crate) const ARRAY8: u8 = 0xe0;
pub(crate) const ARRAY32: u8 = 0xf0;

/// The size of every value with this code, or `None` if each value carries its own size.
///
/// Also `None` for a byte that is not a code.
pub(crate) fn fixed_width(code: u8) -> Option<usize> {
    match code {
        NULL | TRUE | FALSE | UINT0 | ULONG0 | LIST0 => Some(0),
        UBYTE | BYTE | SMALL_UINT | SMALL_ULONG | SMALL_INT | SMALL_LONG | BOOLEAN => Some(1),
        USHORT | SHORT => Some(2),
        UINT | INT | FLOAT | CHAR | DECIMAL32 => Some(4),
        ULONG | LONG | DOUBLE | TIMESTAMP | DECIMAL64 => Some(8),
        DECIMAL128 | UUID => Some(16),
        _ => None,
    }
}
