//! Time that is told, for tests of others: an hour is over when somebody says so. Everything runs
//! on one thread, whose clock stands still in between.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

/// Time goes by in so many steps at most, and in none that is shorter than the second: what
/// becomes due happens near its own time, before what it leads to.
const STEPS_MAX: u32 = 10_000;
const STEP_MIN: Duration = Duration::from_millis(100);
/// How often others have a turn in between.
const TURNS: u32 = 32;
/// Lines that wait.
const LINES_MAX: usize = 16;

/// The real clock goes on again; nobody tells the time any more.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Runs something by a clock that stands still until a line on standard input moves it.
pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    let done = runtime.block_on(async {
        // A clock that is paused jumps as soon as all tasks wait, unless a thread is at work: this
        // one is, to the end.
        let (end, ended) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || ended.recv().is_ok());
        let told = tokio::spawn(listen());
        let done = work.await;
        told.abort();
        drop(end);
        done
    });
    runtime.shutdown_background();
    done
}

/// From here on time is real, so that whatever stops has an end.
pub(crate) fn end() {
    if !IS_OVER.swap(true, Ordering::Relaxed) {
        tokio::time::resume();
    }
}

async fn listen() {
    let (sender, mut lines) = mpsc::channel(LINES_MAX);
    std::thread::spawn(move || {
        let read = std::io::stdin().lock().lines().map_while(Result::ok);
        for line in read {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = lines.recv().await {
        let millis = line.strip_prefix("advance ").and_then(|millis| millis.trim().parse().ok());
        let said = match millis {
            Some(millis) => {
                advance(Duration::from_millis(millis)).await;
                format!("advanced {millis}")
            }
            None => "say: advance MILLISECONDS".to_owned(),
        };
        // Whoever does not listen does not want to know.
        let _ = writeln!(std::io::stdout(), "{said}");
    }
}

async fn advance(time: Duration) {
    let step = (time / STEPS_MAX).max(STEP_MIN);
    let mut left = time;
    while !left.is_zero() && !IS_OVER.load(Ordering::Relaxed) {
        let now = left.min(step);
        tokio::time::advance(now).await;
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        left -= now;
    }
}
