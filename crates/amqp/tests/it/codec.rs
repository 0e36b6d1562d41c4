//! Values: every encoding of AMQP 1.0, 1.6, and invalid encodings.

use bytes::{Bytes, BytesMut};
use kew_amqp::codec::{
    Array, DEPTH_MAX, DecodeError, Encode, Raw, Reader, Symbol, Symbols, Text, Timestamp, Uuid,
    Value,
};

use crate::hex;

fn read(digits: &str) -> Result<Value, DecodeError> {
    let bytes = hex(digits);
    let mut reader = Reader::new(&bytes);
    let value = reader.value()?;
    assert!(reader.is_empty(), "{digits} has more than a value");
    Ok(value)
}

fn text(text: &str) -> Value {
    Value::String(Text::from(text))
}

fn symbol(name: &'static str) -> Value {
    Value::Symbol(Symbol::from_static(name))
}

#[test]
fn every_encoding_is_read() {
    let uuid = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    let rows = [
        ("null", "40", Value::Null),
        ("true", "41", Value::Boolean(true)),
        ("false", "42", Value::Boolean(false)),
        ("boolean true", "56 01", Value::Boolean(true)),
        ("boolean false", "56 00", Value::Boolean(false)),
        ("ubyte", "50 ff", Value::Ubyte(255)),
        ("ushort", "60 0102", Value::Ushort(0x102)),
        ("uint", "70 01020304", Value::Uint(0x0102_0304)),
        ("smalluint", "52 ff", Value::Uint(255)),
        ("uint0", "43", Value::Uint(0)),
        ("ulong", "80 0000000100000000", Value::Ulong(1 << 32)),
        ("smallulong", "53 10", Value::Ulong(16)),
        ("ulong0", "44", Value::Ulong(0)),
        ("byte", "51 80", Value::Byte(-128)),
        ("short", "61 ffff", Value::Short(-1)),
        ("int", "71 80000000", Value::Int(i32::MIN)),
        ("smallint", "54 ff", Value::Int(-1)),
        ("long", "81 8000000000000000", Value::Long(i64::MIN)),
        ("smalllong", "55 fe", Value::Long(-2)),
        ("float", "72 3fc00000", Value::Float(1.5)),
        ("double", "82 bff8000000000000", Value::Double(-1.5)),
        ("decimal32", "74 01020304", Value::Decimal32([1, 2, 3, 4])),
        (
            "decimal64",
            "84 0102030405060708",
            Value::Decimal64([1, 2, 3, 4, 5, 6, 7, 8]),
        ),
        (
            "decimal128",
            "94 000102030405060708090a0b0c0d0e0f",
            Value::Decimal128(uuid),
        ),
        ("char", "73 0001f600", Value::Char('😀')),
        (
            "timestamp",
            "83 ffffffffffffffff",
            Value::Timestamp(Timestamp(-1)),
        ),
        (
            "year 1",
            "83 ffffc77cedd32800",
            Value::Timestamp(Timestamp(-62_135_596_800_000)),
        ),
        (
            "uuid",
            "98 000102030405060708090a0b0c0d0e0f",
            Value::Uuid(Uuid(uuid)),
        ),
        (
            "vbin8",
            "a0 02 0102",
            Value::Binary(Bytes::from_static(&[1, 2])),
        ),
        (
            "vbin32",
            "b0 00000002 0102",
            Value::Binary(Bytes::from_static(&[1, 2])),
        ),
        ("str8", "a1 06 c3bc e282ac 78", text("ü€x")),
        ("str32", "b1 00000001 78", text("x")),
        ("str8, empty", "a1 00", text("")),
        ("sym8", "a3 03 616263", symbol("abc")),
        ("sym32", "b3 00000003 616263", symbol("abc")),
    ];
    for (name, digits, expected) in rows {
        assert_eq!(read(digits), Ok(expected), "{name}");
        let bytes = hex(digits);
        for end in 0..bytes.len() {
            let short = bytes.slice(..end);
            let cut = Reader::new(&short).value();
            assert!(
                matches!(cut, Err(DecodeError::Truncated { .. })),
                "{name} cut at {end}"
            );
        }
    }
}

