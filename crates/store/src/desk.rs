//! Who writes, and when. Batches queue up for one clerk; while he waits for the disk the next group gathers, so
//! that groups grow by themselves under load. (Two clerks, one writing while the other waits, were no faster and
//! cost a tenth more processor time.) A caller who is alone writes by himself, on his own thread: handing a batch
//! to another thread and back costs as much as writing it. He blocks one worker of the runtime for one sync;
//! others who come meanwhile queue up, and from then on everybody does until somebody is alone again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use crate::batch::Durability;
use crate::error::StoreError;
use crate::tide::Tide;
use crate::writer::{Job, Outcome, Writer};

/// No group is larger, so that nobody's first answer waits for ever behind a flood.
const MOST: usize = 1024;
/// How often the processor is offered in vain before a small group is written after all.
const OFFERS: u32 = 4;

/// What the clerk is told.
#[derive(Debug)]
enum Message {
    /// A batch.
    Write(Request),
    /// Something was committed lazily: look at the clock.
    Watch,
    /// The log wants attention.
    Tidy,
}

/// A batch and who waits for it. The job goes back with the answer: memory is freed by the thread that took
/// it, or the two fight for the allocator's locks.
#[derive(Debug)]
struct Request {
    job: Job,
    answer: oneshot::Sender<(Job, Outcome)>,
}

impl AsMut<Job> for Request {
    fn as_mut(&mut self) -> &mut Job {
        &mut self.job
    }
}

/// The connection that writes, and its writer.
#[derive(Debug)]
struct Pen {
    connection: Connection,
    writer: Writer,
}

/// Where batches are handed in.
#[derive(Debug)]
pub(crate) struct Desk {
    pen: Arc<Mutex<Pen>>,
    tide: Arc<Tide>,
    queue: Sender<Message>,
    state: Arc<State>,
    /// Held by the one who writes by himself, until his batch is on the disk.
    alone: Mutex<()>,
}

/// Who writes for those who queue.
#[derive(Debug)]
pub(crate) struct Clerk {
    pen: Arc<Mutex<Pen>>,
    tide: Arc<Tide>,
    queue: Receiver<Message>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Batches that wait for the clerk.
    queued: AtomicUsize,
    /// How many batches were in the last group.
    last: AtomicUsize,
    /// Whether the clerk looks at the clock.
    watching: AtomicBool,
}

/// A desk and the clerk who works for it.
pub(crate) fn open(connection: Connection, writer: Writer) -> (Desk, Clerk) {
    let (send, receive) = channel();
    let tide = Arc::clone(&writer.tide);
    let pen = Arc::new(Mutex::new(Pen { connection, writer }));
    let state = Arc::new(State::default());
    let clerk =
        Clerk { pen: Arc::clone(&pen), tide: Arc::clone(&tide), queue: receive, state: Arc::clone(&state) };
    (Desk { pen, tide, queue: send, state, alone: Mutex::new(()) }, clerk)
}

impl Desk {
    /// Writes a batch, one way or the other.
    pub(crate) async fn write(&self, job: Job) -> Result<(Job, Outcome), StoreError> {
        let job = match self.alone(job) {
            Ok(done) => return Ok(done),
            Err(job) => job,
        };
        let (answer, answered) = oneshot::channel();
        self.state.queued.fetch_add(1, Ordering::AcqRel);
        self.tell(Message::Write(Request { job, answer }))?;
        answered.await.map_err(|_| StoreError::Closed)
    }

    /// Takes nothing more. What is returned keeps the connection: the last one that is closed deletes the log, which
    /// is still needed while the segments are brought up to date.
    pub(crate) fn close(self) -> impl Sized {
        self.pen
    }

