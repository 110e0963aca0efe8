//! What is counted for the reports.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Outcome;
use crate::util::lock;

/// Age of counts that could not be sent, at most.
const REPORT_AGE: Duration = Duration::from_secs(60);

/// What a report says of one endpoint.
#[derive(Serialize, Default)]
pub(crate) struct Tally {
    pub address: String,
    pub requests: u64,
    pub errors: u64,
    pub cancelled: u64,
    pub in_flight_seconds: f64,
    pub latency_seconds: f64,
}

/// Counts the requests to one endpoint since the last report.
pub(crate) struct Count(Mutex<Counted>);

struct Counted {
    tally: Tally,
    in_flight: u64,
    since: Instant, // until when tally.in_flight_seconds is counted
    removed: bool,  // no report looks at this count any more
}

impl Counted {
    fn advance(&mut self, at: Instant) {
        if at > self.since {
            // else the clock was read before the lock was taken
            self.tally.in_flight_seconds += self.in_flight as f64 * (at - self.since).as_secs_f64();
            self.since = at;
        }
    }
}

impl Count {
    fn begin(&self, at: Instant) -> bool {
        let mut count = lock(&self.0);
        if !count.removed {
            count.advance(at);
            count.in_flight += 1;
        }
        !count.removed
    }

    /// Counts the outcome of a request.
    pub(crate) fn answered(&self, outcome: Outcome, latency: Duration) {
        let tally = &mut lock(&self.0).tally;
        tally.requests += 1;
        tally.latency_seconds += latency.as_secs_f64();
        match outcome {
            Outcome::Error => tally.errors += 1,
            Outcome::Cancelled => tally.cancelled += 1,
            Outcome::Success | Outcome::Unreachable => {}
        }
    }

    /// Counts a request as no longer in flight.
    pub(crate) fn end(&self) {
        let mut count = lock(&self.0);
        count.advance(Instant::now());
        count.in_flight -= 1;
    }
}

/// The counts of one cluster.
pub(crate) struct Counts(Mutex<Endpoints>);

struct Endpoints {
    by_address: HashMap<String, Arc<Count>>,
    since: Instant, // when they were taken last
}

impl Default for Counts {
    fn default() -> Self {
        Self(Mutex::new(Endpoints { by_address: HashMap::new(), since: Instant::now() }))
    }
}

impl Counts {
    pub(crate) fn of(&self, address: &str) -> Arc<Count> {
        let mut counts = lock(&self.0);
        if let Some(known) = counts.by_address.get(address) {
            return known.clone();
        }
        let tally = Tally { address: address.into(), ..Tally::default() };
        let added = Arc::new(Count(Mutex::new(Counted { tally, in_flight: 0, since: Instant::now(), removed: false })));
        counts.by_address.insert(address.into(), added.clone());
        added
    }

    /// Counts a request as in flight, in `known` unless that was removed.
    pub(crate) fn begin(&self, known: &Arc<Count>, address: &str, at: Instant) -> Arc<Count> {
        let mut known = known.clone();
        while !known.begin(at) {
            known = self.of(address);
        }
        known
    }

    /// How many requests ended so since the counts were taken last.
    pub(crate) fn errors(&self) -> u64 {
        lock(&self.0).by_address.values().map(|count| lock(&count.0).tally.errors).sum()
    }

    /// The counts since they were taken last, and when that was. Counts of endpoints without a request are removed.
    pub(crate) fn take(&self) -> (Instant, Vec<Tally>) {
        let mut counts = lock(&self.0);
        let at = Instant::now();
        let since = std::mem::replace(&mut counts.since, at);
        let mut taken = Vec::new();
        counts.by_address.retain(|address, count| {
            let mut count = lock(&count.0);
            count.advance(at);
            if count.tally.requests > 0 || count.tally.in_flight_seconds > 0.0 {
                let fresh = Tally { address: address.clone(), ..Tally::default() };
                taken.push(std::mem::replace(&mut count.tally, fresh));
            } else if count.in_flight == 0 {
                count.removed = true;
            }
            !count.removed
        });
        (since, taken)
    }

    /// Adds counts that could not be sent to the next report, unless they are too old.
    pub(crate) fn give_back(&self, since: Instant, taken: Vec<Tally>) {
        if since.elapsed() > REPORT_AGE {
            return;
        }
        for tally in taken {
            loop {
                let count = self.of(&tally.address);
                let mut count = lock(&count.0);
                if count.removed {
                    continue;
                }
                let sum = &mut count.tally;
                sum.requests += tally.requests;
                sum.errors += tally.errors;
                sum.cancelled += tally.cancelled;
                sum.in_flight_seconds += tally.in_flight_seconds;
                sum.latency_seconds += tally.latency_seconds;
                break;
            }
        }
        let mut counts = lock(&self.0);
        counts.since = counts.since.min(since);
    }
}
