//! The program `billing`, with files of Parquet.

use kew_billing_parquet::Parquet;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    kew_billing::cli::billing::<Parquet>().await
}
