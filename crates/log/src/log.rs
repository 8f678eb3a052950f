use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};

use promethean_event::{EventId, Key, NewEvent, Offset, Partition, Pattern, Seq, Timestamp, Topic};

use crate::batch::{Append, Appended, Batch, BatchSize, Part, Wish, WrittenBy};
use crate::catalog::{LaneState, Names};
use crate::cleaner::{self, Holds};
use crate::disk::{Disk, RealDisk};
use crate::engine::{Engine, Segment};
use crate::error::{AppendError, OpenError, ReadError};
use crate::keys::KeyReader;
use crate::limits::{GATHERED_BYTES_MAX, QUICK_BYTES_MAX, QUICK_SYNC};
use crate::lock::DirectoryLock;
use crate::options::{Drive, Options};
use crate::queue::{AppendTickets, Call, Request};
use crate::read::{LaneReader, MergedReader, Page, PageLimit};
use crate::recovery::{self, OpenReport};
use crate::roll::Pace;
use crate::segment::Record;
use crate::ticket::{Answers, RunTicket, Ticket, Tickets};
use crate::topic::{Lane, TopicDefinition, TopicId};
use crate::upkeep::{self, SharedWriter};
use crate::writer::Writer;

/// An open log. A cheap handle: clones share one log, which closes with [`Log::close`] or with the
/// last of them.
#[derive(Clone)]
pub struct Log {
    pub(crate) engine: Arc<Engine>,
    running: Arc<Running>,
}

type AppendRunTicket = RunTicket<Result<Appended, AppendError>>;

/// What runs the log, stopped when the last handle goes.
struct Running {
    engine: Arc<Engine>,
    writer: SharedWriter,
    threads: Mutex<Vec<JoinHandle<()>>>,
    lock: Mutex<Option<DirectoryLock>>,
}

impl Log {
    /// Opens the log in a directory, making it if it is not there. Only one process can.
    pub fn open_dir(path: &Path, options: Options) -> Result<(Self, OpenReport), OpenError> {
        let disk = RealDisk::open(path)?;
        let lock = DirectoryLock::take(path)?;
        Self::start(Arc::new(disk), options, Some(lock))
    }

    /// Opens the log on a disk that nobody else uses.
    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<(Self, OpenReport), OpenError> {
        Self::start(disk, options, None)
    }

    fn start(
        disk: Arc<dyn Disk>,
        options: Options,
        lock: Option<DirectoryLock>,
    ) -> Result<(Self, OpenReport), OpenError> {
        options.check().map_err(OpenError::Options)?;
        #[cfg(feature = "planted-bugs")]
        crate::planted::apply(&options);
        let drive = options.drive;
        let (engine, segment, report) = recovery::open(disk, options)?;
        let engine = Arc::new(engine);
        let writer = Writer::new(Arc::clone(&engine), segment);
        let writer = Arc::new(Mutex::new(Some(writer)));
        let threads = match drive {
            Drive::Caller => Vec::new(),
            Drive::Threads => upkeep::spawn(&engine, &writer)?,
        };
        let running = Running {
            engine: Arc::clone(&engine),
            writer,
            threads: Mutex::new(threads),
            lock: Mutex::new(lock),
        };
        Ok((Self { engine, running: Arc::new(running) }, report))
    }

    /// Defines a topic, or changes how it is cleaned. The same definition again changes nothing.
    pub fn define(&self, definition: TopicDefinition) -> Ticket<Result<TopicId, AppendError>> {
        let (ticket, answer) = Ticket::new();
        self.engine.queue.push(Request::Define { definition, answer });
        ticket
    }

    /// Removes a topic with all its events. Its name may be defined anew.
    pub fn remove(&self, topic: TopicId) -> Ticket<Result<(), AppendError>> {
        let (ticket, answer) = Ticket::new();
        self.engine.queue.push(Request::Remove { topic, answer });
        ticket
    }

    /// Appends events: all of them or none. Encoded here; the writer only gives them their places.
    pub fn append(&self, append: &Append) -> Ticket<Result<Appended, AppendError>> {
        self.hand_over(append, None, Call::Now)
    }

    /// Appends events and waits for the answer. Written by the calling thread, if nobody else is
    /// writing: one event after the other, that takes half of the time that it takes to be woken for
    /// each. Others may come along.
    pub fn append_here(&self, append: &Append) -> Result<Appended, AppendError> {
        let ticket = self.hand_over(append, None, Call::Later);
        match self.engine.site.options.drive {
            Drive::Threads => self.write_here(usize::MAX),
            Drive::Caller => drop(self.commit_waiting()),
        }
        ticket.wait()
    }

