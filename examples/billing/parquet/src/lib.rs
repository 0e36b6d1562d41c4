//! Charges as files of Parquet: the programs of `kew-billing` with another [`Format`].

use std::sync::Arc;

use bytes::Bytes;
use kew_billing::archive::{Format, FormatError};
use kew_billing::transaction::Charge;
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader as _, RowGroupReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

const SCHEMA: &str = "message charge {
    required int64 id (INTEGER(64, false));
    required int32 customer (INTEGER(32, false));
    required int32 tariff (INTEGER(8, false));
    required int64 cents (INTEGER(64, false));
}";

/// One row for each charge, compressed with Zstandard.
#[derive(Clone, Copy, Debug)]
pub struct Parquet;

impl Format for Parquet {
    const ENDING: &'static str = "parquet";

    fn encode(charges: &[Charge]) -> Result<Bytes, FormatError> {
        write(charges).map_err(|error| FormatError(error.into()))
    }

    fn decode(bytes: Bytes) -> Result<Vec<Charge>, FormatError> {
        read(bytes).map_err(|error| FormatError(error.into()))
    }
}

fn write(charges: &[Charge]) -> Result<Bytes, ParquetError> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let compression = Compression::ZSTD(ZstdLevel::default());
    let properties = WriterProperties::builder().set_compression(compression);
    let mut out = Vec::new();
    let mut file = SerializedFileWriter::new(&mut out, schema, Arc::new(properties.build()))?;
    let mut group = file.next_row_group()?;
    // Unsigned numbers have the bits of signed ones, as the schema says.
    column::<Int64Type>(&mut group, charges, |it| it.id.cast_signed())?;
    column::<Int32Type>(&mut group, charges, |it| it.customer.cast_signed())?;
    column::<Int32Type>(&mut group, charges, |it| it.tariff.into())?;
    column::<Int64Type>(&mut group, charges, |it| it.cents.cast_signed())?;
    group.close()?;
    file.close()?;
    Ok(out.into())
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
    charges: &[Charge],
    value: fn(&Charge) -> T::T,
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("the schema has fewer columns".to_owned());
    let mut column = group.next_column()?.ok_or_else(missing)?;
    let values: Vec<T::T> = charges.iter().map(value).collect();
    column.typed::<T>().write_batch(&values, None, None)?;
    column.close()
}

fn read(bytes: Bytes) -> Result<Vec<Charge>, ParquetError> {
    let file = SerializedFileReader::new(bytes)?;
    let mut charges = Vec::new();
    for index in 0..file.num_row_groups() {
        let group = file.get_row_group(index)?;
        let group = &*group;
        let ids = values::<Int64Type>(group, 0)?.into_iter();
        let customers = values::<Int32Type>(group, 1)?;
        let tariffs = values::<Int32Type>(group, 2)?;
        let cents = values::<Int64Type>(group, 3)?;
        let rows = ids.zip(customers).zip(tariffs).zip(cents);
        for (((id, customer), tariff), cents) in rows {
            let odd = |_| ParquetError::General(format!("tariff {tariff} is none"));
            charges.push(Charge {
                id: id.cast_unsigned(),
                customer: customer.cast_unsigned(),
                tariff: u8::try_from(tariff).map_err(odd)?,
                cents: cents.cast_unsigned(),
            });
        }
    }
    Ok(charges)
}

/// All values of a column.
fn values<T: DataType>(
    group: &dyn RowGroupReader,
    column: usize,
) -> Result<Vec<T::T>, ParquetError> {
    let rows = group.metadata().num_rows();
    let rows = usize::try_from(rows).map_err(|error| ParquetError::External(error.into()))?;
    let mut values = Vec::new();
    let mut reader = get_typed_column_reader::<T>(group.get_column_reader(column)?);
    while values.len() < rows {
        let before = values.len();
        reader.read_records(rows - before, None, None, &mut values)?;
        if values.len() == before {
            return Err(ParquetError::EOF(format!(
                "column {column} has {before} of {rows} rows"
            )));
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use kew_billing::transaction::package;

    use super::*;

    #[test]
    fn charges_come_back() {
        let transactions = package(1, 7, 5_000);
        let mut charges: Vec<_> = transactions.iter().map(|it| it.charge().unwrap()).collect();
        charges.push(Charge {
            id: u64::MAX,
            customer: u32::MAX,
            tariff: u8::MAX,
            cents: u64::MAX,
        });
        let bytes = Parquet::encode(&charges).unwrap();
        assert_eq!(&bytes[..4], b"PAR1");
        assert_eq!(bytes, Parquet::encode(&charges).unwrap());
        assert_eq!(Parquet::decode(bytes).unwrap(), charges);
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let charges: Vec<_> = package(1, 1, 100)
            .iter()
            .map(|it| it.charge().unwrap())
            .collect();
        let bytes = Parquet::encode(&charges).unwrap();
        assert!(Parquet::decode(bytes.slice(..bytes.len() - 1)).is_err());
        assert!(Parquet::decode(Bytes::from_static(b"PAR1")).is_err());
    }
}
