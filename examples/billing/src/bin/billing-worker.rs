//! The program `billing-worker`: see `kew_billing::worker`.

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    kew_billing::cli::worker().await
}
