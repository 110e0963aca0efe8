use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, Request, StatusCode, Uri};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::api::{Call, WAIT_GRACE};
use crate::ask::{EXCLUDE, MAX_NAME, MAX_QUERY, Picked};
use crate::batch::{Batch, Element};
use crate::client::Inner;
use crate::cluster::Cluster;
use crate::config::Host;
use crate::counts::Count;
use crate::leases::Lease;
use crate::util::{encode, expired, lock, milliseconds, random, within};
use crate::{Ask, Attempt, Choice, Client, Error, Mode};

/// How long a pick may queue in lbd.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// The time of a lease beyond the deadline of its request.
const TTL_GRACE: Duration = Duration::from_secs(5);
/// What lbd permits by default. Leases of longer requests are renewed.
const MAX_TTL: Duration = Duration::from_secs(600);
/// The number of addresses that lbd excludes, at most.
const MAX_TRIED: usize = 100;
/// The number of connects of a request that end early, at most.
const HURRIED: u32 = 3;
/// How long a request waits for other endpoints after none that is known has answered. In the modes without a batch, it
/// asks again after OTHER_PAUSE.
const OTHER_TIME: Duration = Duration::from_secs(1);
const OTHER_PAUSE: Duration = Duration::from_millis(200);

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It was answered, with any status below 500.
    Success,
    /// It had no answer in time, or a status from 500 on. Outlier detection counts it.
    Error,
    /// Its caller gave it up, its deadline passed while a connection was made, or this machine is to blame.
    Cancelled,
    /// Nothing of it was sent, because there was no connection. lbd looks at the endpoint at once.
    Unreachable,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Unreachable => "unreachable",
        })
    }
}

/// An endpoint for the tries of one request, which counts as in flight until [`end`](Self::end). If it is dropped before,
/// the request counts as cancelled.
///
/// ```no_run
/// # async fn run(client: lbd_client::Client) -> Result<(), lbd_client::Error> {
/// use lbd_client::{Ask, Outcome};
///
/// let mut pick = client.pick("orders", &Ask::default()).await?;
/// let connection = loop {
///     match tokio::net::TcpStream::connect(pick.address()).await {
///         Ok(connection) => break Some(connection),
///         Err(_) if pick.next(Outcome::Unreachable).await => {} // another endpoint
///         Err(_) => break None,
///     }
/// };
/// // …
/// pick.end(Outcome::Success);
/// # Ok(())
/// # }
/// ```
pub struct Pick {
    client: Client,
    cluster: Arc<Cluster>, // or target
    query: String,         // what the request asks
    deadline: Option<Instant>,
    tried: Vec<Arc<Picked>>, // before
    retries: u32,            // tries before of which something was sent
    moves: u32,              // tries before that were not sent
    hurries: bool,           // the connect has less time, as there may be other endpoints
    cut: bool,               // for want of that time, this try or one before was not sent
    pub(crate) current: Try,
    request: Option<(Method, Uri)>, // for hooks
    pub(crate) status: Option<StatusCode>,
}

pub(crate) struct Try {
    picked: Arc<Picked>,
    count: Option<Arc<Count>>, // in mode batch
    lease: Option<Lease>,      // in mode lease
    begin: Instant,
    pub outcome: Option<Outcome>,
    fallback: bool, // the address is not from lbd
    ended: bool,
}

impl Try {
    fn new(picked: Arc<Picked>) -> Self {
        Self { picked, count: None, lease: None, begin: Instant::now(), outcome: None, fallback: false, ended: false }
    }

    /// Counts a request to an element of a batch.
    fn of(element: &Element, at: Instant) -> Result<Self, Error> {
        match element {
            Element::Refusal(error) => Err(error.clone()),
            Element::Endpoint { picked, counts, count } => {
                let count = Some(counts.begin(count, &picked.address, at));
                Ok(Self { count, begin: at, ..Self::new(picked.clone()) })
            }
        }
    }
}

