//! What requests ask of lbd beside their cluster, and what lbd has chosen.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::header::COOKIE;
use http::{HeaderMap, Request};
use serde::Deserialize;
use tokio::sync::watch;

use crate::Error;
use crate::batch::Batch;
use crate::config::Host;
use crate::util::encode;

/// Begins the names that are targets, whose routes choose the cluster.
pub(crate) const TARGET_PREFIX: &str = "xds:///";
/// Begins the part of a query for another try.
pub(crate) const EXCLUDE: &str = "&exclude=";
/// The number of batches that a cluster has, at most: one for each hash key, or path and headers.
const MAX_ASKED: usize = 1000;
/// The length of the queries of these batches, about.
const MAX_ASKED_BYTES: usize = 4 << 20;
/// The lengths of the name of a cluster, and of what a request asks, at most. lbd permits 512 bytes, and 32 KiB with all that
/// a retry excludes: it says nothing that a client understands to what is much longer.
pub(crate) const MAX_NAME: usize = 512;
pub(crate) const MAX_QUERY: usize = 24 << 10;
/// The length of a hash key. What comes after it does not count.
const MAX_HASH: usize = 1024;

/// What a program asks for one request: an extension of the request, or an argument of
/// [`Client::pick`](crate::Client::pick).
///
/// ```
/// # use std::time::Duration;
/// use lbd_client::Ask;
///
/// let mut request = http::Request::get("http://orders.lbd/items/7").body(())?;
/// request.extensions_mut().insert(Ask { timeout: Some(Duration::from_secs(2)), ..Ask::default() });
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// The deadline of the request from its begin, for all tries and the body of the response. Default:
    /// [`Config::timeout`](crate::Config::timeout).
    pub timeout: Option<Duration>,
    /// Whether the request may be sent twice, as GET, HEAD, OPTIONS, PUT, DELETE, and those with a header
    /// `Idempotency-Key` may.
    pub idempotent: bool,
    /// The hash key, instead of that of [`Host::hash`].
    pub hash: Option<String>,
    /// The path that the routes of a target match. Default: that of the request.
    pub path: Option<String>,
    /// The headers that the routes of a target match. Default: those of the request that [`Host::headers`] names.
    pub headers: Option<Vec<(String, String)>>,
}

/// Where an endpoint is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Locality {
    /// The region.
    pub region: String,
    /// The zone.
    pub zone: String,
    /// The sub-zone.
    pub sub_zone: String,
}

/// A pick, as lbd answers it.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Picked {
    #[serde(default)]
    pub cluster: String,
    pub address: String,
    #[serde(default)]
    hostname: String,
    #[serde(default)]
    locality: Locality,
    #[serde(default)]
    priority: u32,
}

impl Picked {
    pub(crate) fn fallback(cluster: &str, address: &str) -> Arc<Self> {
        Arc::new(Self { cluster: cluster.into(), address: address.into(), ..Self::default() })
    }
}

/// What lbd has chosen for a try of a request.
#[derive(Clone, Debug)]
pub struct Choice {
    pub(crate) picked: Arc<Picked>,
    pub(crate) attempt: u32,
}

impl Choice {
    /// The cluster: of a target, the one that its routes chose.
    pub fn cluster(&self) -> &str {
        &self.picked.cluster
    }

    /// HOST:PORT of the endpoint.
    pub fn address(&self) -> &str {
        &self.picked.address
    }

    /// The host name of the endpoint, if it has one.
    pub fn hostname(&self) -> &str {
        &self.picked.hostname
    }

    /// Where the endpoint is.
    pub fn locality(&self) -> &Locality {
        &self.picked.locality
    }

    /// The priority of the endpoint.
    pub fn priority(&self) -> u32 {
        self.picked.priority
    }

