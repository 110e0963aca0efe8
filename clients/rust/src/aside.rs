//! Addresses that are set aside, and how long connects take.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::util::{jitter, lock};

const FIRST_ASIDE: Duration = Duration::from_secs(1);
const MAX_ASIDE: Duration = Duration::from_secs(10);
/// Ends in a row without an answer that set an address aside.
const UNKNOWN_ENDS: u32 = 3;
/// The time after which an address is forgotten, in modes without a batch.
const FORGET_ASIDE: Duration = Duration::from_secs(300);

/// The addresses of a cluster to which tries have failed.
#[derive(Default)]
pub(crate) struct Asides {
    /// Whether there are any, so that requests need no lock.
    some: AtomicBool,
    addresses: Mutex<HashMap<String, Aside>>,
}

/// It is set aside if the pause is not 0.
struct Aside {
    unknown: u32,
    pause: Duration,
    until: Instant,
    trial: bool,
}

impl Asides {
    /// Whether requests avoid an address. When the time is over for which it is set aside, this permits one request: the
    /// trial.
    pub(crate) fn avoids(&self, address: &str, at: Instant) -> bool {
        if !self.some.load(Ordering::Relaxed) {
            return false;
        }
        match lock(&self.addresses).get_mut(address) {
            Some(known) if !known.pause.is_zero() => {
                if at < known.until {
                    return true;
                }
                known.trial = true;
                known.until = at + MAX_ASIDE; // the next one if this never ends
                false
            }
            _ => false,
        }
    }

    /// The addresses that requests avoid, in order.
    pub(crate) fn avoided(&self) -> Vec<String> {
        if !self.some.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let at = Instant::now();
        let mut known = lock(&self.addresses);
        known.retain(|_, aside| at < aside.until + FORGET_ASIDE);
        self.some.store(!known.is_empty(), Ordering::Relaxed);
        let avoided = known.iter().filter(|(_, aside)| !aside.pause.is_zero() && at < aside.until);
        let mut avoided: Vec<String> = avoided.map(|(address, _)| address.clone()).collect();
        avoided.sort_unstable();
        avoided
    }

    /// Remembers a try that was not sent, or that was sent without an answer. `most` addresses may be set aside.
    pub(crate) fn failed(&self, address: &str, sent: bool, most: usize) {
        let mut addresses = lock(&self.addresses);
        let set_aside = addresses.values().filter(|aside| !aside.pause.is_zero()).count();
        let known = addresses.entry(address.into()).or_insert_with(|| Aside {
            unknown: 0,
            pause: Duration::ZERO,
            until: Instant::now(),
            trial: false,
        });
        self.some.store(true, Ordering::Relaxed);
        if sent {
            known.unknown += 1;
            if known.unknown < UNKNOWN_ENDS {
                if known.trial {
                    (known.pause, known.trial) = (Duration::ZERO, false); // it was connected
                }
                return;
            }
        }
        if known.pause.is_zero() && set_aside < most {
            known.pause = FIRST_ASIDE;
        } else if known.trial {
            known.pause = MAX_ASIDE.min(2 * known.pause);
        } else {
            return; // a request that began before
        }
        known.trial = false;
        known.until = Instant::now() + jitter(known.pause);
    }

    /// Keeps the addresses for which `keep` is true.
    pub(crate) fn retain(&self, keep: impl Fn(&str) -> bool) {
        if self.some.load(Ordering::Relaxed) {
            let mut addresses = lock(&self.addresses);
            addresses.retain(|address, _| keep(address));
            self.some.store(!addresses.is_empty(), Ordering::Relaxed);
        }
    }

    /// Forgets an address that has answered.
    pub(crate) fn answered(&self, address: &str) {
        self.retain(|known| known != address);
    }
}

/// The time that a connect has at least while there are other endpoints.
const MIN_HURRY: Duration = Duration::from_millis(250);

/// The durations of the last successful connects of a cluster.
#[derive(Default)]
pub(crate) struct Connects(Mutex<([Duration; 16], usize)>);

impl Connects {
    pub(crate) fn add(&self, took: Duration) {
        let mut known = lock(&self.0);
        let next = known.1 % known.0.len();
        known.0[next] = took;
        known.1 += 1;
    }

    /// The time that a connect has while there are other endpoints.
    pub(crate) fn limit(&self) -> Duration {
        lock(&self.0).0.iter().map(|took| 3 * *took).fold(MIN_HURRY, Duration::max)
    }
}
