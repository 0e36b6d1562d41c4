//! A column: a few integers that are like each other, as bytes.
//!
//! Of a column, either the values are written or the differences between neighbours, whichever takes less. They are
//! *packed* above a base, each in the same number of bits. Those that need more are *exceptions*, with their places
//! beside the bits. So equal values, and values that rise by the same step, take a few bytes whatever their number.
//!
//! Decoding never panics, and takes no memory but for as many values as the caller says there are.

use super::codec::{DecodeError, Reader, put_varint, unzigzag, zigzag};

/// The first byte has a bit for differences, and the width of packed values above it.
const DIFFERENCES: u8 = 1;

/// Writes values. How many there are is for the caller to write.
pub(crate) fn put_column(out: &mut Vec<u8>, values: &[u64]) {
    let plain = Packing::of(values);
    if plain.size_bytes <= SIZE_BYTES_MIN || values.len() < 2 {
        return plain.put(out, 0, values);
    }
    let steps = differences(values);
    let stepped = Packing::of(&steps);
    match stepped.size_bytes < plain.size_bytes {
        true => stepped.put(out, DIFFERENCES, &steps),
        false => plain.put(out, 0, values),
    }
}

/// Each value less the one before it. The first one is as it is: nearly always an exception.
fn differences(values: &[u64]) -> Vec<u64> {
    let mut before = 0;
    let steps = values.iter().map(|value| {
        let step = value.wrapping_sub(before);
        before = *value;
        zigzag(step)
    });
    steps.collect()
}

/// Reads `count` values.
pub(crate) fn column(r: &mut Reader<'_>, count: usize) -> Result<Vec<u64>, DecodeError> {
    let head = r.u8()?;
    let mut values = unpacked(r, u32::from(head >> 1), count)?;
    if head & DIFFERENCES != 0 {
        let mut before = 0_u64;
        for value in &mut values {
            before = before.wrapping_add(unzigzag(*value));
            *value = before;
        }
    }
    Ok(values)
}

/// Reads values that fit into 32 bits.
pub(crate) fn column_u32(r: &mut Reader<'_>, count: usize) -> Result<Vec<u32>, DecodeError> {
    let values = column(r, count)?.into_iter();
    let values = values.map(|value| u32::try_from(value).ok()).collect();
    let values: Option<Vec<u32>> = values;
    values.ok_or_else(|| r.error("integer of more than 32 bits in a column"))
}

/// Writes values of which some are missing: which ones are there, and their values.
pub(crate) fn put_optional_column(out: &mut Vec<u8>, values: &[Option<u64>]) {
    let flags: Vec<u64> = values.iter().map(|it| u64::from(it.is_some())).collect();
    put_column(out, &flags);
    let there: Vec<u64> = values.iter().copied().flatten().collect();
    if !there.is_empty() {
        put_column(out, &there);
    }
}

pub(crate) fn optional_column(
    r: &mut Reader<'_>,
    count: usize,
) -> Result<Vec<Option<u64>>, DecodeError> {
    let flags = column(r, count)?;
    let there = flags.iter().filter(|flag| **flag != 0).count();
    let mut there = match there {
        0 => Vec::new().into_iter(),
        there => column(r, there)?.into_iter(),
    };
    let values = flags.into_iter().map(|flag| match flag {
        0 => None,
        _ => there.next(),
    });
    Ok(values.collect())
}

/// The size of a column of equal values: there is no need to look for less.
const SIZE_BYTES_MIN: usize = 4;

/// How values are packed.
#[derive(Clone, Copy, Debug)]
struct Packing {
    base: u64,
    width: u32,
    /// About how many bytes that takes.
    size_bytes: usize,
}

impl Packing {
    /// Without exceptions, or with those that make it smallest.
    fn of(values: &[u64]) -> Self {
        let first = values.first().copied().unwrap_or_default();
        let mut rest = values.iter();
        let (least, most) = match rest.all(|value| *value == first) {
            true => (first, first),
            false => values.iter().fold((first, first), |(least, most), value| {
                (least.min(*value), most.max(*value))
            }),
        };
        let base_size = varint_size(least);
        if least == most {
            return Self {
                base: least,
                width: 0,
                size_bytes: 2 + base_size,
            };
        }
        // How many values need so many bits above the least one.
        let mut counts = [0_usize; 65];
        for value in values {
            if let Some(count) = counts.get_mut(bits(value - least) as usize) {
                *count += 1;
            }
        }
        let above_least = Self::above(least, base_size, values.len(), &counts);
        // Most may be equal, and not the least.
        let around_usual = usual(values).map(|base| Self {
            base,
            width: 0,
            size_bytes: 2 + varint_size(base) + exceptions_size(base, values),
        });
        around_usual
            .filter(|it| it.size_bytes < above_least.size_bytes)
            .unwrap_or(above_least)
    }

