//! What a client knows of a cluster, and the task that follows it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::api::{Call, WAIT_GRACE};
use crate::aside::{Asides, Connects};
use crate::ask::{Asked, TARGET_PREFIX};
use crate::batch::{Answer, Batch, Budget, FIRST_BATCH, MAX_BATCH, MIN_BATCH, REFUSED_AGE};
use crate::client::Inner;
use crate::counts::Counts;
use crate::util::{encode, expired, jitter, lock, milliseconds, within};
use crate::{Config, Error, ErrorKind, State};

/// A batch has the picks for this time.
const BATCH_TIME: f64 = 2.0;
/// How long lbd may wait for an endpoint, before it answers that there is none.
const FETCH_WAIT: Duration = Duration::from_secs(1);
/// The time between two calls that follow a cluster, at least.
const FOLLOW_PAUSE: Duration = Duration::from_millis(100);
const MAX_FOLLOW: Duration = Duration::from_secs(30);
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
/// The time without a request after which a cluster is no longer followed.
const IDLE_TIME: Duration = Duration::from_secs(300);

pub(crate) struct Cluster {
    pub name: String,
    /// The name of a target is not that of a cluster.
    pub is_target: bool,
    /// The cluster, or the target, as a parameter.
    pub param: String,
    pub counts: Arc<Counts>,
    pub budget: Budget,
    pub asides: Asides,
    pub connects: Arc<Connects>,
    asked: Mutex<Asked>,
    /// Since the task has looked.
    used: AtomicBool,
    /// When lbd gave it an endpoint last, in the modes without a batch.
    pub picked: Mutex<Option<Instant>>,
    published: watch::Sender<Published>,
}

/// What the task that follows the cluster has found.
#[derive(Default)]
struct Published {
    batch: Option<Arc<Batch>>,
    /// Why the last call to lbd failed; None if it did not.
    error: Option<Error>,
    /// Whether the task has tried to get a batch.
    tried: bool,
    /// Whether the task runs.
    followed: bool,
    /// Until when the error is the answer to requests, without a task: names are often input.
    refused: Option<Instant>,
}

/// lbd's answer about a cluster.
#[derive(Deserialize)]
struct ClusterState {
    generation: u64,
}

impl Cluster {
    pub(crate) fn new(name: &str, config: &Config) -> Self {
        let target = name.strip_prefix(TARGET_PREFIX);
        Self {
            name: name.into(),
            is_target: target.is_some(),
            param: target
                .map_or_else(|| format!("cluster={}", encode(name)), |target| format!("target={}", encode(target))),
            counts: Arc::default(),
            budget: Budget::new(config.max_tokens),
            asides: Asides::default(),
            connects: Arc::default(),
            asked: Mutex::default(),
            used: AtomicBool::new(false),
            picked: Mutex::default(),
            published: watch::Sender::default(),
        }
    }

    pub(crate) fn batch(&self) -> Option<Arc<Batch>> {
        self.published.borrow().batch.clone()
    }

    /// The batch, unless there is none, or it is too old and lbd is unreachable.
    pub(crate) fn usable(&self, client: &Inner, at: Instant) -> Option<Arc<Batch>> {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        let published = self.published.borrow();
        let batch = published.batch.clone()?;
        if at.saturating_duration_since(batch.made) < client.config.stale_for {
            return Some(batch);
        }
        let Some(error) = published.error.clone() else { return Some(batch) };
        drop(published);
        if error.code().is_empty() {
            client.changed(State::Stale, Some(&error));
        }
        None
    }

    /// The batch for a query: waits for the first try of the task that follows the cluster, which it starts. Another one if
    /// lbd is unreachable and `others` is true.
    pub(crate) async fn wait(
        self: &Arc<Self>, client: &Arc<Inner>, query: &str, others: bool, deadline: Option<Instant>,
    ) -> Result<Arc<Batch>, Error> {
        let known = lock(&self.asked).get(query);
        let begins = self.published.send_if_modified(|published| {
            let begins = !published.followed && published.refused.is_none_or(|until| Instant::now() > until);
            if begins {
                *published = Published { followed: true, ..Published::default() };
            }
            begins
        });
        if begins {
            let task = Following(self.clone());
            let client_of_task = client.clone();
            if !client.start(async move { task.run(&client_of_task).await }) {
                return Err(Error::closed(&self.name));
            }
        }
        let mut published = self.published.subscribe();
        let tried = async { drop(published.wait_for(|published| published.tried || !published.followed).await) };
        if within(deadline, tried).await.is_none() || expired(deadline) {
            return Err(Error::late(&self.name));
        }
        if client.is_closed() {
            return Err(Error::closed(&self.name));
        }
        let last = match (self.usable(client, Instant::now()), self.error()) {
            (Some(batch), _) if batch.query == query => return Ok(batch),
            (None, Some(error)) if !error.is_of_another(self.is_target) => return Err(error),
            (None, None) => return Err(Error::unavailable(&self.name, "the cluster is no longer followed")),
            (last, _) => last.filter(|_| others),
        };
        let asked = within(deadline, self.ask(client, query, known, last)).await;
        asked.unwrap_or_else(|| Err(Error::late(&self.name)))
    }

