//! The program: hands the process's arguments, environment and streams to the command line.

use std::io::{stderr, stdout};
use std::process::ExitCode;

use postrider::app::cli::{self, Console, DevOptions, Services};
use postrider::app::config::Config;
use postrider::app::environment::Environment;
use postrider::app::exit::Exit;
use postrider::app::trouble::Trouble;

fn main() -> ExitCode {
    let (mut out, mut err) = (stdout(), stderr());
    let mut console = Console { environment: Environment::of_process(), out: &mut out, err: &mut err };
    let services = Services { serve: &serve, dev: &dev };
    cli::run(std::env::args_os(), &mut console, &services).into()
}

fn serve(_config: Config, _ready_fd: Option<i32>) -> Exit {
    not_in_this_build("serve")
}

fn dev(_options: DevOptions) -> Exit {
    not_in_this_build("run dev")
}

fn not_in_this_build(purpose: &str) -> Exit {
    let why = "the service is not part of this build";
    eprintln!("{}", Trouble::new(Exit::Failed, format!("cannot {purpose}"), why, "Use a complete build."));
    Exit::Failed
}
