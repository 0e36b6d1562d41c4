//! The program `billing-controller`, with files of lines. `parquet/` builds the one with files of Parquet.

use kew_billing::archive::Lines;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    kew_billing::cli::controller::<Lines>().await
}
