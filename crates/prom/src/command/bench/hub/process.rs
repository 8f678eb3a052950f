//! The servers, each as a process on a directory of its own.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::nats::Nats;
use super::ours::Ours;
use super::redis::Redis;
use super::seam::Hub;
use super::wire::Wire;

/// A server that is not there after so long will not come.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process that ends with this value.
#[derive(Debug)]
pub(super) struct Process(Child);

impl Process {
    /// Resident memory, now.
    pub(super) fn rss_mib(&self) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
        let kib: f64 = line.split_whitespace().nth(1).context("a figure")?.parse()?;
        Ok(kib / 1024.0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; its directory is thrown away in any case.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that answers.
pub(super) struct Running<H> {
    pub(super) process: Process,
    pub(super) hub: H,
}

impl Running<Ours> {
    /// `prom serve` as anybody would start it, but for the limits of rates.
    pub(super) fn ours(data: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", "--listen", "127.0.0.1:0", "--no-rate-limits", "--data"])
            .arg(data)
            .stderr(Stdio::piped())
            .spawn()?;
        let mut said = BufReader::new(child.stderr.take().context("standard error")?);
        let process = Process(child);
        let mut line = String::new();
        let at: SocketAddr = loop {
            line.clear();
            ensure!(said.read_line(&mut line)? > 0, "our own server did not start");
            if let Some(at) = line.trim().strip_prefix("listening on ") {
                break at.parse()?;
            }
        };
        // Whatever else it says is not lost on a closed pipe.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let token = std::fs::read_to_string(data.join("admin.token"))?.trim().to_owned();
        Ok(Self { process, hub: Ours { at, token } })
    }

    /// Starts it, and says how long it took until it was ready.
    #[expect(clippy::disallowed_methods, reason = "measuring time is what a benchmark is for")]
    pub(super) fn timed(data: &Path) -> anyhow::Result<(Self, Duration)> {
        let begun = Instant::now();
        let running = Self::ours(data)?;
        loop {
            let mut wire = Wire::connect(running.hub.at)?;
            let head = format!("GET /readyz HTTP/1.1\r\nhost: {}\r\n\r\n", running.hub.at);
            wire.out.extend_from_slice(head.as_bytes());
            wire.flush()?;
            if wire.line()?.starts_with(b"HTTP/1.1 200") {
                return Ok((running, begun.elapsed()));
            }
            ensure!(begun.elapsed() < PATIENCE, "our own server is not ready");
        }
    }
}

/// Where the servers of others are.
#[derive(Debug)]
pub(super) struct Binaries {
    nats: PathBuf,
    redis: PathBuf,
}

impl Binaries {
    /// As `scripts/peers` of the repository says.
    pub(super) fn find() -> anyhow::Result<Self> {
        let output = Command::new("scripts/peers")
            .stderr(Stdio::inherit())
            .output()
            .context("cannot run scripts/peers: start this in the root of the repository")?;
        ensure!(output.status.success(), "scripts/peers did not get the servers of others");
        let text = String::from_utf8(output.stdout)?;
        let of = |name: &str| {
            let path = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            path.map(PathBuf::from).with_context(|| format!("scripts/peers did not name {name}"))
        };
        Ok(Self { nats: of("nats")?, redis: of("redis")? })
    }

    pub(super) fn versions(&self) -> anyhow::Result<BTreeMap<&'static str, String>> {
        let said = |path: &Path| -> anyhow::Result<String> {
            let output = Command::new(path).arg("--version").output()?;
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            Ok(text.split(" sha=").next().unwrap_or_default().to_owned())
        };
        Ok(BTreeMap::from([("nats", said(&self.nats)?), ("redis", said(&self.redis)?)]))
    }

    /// JetStream; `synced`: with a sync before each answer.
    pub(super) fn nats(&self, folder: &Path, synced: bool) -> anyhow::Result<Running<Nats>> {
        std::fs::create_dir_all(folder)?;
        let at = free_address()?;
        let config = folder.join("nats.conf");
        let sync = if synced { "sync_interval: always" } else { "" };
        let store = folder.join("store");
        let text = format!("listen: \"{at}\"\njetstream {{\n store_dir: {store:?}\n {sync}\n}}\n");
        std::fs::write(&config, text)?;
        let process = quiet(Command::new(&self.nats).arg("-c").arg(&config))?;
        wait_for(at)?;
        let name = if synced { "jetstream synced" } else { "jetstream" };
        Ok(Running { process, hub: Nats { at, name } })
    }

    pub(super) fn redis(&self, folder: &Path) -> anyhow::Result<Running<Redis>> {
        std::fs::create_dir_all(folder)?;
        let at = free_address()?;
        let mut command = Command::new(&self.redis);
        command.args(["--bind", "127.0.0.1", "--port", &at.port().to_string(), "--save", ""]);
        command.args(["--appendonly", "yes", "--appendfsync", "everysec", "--dir"]).arg(folder);
        let process = quiet(&mut command)?;
        wait_for(at)?;
        Ok(Running { process, hub: Redis { at } })
    }
}

fn quiet(command: &mut Command) -> anyhow::Result<Process> {
    Ok(Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
}

/// A port that nobody has at the moment.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

#[expect(clippy::disallowed_methods, reason = "somebody else's process starts when it likes")]
fn wait_for(at: SocketAddr) -> anyhow::Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if TcpStream::connect(at).is_ok() {
            // It listens a moment before it does all that it is for.
            std::thread::sleep(Duration::from_millis(300));
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    bail!("nothing answers at {at}")
}

/// Everything that is measured, in the order in which it takes its turn.
pub(super) struct Field {
    pub(super) hubs: Vec<Box<dyn Hub>>,
    _processes: Vec<Process>,
}

impl Field {
    pub(super) fn start(scratch: &Path, peers: Option<&Binaries>) -> anyhow::Result<Self> {
        let ours = Running::ours(&scratch.join("ours"))?;
        let mut field = Self { hubs: vec![Box::new(ours.hub)], _processes: vec![ours.process] };
        if let Some(peers) = peers {
            for synced in [false, true] {
                let nats = peers.nats(&scratch.join(format!("nats-{synced}")), synced)?;
                field.hubs.push(Box::new(nats.hub));
                field._processes.push(nats.process);
            }
            let redis = peers.redis(&scratch.join("redis"))?;
            field.hubs.push(Box::new(redis.hub));
            field._processes.push(redis.process);
        }
        Ok(field)
    }
}
