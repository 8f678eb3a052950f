use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use promethean::Faults;
use promethean_event::GroupName;

/// How often what is to go wrong, by group.
#[derive(Debug, Default)]
pub(crate) struct Knobs {
    left: Mutex<Left>,
}

#[derive(Debug, Default)]
struct Left {
    failures: HashMap<String, u32>,
    lost_acks: HashMap<String, u32>,
}

impl Knobs {
    fn lock(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fail(&self, group: &str, times: u32) {
        self.lock().failures.insert(group.to_owned(), times);
    }

    pub(crate) fn lose_acks(&self, group: &str, times: u32) {
        self.lock().lost_acks.insert(group.to_owned(), times);
    }
}

impl Faults for Knobs {
    fn failure(&self, group: &GroupName) -> Option<String> {
        let is_due = take(&mut self.lock().failures, group);
        is_due.then(|| "failed on purpose".to_owned())
    }

    fn loses_ack(&self, group: &GroupName) -> bool {
        take(&mut self.lock().lost_acks, group)
    }
}

fn take(left: &mut HashMap<String, u32>, group: &GroupName) -> bool {
    match left.get_mut(group.as_str()) {
        Some(times) if *times > 0 => {
            *times -= 1;
            true
        }
        _ => false,
    }
}
