//! Takes the program out of the page that shows it: there has to be exactly one.

use std::env;
use std::fs;
use std::path::Path;

const PAGE: &str = "../../../docs/quickstart.md";

fn main() {
    println!("cargo::rerun-if-changed={PAGE}");
    let page = fs::read_to_string(PAGE).expect("the page is there");
    let mut programs = page.split("\n```rust\n").skip(1);
    let (Some(program), None) = (programs.next(), programs.next()) else {
        panic!("{PAGE} does not have exactly one block of Rust");
    };
    let (program, _) = program.split_once("\n```\n").expect("the block ends");
    let folder = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&folder).join("example.rs"), program).expect("the folder is there");
}
