//! A disk in memory that fails as real ones do.
//!
//! Every file has two images: the page cache, which readers see, and what is durable. A crash
//! throws the cache away; each 512-byte sector that was not synced then fares on its own: it is
//! kept, lost, or (seldom) damaged. Names have two states as well, and unsynced changes of names
//! survive as a prefix or as any subset ([`NameFate`]). After a failed sync the bytes it should
//! have kept are dropped for ever, although reads still show them.
//!
//! Faults come from an armed [`Fault`]; a disk can also be full ([`SimDisk::set_capacity`]).

mod directory;

mod file;

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use promethean_log::{Disk, DiskFile};

pub use directory::NameFate;
use directory::{Directory, FileNumber};
use file::{FileImage, SectorFate};

use super::fault::{Call, Fault, FaultKind, FaultPlan};
use super::random::Random;

/// How a crash treats what was not synced.
#[derive(Debug, Clone, Copy)]
pub struct CrashStyle {
    /// Per mille of unsynced sectors that reach the disk.
    pub kept: u64,
    /// Per mille of unsynced sectors that arrive damaged.
    pub odd: u64,
    /// Which unsynced names survive.
    pub names: NameFate,
}

impl CrashStyle {
    /// One of the styles, by chance.
    pub fn random(random: &mut Random) -> Self {
        Self {
            kept: *random.pick(&[0, 50, 300, 500, 500, 700, 950, 1000]),
            odd: *random.pick(&[0, 0, 10, 50]),
            names: *random.pick(&[NameFate::Prefix, NameFate::Subset]),
        }
    }
}

/// The bytes of all files by name, as a stopped machine leaves them.
pub type DiskImage = std::collections::BTreeMap<String, Vec<u8>>;

/// The simulated disk; a cheap handle. What the log gets is [`SimDisk::attach`]ed: it dies with
/// the process that had it.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    /// The process that has this handle; `None` for the simulation's own.
    life: Option<u64>,
}

struct State {
    files: Vec<FileImage>,
    directory: Directory,
    plan: FaultPlan,
    random: Random,
    /// Rises with each crash and kill, so that handles from before it are dead.
    life: u64,
    capacity: u64,
    used: u64,
    /// Per mille of writes before which the kernel writes back on its own.
    write_back: u64,
    trace: Option<Vec<String>>,
}

impl SimDisk {
    /// An empty disk whose luck comes from `seed`.
    pub fn new(seed: u64) -> Self {
        Self::from_image(DiskImage::new(), seed)
    }

    /// A disk that holds `image`, all of it durable.
    pub fn from_image(image: DiskImage, seed: u64) -> Self {
        let mut directory = Directory::default();
        let mut files = Vec::new();
        let mut used = 0;
        for (name, bytes) in image {
            directory.link(&name, files.len());
            used += bytes.len() as u64;
            files.push(FileImage::durable(bytes));
        }
        directory.sync();
        let state = State {
            files,
            directory,
            plan: FaultPlan::default(),
            random: Random::new(seed),
            life: 0,
            capacity: u64::MAX,
            used,
            write_back: 0,
            trace: None,
        };
        Self { state: Arc::new(Mutex::new(state)), life: None }
    }

    /// A handle for a process: good until the next crash or kill.
    #[must_use]
    pub fn attach(&self) -> Self {
        let life = self.state().life;
        Self { state: Arc::clone(&self.state), life: Some(life) }
    }

    /// The process dies, the machine does not: handles are dead, what was written is still there.
    pub fn kill(&self) {
        self.state().life += 1;
    }

    /// All files as readers see them now.
    pub fn image(&self) -> DiskImage {
        let state = self.state();
        let entries = state.directory.entries();
        entries.map(|(name, file)| (name.to_owned(), state.files[file].bytes().to_vec())).collect()
    }

    /// Arms a fault, or none, for calls from now on.
    pub fn arm(&self, fault: Option<Fault>) {
        self.state().plan.arm(fault);
    }

    /// The call that the armed fault has hit.
    pub fn fired(&self) -> Option<Call> {
        self.state().plan.fired()
    }

