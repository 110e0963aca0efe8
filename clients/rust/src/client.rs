use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};

use crate::api::{Api, Call};
use crate::cluster::Cluster;
use crate::config::Host;
use crate::connection::Connections;
use crate::leases::Leases;
use crate::util::{lock, random};
use crate::{Config, Error, Mode, State};

/// Clusters of a client, at most. Beyond it, those without a batch are forgotten; in the other modes, the one without an
/// endpoint for longest.
const MAX_CLUSTERS: usize = 1000;
/// For the last report and the ends of leases.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Ends hosts that name a cluster.
const SUFFIX: &str = ".lbd";

/// Picks endpoints for requests, and tells lbd how they ended. A clone is the same client: make one for the process.
///
/// Its background tasks run in the runtime of its requests, and end when its last clone is dropped, or with
/// [`close`](Self::close). Call that at the end of the process, or the last report is not sent, and leases end with their
/// ttl.
#[derive(Clone)]
pub struct Client(Arc<Alive>);

/// Ends the background tasks.
struct Alive(Arc<Inner>);

impl Drop for Alive {
    fn drop(&mut self) {
        let inner = self.0.clone();
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if !inner.is_closed() => _ = runtime.spawn(async move { inner.close().await }),
            _ => _ = inner.closed.send_replace(true),
        }
    }
}

/// What a client and its background tasks share.
pub(crate) struct Inner {
    pub config: Config,
    pub api: Api,
    pub connections: Connections,
    pub leases: Arc<Leases>,
    pub reporter: String,
    pub state: Mutex<Option<State>>,
    /// Connects that lbd has to be told of, by cluster and address; None unless there is a task for that.
    pub failures: Mutex<Option<HashMap<(String, String), u64>>>,
    pub reporting: AtomicBool,
    clusters: RwLock<HashMap<String, Arc<Cluster>>>,
    closed: watch::Sender<bool>,
    /// Each task has a clone until it ends; None when the client is closed.
    work: Mutex<Option<mpsc::Sender<()>>>,
    ended: Mutex<Option<mpsc::Receiver<()>>>,
}

impl Client {
    /// Makes a client. It does not call lbd: lbd may start later. The error is about a setting that is not valid.
    pub fn new(mut config: Config) -> Result<Self, Error> {
        let found = config.complete()?;
        let api = Api::new(&config, found)?;
        let (work, ended) = mpsc::channel(1);
        let connections = Connections::new(config.connect_timeout, None).map_err(Error::invalid)?;
        Ok(Self(Arc::new(Alive(Arc::new(Inner {
            config,
            api,
            connections,
            leases: Arc::default(),
            reporter: format!("{}/{:08x}", crate::util::process(), random() as u32),
            state: Mutex::default(),
            failures: Mutex::default(),
            reporting: AtomicBool::new(false),
            clusters: RwLock::default(),
            closed: watch::Sender::new(false),
            work: Mutex::new(Some(work)),
            ended: Mutex::new(Some(ended)),
        })))))
    }

    /// Sends the last report, ends the leases that are held, and ends the background tasks, within 1 s in all. Requests
    /// fail from then on. Further calls do nothing.
    pub async fn close(&self) {
        self.inner().close().await;
    }

    /// What sends the requests by default: for an adapter that adds layers to it.
    pub fn connections(&self) -> Connections {
        self.inner().connections.clone()
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0.0
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.inner().config).finish()
    }
}

impl Inner {
    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Waits until the client is closed.
    pub(crate) async fn closed(&self) {
        _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// What requests to a host are for: the cluster, or the target with its prefix; None if they are not for lbd.
    pub(crate) fn host(&self, host: &str) -> Option<(Option<&Host>, String)> {
        let host = host.to_ascii_lowercase();
        match self.config.hosts.get(&host) {
            Some(known) => Some((Some(known), known.name(&host))),
            None => Some((None, host.strip_suffix(SUFFIX).filter(|name| !name.is_empty())?.into())),
        }
    }

    /// What the client knows of a cluster.
    pub(crate) fn cluster(&self, name: &str) -> Result<Arc<Cluster>, Error> {
        if let Some(known) = self.clusters.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Ok(known.clone());
        }
        let mut clusters = self.clusters.write().unwrap_or_else(PoisonError::into_inner);
        if clusters.len() >= MAX_CLUSTERS && self.config.mode != Mode::Batch {
            let least = clusters.values().min_by_key(|known| *lock(&known.picked)).map(|known| known.name.clone());
            clusters.remove(&least.unwrap_or_default());
        } else if clusters.len() >= MAX_CLUSTERS {
            clusters.retain(|_, known| known.batch().is_some() || Arc::strong_count(&known.counts) > 1); // of a target
        }
        if clusters.len() >= MAX_CLUSTERS {
            return Err(Error::unavailable(name, "the client has too many clusters"));
        }
        Ok(clusters.entry(name.into()).or_insert_with(|| Arc::new(Cluster::new(name, &self.config))).clone())
    }

    pub(crate) fn has_forgotten(&self, cluster: &Arc<Cluster>) -> bool {
        let clusters = self.clusters.read().unwrap_or_else(PoisonError::into_inner);
        !clusters.get(&cluster.name).is_some_and(|known| Arc::ptr_eq(known, cluster))
    }

    pub(crate) fn clusters(&self) -> Vec<Arc<Cluster>> {
        self.clusters.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Runs a task that `close` waits for. Returns false if the client is closed, or the caller is not in a runtime.
    pub(crate) fn start(&self, task: impl Future<Output = ()> + Send + 'static) -> bool {
        let Some(working) = lock(&self.work).clone() else { return false };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return false };
        runtime.spawn(async move {
            task.await;
            drop(working);
        });
        true
    }

    /// Calls lbd, and tells of changes of its state.
    pub(crate) async fn call<T: DeserializeOwned>(&self, call: &Call<'_>) -> Result<T, Error> {
        let answer = self.api.call(call).await;
        self.reached(answer.as_ref().err());
        answer
    }

    async fn close(self: &Arc<Self>) {
        drop(lock(&self.work).take());
        let Some(mut ended) = lock(&self.ended).take() else { return };
        self.closed.send_replace(true);
        _ = tokio::time::timeout(CLOSE_TIMEOUT, async {
            _ = ended.recv().await;
            self.report(false).await;
            self.leases.close(self).await;
        })
        .await;
        self.api.close();
        self.connections.close();
        self.reporting.store(false, Ordering::Relaxed);
    }
}