/// lbd's answer to a pick.
#[derive(Deserialize)]
struct Answer {
    #[serde(flatten)]
    picked: Picked,
    #[serde(default)]
    lease: LeaseAnswer,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct LeaseAnswer {
    id: String,
}

impl Client {
    /// Returns an endpoint of a cluster for one request. The name `xds:///NAME` is a target, whose routes choose the
    /// cluster. Call [`Pick::end`] when the request has ended.
    ///
    /// In [`Mode::Batch`], only the first picks of a cluster wait for lbd.
    pub async fn pick(&self, cluster: &str, ask: &Ask) -> Result<Pick, Error> {
        let query = Host::default().query::<()>(cluster, None, Some(ask));
        let timeout = ask.timeout.or(self.inner().config.timeout);
        Pick::new(self, cluster, query, timeout.map(|timeout| Instant::now() + timeout), None::<&Request<()>>).await
    }
}

impl Pick {
    pub(crate) async fn new<B>(
        client: &Client, name: &str, query: String, deadline: Option<Instant>, request: Option<&Request<B>>,
    ) -> Result<Self, Error> {
        if name.len() > MAX_NAME || query.len() > MAX_QUERY {
            return Err(Error::too_long(name));
        }
        let inner = client.inner();
        let cluster = inner.cluster(name)?;
        let request = request.filter(|_| inner.watches_attempts()).map(|r| (r.method().clone(), r.uri().clone()));
        if inner.is_closed() {
            return Err(Error::closed(name));
        }
        if expired(deadline) {
            return Err(Error::late(name)); // no endpoint is to blame
        }
        let (current, hurries) = match (get(inner, &cluster, &query, deadline, &[]).await, &inner.config.fallback) {
            (Ok(current), _) => (current, true),
            (Err(error), Some(address)) if error.code().is_empty() && !expired(deadline) && !inner.is_closed() => {
                (Try { fallback: true, ..Try::new(Picked::fallback(name, address)) }, false)
            }
            (Err(error), _) => return Err(error),
        };
        let (tried, client) = (Vec::new(), client.clone());
        Ok(Self {
            client,
            cluster,
            query,
            deadline,
            tried,
            retries: 0,
            moves: 0,
            hurries,
            cut: false,
            current,
            request,
            status: None,
        })
    }

    /// HOST:PORT of the endpoint.
    pub fn address(&self) -> &str {
        &self.current.picked.address
    }

    /// What lbd has chosen.
    pub fn choice(&self) -> Choice {
        Choice { picked: self.current.picked.clone(), attempt: 1 + self.moves + self.retries }
    }

    /// Says how the request ended, while its response is still in flight. Later outcomes are ignored.
    pub fn answered(&mut self, outcome: Outcome) {
        if outcome == Outcome::Success && self.current.outcome.is_none() {
            self.cluster.budget.succeeded();
            self.answer();
        }
        self.ends(outcome);
    }

    /// Ends the request, unless [`answered`](Self::answered) has said how. It does not wait for lbd.
    pub fn end(mut self, outcome: Outcome) {
        self.answered(outcome);
    }

    /// Ends the try with [`Outcome::Error`] or [`Outcome::Unreachable`], and makes this the pick of the next one: an
    /// endpoint that the request has not tried. Returns false if there is no other one, or after an error if the request
    /// has had all of its retries or the budget of retries of the cluster is used up. After errors, call it for requests
    /// that are idempotent, when an endpoint ended the connection or was overloaded, but not after a timeout.
    pub async fn next(&mut self, outcome: Outcome) -> bool {
        self.ends(outcome);
        self.again(true, false).await
    }

    /// The endpoint has answered, whatever it was.
    pub(crate) fn answer(&self) {
        self.cluster.asides.answered(self.address());
    }

    pub(crate) fn budget_succeeded(&self) {
        self.cluster.budget.succeeded();
    }

