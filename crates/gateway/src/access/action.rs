use promethean_event::{GroupName, Pattern, Topic};

/// What a request does. Every route and every frame has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Stores events.
    Publish,
    /// Becomes a member of a group, or follows a topic.
    Subscribe,
    /// Answers for events that are out to it.
    Ack,
    /// Reads stored events: replay, export, look-ups.
    Read,
    /// Looks at dead letters.
    DlqRead,
    /// Releases or discards dead letters.
    DlqReplay,
    /// Moves a group.
    CursorSet,
    /// Changes schemas.
    SchemaWrite,
    /// Makes or changes topics.
    TopicAdmin,
    /// Looks at how the server is doing.
    OpsRead,
    /// Changes how the server is doing.
    OpsAdmin,
}

impl Action {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Publish,
        Self::Subscribe,
        Self::Ack,
        Self::Read,
        Self::DlqRead,
        Self::DlqReplay,
        Self::CursorSet,
        Self::SchemaWrite,
        Self::TopicAdmin,
        Self::OpsRead,
        Self::OpsAdmin,
    ];

    /// Its name, in the audit log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
            Self::Ack => "ack",
            Self::Read => "read",
            Self::DlqRead => "dlq.read",
            Self::DlqReplay => "dlq.replay",
            Self::CursorSet => "cursor.set",
            Self::SchemaWrite => "schema.write",
            Self::TopicAdmin => "topic.admin",
            Self::OpsRead => "ops.read",
            Self::OpsAdmin => "ops.admin",
        }
    }

    /// The area whose administrators may do it; none for what goes by topic.
    pub const fn area(self) -> Option<Area> {
        match self {
            Self::Publish | Self::Subscribe | Self::Ack | Self::Read => None,
            Self::DlqRead | Self::DlqReplay => Some(Area::Dlq),
            Self::CursorSet => Some(Area::Groups),
            Self::SchemaWrite => Some(Area::Schemas),
            Self::TopicAdmin => Some(Area::Topics),
            Self::OpsRead => Some(Area::OpsRead),
            Self::OpsAdmin => Some(Area::Ops),
        }
    }
}

/// What is administered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Area {
    /// Everything.
    All,
    /// Dead letters.
    Dlq,
    /// Groups and their cursors.
    Groups,
    /// Schemas.
    Schemas,
    /// Topics.
    Topics,
    /// The server, reading only.
    OpsRead,
    /// The server.
    Ops,
}

impl Area {
    /// The area of that name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "**" => Self::All,
            "dlq" => Self::Dlq,
            "groups" => Self::Groups,
            "schemas" => Self::Schemas,
            "topics" => Self::Topics,
            "ops.read" => Self::OpsRead,
            "ops" => Self::Ops,
            _ => return None,
        })
    }

    /// Whether a right over this area is also one over `other`.
    pub fn includes(self, other: Self) -> bool {
        self == Self::All || self == other || (self == Self::Ops && other == Self::OpsRead)
    }
}

/// What an action is done to.
#[derive(Debug, Clone, Copy)]
pub enum Resource<'a> {
    /// One topic, and the group that it is read for.
    Topic(&'a Topic, Option<&'a GroupName>),
    /// Every topic of a pattern, also those that are not there yet.
    Pattern(&'a Pattern, Option<&'a GroupName>),
    /// The server as a whole.
    Server,
}