    fn error(&self) -> Option<Error> {
        self.published.borrow().error.clone()
    }

    /// The batch for a query: the known one if it is not old. Without an answer of lbd, it may be older, or the last one of
    /// the cluster.
    async fn ask(
        self: &Arc<Self>, client: &Arc<Inner>, query: &str, known: Option<Arc<Batch>>, last: Option<Arc<Batch>>,
    ) -> Result<Arc<Batch>, Error> {
        let at = Instant::now();
        let fresh_enough = |batch: &Arc<Batch>| at.saturating_duration_since(batch.made) < client.config.stale_for;
        if let Some(batch) =
            known.as_ref().filter(|batch| at < batch.until || self.error().is_some() && fresh_enough(batch))
        {
            return Ok(batch.clone());
        }
        match self.fetch_asked(client, query).await {
            Ok(batch) => Ok(batch),
            Err(error) if !error.code().is_empty() || client.is_closed() => Err(error),
            Err(error) => {
                self.published.send_modify(|published| published.error = Some(error.clone()));
                let any = last.filter(|last| !self.is_target && last.generation != 0);
                known.filter(fresh_enough).or(any).ok_or(error) // better another endpoint than none
            }
        }
    }

    /// Gets the batch for a query, with one call for all requests that need it at the same time.
    async fn fetch_asked(self: &Arc<Self>, client: &Arc<Inner>, query: &str) -> Result<Arc<Batch>, Error> {
        let mut call = {
            let mut asked = lock(&self.asked);
            if let Some(batch) = asked.get(query).filter(|batch| Instant::now() < batch.until) {
                return Ok(batch); // of a call that has just ended
            }
            asked.call(query, || {
                let (ended, call) = watch::channel(None);
                let (cluster, inner, query) = (self.clone(), client.clone(), query.to_owned());
                client.start(async move {
                    let found = tokio::select! {
                        found = cluster.fetch(&inner, &query, MIN_BATCH) => found,
                        () = inner.closed() => Err(Error::closed(&cluster.name)),
                    };
                    lock(&cluster.asked).ended(&query, &found);
                    ended.send_replace(Some(found));
                });
                call
            })
        };
        let found = call.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
        found.unwrap_or_else(|| Err(Error::closed(&self.name)))
    }

    /// Waits for another batch than the one given.
    pub(crate) async fn other(&self, client: &Inner, batch: Option<&Arc<Batch>>) -> Option<Arc<Batch>> {
        let mut published = self.published.subscribe();
        let other = |next: &Arc<Batch>| !batch.is_some_and(|batch| Arc::ptr_eq(batch, next));
        tokio::select! {
            published = published.wait_for(|published| published.batch.as_ref().is_some_and(other)) => published.ok()?.batch.clone(),
            () = client.closed() => None,
        }
    }