    pub(crate) fn ends(&mut self, outcome: Outcome) {
        if self.current.outcome.is_some() {
            return;
        }
        self.current.outcome = Some(outcome);
        let inner = self.client.inner();
        if outcome == Outcome::Unreachable {
            self.failed(false);
            if self.current.lease.is_none() && !self.current.fallback {
                inner.unreachable(&self.current.picked.cluster, self.address());
            }
        } else if let Some(count) = &self.current.count {
            count.answered(outcome, self.current.begin.elapsed());
        }
        if inner.watches_attempts() {
            let duration = self.current.begin.elapsed();
            let (choice, request, status) = (self.choice(), self.request.clone(), self.status);
            inner.attempted(&Attempt { choice, outcome, duration, request, status });
        }
    }

    /// Ends a try whose deadline passed while a connection was made: lbd hears nothing of it.
    pub(crate) fn uncount(&mut self) {
        if let Some(count) = self.current.count.take() {
            count.end();
        }
        self.ends(Outcome::Cancelled);
    }

    /// May set the address aside: the try was not sent, or there was no answer to it.
    pub(crate) fn failed(&self, sent: bool) {
        if !self.current.fallback {
            let plain = self.cluster.batch().filter(|batch| batch.query.is_empty()); // others have few endpoints of many
            let most = plain.map_or(MAX_TRIED, |batch| batch.endpoints / 2);
            self.cluster.asides.failed(self.address(), sent, most);
        }
    }

    /// The time that the connect has.
    pub(crate) fn connect_timeout(&self) -> Duration {
        let timeout = self.client.inner().config.connect_timeout;
        if self.hurries { timeout.min(self.cluster.connects.limit()) } else { timeout }
    }

    pub(crate) fn connects(&self) -> Arc<crate::aside::Connects> {
        self.cluster.connects.clone()
    }

    /// Remembers that the connect has failed because it had less time.
    pub(crate) fn missed_hurry(&mut self) {
        self.cut |= self.hurries;
    }

    fn finish(&mut self) {
        self.ends(Outcome::Cancelled);
        let current = &mut self.current;
        if !std::mem::replace(&mut current.ended, true) {
            if let Some(count) = &current.count {
                count.end();
            }
            if let (Some(lease), Some(outcome)) = (&current.lease, current.outcome) {
                lease.end(outcome);
            }
        }
    }

    /// Makes this the pick of the next try of a request whose try has failed, if it may be sent again. `repeatable` says
    /// whether that is so if something was sent, which takes a token of the budget; `lost`, that there was no answer then.
    pub(crate) async fn again(&mut self, repeatable: bool, lost: bool) -> bool {
        let client = self.client.clone();
        let inner = client.inner();
        let unreachable = self.current.outcome == Some(Outcome::Unreachable);
        if !unreachable && (!self.cluster.budget.failed() || !repeatable || self.retries >= inner.config.retries) {
            return false;
        }
        if self.current.fallback || self.tried.len() + 1 >= MAX_TRIED || expired(self.deadline) || inner.is_closed() {
            return false;
        }
        self.tried.push(self.current.picked.clone());
        let hurries = self.moves + u32::from(unreachable) < HURRIED;
        let plain = self.query.is_empty() && self.cluster.batch().is_none_or(|batch| batch.query.is_empty());
        let next = if inner.config.mode == Mode::Batch && plain {
            self.other(inner, unreachable || lost, hurries).await
        } else {
            self.ask_again(inner, unreachable || lost, hurries).await
        };
        let Some(next) = next else { return false };
        self.finish();
        (self.current, self.status) = (next, None);
        if unreachable {
            self.moves += 1;
        } else {
            self.retries += 1;
        }
        true
    }

