//! Files for `prom` to work on.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory with files, gone when it is dropped.
pub(crate) struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let made = Self { directory: tempfile::tempdir().unwrap() };
        for (name, text) in files {
            made.write(name, text);
        }
        made
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.at(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Runs `prom` there.
    pub(crate) fn prom(&self, arguments: &[&str]) -> Output {
        prom_in(self.path(), arguments)
    }

    pub(crate) fn git(&self, arguments: &[&str]) {
        let done = Command::new("git")
            .current_dir(self.path())
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

/// Runs `prom` in a directory.
pub(crate) fn prom_in(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prom"));
    command.current_dir(directory).args(arguments);
    for name in ["PROM_DATA_DIR", "PROM_URL", "PROM_TOKEN", "PROM_TOKEN_FILE"] {
        command.env_remove(name);
    }
    command.output().unwrap()
}

/// Standard output as JSON, and the exit code.
pub(crate) fn json(output: &Output) -> (Option<i32>, serde_json::Value) {
    let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{error}: {} {}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    });
    (output.status.code(), value)
}
