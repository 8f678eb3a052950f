use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};

const SCRIPT: &str = "scripts/mongod";

/// A replica set that ends with it.
pub(super) struct ReplicaSet {
    pub(super) url: String,
    child: Child,
}

impl ReplicaSet {
    /// Starts one by the script of the source tree.
    pub(super) fn start() -> anyhow::Result<Self> {
        if !Path::new(SCRIPT).exists() {
            bail!(
                "there is no {SCRIPT} here; give the connection string of a replica set: --store"
            );
        }
        let mut child = Command::new(SCRIPT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{SCRIPT} cannot be started"))?;
        let lines = child.stdout.take().map(BufReader::new);
        let mut url = String::new();
        if let Some(mut lines) = lines {
            lines.read_line(&mut url)?;
        }
        let url = url.trim().to_owned();
        if !url.starts_with("mongodb://") {
            bail!("{SCRIPT} did not start a replica set");
        }
        Ok(Self { url, child })
    }
}

impl Drop for ReplicaSet {
    fn drop(&mut self) {
        // The end of its input is its order to stop.
        drop(self.child.stdin.take());
        // It says itself what went wrong.
        let _ = self.child.wait();
    }
}
