//! The type system (AMQP 1.0, part 1): a reader that allocates nothing, and a writer.
//!
//! Values share the bytes of the input. Every count and size is compared with the remaining bytes
//! before it is used, so the reader never allocates for an unchecked claim:
//!
//! - a list, map or array has at most as many elements as bytes are left in it,
//! - an array of elements without a width (null, true, …) has at most [`ZERO_WIDTH_ELEMENTS_MAX`],
//! - values nest at most [`DEPTH_MAX`] deep,
//! - strings are UTF-8, symbols are ASCII, and characters are Unicode scalar values.

pub(crate) mod code;
mod composite;
mod error;
mod field;
mod hex;
mod reader;
mod value;
mod writer;

pub use composite::{Composite, Descriptor};
pub(crate) use composite::{composite, descriptor_code};
pub use error::DecodeError;
pub use field::{Decode, Encode, Field};
pub use hex::hex;
pub use reader::{ListReader, Reader};
pub use value::{Array, Described, List, Map, Raw, Symbol, Symbols, Text, Timestamp, Uuid, Value};
pub use writer::{ListWriter, MapWriter, write_described, write_list, write_map, write_symbols};

/// How deep values may nest.
pub const DEPTH_MAX: usize = 32;

/// How many elements an array may have if its elements take no bytes.
pub const ZERO_WIDTH_ELEMENTS_MAX: u32 = 1024;