    /// Gives up everything of these lanes before an offset: it is not read any more, and the
    /// cleaner removes it. What is still to come is kept, also if the offset lies beyond the end.
    pub fn trim(&self, starts: Vec<(Lane, Offset)>) -> Ticket<Result<(), AppendError>> {
        let (ticket, answer) = Ticket::new();
        self.engine.queue.push(Request::Trim { starts, answer });
        ticket
    }

    /// Appends events that were taken at an earlier time, elsewhere: they are to have that time here.
    /// Append times never go back, so what has a later one must not be in the log yet; neither must
    /// the log's own clock be beyond it. They share no frame with others.
    pub fn append_at(
        &self,
        append: &Append,
        taken_at: Timestamp,
    ) -> Ticket<Result<Appended, AppendError>> {
        self.hand_over(append, Some(taken_at), Call::Now)
    }

    /// Appends that came together, part after part of the events: each is all or none and answered
    /// for itself, and they stand in this order. The writer is woken when all of them wait for it, so
    /// that they share its work; or they are written, and answered, before this returns
    /// ([`WrittenBy::CallerIfQuick`]).
    pub fn append_run(
        &self,
        events: &[NewEvent],
        parts: &[Part],
        by: WrittenBy,
    ) -> RunTicket<Result<Appended, AppendError>> {
        let mut run = RunTicket::with_capacity(parts.len());
        let mut rest = events;
        let names = self.engine.names();
        Batch::gather(|small| {
            for part in parts {
                let (events, after) = rest.split_at(part.events.min(rest.len()));
                rest = after;
                let wish = Wish { events, durability: part.durability, expect: &part.expect };
                self.gather(small, (wish, &names), &mut run);
            }
            self.share(small, &mut run);
        });
        drop(names);
        let quick = self.engine.sync_times.are_within(QUICK_SYNC);
        match (by, self.engine.site.options.drive) {
            (WrittenBy::CallerIfQuick, Drive::Threads) if quick => self.write_here(QUICK_BYTES_MAX),
            _ => self.engine.queue.call_writer(),
        }
        run
    }