    /// An endpoint of the batch that the request has not tried. If it may wait, it does so for other batches: lbd hears now
    /// of connects that failed, and may choose endpoints of another priority.
    async fn other(&mut self, inner: &Inner, may_wait: bool, hurries: bool) -> Option<Try> {
        let mut batch = self.cluster.batch();
        let end = Instant::now() + OTHER_TIME;
        let end = self.deadline.map_or(end, |deadline| deadline.min(end));
        loop {
            if let Some(next) = batch.as_deref().and_then(|batch| self.move_to(batch, hurries)) {
                return Some(next);
            }
            if !may_wait {
                return None;
            }
            batch = Some(within(Some(end), self.cluster.other(inner, batch.as_ref())).await??);
        }
    }

    fn move_to(&mut self, batch: &Batch, hurries: bool) -> Option<Try> {
        let at = Instant::now();
        let other = |address: &str| !self.has_tried(address);
        let fresh = batch.take_accepted(|address| other(address) && !self.cluster.asides.avoids(address, at));
        let mut element = fresh.or_else(|| batch.take_accepted(other));
        self.hurries = hurries;
        if element.is_none() && self.cut {
            element = batch.take_accepted(|address| self.has_tried(address));
            (self.hurries, self.cut) = (false, false);
        }
        Try::of(element?, at).ok()
    }

    /// Asks lbd for an endpoint that the request has not tried.
    async fn ask_again(&mut self, inner: &Arc<Inner>, may_wait: bool, hurries: bool) -> Option<Try> {
        if let (Some(lease), Some(outcome)) = (&self.current.lease, self.current.outcome) {
            // lbd may need its place in the circuit breaker
            if !lease.end_failed(inner, outcome, self.deadline).await {
                return None;
            }
        }
        self.hurries = hurries;
        let excluded = |next: &Result<Try, Error>| matches!(next, Err(error) if error.code() == "all_excluded");
        let mut next = self.get(inner, &self.tried).await;
        let mut repeats = false;
        if self.cut && excluded(&next) {
            (self.hurries, self.cut, repeats) = (false, false, true);
            next = self.get(inner, &[]).await;
        }
        let end = Instant::now() + OTHER_TIME;
        while may_wait && excluded(&next) && Instant::now() < end && !inner.is_closed() {
            within(self.deadline, sleep(OTHER_PAUSE)).await?;
            next = self.get(inner, if repeats { &[] } else { &self.tried }).await;
        }
        let next = next.ok()?;
        if self.has_tried(&next.picked.address) && !repeats {
            if let Some(count) = &next.count {
                // Nothing was sent.
                count.answered(Outcome::Cancelled, Duration::ZERO);
                count.end();
            }
            return None;
        }
        Some(next)
    }

    async fn get(&self, inner: &Arc<Inner>, tried: &[Arc<Picked>]) -> Result<Try, Error> {
        get(inner, &self.cluster, &self.query, self.deadline, tried).await
    }

    fn has_tried(&self, address: &str) -> bool {
        self.tried.iter().any(|tried| tried.address == address)
    }
}

impl Drop for Pick {
    fn drop(&mut self) {
        self.finish();
    }
}

impl fmt::Debug for Pick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pick")
            .field("choice", &self.choice())
            .field("outcome", &self.current.outcome)
            .finish_non_exhaustive()
    }
}