    /// The best width above the least value. An exception is taken to need all of its bits.
    fn above(base: u64, base_size: usize, count: usize, counts: &[usize; 65]) -> Self {
        let mut best = Self {
            base,
            width: u64::BITS,
            size_bytes: 2 + base_size + count * 8,
        };
        let mut exceptions_bytes = 0;
        let widths = (0..u64::BITS).rev();
        // Narrower by a bit: what needs all of the bits before becomes an exception, of its place and its value.
        for (width, beyond) in widths.zip(counts.iter().rev()) {
            exceptions_bytes += beyond * (1 + (width as usize + 2).div_ceil(7));
            let packed = (count * width as usize).div_ceil(8);
            let size_bytes = 2 + base_size + packed + exceptions_bytes;
            if size_bytes < best.size_bytes {
                best = Self {
                    base,
                    width,
                    size_bytes,
                };
            }
        }
        best
    }

    fn put(self, out: &mut Vec<u8>, flag: u8, values: &[u64]) {
        // A width is 64 at most.
        out.push(self.width.to_le_bytes()[0] << 1 | flag);
        put_varint(out, self.base);
        let exceptions: Vec<(usize, u64)> = values
            .iter()
            .enumerate()
            .filter(|(_, value)| !self.fits(**value))
            .map(|(index, value)| (index, *value))
            .collect();
        put_varint(out, exceptions.len() as u64);
        let (mut next, mut before) = (0, self.base);
        for (index, value) in exceptions {
            put_varint(out, (index - next) as u64);
            put_varint(out, zigzag(value.wrapping_sub(before)));
            (next, before) = (index + 1, value);
        }
        self.put_bits(out, values);
    }

    fn fits(self, value: u64) -> bool {
        value >= self.base && bits(value - self.base) <= self.width
    }

    fn put_bits(self, out: &mut Vec<u8>, values: &[u64]) {
        if self.width == 0 {
            return;
        }
        let (mut held, mut held_bits) = (0_u128, 0);
        for value in values {
            let above = match self.fits(*value) {
                true => value - self.base,
                false => 0,
            };
            held |= u128::from(above) << held_bits;
            held_bits += self.width;
            if held_bits >= u64::BITS {
                out.extend(held.to_le_bytes().into_iter().take(8));
                held >>= u64::BITS;
                held_bits -= u64::BITS;
            }
        }
        let rest = held_bits.div_ceil(8) as usize;
        out.extend(held.to_le_bytes().into_iter().take(rest));
    }
}

fn unpacked(r: &mut Reader<'_>, width: u32, count: usize) -> Result<Vec<u64>, DecodeError> {
    if width > u64::BITS {
        return Err(r.error("width of a column above 64 bits"));
    }
    let base = r.varint()?;
    let exception_count = r.varint()?;
    if exception_count > count as u64 {
        return Err(r.error("column with more exceptions than values"));
    }
    let mut exceptions = Vec::new();
    let (mut next, mut before) = (0_usize, base);
    for _ in 0..exception_count {
        let gap = usize::try_from(r.varint()?).ok();
        let index = gap.and_then(|gap| next.checked_add(gap));
        let index = index.filter(|index| *index < count);
        let index = index.ok_or_else(|| r.error("exception beyond the end of a column"))?;
        before = before.wrapping_add(unzigzag(r.varint()?));
        exceptions.push((index, before));
        next = index + 1;
    }
    let mut values = packed(r, (base, width), count)?;
    for (index, value) in exceptions {
        if let Some(place) = values.get_mut(index) {
            *place = value;
        }
    }
    Ok(values)
}

fn packed(
    r: &mut Reader<'_>,
    (base, width): (u64, u32),
    count: usize,
) -> Result<Vec<u64>, DecodeError> {
    if width == 0 {
        return Ok(vec![base; count]);
    }
    let size_bytes = (count * width as usize).div_ceil(8);
    let mut bytes = r.take(size_bytes)?;
    let mask = u64::MAX >> (u64::BITS - width);
    let (mut held, mut held_bits) = (0_u128, 0);
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        while held_bits < width {
            // The last bytes come one by one.
            if let Some((eight, rest)) = bytes.split_first_chunk() {
                held |= u128::from(u64::from_le_bytes(*eight)) << held_bits;
                held_bits += u64::BITS;
                bytes = rest;
            } else {
                let (byte, rest) = bytes.split_first().unwrap_or((&0, &[]));
                held |= u128::from(*byte) << held_bits;
                held_bits += 8;
                bytes = rest;
            }
        }
        let above = u64::try_from(held & u128::from(mask));
        values.push(base.wrapping_add(above.unwrap_or(mask)));
        held >>= width;
        held_bits -= width;
    }
    Ok(values)
}

