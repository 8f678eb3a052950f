use std::sync::Arc;

use promethean_event::Event;

use super::mapping::{Change, Mapping, Unmapped};
use crate::decode::Want;
use crate::registry::Registry;

/// A mapping that sees events in the form of one version, whichever they were written by.
#[derive(Debug)]
pub(crate) struct Upcast {
    pub(crate) inner: Arc<dyn Mapping>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) version: u32,
}

impl Mapping for Upcast {
    fn change(&self, event: &Event) -> Result<Change, Unmapped> {
        let decoded = self.registry.decode(event.clone(), Want::Version(self.version));
        self.inner.change(&decoded.map_err(|error| Unmapped::Unfit(error.to_string()))?)
    }

    fn keeps_key(&self) -> bool {
        self.inner.keeps_key()
    }

    fn has_versions(&self) -> bool {
        self.inner.has_versions()
    }

    fn reads(&self) -> Option<u32> {
        Some(self.version)
    }

    fn fingerprint(&self) -> String {
        format!("reads {}\n{}", self.version, self.inner.fingerprint())
    }
}
