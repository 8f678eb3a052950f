use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

/// The answer to a request, once it is there: wait for it, or await it.
#[derive(Debug)]
#[must_use = "an answer that nobody waits for may be an error"]
pub struct Ticket<T> {
    desk: Arc<Desk<T>>,
    place: usize,
}

/// Tickets whose numbers follow each other.
#[derive(Debug)]
pub(crate) struct Tickets<T> {
    desk: Arc<Desk<T>>,
    places: Range<usize>,
}

/// The answers to requests that came together, in their order, once all are there.
#[derive(Debug)]
#[must_use = "an answer that nobody waits for may be an error"]
pub struct RunTicket<T> {
    waiting: VecDeque<Tickets<T>>,
    answers: Vec<T>,
}

/// The other side of tickets. Those whose answers come together share one: it costs each of them a
/// place in a list, instead of memory that one thread takes and another gives back.
#[derive(Debug)]
pub(crate) struct Answers<T> {
    desk: Arc<Desk<T>>,
    tickets: usize,
}

#[derive(Debug)]
struct Desk<T> {
    slots: Mutex<Slots<T>>,
    ready: Condvar,
}

/// Made when somebody first looks for an answer or gives one, so that a ticket costs nothing but its
/// number while publishers wait for the one who takes it.
#[derive(Debug)]
struct Slots<T>(Vec<Slot<T>>);

#[derive(Debug)]
enum Slot<T> {
    Waiting(Waiter),
    Ready(T),
    Taken,
}

/// Who is to be told of the answer. To tell a thread takes a system call, so that it is not done on
/// suspicion.
#[derive(Debug)]
enum Waiter {
    Nobody,
    Task(Waker),
    Thread,
}

impl<T> Desk<T> {
    fn lock(&self) -> MutexGuard<'_, Slots<T>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Slots<T> {
    fn of(&mut self, place: usize) -> &mut Slot<T> {
        if self.0.len() <= place {
            self.0.resize_with(place + 1, || Slot::Waiting(Waiter::Nobody));
        }
        let Some(slot) = self.0.get_mut(place) else { unreachable!("there is one now") };
        slot
    }
}

impl<T> Ticket<T> {
    pub(crate) fn new() -> (Self, Answers<T>) {
        let mut answers = Answers::with_capacity(1);
        (answers.ticket(), answers)
    }

    /// A ticket that is answered already.
    pub(crate) fn answered(value: T) -> Self {
        let (ticket, answers) = Self::new();
        answers.give(value);
        ticket
    }

    /// The answer, if it is there.
    pub fn try_take(&self) -> Option<T> {
        self.desk.lock().of(self.place).take()
    }

    /// Blocks until the answer is there. The log answers every ticket, at the latest when it
    /// closes.
    pub fn wait(self) -> T {
        let mut slots = self.desk.lock();
        loop {
            let slot = slots.of(self.place);
            if let Some(value) = slot.take() {
                return value;
            }
            *slot = Slot::Waiting(Waiter::Thread);
            slots = self.desk.ready.wait(slots).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Slot<T> {
    /// Whom to tell when it is answered.
    fn tell(&mut self, context: &Context<'_>) {
        if let Self::Waiting(waiter) = self {
            match waiter {
                Waiter::Task(waker) => waker.clone_from(context.waker()),
                other => *other = Waiter::Task(context.waker().clone()),
            }
        }
    }

    fn take(&mut self) -> Option<T> {
        if !matches!(self, Self::Ready(_)) {
            return None;
        }
        match std::mem::replace(self, Self::Taken) {
            Self::Ready(value) => Some(value),
            Self::Waiting(_) | Self::Taken => None,
        }
    }
}

impl<T> Future for Ticket<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut slots = self.desk.lock();
        let slot = slots.of(self.place);
        if let Some(value) = slot.take() {
            return Poll::Ready(value);
        }
        slot.tell(context);
        Poll::Pending
    }
}

impl<T> Tickets<T> {
    /// Tickets that are answered already.
    pub(crate) fn answered(values: Vec<T>) -> Self {
        let places = 0..values.len();
        let slots = values.into_iter().map(Slot::Ready).collect();
        Self {
            desk: Arc::new(Desk { slots: Mutex::new(Slots(slots)), ready: Condvar::new() }),
            places,
        }
    }

    /// The only one of them.
    pub(crate) fn one(self) -> Ticket<T> {
        Ticket { desk: self.desk, place: self.places.start }
    }

    /// Takes the answers that are there, up to the first that is not.
    fn take(&mut self, answers: &mut Vec<T>, context: &Context<'_>) -> Poll<()> {
        let mut slots = self.desk.lock();
        while !self.places.is_empty() {
            let slot = slots.of(self.places.start);
            let Some(value) = slot.take() else {
                slot.tell(context);
                return Poll::Pending;
            };
            answers.push(value);
            self.places.start += 1;
        }
        Poll::Ready(())
    }
}

impl<T> RunTicket<T> {
    /// Of so many requests, at most.
    pub(crate) fn with_capacity(requests: usize) -> Self {
        Self { waiting: VecDeque::new(), answers: Vec::with_capacity(requests) }
    }

    /// Adds tickets behind those that are there.
    pub(crate) fn add(&mut self, tickets: Tickets<T>) {
        self.waiting.push_back(tickets);
    }
}

impl<T: Unpin> Future for RunTicket<T> {
    type Output = Vec<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Vec<T>> {
        let Self { waiting, answers } = self.get_mut();
        while let Some(first) = waiting.front_mut() {
            ready!(first.take(answers, context));
            waiting.pop_front();
        }
        Poll::Ready(std::mem::take(answers))
    }
}

impl<T> Answers<T> {
    pub(crate) fn with_capacity(tickets: usize) -> Self {
        let slots = Mutex::new(Slots(Vec::with_capacity(tickets)));
        Self { desk: Arc::new(Desk { slots, ready: Condvar::new() }), tickets: 0 }
    }

    /// One more ticket, numbered from 0.
    pub(crate) fn ticket(&mut self) -> Ticket<T> {
        self.tickets(1).one()
    }

    /// So many more.
    pub(crate) fn tickets(&mut self, count: usize) -> Tickets<T> {
        let begin = self.tickets;
        self.tickets += count;
        Tickets { desk: Arc::clone(&self.desk), places: begin..self.tickets }
    }

    /// Answers the only ticket.
    pub(crate) fn give(self, value: T) {
        let mut value = Some(value);
        self.give_each(|_| value.take());
    }

    /// Answers one ticket.
    pub(crate) fn give_one(&self, place: usize, value: T) {
        let mut value = Some(value);
        self.give_each(|of| if of == place { value.take() } else { None });
    }

    /// Answers the tickets that there is a value for. Each is answered once.
    pub(crate) fn give_each(&self, mut value: impl FnMut(usize) -> Option<T>) {
        let mut slots = self.desk.lock();
        let mut tasks = Vec::with_capacity(self.tickets);
        let mut threads = false;
        for place in 0..self.tickets {
            let slot = slots.of(place);
            let Slot::Waiting(waiter) = slot else { continue };
            let Some(value) = value(place) else { continue };
            match std::mem::replace(waiter, Waiter::Nobody) {
                Waiter::Task(waker) => tasks.push(waker),
                Waiter::Thread => threads = true,
                Waiter::Nobody => {}
            }
            *slot = Slot::Ready(value);
        }
        // First, so that nobody who is woken has to wait for this lock.
        drop(slots);
        if threads {
            self.desk.ready.notify_all();
        }
        tasks.into_iter().for_each(Waker::wake);
    }
}
