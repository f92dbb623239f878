//! `cargo xtask bench`: measurements with limits. CI runs a share of them.

mod memory;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::Subcommand;
use testbed::{
    commands::{require_root, runtime},
    operator_image,
};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Memory of the tasks operator: finished runs, a restart, large files and large foreign ConfigMaps
    Memory {
        /// Finished runs at the first measurement
        #[arg(long, default_value_t = 10_000)]
        from: usize,
        /// Finished runs at the second
        #[arg(long, default_value_t = 50_000)]
        to: usize,
        /// Suspended runs of 900 KiB, and then ConfigMaps of 1 MiB with our labels; 0 leaves this part out
        #[arg(long, default_value_t = 600)]
        large: usize,
        /// The operator to measure; by default that of the image is compiled
        #[arg(long)]
        binary: Option<PathBuf>,
    },
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    require_root()?;
    match command {
        Command::Memory {
            from,
            to,
            large,
            binary,
        } => {
            let binary = match binary {
                Some(binary) => binary,
                None => operator_image::operator()?,
            };
            let size = memory::Size {
                from,
                to,
                large,
                binary,
            };
            runtime()?.block_on(memory::run(size))
        }
    }
}
