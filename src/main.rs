//! The program: passes the process's arguments, environment and streams to the command line.

use std::io::{stderr, stdin, stdout};
use std::process::ExitCode;

use postrider::app::cli::{self, Console, DevOptions, Services};
use postrider::app::cli_error::CliError;
use postrider::app::config::Config;
use postrider::app::environment::Environment;
use postrider::app::exit::Exit;
use postrider::app::standby::StandbyOptions;
use postrider::app::{dev, serve, standby};
use postrider::store::damage::on_uncatchable;
use postrider::store::open::OnJournalDamage;

/// Many threads allocate and free messages at the same time. libc's allocators are slow at this, musl's most of all.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    on_uncatchable(|fault| Exit::Failed.end_on_damage(fault));
    let (mut input, mut out, mut err) = (stdin(), stdout(), stderr());
    let environment = Environment::of_process();
    let mut console = Console { environment, input: &mut input, out: &mut out, err: &mut err };
    let services = Services { serve: &serve, dev: &dev, standby: &standby };
    cli::run(std::env::args_os(), &mut console, &services).into()
}

fn serve(config: Config, ready_fd: Option<i32>, on_damage: OnJournalDamage) -> Exit {
    report(serve::run(&config, ready_fd, on_damage))
}

fn dev(options: DevOptions) -> Exit {
    report(dev::run(&options))
}

fn standby(config: Config, options: StandbyOptions) -> Exit {
    report(standby::run(&config, &options))
}

#[expect(clippy::print_stderr, reason = "the program's last words")]
fn report(ended: Result<Exit, CliError>) -> Exit {
    ended.unwrap_or_else(|cli_error| {
        eprintln!("{cli_error}");
        cli_error.exit()
    })
}
