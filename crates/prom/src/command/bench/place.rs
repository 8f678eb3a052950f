use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use tempfile::TempDir;

/// Where a benchmark writes.
#[derive(Debug, Args)]
pub(super) struct Place {
    /// Where to write; the disk that this directory is on is what is measured.
    #[arg(long, default_value = ".", value_name = "DIR")]
    dir: PathBuf,
}

impl Place {
    /// A directory there that is gone when the benchmark is over.
    pub(super) fn scratch(&self) -> anyhow::Result<TempDir> {
        tempfile::Builder::new()
            .prefix(".prom-bench-")
            .tempdir_in(&self.dir)
            .with_context(|| format!("cannot write in {}", self.dir.display()))
    }
}
