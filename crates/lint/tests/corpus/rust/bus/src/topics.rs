pub mod old;

pub const HEARTBEAT: &str = "heartbeat.received";
pub const GLOBBED: &str = "globbed.name";

pub enum Kind {
    Started,
    Stopped,
}

impl Kind {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Started => "kind.started",
            Kind::Stopped => "kind.stopped",
        }
    }
}

#[derive(Serialize)]
pub enum Renamed {
    #[serde(rename = "renamed.wire")]
    Wire,
}