/// The value that more than half of the values are, if there is one.
fn usual(values: &[u64]) -> Option<u64> {
    let (mut candidate, mut lead) = (0, 0_usize);
    for value in values {
        match (*value == candidate, lead) {
            (true, _) => lead += 1,
            (false, 0) => (candidate, lead) = (*value, 1),
            (false, _) => lead -= 1,
        }
    }
    let count = values.iter().filter(|value| **value == candidate).count();
    (2 * count > values.len()).then_some(candidate)
}

/// What the values that are not `base` take as exceptions.
fn exceptions_size(base: u64, values: &[u64]) -> usize {
    let mut before = base;
    let others = values.iter().filter(|value| **value != base);
    let sizes = others.map(|value| {
        let step = value.wrapping_sub(before);
        before = *value;
        1 + varint_size(zigzag(step))
    });
    sizes.sum()
}

/// How many bits a value needs.
fn bits(value: u64) -> u32 {
    u64::BITS - value.leading_zeros()
}

fn varint_size(value: u64) -> usize {
    // A division by 7, for up to 64 bits.
    (bits(value).max(1) as usize * 9 + 64) / 64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes_of(values: &[u64]) -> Vec<u8> {
        let mut out = Vec::new();
        put_column(&mut out, values);
        out
    }

    /// Values that are like each other in several ways.
    fn values() -> impl Strategy<Value = Vec<u64>> {
        let near = (any::<u64>(), 1_u64..5000);
        let near = near.prop_flat_map(|(base, spread)| {
            prop::collection::vec(
                (0..spread).prop_map(move |it| base.wrapping_add(it)),
                0..300,
            )
        });
        let steps = (any::<u64>(), any::<u64>(), 0_usize..300);
        let steps = steps.prop_map(|(first, step, count)| {
            let rest = std::iter::successors(Some(first), |it| Some(it.wrapping_add(step)));
            rest.take(count).collect()
        });
        let rare = prop::collection::vec(prop_oneof![9 => Just(7), 1 => any::<u64>()], 0..300);
        prop_oneof![
            near,
            steps,
            rare,
            prop::collection::vec(any::<u64>(), 0..100)
        ]
    }

    proptest! {
        #[test]
        fn a_column_is_read_as_it_was_written(values in values()) {
            let out = bytes_of(&values);
            let mut r = Reader::new(&out);
            prop_assert_eq!(column(&mut r, values.len())?, values.clone());
            prop_assert!(r.is_empty());
            for cut in 0..out.len() {
                prop_assert!(column(&mut Reader::new(&out[..cut]), values.len()).is_err());
            }
            prop_assert!(out.len() <= 10 * values.len() + 13, "{} for {}", out.len(), values.len());
        }

        #[test]
        fn missing_values_are_read_as_they_were_written(
            values in prop::collection::vec(prop::option::of(any::<u64>()), 0..100),
        ) {
            let mut out = Vec::new();
            put_optional_column(&mut out, &values);
            let mut r = Reader::new(&out);
            prop_assert_eq!(optional_column(&mut r, values.len())?, values);
            prop_assert!(r.is_empty());
        }

        #[test]
        fn garbage_is_values_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..60),
            count in 0_usize..200,
        ) {
            if let Ok(values) = column(&mut Reader::new(&bytes), count) {
                prop_assert_eq!(values.len(), count);
            }
            let _ = optional_column(&mut Reader::new(&bytes), count);
            let _ = column_u32(&mut Reader::new(&bytes), count);
        }
    }

    /// Values whose differences are larger, without an exception.
    fn of_width(width: u32, count: usize) -> Vec<u64> {
        let most = u64::MAX >> (u64::BITS - width);
        let next = |it: &u64| {
            Some(
                it.wrapping_mul(0x5851_f42d_4c95_7f2d)
                    .wrapping_add(0x1405_7b7e_f767_814f),
            )
        };
        let random = std::iter::successors(Some(u64::from(width)), next);
        let random = random.map(|it| it.rotate_left(32) & most);
        [0, most].into_iter().chain(random).take(count).collect()
    }

    #[test]
    fn every_width_is_read_as_it_was_written() {
        for width in 1..=64 {
            for count in [20, 21, 63, 64, 65, 128, 200] {
                let values = of_width(width, count);
                let out = bytes_of(&values);
                assert_eq!(u32::from(out[0] >> 1), width, "{count}");
                let mut r = Reader::new(&out);
                assert_eq!(column(&mut r, count).unwrap(), values, "{width} {count}");
                assert!(r.is_empty());
            }
        }
    }

    /// These bytes lie on disks.
    #[test]
    fn columns_have_these_bytes() {
        let hex = |values: &[u64]| {
            let bytes = bytes_of(values).into_iter();
            bytes.map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let all = [1, 7, 8, 31, 57, 63, 64].map(|width| hex(&of_width(width, 20)));
        let others = [
            hex(&[]),
            hex(&[5; 100]),
            hex(&[300, 310, 320, 330, 340, 350]),
            hex(&[7, 7, 7, u64::MAX, 7, 7, 0, 7, 7, 7]),
            hex(&[1000, 1003, 1001, 900_000, 1002, 1000, 1001, 1003]),
        ];
        let mut optional = Vec::new();
        put_optional_column(&mut optional, &[None, Some(300), None, None, Some(301)]);
        let optional = optional.into_iter().map(|byte| format!("{byte:02x}"));
        let all = all.into_iter().chain(others);
        let all: Vec<String> = all.chain([optional.collect()]).collect();
        assert_eq!(all, COLUMNS);
    }

    const COLUMNS: [&str; 13] = [
        "020000729404",
        "0e0000803f80f7178ba40728cad63e9803e11d710f",
        "10000000ff00e921d906adb79587462b5fa66da7c7219c",
        "3e000000000080ffffff3f000000609f41bef89ac6d94becf983e3f1405495bcda4c88d2a7b01f553ba645ba4fb6e8c786a1\
         2caa1144620ff5a8e55a9c40ed83ab66b3cae86b967754fc0f4114e3db7108",
        "72000000000000000000feffffffffffff03000000e40000a8cc26f2a5928635a21e75356182db733edec1f41357e50dba56\
         df3aab3bcfc16da474306a18fa1ef73a136f30cc4974cf98075b1c2d070c34accfa39fe63b1c565201d8b4618d52e7f965c1\
         217130fc659745b1a2ea4b971a797850f177e9669f7fdbc415c81182452fa25da153b2261bb0b8ab02aa234dfb0b",
        "7e00000000000000000080ffffffffffffff3f000000c00f0000805412065aac3906fadef7989c9863713e63638822abbc2c\
         aa63defa8c7f75252a3325a86cf203458b2848c2cd19509769711d7facdecc563f8d3ec3711c25252b82065f4987d8c0a9c6\
         051d65275e56ba70bf65e46b10c5056971ac672fc83e2878b63cc9be7c186cedf015930cb92807605e80e36689e07e32ff13\
         1f93cb67daa05d86f14f0b",
        "8000000000000000000000ffffffffffffffff0000000040000000d28682288f4cc71c9116ef3172e7a5e8ded5105c59bebc\
         b7ced3043af41dd01b6fc37fbd33d1dcf83b2bd5b24694af289804c9779d4b914d5c0f98c2e8aed54ceaff93531758c427db\
         78d6905a660176a278b8d42125cfb1b15d04481c6771640be567173b85c934de812e29ae3143475d955e11e58e22665f2928\
         8a903aa737df9252d69f3caa8b",
        "000000",
        "000500",
        "011401008809",
        "000702030f0202",
        "04e8070103f0de6d1cd2",
        "0200001208ac020010",
    ];

    #[test]
    fn values_that_are_like_each_other_take_little() {
        let of =
            |value: &dyn Fn(u64) -> u64| bytes_of(&(0..128).map(value).collect::<Vec<_>>()).len();
        assert_eq!(of(&|_| 5), 3);
        assert!(of(&|_| u64::MAX) <= 12);
        // A rising value: its first one is an exception among equal steps.
        assert!(of(&|it| 1_700_000_000_000 + 136 * it) <= 14);
        // A flag of every second one takes a bit, or none: it alternates.
        assert!(of(&|it| it % 2) <= 19);
        // One other among equal ones.
        assert!(of(&|it| if it == 77 { 9 } else { 5 }) <= 5);
        // Batches of 100: a new position once.
        assert!(of(&|it| 1_000_000 + 12_000 * (it / 100)) <= 14);
        // Small random numbers take their bits.
        assert!(of(&|it| it.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) <= 100);
    }
}
