//! The program `billing-initiator`: see `kew_billing::initiator`.

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    kew_billing::cli::initiator().await
}
