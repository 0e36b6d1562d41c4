//! Commands and answers between processes.

use bytes::Bytes;
use kew_engine::wire::Frame;
use kew_fuzz::gauge;
use kew_fuzz::mutate::{Input, changes};

use crate::{INPUT_SIZE_MAX, INPUTS, MEMORY_BASE_BYTES};

/// An example of each variant, in hexadecimal digits behind its name.
const GOLDEN: &str = include_str!("../../../crates/engine/tests/golden/wire-1.txt");

/// The memory of what a frame carries, for each of its bytes: an optional number takes one byte and becomes 16, in a
/// list that grows by doubling.
const MEMORY_FACTOR: usize = 64;

fn golden() -> Vec<Vec<u8>> {
    let digits = |line: &str| {
        let hex = line.split_once(':').map_or("", |(_, hex)| hex);
        hex.replace(' ', "")
    };
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("digits");
        u8::from_str_radix(pair, 16).expect("two digits")
    };
    let frames = GOLDEN.lines().map(digits);
    frames
        .map(|hex| hex.as_bytes().chunks(2).map(byte).collect())
        .collect()
}

/// Decodes a frame; it must encode to bytes that decode to the same.
fn check(bytes: &[u8]) -> bool {
    let bytes = Bytes::copy_from_slice(bytes);
    let memory_max = MEMORY_BASE_BYTES + MEMORY_FACTOR * bytes.len();
    let decoded = gauge::within(memory_max, || Frame::decode(&bytes));
    let Ok(frame) = decoded else {
        return false;
    };
    let mut again = Vec::new();
    frame.encode(&mut again);
    assert_eq!(Frame::decode(&again.into()), Ok(frame));
    true
}

#[test]
fn frame_decode() {
    let golden = golden();
    assert!(golden.iter().all(|frame| check(frame)));
    bolero::check!()
        .with_iterations(INPUTS)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            check(bytes);
            let mut input = Input::new(bytes);
            // Two bytes: there are more frames than one byte can name.
            let chosen = usize::from(input.byte()) * 256 + usize::from(input.byte());
            let mut frame = golden[chosen % golden.len()].clone();
            changes(&mut frame, &mut input);
            check(&frame);
        });
}
