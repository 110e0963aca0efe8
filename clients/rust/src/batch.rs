//! Batches of picks, and the budget of retries.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::Error;
use crate::aside::Asides;
use crate::ask::Picked;
use crate::counts::{Count, Counts};
use crate::error::Problem;
use crate::util::{below, shuffle, spread};

pub(crate) const MIN_BATCH: usize = 20;
pub(crate) const FIRST_BATCH: usize = 100;
pub(crate) const MAX_BATCH: usize = 1000;
/// The age after which a batch of nothing but refusals is replaced, and lbd is asked again for a name that it rejects.
pub(crate) const REFUSED_AGE: Duration = Duration::from_secs(1);

/// lbd's answer to a pick with n.
#[derive(Deserialize)]
pub(crate) struct Answer {
    generation: u64,
    #[serde(default)]
    picks: Vec<Picked>,
    #[serde(default)]
    dropped: HashMap<String, usize>,
    #[serde(default)]
    circuit_broken: usize,
}

pub(crate) enum Element {
    Endpoint { picked: Arc<Picked>, counts: Arc<Counts>, count: Arc<Count> },
    Refusal(Error),
}

impl Element {
    pub(crate) fn address(&self) -> Option<&str> {
        match self {
            Self::Endpoint { picked, .. } => Some(&picked.address),
            Self::Refusal(_) => None,
        }
    }
}

/// The picks of one answer of lbd, shuffled. Requests take them in turn.
pub(crate) struct Batch {
    /// That of the cluster; 0 if lbd refused all picks, because then it does not say.
    pub generation: u64,
    pub query: String,
    /// That of the first pick.
    pub cluster: String,
    pub made: Instant,
    /// When lbd is asked again.
    pub until: Instant,
    pub elements: Vec<Element>,
    /// The number of addresses.
    pub endpoints: usize,
    pub turn: AtomicUsize,
}

impl Batch {
    /// The batch in an answer. `counts_of` has the counts of a cluster; of a target, the name is not that of a cluster.
    pub(crate) fn new(
        name: &str, is_target: bool, query: String, max_age: Duration, answer: Answer,
        counts_of: impl Fn(&str) -> Result<Arc<Counts>, Error>,
    ) -> Result<Self, Error> {
        let mut batch = Self::empty(answer.generation, query, spread(max_age));
        for mut picked in answer.picks {
            if picked.address.is_empty() || picked.cluster.is_empty() && is_target {
                return Err(Error::unreachable(name, "the answer has a pick without an address or a cluster"));
            }
            if picked.cluster.is_empty() {
                picked.cluster = name.into();
            }
            batch.cluster.clone_from(&picked.cluster);
            let counts = counts_of(&picked.cluster)?;
            let count = counts.of(&picked.address);
            batch.elements.push(Element::Endpoint { picked: Arc::new(picked), counts, count });
        }
        batch.endpoints = batch.elements.iter().filter_map(Element::address).collect::<HashSet<_>>().len();
        for (category, n) in answer.dropped {
            batch.refuse(
                Problem { code: "dropped".into(), category, ..Problem::default() }.error(name, 0, Duration::ZERO),
                n,
            );
        }
        let detail = "the circuit breaker is full".into();
        let broken = Problem { code: "circuit_broken".into(), detail, ..Problem::default() };
        batch.refuse(broken.error(name, 0, Duration::ZERO), answer.circuit_broken);
        if batch.elements.is_empty() || batch.generation == 0 {
            return Err(Error::unreachable(name, "the answer is not a batch of picks"));
        }
        shuffle(&mut batch.elements);
        Ok(batch)
    }

    /// A batch of nothing but a refusal: lbd refused each pick.
    pub(crate) fn refused(query: String, refusal: Error, max_age: Duration) -> Self {
        let mut batch = Self::empty(0, query, REFUSED_AGE.min(max_age));
        batch.refuse(refusal, 1);
        batch
    }

    fn empty(generation: u64, query: String, age: Duration) -> Self {
        let made = Instant::now();
        let (cluster, elements, turn) = Default::default();
        Self { generation, query, cluster, made, until: made + age, elements, endpoints: 0, turn }
    }

    fn refuse(&mut self, refusal: Error, n: usize) {
        self.elements.extend((0..n.min(MAX_BATCH)).map(|_| Element::Refusal(refusal.clone())));
    }

    fn next(&self) -> &Element {
        &self.elements[self.turn.fetch_add(1, Ordering::Relaxed) % self.elements.len()]
    }

    /// The next element whose address is not set aside: of the others, each keeps its share.
    pub(crate) fn take(&self, asides: &Asides, at: Instant) -> &Element {
        for _ in 0..2 * self.elements.len() {
            // other requests take some
            let element = self.next();
            if !element.address().is_some_and(|address| asides.avoids(address, at)) {
                return element;
            }
        }
        self.next()
    }

    /// An element with an address that `accept` permits, drawn so that each has its share.
    pub(crate) fn take_accepted(&self, accept: impl Fn(&str) -> bool) -> Option<&Element> {
        let n = self.elements.len();
        let accepted = |i: usize| Some(&self.elements[i % n]).filter(|element| element.address().is_some_and(&accept));
        let first = below(n);
        (0..8).find_map(|_| accepted(below(n))).or_else(|| (0..n).find_map(|i| accepted(first + i)))
    }
}

/// Limits the retries of a cluster, as in gRFC A6. It counts in tenths of a token.
pub(crate) struct Budget {
    first: i64,
    max: AtomicI64,
    tokens: AtomicI64,
}

impl Budget {
    pub(crate) fn new(max_tokens: f64) -> Self {
        let first = (max_tokens * 10.0) as i64;
        Self { first, max: first.into(), tokens: first.into() }
    }

    /// Makes the budget fit batches of n picks.
    pub(crate) fn fit(&self, n: usize) {
        let size = self.first * n.max(FIRST_BATCH) as i64 / FIRST_BATCH as i64;
        let grown = size - self.max.swap(size, Ordering::Relaxed);
        self.tokens.fetch_add(grown.max(0), Ordering::Relaxed);
    }

    /// Takes a token. Returns whether a retry is permitted.
    pub(crate) fn failed(&self) -> bool {
        let take = |tokens: i64| Some((tokens - 10).max(0));
        let before = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        2 * (before.unwrap_or_else(|tokens| tokens) - 10).max(0) > self.max.load(Ordering::Relaxed)
    }

    /// Adds a tenth of a token.
    pub(crate) fn succeeded(&self) {
        let max = self.max.load(Ordering::Relaxed);
        if self.tokens.load(Ordering::Relaxed) < max {
            let add = |tokens: i64| (tokens < max).then_some(tokens + 1);
            _ = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        }
    }
}