    /// Writes at once if nobody else is here; gives the job back if somebody is.
    fn alone(&self, job: Job) -> Result<(Job, Outcome), Job> {
        let busy =
            || self.state.queued.load(Ordering::Acquire) > 0 || self.state.last.load(Ordering::Acquire) > 1;
        // On a runtime with one thread nobody could even ask for company while we sync.
        let many = Handle::try_current().is_ok_and(|h| h.runtime_flavor() == RuntimeFlavor::MultiThread);
        if !many || busy() {
            return Err(job);
        }
        let (Some(_alone), Some(mut pen)) = (self.alone.try_lock(), self.pen.try_lock()) else {
            return Err(job);
        };
        let Pen { connection, writer } = &mut *pen;
        // Waiting for another process, or saying no, is the clerk's business.
        let refused = self.tide.check().is_err();
        if busy() || refused || !writer.lock.try_acquire().is_ok_and(|taken| taken) {
            return Err(job);
        }
        let mut group = [job];
        let written = writer.serve_locked(connection, &mut group);
        let untidy = writer.is_untidy();
        drop(pen);
        let outcome = written.map(|written| written.settle(&self.tide));
        let outcome = outcome.and_then(|mut all| all.pop().unwrap_or(Err(StoreError::Closed)));
        let [job] = group;
        if job.durability == Durability::Lazy && !self.state.watching.swap(true, Ordering::SeqCst) {
            let _ = self.tell(Message::Watch);
        }
        if untidy {
            let _ = self.tell(Message::Tidy);
        }
        Ok((job, outcome))
    }

    fn tell(&self, message: Message) -> Result<(), StoreError> {
        self.queue.send(message).map_err(|_| StoreError::Closed)
    }
}

impl Clerk {
    /// Works until nobody can hand in anything any more.
    pub(crate) fn run(self) {
        let mut group = Vec::new();
        loop {
            match self.next() {
                Ok(Message::Write(request)) => {
                    group.push(request);
                    self.write(&mut group);
                }
                Ok(Message::Tidy) => self.tidy(),
                Ok(Message::Watch) => {}
                Err(RecvTimeoutError::Timeout) => self.tide.ensure_lazy(),
                Err(RecvTimeoutError::Disconnected) => {
                    self.tide.ensure_all();
                    return;
                }
            }
        }
    }

    /// The next message; a timeout when something lazy is due.
    fn next(&self) -> Result<Message, RecvTimeoutError> {
        // Said before looking: whoever commits lazily afterwards sees it, or is seen.
        self.state.watching.store(false, Ordering::SeqCst);
        match self.tide.due() {
            None => self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(wait) => {
                self.state.watching.store(true, Ordering::SeqCst);
                self.queue.recv_timeout(wait)
            }
        }
    }

    /// Writes what has gathered and answers everybody.
    fn write(&self, group: &mut Vec<Request>) {
        self.gather(group);
        let mut pen = self.pen.lock();
        self.gather(group);
        self.state.queued.fetch_sub(group.len(), Ordering::AcqRel);
        self.state.last.store(group.len(), Ordering::Release);
        let Pen { connection, writer } = &mut *pen;
        let written = writer.serve(connection, group);
        let untidy = writer.is_untidy();
        drop(pen);
        let outcomes = match written {
            Ok(written) => written.settle(&self.tide),
            Err(error) => group.iter().map(|_| Err(error.clone())).collect(),
        };
        for (Request { job, answer }, outcome) in group.drain(..).zip(outcomes) {
            // Nobody may be waiting any more; the batch is written all the same.
            let _ = answer.send((job, outcome));
        }
        if untidy {
            self.tidy();
        }
    }

    fn tidy(&self) {
        let mut pen = self.pen.lock();
        let Pen { connection, writer } = &mut *pen;
        writer.tidy(connection);
    }

    /// Takes what is there. Those who were just answered are likely to ask again: while most of them have not,
    /// the processor is offered to them. No clock is involved.
    fn gather(&self, group: &mut Vec<Request>) {
        let last = self.state.last.load(Ordering::Acquire);
        let mut offers = 0;
        loop {
            let before = group.len();
            let requests = self.queue.try_iter().filter_map(|message| match message {
                Message::Write(request) => Some(request),
                // Both are done after every group anyway.
                Message::Watch | Message::Tidy => None,
            });
            group.extend(requests.take(MOST.saturating_sub(before)));
            offers = if group.len() > before { 0 } else { offers + 1 };
            if group.len() * 4 >= last * 3 || offers > OFFERS {
                return;
            }
            std::thread::yield_now();
        }
    }
}
