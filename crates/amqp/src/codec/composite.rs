//! Composite types: lists with a descriptor, as the specification declares them.

use bytes::BytesMut;

use super::value::Symbol;
use super::{DecodeError, ListReader, ListWriter, Reader};

/// Names the type of a described value: a number, or its symbolic name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Descriptor {
    /// A number.
    Code(u64),
    /// A name.
    Symbol(Symbol),
}

impl Descriptor {
    /// The error for a descriptor that is not allowed where it is.
    pub fn unknown(&self) -> DecodeError {
        match self {
            Self::Code(code) => DecodeError::UnknownDescriptor(*code),
            Self::Symbol(_) => DecodeError::UnknownDescriptorSymbol,
        }
    }
}

/// Finds the number of a descriptor, which may also be given as a name, matched exactly.
pub(crate) fn descriptor_code(
    descriptor: &Descriptor,
    names: &[(u64, &str)],
) -> Result<u64, DecodeError> {
    let known = names.iter().find(|(code, name)| match descriptor {
        Descriptor::Code(number) => number == code,
        Descriptor::Symbol(symbol) => symbol == name,
    });
    match known {
        Some((code, _)) => Ok(*code),
        None => Err(descriptor.unknown()),
    }
}

/// A list with a descriptor and named fields.
pub trait Composite: Sized {
    /// The number that describes it.
    const CODE: u64;
    /// The name that describes it.
    const NAME: &'static str;

    /// Reads the fields.
    fn read_fields(list: &mut ListReader<'_>) -> Result<Self, DecodeError>;

    /// Writes the fields.
    fn write_fields(&self, list: &mut ListWriter<'_>);

    /// Reads the list that follows the descriptor.
    fn read_list(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut list = reader.list()?;
        let read = Self::read_fields(&mut list)?;
        list.finish()?;
        Ok(read)
    }

    /// Reads descriptor and list.
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let descriptor = reader.descriptor()?;
        descriptor_code(&descriptor, &[(Self::CODE, Self::NAME)])?;
        Self::read_list(reader)
    }

    /// Writes descriptor and list.
    fn write(&self, out: &mut BytesMut) {
        super::write_described(out, Self::CODE, |out| {
            super::write_list(out, |list| self.write_fields(list));
        });
    }
}

/// Declares a composite type: its struct, and how it is read and written.
///
/// A field with a default, or of type `Option`, may be null; any other is mandatory. Fields with a
/// default are always written, because not every peer knows the defaults.
macro_rules! composite {
    (
        $(#[$meta:meta])*
        pub struct $name:ident = $code:literal $symbol:literal {
            $( $(#[$field_meta:meta])* $field:ident : $type:ty $(= $default:expr)? ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )*
        }

        impl $crate::codec::Composite for $name {
            const CODE: u64 = $code;
            const NAME: &'static str = $symbol;

            #[allow(unused_variables, reason = "a type may have no fields")]
            fn read_fields(
                list: &mut $crate::codec::ListReader<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                Ok(Self { $(
                    $field: match list.next_field::<$type>()? {
                        Some(value) => value,
                        None => composite!(@absent $type, $field $(, $default)?),
                    },
                )* })
            }

            #[allow(unused_variables, reason = "a type may have no fields")]
            fn write_fields(&self, list: &mut $crate::codec::ListWriter<'_>) {
                $( list.declared(&self.$field); )*
            }
        }

        impl $crate::codec::Decode for $name {
            fn decode(
                reader: &mut $crate::codec::Reader<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                <Self as $crate::codec::Composite>::read(reader)
            }
        }

        impl $crate::codec::Encode for $name {
            fn encode(&self, out: &mut bytes::BytesMut) {
                $crate::codec::Composite::write(self, out);
            }
        }
    };
    (@absent $type:ty, $field:ident, $default:expr) => { $default };
    (@absent $type:ty, $field:ident) => {
        match <$type as $crate::codec::Field>::absent() {
            Some(value) => value,
            None => return Err($crate::codec::DecodeError::MissingField(stringify!($field))),
        }
    };
}
pub(crate) use composite;