    /// 1 for the first try of a request.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

impl Host {
    /// What lbd has to know of a request beside its cluster, as a part of a URL.
    pub(crate) fn query<B>(&self, name: &str, request: Option<&Request<B>>, ask: Option<&Ask>) -> String {
        let mut query = String::new();
        let given = ask.and_then(|ask| ask.hash.as_deref()).filter(|hash| !hash.is_empty());
        let found = || Some((request?.headers(), self.hash.as_deref()?.split_once(':')?));
        let hash = match (given, found()) {
            (Some(hash), _) => Some(hash.as_bytes()),
            (None, Some((headers, ("header", name)))) => headers.get(name).map(http::HeaderValue::as_bytes),
            (None, Some((headers, (_, name)))) => cookie(headers, name),
            (None, None) => None,
        };
        if let Some(hash) = hash.filter(|hash| !hash.is_empty()) {
            query = format!("&hash={}", encode(&hash[..hash.len().min(MAX_HASH)]));
        }
        if !name.starts_with(TARGET_PREFIX) {
            return query;
        }
        let path = ask.and_then(|ask| ask.path.as_deref()).or_else(|| Some(request?.uri().path()));
        query += &format!("&path={}", encode(path.filter(|path| !path.is_empty()).unwrap_or("/")));
        let mut add = |name: &str, value: &[u8]| query += &format!("&header.{}={}", encode(name), encode(value));
        if let Some(given) = ask.and_then(|ask| ask.headers.as_ref()) {
            given.iter().for_each(|(name, value)| add(name, value.as_bytes()));
        } else if let Some(request) = request {
            for name in &self.headers {
                request.headers().get_all(name).iter().for_each(|value| add(name, value.as_bytes()));
            }
        }
        query
    }
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let all = headers.get_all(COOKIE).into_iter().flat_map(|value| value.as_bytes().split(|&byte| byte == b';'));
    all.filter_map(|pair| pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"=")).next()
}

/// The batches of a cluster for what requests ask, all of one generation: those that were used last.
#[derive(Default)]
pub(crate) struct Asked {
    /// Query that lbd has answered last, or the first one, without what it excludes.
    pub last: String,
    generation: u64,
    recent: HashMap<String, Arc<Batch>>,
    older: HashMap<String, Arc<Batch>>,
    /// Of the queries that were added to recent.
    bytes: usize,
    /// Calls that are under way, by query.
    calls: HashMap<String, AskedCall>,
}

/// How a call ends that all requests with a query wait for.
pub(crate) type AskedCall = watch::Receiver<Option<Result<Arc<Batch>, Error>>>;

impl Asked {
    pub(crate) fn get(&mut self, query: &str) -> Option<Arc<Batch>> {
        let mut known = self.recent.get(query).cloned();
        if known.is_none() {
            known = self.older.get(query).cloned();
            known.iter().for_each(|batch| self.add(batch));
        }
        if known.is_some() || self.last.is_empty() {
            self.answered(query);
        }
        known
    }

    /// The call for a query that is under way: what `start` starts, unless there is one.
    pub(crate) fn call(&mut self, query: &str, start: impl FnOnce() -> AskedCall) -> AskedCall {
        match self.calls.get(query) {
            Some(call) if call.has_changed().is_ok() => call.clone(), // its runtime has not ended
            _ => self.calls.entry(query.into()).insert_entry(start()).get().clone(),
        }
    }

    /// The call for a query has ended.
    pub(crate) fn ended(&mut self, query: &str, found: &Result<Arc<Batch>, Error>) {
        self.calls.remove(query);
        if let Ok(batch) = found {
            self.put(batch, false);
        }
    }

    /// Remembers a query: one without a route must not keep others from their batch.
    fn answered(&mut self, query: &str) {
        if !query.contains(EXCLUDE) && self.last != query {
            self.last = query.into();
        }
    }

    fn add(&mut self, batch: &Arc<Batch>) {
        if self.recent.len() >= MAX_ASKED / 2 || self.bytes >= MAX_ASKED_BYTES / 2 {
            (self.older, self.bytes) = (std::mem::take(&mut self.recent), 0);
        }
        if self.recent.insert(batch.query.clone(), batch.clone()).is_none() {
            self.bytes += batch.query.len();
        }
    }

    /// Adds a batch. One of a later generation replaces all others, and so does one that is published, which is of the
    /// generation that lbd has: one of an earlier generation comes too late.
    pub(crate) fn put(&mut self, batch: &Arc<Batch>, published: bool) {
        self.answered(&batch.query);
        if batch.generation > self.generation
            || published && batch.generation != 0 && batch.generation != self.generation
        {
            self.generation = batch.generation;
            self.recent.clear();
            self.older.clear();
        }
        if batch.generation == 0 || batch.generation == self.generation {
            self.add(batch);
        }
    }
}
