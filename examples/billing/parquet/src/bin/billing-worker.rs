//! The program `billing-worker`: the same as without Parquet.

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    kew_billing::cli::worker().await
}
