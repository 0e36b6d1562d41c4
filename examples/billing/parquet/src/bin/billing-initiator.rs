//! The program `billing-initiator`: the same as without Parquet.

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    kew_billing::cli::initiator().await
}