    /// Calls so far, over all kinds.
    pub fn calls(&self) -> u64 {
        self.state().plan.calls
    }

    /// Bytes that fit on the disk in all; more is ENOSPC. Without limit at first.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// Bytes that the files take now.
    pub fn used(&self) -> u64 {
        self.state().used
    }

    /// Per mille of writes before which some dirty sectors reach the disk early. 0 at first.
    pub fn set_write_back(&self, per_mille: u64) {
        self.state().write_back = per_mille;
    }

    /// Turns the power off, if it is still on, and on again: what was not synced fares as `style`
    /// and `seed` say, and handles from before are dead.
    pub fn crash(&self, style: CrashStyle, seed: u64) {
        let mut state = self.state();
        let state = &mut *state;
        state.note(|| format!("CRASH {style:?} seed {seed}"));
        let mut random = Random::new(seed);
        state.directory.crash(style.names, &mut random);
        let fate = SectorFate { kept: style.kept, odd: style.odd };
        state.used = 0;
        let mut linked = vec![false; state.files.len()];
        for (_, number) in state.directory.entries() {
            linked[number] = true;
            state.files[number].crash(fate, &mut random);
            state.used += state.files[number].len() as u64;
        }
        for (file, linked) in state.files.iter_mut().zip(linked) {
            if !linked {
                *file = FileImage::default();
            }
        }
        state.life += 1;
        state.plan.power_off = false;
        state.plan.arm(None);
    }

    /// Whether a fault of kind [`FaultKind::Crash`] has turned the power off.
    pub fn is_off(&self) -> bool {
        self.state().plan.power_off
    }

    /// From now on keeps a line for every call that changes something; see [`Self::trace`].
    pub fn start_trace(&self) {
        self.state().trace = Some(Vec::new());
    }

    /// Adds a line of the simulation's own to the trace, if there is one.
    pub fn note(&self, line: impl FnOnce() -> String) {
        self.state().note(line);
    }

    /// The lines so far.
    pub fn trace(&self) -> Vec<String> {
        self.state().trace.clone().unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, for a call of whoever has this handle.
    fn alive(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state();
        match self.life {
            Some(life) if life != state.life => Err(io::Error::other("this process is dead")),
            _ => Ok(state),
        }
    }

    fn handle(&self, number: FileNumber) -> Arc<dyn DiskFile> {
        Arc::new(SimFile { disk: self.clone(), number })
    }
}

impl State {
    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>5} {}", self.plan.calls, line()));
        }
    }

    /// Counts a call. `Err` if it fails without doing anything.
    fn enter(&mut self, call: Call) -> io::Result<Option<FaultKind>> {
        if self.plan.power_off {
            return Err(FaultKind::Crash.error());
        }
        let fault = self.plan.next(call);
        if let Some(kind) = fault {
            self.note(|| format!("{kind:?} hits {call:?}"));
        }
        match fault {
            Some(FaultKind::Error | FaultKind::NoSpace)
                if matches!(call, Call::SyncData | Call::SyncDir) =>
            {
                Ok(fault)
            }
            Some(kind @ (FaultKind::Error | FaultKind::NoSpace)) => Err(kind.error()),
            other => Ok(other),
        }
    }

    /// For calls that a power cut lets happen or not.
    fn enter_whole(&mut self, call: Call) -> io::Result<()> {
        match self.enter(call)? {
            Some(kind) => Err(kind.error()),
            None => Ok(()),
        }
    }

    fn write(&mut self, number: FileNumber, bytes: &[u8], position: usize) -> io::Result<()> {
        let fault = self.enter(Call::Write)?;
        self.note(|| format!("write file {number} at {position} len {}", bytes.len()));
        if self.write_back > 0 && self.random.chance(self.write_back) {
            let mut random = self.random.fork();
            self.files[number].write_back(&mut random);
        }
        let before = self.files[number].len();
        let growth = (position + bytes.len()).saturating_sub(before) as u64;
        let room = self.capacity.saturating_sub(self.used);
        let full = growth > room;
        let whole = bytes.len();
        let part = match fault {
            None if !full => whole,
            None => whole.saturating_sub((growth - room) as usize),
            Some(_) => self.random.index(whole + 1),
        };
        if part > 0 && !(full && fault.is_some()) {
            self.files[number].write(&bytes[..part], position);
            self.used += (position + part).saturating_sub(before) as u64;
        }
        match fault {
            Some(kind) => Err(kind.error()),
            None if full => Err(FaultKind::NoSpace.error()),
            None => Ok(()),
        }
    }

    fn set_len(&mut self, number: FileNumber, len: usize) -> io::Result<()> {
        self.enter_whole(Call::SetLen)?;
        self.note(|| format!("set_len file {number} to {len}"));
        // A cut or a hole needs no room; the log must not count on it, so a hole takes room here.
        let before = self.files[number].len() as u64;
        let used = self.used - before + len as u64;
        if used > self.capacity && used > self.used {
            return Err(FaultKind::NoSpace.error());
        }
        self.files[number].set_len(len);
        self.used = used;
        Ok(())
    }

    fn sync_data(&mut self, number: FileNumber) -> io::Result<()> {
        let fault = self.enter(Call::SyncData)?;
        self.note(|| format!("sync file {number}"));
        let mut random = self.random.fork();
        match fault {
            None => self.files[number].sync(),
            Some(FaultKind::Crash) => {}
            Some(_) => self.files[number].fail_sync(&mut random),
        }
        fault.map_or(Ok(()), |kind| Err(kind.error()))
    }

    fn released(&mut self, number: Option<FileNumber>) {
        if let Some(number) = number {
            self.used -= self.files[number].len() as u64;
        }
    }
}

