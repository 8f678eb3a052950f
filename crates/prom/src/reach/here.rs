//! A data directory that this process opens itself. Only one process can; a server that has it
//! leaves a note where it can be reached.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use http_body_util::BodyExt;
use promethean::Bus;
use promethean::embedded::OpenError;
use promethean_gateway::Indoor;
use serde::{Deserialize, Serialize};

use super::Missing;
use super::ask::{Answer, Ask};
use crate::command::Status;
use crate::failure::Failure;
use crate::shelf::Workshop;

#[derive(Debug)]
pub(crate) struct Here {
    directory: PathBuf,
    indoor: Indoor,
    /// Views, causes and jobs, where they were asked for.
    workshop: Option<Workshop>,
}

/// What a server says about itself in its data directory.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    pid: u32,
    url: String,
    /// Where administration is, if it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    admin_url: Option<String>,
}

const NOTE: &str = "server.json";
/// Views of a directory are waited for so long before they are asked.
const SETTLE: std::time::Duration = std::time::Duration::from_secs(60);

/// A note that is there as long as the server is.
#[derive(Debug)]
pub(crate) struct Announcement(PathBuf);

impl Drop for Announcement {
    fn drop(&mut self) {
        // Without a server the note is stale, and nobody believes it.
        let _ = fs::remove_file(&self.0);
    }
}

/// Leaves a note in a data directory where its server can be reached.
pub(crate) fn announce(
    directory: &Path,
    (address, admin): (SocketAddr, Option<SocketAddr>),
    is_secure: bool,
) -> anyhow::Result<Announcement> {
    let scheme = if is_secure { "https" } else { "http" };
    let url = |address: SocketAddr| format!("{scheme}://{address}");
    let note = Note { pid: std::process::id(), url: url(address), admin_url: admin.map(url) };
    let path = directory.join(NOTE);
    fs::write(&path, serde_json::to_vec(&note)?)?;
    Ok(Announcement(path))
}

impl Here {
    pub(super) async fn open(directory: &Path, missing: Missing) -> anyhow::Result<Self> {
        if missing == Missing::Refuse && !directory.join("log").exists() {
            let what = format!("there is no data directory at {}", directory.display());
            let hint = "`prom pub TOPIC PAYLOAD --data DIR` makes one";
            return Err(Failure::new(Status::NotFound, what).hint(hint).into());
        }
        crate::command::private_directory(directory)?;
        let bus = match Bus::open(directory).await {
            Ok(bus) => bus,
            Err(OpenError::Log(promethean_log::OpenError::Locked { holder, .. })) => {
                return Err(taken(directory, &holder).into());
            }
            Err(OpenError::Moved(mark)) => return Err(crate::command::moved::failure(&mark).into()),
            Err(error) => {
                let error = anyhow::Error::new(error);
                return Err(error.context(format!("cannot open {}", directory.display())));
            }
        };
        let indoor = Indoor::new(bus).await;
        Ok(Self { directory: directory.to_owned(), indoor, workshop: None })
    }

    /// The same with the views that its server had, causes and jobs; views are waited for.
    pub(super) async fn open_workshop(directory: &Path) -> anyhow::Result<Self> {
        let here = Self::open(directory, Missing::Refuse).await?;
        let bus = here.indoor.bus().clone();
        let mut workshop = Workshop::open(&bus, Some(directory), None).await?;
        workshop.recall().await?;
        workshop.settle(SETTLE).await;
        let indoor = Indoor::with(bus, workshop.shelf()).await;
        Ok(Self { indoor, workshop: Some(workshop), ..here })
    }

    pub(super) async fn over(bus: Bus, name: &Path) -> Self {
        Self { directory: name.to_owned(), indoor: Indoor::new(bus).await, workshop: None }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) async fn ask(&self, ask: Ask) -> anyhow::Result<Answer> {
        let mut request = http::Request::builder().method(ask.method.clone()).uri(ask.target());
        for (name, value) in &ask.headers {
            request = request.header(name, value);
        }
        let answer = self.indoor.call(request.body(ask.body.into())?).await;
        let status = answer.status().as_u16();
        let body = answer.into_body().map_err(std::io::Error::other).boxed_unsync();
        Ok(Answer { status, body, connection: None })
    }

    pub(super) async fn close(self) {
        if let Some(workshop) = self.workshop {
            workshop.stop().await;
        }
        self.indoor.bus().close().await;
    }
}

/// Another process has the directory: which, and how to reach it if it is a server.
pub(crate) fn taken(directory: &Path, holder: &str) -> Failure {
    let note = fs::read(directory.join(NOTE)).ok();
    let note: Option<Note> = note.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let place = directory.display();
    match note.filter(|note| note.pid.to_string() == holder) {
        Some(Note { pid, url, admin_url }) => {
            let what = format!("a server (process {pid}) runs on {place}");
            let admin = admin_url.map(|url| format!(" --admin-url {url}")).unwrap_or_default();
            Failure::new(Status::Conflict, what).hint(format!("reach it with --url {url}{admin}"))
        }
        None => {
            let what = format!("{place} is in use by process {holder}");
            Failure::new(Status::Conflict, what).hint("stop it, or wait until it is done")
        }
    }
}