#[test]
fn compounds_are_read_with_their_elements() {
    let lists = ["45", "c0 01 00", "d0 00000004 00000000"];
    for digits in lists {
        let Ok(Value::List(list)) = read(digits) else {
            panic!("{digits} is a list");
        };
        assert!(list.is_empty());
    }
    for digits in ["c0 05 02 41 a1 01 78", "d0 00000008 00000002 41 a1 01 78"] {
        let Ok(Value::List(list)) = read(digits) else {
            panic!("{digits} is a list");
        };
        let items: Vec<_> = list.iter().map(|raw| raw.value()).collect();
        assert_eq!(items, [Value::Boolean(true), text("x")]);
    }
    for digits in [
        "c1 06 02 a3 01 61 52 07",
        "d1 00000009 00000002 a1 01 61 52 07",
    ] {
        let Ok(Value::Map(map)) = read(digits) else {
            panic!("{digits} is a map");
        };
        assert_eq!(map.len(), 1);
        assert_eq!(map.get("a").map(|raw| raw.value()), Some(Value::Uint(7)));
        assert_eq!(map.get("A"), None);
    }
    let arrays = [
        (
            "array8 of sym8",
            "e0 06 02 a3 01 61 01 62",
            vec![symbol("a"), symbol("b")],
        ),
        (
            "array32 of int",
            "f0 0000000d 00000002 71 00000001 ffffffff",
            vec![Value::Int(1), Value::Int(-1)],
        ),
        (
            "array of boolean",
            "e0 04 02 56 01 00",
            vec![Value::Boolean(true), Value::Boolean(false)],
        ),
        (
            "array of null",
            "e0 02 03 40",
            vec![Value::Null, Value::Null, Value::Null],
        ),
        ("array of list0", "e0 02 00 45", vec![]),
        ("array without constructor", "e0 01 00", vec![]),
        (
            "array of timestamps",
            "e0 0a 01 83 0000000000000005",
            vec![Value::Timestamp(Timestamp(5))],
        ),
    ];
    for (name, digits, expected) in arrays {
        let Ok(Value::Array(array)) = read(digits) else {
            panic!("{name}: {:?}", read(digits));
        };
        assert_eq!(array.iter().collect::<Vec<_>>(), expected, "{name}");
    }
}

#[test]
fn arrays_are_made_of_their_elements() {
    let uuid = Uuid([7; 16]);
    let sevens = "07".repeat(16);
    for (array, digits) in [
        (
            Array::uuids([uuid, uuid]),
            format!("e0 22 02 98 {sevens}{sevens}"),
        ),
        (Array::longs([5]), "e0 0a 01 81 0000000000000005".to_owned()),
        (Array::timestamps([]), "e0 02 00 83".to_owned()),
    ] {
        let mut written = BytesMut::new();
        Value::Array(array.clone()).encode(&mut written);
        assert_eq!(written.freeze(), hex(&digits));
        assert_eq!(read(&digits), Ok(Value::Array(array)));
    }
}

#[test]
fn described_values_keep_their_descriptor() {
    // A session filter of go-amqp, a .NET time span, and a described value inside another.
    for digits in [
        "00 80 000000137000000c a1 01 73",
        "00 a3 16 636f6d2e6d6963726f736f66743a74696d657370616e 81 0000000000000001",
        "00 53 01 00 53 02 40",
    ] {
        let Ok(Value::Described(described)) = read(digits) else {
            panic!("{digits} is described");
        };
        let mut again = BytesMut::new();
        Value::Described(described).encode(&mut again);
        assert_eq!(again.freeze(), hex(digits));
    }
}

#[test]
fn invalid_values_are_refused() {
    let rows = [
        ("no such code", "10", DecodeError::UnknownCode(0x10)),
        (
            "no such code in an array",
            "e0 03 01 10 00",
            DecodeError::UnknownCode(0x10),
        ),
        ("boolean 2", "56 02", DecodeError::NotABoolean(2)),
        (
            "boolean 2 in an array",
            "e0 04 02 56 01 02",
            DecodeError::NotABoolean(2),
        ),
        ("surrogate", "73 0000d800", DecodeError::NotAChar(0xd800)),
        (
            "beyond Unicode",
            "73 00110000",
            DecodeError::NotAChar(0x11_0000),
        ),
        ("Latin-1 string", "a1 01 fc", DecodeError::NotUtf8),
        ("symbol with umlaut", "a3 02 c3bc", DecodeError::NotAscii),
        (
            "more elements than bytes",
            "c0 02 ff 40",
            DecodeError::TooManyElements {
                count: 255,
                limit: 1,
            },
        ),
        (
            "list32 of 4 billion",
            "d0 00000005 ffffffff 40",
            DecodeError::TooManyElements {
                count: u32::MAX,
                limit: 1,
            },
        ),
        (
            "list that ends early",
            "c0 03 01 40 40",
            DecodeError::Surplus(1),
        ),
        (
            "list with a value beyond its end",
            "c0 02 01 52 05",
            DecodeError::Truncated { needed: 1, left: 0 },
        ),
        ("odd map", "c1 02 01 40", DecodeError::OddMap(1)),
        (
            "array of 4 billion nulls",
            "f0 00000005 ffffffff 40",
            DecodeError::TooManyElements {
                count: u32::MAX,
                limit: 1024,
            },
        ),
        (
            "array of 1025 empty lists",
            "f0 00000005 00000401 45",
            DecodeError::TooManyElements {
                count: 1025,
                limit: 1024,
            },
        ),
        (
            "array of 4 billion described trues",
            "f0 00000008 ffffffff 00 53 01 41",
            DecodeError::TooManyElements {
                count: u32::MAX,
                limit: 1024,
            },
        ),
        (
            "array of 4 billion ints",
            "f0 00000006 ffffffff 71 00",
            DecodeError::Truncated {
                needed: u64::from(u32::MAX) * 4,
                left: 1,
            },
        ),
        (
            "array of 4 billion strings",
            "f0 00000006 ffffffff a1 00",
            DecodeError::TooManyElements {
                count: u32::MAX,
                limit: 1,
            },
        ),
        (
            "array with more",
            "e0 04 01 50 01 02",
            DecodeError::Surplus(1),
        ),
        (
            "size beyond the end",
            "b0 ffffffff 00",
            DecodeError::Truncated {
                needed: u64::from(u32::MAX),
                left: 1,
            },
        ),
        (
            "descriptor that is null",
            "00 40 40",
            DecodeError::WrongType {
                expected: "a descriptor",
                found: 0x40,
            },
        ),
    ];
    for (name, digits, expected) in rows {
        assert_eq!(read(digits), Err(expected), "{name}");
        assert_eq!(Raw::new(hex(digits)), Err(expected), "{name}");
        assert!(!expected.to_string().is_empty());
    }
}