    /// Adds one of a run to those that are gathered; to the queue, behind them, if it has to go alone.
    fn gather(
        &self,
        small: &mut Batch,
        (wish, names): (Wish<'_>, &Names),
        run: &mut AppendRunTicket,
    ) {
        let size = BatchSize::of(wish);
        let refused = match size {
            Ok(size) if wish.is_small(size) => {
                if small.bytes.len() + size.bytes > GATHERED_BYTES_MAX || !small.is_like(wish) {
                    self.share(small, run);
                }
                match small.fill(wish, names) {
                    Ok(()) => return,
                    Err(error) => Err(error),
                }
            }
            Ok(size) => {
                self.share(small, run);
                self.encoded_alone((wish, names), size, None, Call::Later)
            }
            Err(error) => Err(error),
        };
        self.share(small, run);
        run.add(refused.unwrap_or_else(|error| Tickets::answered(vec![Err(error)])));
    }

    /// Hands over what was gathered.
    fn share(&self, small: &mut Batch, run: &mut AppendRunTicket) {
        if !small.parts.is_empty() {
            run.add(self.engine.queue.push_small(small, Call::Later));
            small.begin();
        }
    }

    fn write_here(&self, bytes_max: usize) {
        upkeep::write_here(&self.engine, &self.running.writer, bytes_max);
    }

    fn hand_over(
        &self,
        append: &Append,
        taken_at: Option<Timestamp>,
        call: Call,
    ) -> Ticket<Result<Appended, AppendError>> {
        let handed = self.encoded(append.into(), taken_at, call);
        handed.map_or_else(|error| Ticket::answered(Err(error)), Tickets::one)
    }

    fn encoded(
        &self,
        wish: Wish<'_>,
        taken_at: Option<Timestamp>,
        call: Call,
    ) -> Result<AppendTickets, AppendError> {
        let size = BatchSize::of(wish)?;
        let names = self.engine.names();
        if taken_at.is_none() && wish.is_small(size) {
            return Batch::gather(|small| {
                small.fill(wish, &names)?;
                Ok(self.engine.queue.push_small(small, call))
            });
        }
        self.encoded_alone((wish, &names), size, taken_at, call)
    }

    fn encoded_alone(
        &self,
        (wish, names): (Wish<'_>, &Names),
        size: BatchSize,
        taken_at: Option<Timestamp>,
        call: Call,
    ) -> Result<AppendTickets, AppendError> {
        let engine = &self.engine;
        let batch = Batch::encode(wish, size, (names, &engine.memory))?;
        let mut answers = Answers::with_capacity(1);
        let tickets = answers.tickets(1);
        engine.queue.add(Request::Append { batch: Batch { taken_at, ..batch }, answers }, call);
        Ok(tickets)
    }

    /// Says where lanes start and go on, further on than they do: the offsets between are left out,
    /// as if compaction had taken what was there. Written, and durable with the next sync.
    pub fn place(&self, lanes: Vec<(Lane, LaneState)>) -> Ticket<Result<(), AppendError>> {
        let (ticket, answer) = Ticket::new();
        self.engine.queue.push(Request::Place { lanes, answer });
        ticket
    }

    /// Makes everything durable that was appended so far, whatever durability was asked for.
    pub fn sync(&self) -> Ticket<Result<(), AppendError>> {
        let (ticket, answer) = Ticket::new();
        self.engine.queue.push(Request::Sync { answer });
        ticket
    }

    /// Serves what is waiting, where the caller drives the log ([`Drive::Caller`]). Gives the
    /// number of requests.
    pub fn commit_waiting(&self) -> usize {
        if self.engine.site.options.drive != Drive::Caller {
            return 0;
        }
        let served = self.write_waiting();
        if let Some(writer) = self.running.writer().as_mut() {
            writer.drain();
            writer.mark();
        }
        served
    }

    /// Writes what is waiting, where the caller drives the log, and leaves the sync to
    /// [`Log::commit_waiting`]: with threads, that is how far a frame gets while the one before it is
    /// being synced. Nobody is answered before.
    pub fn write_waiting(&self) -> usize {
        if self.engine.site.options.drive != Drive::Caller {
            return 0;
        }
        let mut served = 0;
        let mut writer = self.running.writer();
        let Some(writer) = writer.as_mut() else {
            return 0;
        };
        loop {
            let requests = self.engine.queue.take();
            if requests.is_empty() {
                return served;
            }
            served += requests.len();
            writer.begin_only(requests);
        }
    }

    /// One round of upkeep, where the caller drives the log: spare files, side files.
    pub fn maintain(&self) -> Result<(), ReadError> {
        upkeep::round(&self.engine)
    }

    /// Removes what may go, by the topics' rules, except what `holds` keeps. Gives the number of
    /// segments that were written again or removed. Reads and writes go on meanwhile.
    pub fn clean(&self, holds: &Holds) -> Result<usize, cleaner::CleanError> {
        cleaner::clean(self, &self.engine, holds)
    }

    /// The segments that nobody writes any more, oldest first.
    pub(crate) fn sealed(&self) -> Vec<Arc<Segment>> {
        self.engine.read().sealed.clone()
    }

    /// The number of a topic.
    pub fn topic_id(&self, topic: &Topic) -> Option<TopicId> {
        self.engine.read().catalog.id(topic)
    }

    /// What a topic is.
    pub fn definition(&self, topic: TopicId) -> Option<TopicDefinition> {
        self.engine.read().catalog.live(topic).map(|state| state.definition.clone())
    }

    /// All topics.
    pub fn topics(&self) -> Vec<(TopicId, TopicDefinition)> {
        let state = self.engine.read();
        state.catalog.live_topics().map(|(id, topic)| (id, topic.definition.clone())).collect()
    }

    /// The lanes of all topics that a pattern matches.
    pub fn lanes(&self, pattern: &Pattern) -> Vec<Lane> {
        let state = self.engine.read();
        let topics = state.catalog.live_topics();
        let matching = topics.filter(|(_, topic)| pattern.matches(&topic.definition.topic));
        let lanes = matching.flat_map(|(id, topic)| {
            let partitions = topic.definition.partitions.partitions();
            partitions.map(move |partition: Partition| Lane { topic: id, partition })
        });
        lanes.collect()
    }

    /// Where a lane starts and ends.
    pub fn lane(&self, lane: Lane) -> Option<LaneState> {
        self.engine.read().catalog.lane(lane)
    }

    /// The seq that the next event will get.
    pub fn next_seq(&self) -> Seq {
        Seq::new(self.engine.read().next_seq)
    }

    /// Reads a lane from an offset on.
    pub fn read(&self, lane: Lane, from: Offset) -> Result<LaneReader, ReadError> {
        LaneReader::new(Arc::clone(&self.engine), lane, from)
    }

    /// Reads several lanes from a seq on, in the order in which their events were appended.
    pub fn read_merged(
        &self,
        lanes: impl IntoIterator<Item = Lane>,
        from: Seq,
    ) -> Result<MergedReader, ReadError> {
        MergedReader::new(&self.engine, lanes, from)
    }

    /// Events of a lane before an offset, newest first.
    pub fn page_before(
        &self,
        lane: Lane,
        before: Offset,
        limit: PageLimit,
    ) -> Result<Page, ReadError> {
        self.engine.page_before(lane, before.get(), limit)
    }

    /// The event with an id.
    pub fn find(&self, topic: TopicId, id: &EventId) -> Result<Option<Record>, ReadError> {
        self.engine.find_id(topic, id)
    }

    /// The newest event of a key; a tombstone if the key is gone.
    pub fn latest(&self, topic: TopicId, key: &Key) -> Result<Option<Record>, ReadError> {
        self.engine.latest(topic, key.as_str())
    }

    /// The newest events of several keys, in the order given; `None` for a key that never was.
    pub fn latest_many<'a>(
        &self,
        topic: TopicId,
        keys: impl IntoIterator<Item = &'a Key>,
    ) -> Result<Vec<Option<Record>>, ReadError> {
        keys.into_iter().map(|key| self.latest(topic, key)).collect()
    }

    /// The newest `max` events of a key, newest first.
    pub fn history(&self, topic: TopicId, key: &Key, max: usize) -> Result<Vec<Record>, ReadError> {
        self.engine.history_of(topic, key.as_str(), max)
    }

    /// All keys of a topic that begin with `prefix`, in order, each with its newest event.
    pub fn keys(&self, topic: TopicId, prefix: &str) -> KeyReader {
        KeyReader::new(Arc::clone(&self.engine), topic, prefix)
    }

    /// The first offset of a lane that was appended at or after a time; the end if there is none.
    pub fn offset_at(&self, lane: Lane, time: Timestamp) -> Result<Offset, ReadError> {
        self.engine.offset_at_ms(lane, time.millis()).map(Offset::new)
    }

    /// Completes when the log has grown beyond a seq, or is closed.
    pub fn grown_beyond(&self, seq: Seq) -> Grown {
        Grown { engine: Arc::clone(&self.engine), seq: seq.get() }
    }

    /// Why the log takes no more writes, if it does not.
    pub fn failure(&self) -> Option<String> {
        self.engine.failure().map(str::to_owned)
    }

    /// Reads that went to the disk rather than to the tail in memory.
    pub fn disk_reads(&self) -> u64 {
        self.engine.disk_reads.load(Ordering::Relaxed)
    }

    /// Bytes of all segments, without side files and spares.
    pub fn bytes(&self) -> u64 {
        self.engine.read().bytes()
    }

    /// Waits until every sealed segment has its side file, and spare files are ready. For tests and
    /// measurements.
    pub fn settle(&self) -> Result<(), ReadError> {
        upkeep::index_sealed(&self.engine)?;
        upkeep::fill_spares(&self.engine, Pace::AtOnce)?;
        Ok(())
    }

    /// Serves what is waiting, syncs, and stops. Further requests are refused; reading goes on.
    pub fn close(&self) {
        self.running.stop();
    }
}

impl Running {
    fn writer(&self) -> MutexGuard<'_, Option<Writer>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        self.engine.queue.close();
        self.engine.site.upkeep.stop();
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A thread that panicked has left word of it as a failure already.
            drop(thread.join());
        }
        let writer = self.writer().take();
        if let Some(mut writer) = writer {
            let requests = self.engine.queue.take();
            writer.commit(requests);
            writer.close();
        }
        // It refuses to begin anything more; but what it renames and removes must not be another
        // process's by then.
        let cleaned = self.engine.cleaning();
        // What fails here is done when the log is opened again.
        drop(upkeep::index_sealed(&self.engine));
        for spare in self.engine.site.upkeep.take_all() {
            // What is left over is found and used when the log is opened again.
            drop(self.engine.site.disk.remove(&spare.name));
        }
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
        drop(cleaned);
        self.engine.waiting.wake_all();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("next_seq", &self.next_seq()).finish_non_exhaustive()
    }
}

/// See [`Log::grown_beyond`]. Costs nothing while it waits.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Grown {
    engine: Arc<Engine>,
    seq: u64,
}

impl Grown {
    /// Blocks until it is so.
    pub fn wait(mut self) {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        while Pin::new(&mut self).poll(&mut context).is_pending() {
            thread::park();
        }
    }
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Future for Grown {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let done = || self.engine.read().next_seq > self.seq || self.engine.site.upkeep.stopping();
        if done() {
            return Poll::Ready(());
        }
        self.engine.waiting.add(context.waker());
        // It may have grown between the look and the word.
        if done() { Poll::Ready(()) } else { Poll::Pending }
    }
}
