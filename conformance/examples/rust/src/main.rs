//! The program that docs/quickstart.md shows, exactly as it is printed there.

include!(concat!(env!("OUT_DIR"), "/example.rs"));
