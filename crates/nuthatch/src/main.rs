//! The `nuthatch` program: it reads the command line, prepares the process, starts the server, and turns what went wrong into one
//! sentence and an exit status. Everything else is done by `nuthatch-server`.
//!
//! Started under the name `memcached` or `memcached-debug` it is `nuthatch serve` with memcached's manners: no greeting, memcached's
//! `-h` and `-V`, memcached's exit statuses.
#![forbid(unsafe_code)]

mod command;
mod demo;
mod detach;
mod failure;
mod process;
mod ring;
mod rows;
mod say;
mod serve;

use std::env;
use std::process::ExitCode;

use command::Command;

fn main() -> ExitCode {
    let mut args = env::args_os();
    let program = args.next().unwrap_or_default();
    let invocation = command::Invocation::new(&program, args.collect());
    let result = match invocation.command() {
        Ok(Command::Serve(sources)) => serve::serve(&sources),
        Ok(Command::Check(path)) => say::check(&path),
        Ok(Command::Demo(sources)) => demo::demo(*sources),
        Ok(Command::Bench(args)) => nuthatch_bench::run(args).map_err(failure::Failure::from),
        Ok(Command::Ring(question)) => ring::ring(&question),
        Ok(Command::Rows(asked)) => rows::rows(&asked),
        Ok(Command::Print(text)) => say::print(&text),
        Err(failure) => Err(failure),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{}: {failure}", invocation.name());
            ExitCode::from(failure.status(invocation.as_memcached()))
        }
    }
}
