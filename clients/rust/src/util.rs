//! What has no better place: random numbers, times and texts.

use std::cell::Cell;
use std::error::Error as StdError;
use std::fmt::Write;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// Locks a mutex: nothing of this crate panics while it holds one.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A random number (splitmix64), whose seed for each thread is that of the standard library's hash maps.
pub(crate) fn random() -> u64 {
    thread_local!(static STATE: Cell<u64> = Cell::new(RandomState::new().build_hasher().finish()));
    STATE.with(|state| {
        state.set(state.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mut z = state.get();
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// A random number below n.
pub(crate) fn below(n: usize) -> usize {
    (random() % n as u64) as usize
}

fn between(d: Duration, from: f64, to: f64) -> Duration {
    d.mul_f64(from + (to - from) * (random() >> 11) as f64 / (1u64 << 53) as f64)
}

/// 80 % to 100 % of d: clients that got their batches at the same time get the next ones at different times.
pub(crate) fn spread(d: Duration) -> Duration {
    between(d, 0.8, 1.0)
}

/// d ± 20 %.
pub(crate) fn jitter(d: Duration) -> Duration {
    between(d, 0.8, 1.2)
}

pub(crate) fn shuffle<T>(items: &mut [T]) {
    for i in (1..items.len()).rev() {
        items.swap(i, below(i + 1));
    }
}

/// A text as a part of a URL.
pub(crate) fn encode(text: impl AsRef<[u8]>) -> String {
    let mut encoded = String::new();
    for &byte in text.as_ref() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
            _ => _ = write!(encoded, "%{byte:02X}"),
        }
    }
    encoded
}

/// A duration as lbd reads it.
pub(crate) fn milliseconds(d: Duration) -> String {
    format!("{}ms", d.as_millis())
}

/// An error with its causes, each of them once.
pub(crate) fn causes(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    for cause in chain(error).skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            _ = write!(text, ": {cause}");
        }
    }
    text
}

/// An error, its cause, and so on.
pub(crate) fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// What a future yields, or None if it does not until the deadline.
pub(crate) async fn within<T>(deadline: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline.into(), future).await.ok(),
        None => Some(future.await),
    }
}

pub(crate) fn expired(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// HOSTNAME/PID.
pub(crate) fn process() -> String {
    let host =
        std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME").map_err(drop));
    let host = host.unwrap_or_else(|()| "unknown".into());
    format!("{}/{}", host.trim().chars().take(100).collect::<String>(), std::process::id())
}