#[test]
fn values_nest_to_the_limit_and_no_further() {
    let nested = |depth: usize| {
        let mut value = vec![0x40];
        for _ in 0..depth {
            let size = u32::try_from(value.len() + 4).unwrap().to_be_bytes();
            value = [&[0xd0], &size[..], &[0, 0, 0, 1], &value].concat();
        }
        Raw::new(value.into()).map(drop)
    };
    assert_eq!(nested(DEPTH_MAX), Ok(()));
    assert_eq!(nested(DEPTH_MAX + 1), Err(DecodeError::TooDeep));
    let described = |depth: usize| {
        let mut value = [0x00, 0x53, 0x01].repeat(depth);
        value.push(0x40);
        Raw::new(value.into()).map(drop)
    };
    assert_eq!(described(DEPTH_MAX), Ok(()));
    assert_eq!(described(DEPTH_MAX + 1), Err(DecodeError::TooDeep));
}

#[test]
fn the_smallest_encoding_is_written() {
    let rows: [(Box<dyn Encode>, &str); 19] = [
        (Box::new(0u32), "43"),
        (Box::new(255u32), "52 ff"),
        (Box::new(256u32), "70 00000100"),
        (Box::new(0u64), "44"),
        (Box::new(1u64), "53 01"),
        (Box::new(1u64 << 40), "80 0000010000000000"),
        (Box::new(-128i32), "54 80"),
        (Box::new(128i32), "71 00000080"),
        (Box::new(127i64), "55 7f"),
        (Box::new(-129i64), "81 ffffffffffffff7f"),
        (Box::new(true), "41"),
        (Box::new(false), "42"),
        (Box::new(Timestamp(5)), "83 0000000000000005"),
        (Box::new(Text::from("x")), "a1 01 78"),
        (Box::new(Symbol::from_static("x")), "a3 01 78"),
        (Box::new(Bytes::from_static(b"x")), "a0 01 78"),
        (Box::new(None::<u32>), "40"),
        (
            Box::new(Value::List(kew_amqp::codec::List::default())),
            "45",
        ),
        (
            Box::new(Value::Map(kew_amqp::codec::Map::default())),
            "c1 01 00",
        ),
    ];
    for (value, expected) in rows {
        let mut out = BytesMut::new();
        value.encode(&mut out);
        assert_eq!(out.freeze(), hex(expected));
    }
    for (size, head) in [(255, &[0xa1, 255][..]), (256, &[0xb1, 0, 0, 1, 0])] {
        let mut out = BytesMut::new();
        Text::from("x".repeat(size)).encode(&mut out);
        assert_eq!(out[..head.len()], *head);
    }
}

#[test]
fn compounds_grow_from_the_short_form_to_the_long_one() {
    for elements in [0u32, 1, 127, 128, 200, 254, 255, 256, 300, 70_000] {
        let mut out = BytesMut::new();
        kew_amqp::codec::write_list(&mut out, |list| {
            (0..elements).for_each(|number| list.field(&(number % 2)));
        });
        let is_short = out.len() <= 2 + 255;
        let code = match elements {
            0 => 0x45,
            _ if is_short => 0xc0,
            _ => 0xd0,
        };
        assert_eq!(out[0], code, "{elements} elements");
        let bytes = out.freeze();
        let Ok(Value::List(list)) = Reader::new(&bytes).value() else {
            panic!("{elements} elements are a list");
        };
        assert_eq!(list.len(), elements);
        let numbers = list.iter().map(|raw| raw.value().as_integer());
        let expected = (0..elements).map(|number| Some(i64::from(number % 2)));
        assert!(numbers.eq(expected), "{elements} elements");
    }
}

#[test]
fn symbols_are_one_or_several() {
    let mechanisms = [
        Symbol::from_static("ANONYMOUS"),
        Symbol::from_static("PLAIN"),
    ];
    let several = Symbols::new(&mechanisms);
    assert!(several.iter().eq(mechanisms));
    assert!(several.contains("PLAIN") && !several.contains("PLAI"));
    let long = Symbol::new(&"x".repeat(300)).unwrap();
    let one = Symbols::new(std::slice::from_ref(&long));
    assert!(one.iter().eq([long]));
    assert!(Symbols::new(&[]).iter().next().is_none());
}
