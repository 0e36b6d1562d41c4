//! Makes the code of KEDA's interface from its file, with a compiler written in Rust.

#[cfg(feature = "cluster")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto/externalscaler.proto");
    let compiled = protox::compile(["externalscaler.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .build_client(cfg!(feature = "keda-client"))
        .build_transport(false)
        .compile_fds(compiled)?;
    Ok(())
}

#[cfg(not(feature = "cluster"))]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