impl Disk for SimDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.alive()?;
        state.enter_whole(Call::Create)?;
        if state.directory.find(name).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let number = state.files.len();
        state.note(|| format!("create {name} as file {number}"));
        state.files.push(FileImage::default());
        state.directory.link(name, number);
        Ok(self.handle(number))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.alive()?;
        state.enter_whole(Call::Open)?;
        let number = state.directory.find(name).ok_or(io::ErrorKind::NotFound)?;
        state.note(|| format!("open {name} as file {number}"));
        Ok(self.handle(number))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.alive()?;
        let fault = state.enter(Call::Rename)?;
        if state.directory.find(from).is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        if fault.is_none() || state.random.chance(500) {
            state.note(|| format!("rename {from} to {to}"));
            let replaced = state.directory.rename(from, to);
            state.released(replaced);
        }
        fault.map_or(Ok(()), |kind| Err(kind.error()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.alive()?;
        state.enter_whole(Call::Remove)?;
        state.note(|| format!("remove {name}"));
        let number = state.directory.unlink(name).ok_or(io::ErrorKind::NotFound)?;
        state.released(Some(number));
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.alive()?;
        state.enter_whole(Call::List)?;
        Ok(state.directory.entries().map(|(name, _)| name.to_owned()).collect())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.alive()?;
        let fault = state.enter(Call::SyncDir)?;
        state.note(|| "sync_dir".to_owned());
        let mut random = state.random.fork();
        match fault {
            None => state.directory.sync(),
            Some(FaultKind::Crash) => {}
            Some(_) => state.directory.fail_sync(&mut random),
        }
        fault.map_or(Ok(()), |kind| Err(kind.error()))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let mut state = self.alive()?;
        state.enter_whole(Call::FreeBytes)?;
        Ok(state.capacity.saturating_sub(state.used))
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let entries = state.directory.entries();
        f.debug_map().entries(entries.map(|(name, file)| (name, state.files[file].len()))).finish()
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    number: FileNumber,
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut state = self.disk.alive()?;
        state.enter_whole(Call::Read)?;
        Ok(state.files[self.number].read(buffer, position as usize))
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.disk.alive()?.write(self.number, bytes, position as usize)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.alive()?.sync_data(self.number)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.alive()?.set_len(self.number, len as usize)
    }

    fn len(&self) -> io::Result<u64> {
        let mut state = self.disk.alive()?;
        state.enter_whole(Call::Len)?;
        Ok(state.files[self.number].len() as u64)
    }
}