    async fn fetch(&self, client: &Inner, query: &str, n: usize) -> Result<Arc<Batch>, Error> {
        let params = format!("{}&n={n}&reports=true&wait={}{query}", self.param, milliseconds(FETCH_WAIT));
        let answer = client.call::<Answer>(&Call::get("/v1/pick", params, &self.name, FETCH_WAIT + WAIT_GRACE)).await;
        let max_age = client.config.max_age;
        match answer {
            Ok(answer) => {
                let counts_of = |name: &str| {
                    if self.is_target { Ok(client.cluster(name)?.counts.clone()) } else { Ok(self.counts.clone()) }
                };
                Ok(Arc::new(Batch::new(&self.name, self.is_target, query.into(), max_age, answer, counts_of)?))
            }
            Err(error) if matches!(error.kind(), ErrorKind::Dropped | ErrorKind::CircuitBroken) => {
                Ok(Arc::new(Batch::refused(query.into(), error, max_age)))
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a batch, or the reason why there is no new one, visible to requests.
    fn publish(&self, found: Result<Arc<Batch>, Error>) {
        if let Ok(batch) = &found {
            lock(&self.asked).put(batch, true);
            let has = |address: &str| batch.elements.iter().any(|element| element.address() == Some(address));
            self.asides.retain(|address| batch.generation == 0 || !batch.query.is_empty() || has(address));
        }
        self.published.send_modify(|published| {
            published.tried = true;
            match found {
                Ok(batch) => (published.batch, published.error) = (Some(batch), None),
                Err(error) => published.error = Some(error),
            }
        });
    }

    /// Returns when it is time for a new batch.
    async fn follow(&self, client: &Inner, batch: &Batch) -> Result<(), Error> {
        let left = || batch.until.saturating_duration_since(Instant::now());
        if batch.generation == 0 {
            sleep(left()).await;
        }
        while !left().is_zero() {
            let began = Instant::now();
            let wait = left().min(MAX_FOLLOW);
            let target = if self.is_target { format!("&{}", self.param) } else { String::new() };
            let query = format!("endpoints=false&index={}&wait={}{target}", batch.generation, milliseconds(wait));
            let path = format!("/v1/clusters/{}", encode(&batch.cluster));
            let state: ClusterState = client.call(&Call::get(path, query, &self.name, wait + WAIT_GRACE)).await?;
            if state.generation != batch.generation {
                return Ok(());
            }
            sleep(left().min(FOLLOW_PAUSE.saturating_sub(began.elapsed()))).await;
        }
        Ok(())
    }
}

/// The task that follows a cluster. When it ends, also with its runtime, the next request starts it again.
struct Following(Arc<Cluster>);

impl Drop for Following {
    fn drop(&mut self) {
        *lock(&self.0.asked) = Asked::default();
        self.0.published.send_modify(|published| match published.refused {
            Some(_) => published.followed = false,
            None => *published = Published::default(),
        });
    }
}

impl Following {
    async fn run(&self, client: &Arc<Inner>) {
        client.start_reports();
        tokio::select! {
            () = self.follow(client) => {}
            () = client.closed() => {}
        }
    }

    /// Follows the cluster until it is idle or forgotten, or lbd rejects its name.
    async fn follow(&self, client: &Inner) {
        let cluster = &self.0;
        let (mut backoff, mut used, mut n, mut most) = (FIRST_BACKOFF, Instant::now(), FIRST_BATCH, MAX_BATCH);
        loop {
            let began = Instant::now();
            let query = lock(&cluster.asked).last.clone();
            let size = if query.is_empty() { n } else { MIN_BATCH };
            let followed = match cluster.fetch(client, &query, size).await {
                Err(error) if size > FIRST_BATCH && error.code() == "invalid_argument" => {
                    (n, most) = (FIRST_BATCH, FIRST_BATCH); // more than the quota of the caller permits
                    continue;
                }
                Err(error) => Err(error),
                Ok(batch) => {
                    cluster.publish(Ok(batch.clone()));
                    let followed = cluster.follow(client, &batch).await;
                    let age = batch.made.elapsed();
                    if age >= FOLLOW_PAUSE {
                        let requests = batch.turn.load(Ordering::Relaxed) as f64 * BATCH_TIME / age.as_secs_f64();
                        n = (requests as usize).max(MIN_BATCH).min(most);
                        cluster.budget.fit(n);
                    }
                    followed
                }
            };
            let mut pause = FOLLOW_PAUSE.saturating_sub(began.elapsed());
            match followed {
                Ok(()) => backoff = FIRST_BACKOFF,
                Err(error) => {
                    if error.is_final() && cluster.batch().is_none() {
                        let refused = Some(Instant::now() + REFUSED_AGE);
                        cluster.published.send_modify(|published| published.refused = refused);
                        return cluster.publish(Err(error));
                    }
                    pause = jitter(backoff).max(error.retry_after().min(MAX_RETRY_AFTER));
                    backoff = MAX_BACKOFF.min(2 * backoff);
                    cluster.publish(Err(error));
                }
            }
            if cluster.used.swap(false, Ordering::Relaxed) {
                used = Instant::now();
            }
            if used.elapsed() > IDLE_TIME || client.has_forgotten(cluster) {
                return;
            }
            sleep(pause).await;
        }
    }
}
