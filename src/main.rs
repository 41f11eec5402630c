//! The program: its command line stands in `app`.

fn main() {}