/// An endpoint that was not tried, in the mode of the client.
async fn get(
    inner: &Arc<Inner>, cluster: &Arc<Cluster>, query: &str, deadline: Option<Instant>, tried: &[Arc<Picked>],
) -> Result<Try, Error> {
    if inner.config.mode == Mode::Batch && query.is_empty() && tried.is_empty() {
        let at = Instant::now();
        return match cluster.usable(inner, at).filter(|batch| batch.query.is_empty()) {
            Some(batch) => Try::of(batch.take(&cluster.asides, at), at),
            None => Try::of(cluster.wait(inner, "", true, deadline).await?.take(&cluster.asides, at), Instant::now()),
        };
    }
    let mut avoided = cluster.asides.avoided();
    avoided.truncate(MAX_TRIED - tried.len());
    loop {
        let excluded = tried.iter().rev().map(|tried| &tried.address).chain(&avoided);
        let excluded: String = excluded.map(|address| format!("{EXCLUDE}{}", encode(address))).collect();
        let found = if inner.config.mode == Mode::Batch {
            let batch = cluster.wait(inner, &format!("{query}{excluded}"), tried.is_empty(), deadline).await;
            batch.and_then(|batch| Try::of(batch.take(&cluster.asides, Instant::now()), Instant::now()))
        } else {
            let found = ask(inner, cluster, &format!("{query}{excluded}"), deadline).await;
            if let Ok(found) = &found {
                *lock(&cluster.picked) = Some(Instant::now());
                cluster.asides.avoids(&found.picked.address, Instant::now()); // it may be the trial
            }
            found
        };
        match found {
            Err(error) if !avoided.is_empty() && error.code() == "all_excluded" => avoided.clear(),
            found => return found,
        }
    }
}

/// Asks lbd for a pick or a lease.
async fn ask(inner: &Arc<Inner>, cluster: &Arc<Cluster>, query: &str, deadline: Option<Instant>) -> Result<Try, Error> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let wait = left.map_or(MAX_WAIT, |left| left.min(MAX_WAIT));
    let params = format!("{}&wait={}{query}", cluster.param, milliseconds(wait));
    if inner.config.mode != Mode::Lease {
        let call = Call::get("/v1/pick", params, &cluster.name, wait + WAIT_GRACE);
        let answer =
            within(deadline, inner.call::<Answer>(&call)).await.unwrap_or_else(|| Err(Error::late(&cluster.name)));
        return answered(cluster, answer?, deadline);
    }
    let ttl = left.map_or(inner.config.ttl, |left| left + TTL_GRACE).min(MAX_TTL);
    let owner = inner.config.owner.as_deref().unwrap_or_default();
    let params = format!("{params}&ttl={}&owner={}", milliseconds(ttl), encode(owner));
    // If the caller gives the request up in the meantime, the lease is ended as soon as lbd has granted it.
    let (result, granted) = oneshot::channel();
    let (client, name) = (inner.clone(), cluster.name.clone());
    let started = inner.start(async move {
        let mut call = Call::get("/v1/pick", params, &name, wait + WAIT_GRACE);
        (call.method, call.key) = (Method::POST, Some(format!("{:016x}{:016x}", random(), random())));
        let answer = tokio::select! {
            answer = client.call::<Answer>(&call) => answer,
            () = client.closed() => return,
        };
        _ = result.send(answer.map(|answer| {
            let id = answer.lease.id.clone();
            let lease = (!id.is_empty()).then(|| client.leases.hold(&client, id, ttl));
            (answer, lease)
        }));
    });
    if !started {
        return Err(Error::closed(&cluster.name));
    }
    let granted = within(deadline, granted).await.ok_or_else(|| Error::late(&cluster.name))?;
    let (answer, lease) = granted.unwrap_or_else(|_| Err(Error::closed(&cluster.name)))?;
    if lease.is_none() {
        return Err(Error::unreachable(&cluster.name, "the answer has no lease"));
    }
    Ok(Try { lease, ..answered(cluster, answer, deadline)? })
}

fn answered(cluster: &Cluster, mut answer: Answer, deadline: Option<Instant>) -> Result<Try, Error> {
    if expired(deadline) {
        return Err(Error::late(&cluster.name)); // no endpoint is to blame
    }
    if answer.picked.address.is_empty() {
        return Err(Error::unreachable(&cluster.name, "the answer has no address"));
    }
    if answer.picked.cluster.is_empty() {
        answer.picked.cluster.clone_from(&cluster.name);
    }
    Ok(Try::new(Arc::new(answer.picked)))
}
