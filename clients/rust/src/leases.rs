//! Leases are renewed and ended in the background.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Method;
use serde::Serialize;
use serde::de::IgnoredAny;
use tokio::sync::{Notify, Semaphore};
use tokio::time::sleep;

use crate::Outcome;
use crate::api::{CALL_TIMEOUT, Call};
use crate::client::Inner;
use crate::util::{encode, lock, milliseconds, within};

/// Leases that one call ends, at most.
const LEASES_AT_ONCE: usize = 1000;
/// Ends that wait for lbd, at most. The other leases expire.
const MAX_ENDED: usize = 100_000;
/// The time between two looks at the leases that may have to be renewed.
const RENEW_TICK: Duration = Duration::from_millis(200);
/// The time after which leases are ended again whose end lbd has not got.
const END_PAUSE: Duration = Duration::from_millis(500);
const MAX_RENEW_PAUSE: Duration = Duration::from_secs(1);
/// Calls that wait for lbd at the same time, at most.
const ENDS_AT_ONCE: usize = 8;
const RENEWALS_AT_ONCE: usize = 100;

/// A lease of a request in flight. It ends when it is dropped.
pub(crate) struct Lease {
    id: String,
    leases: Arc<Leases>,
}

impl Lease {
    /// Ends the lease in the background.
    pub(crate) fn end(&self, outcome: Outcome) {
        let mut table = lock(&self.leases.table);
        if table.held.remove(&self.id).is_some() && table.ended.len() < MAX_ENDED {
            table.ended.push_back(Ended { id: self.id.clone(), outcome });
            self.leases.wake.notify_one();
        }
    }

    /// Ends the lease of a try that failed, and waits for lbd. Returns whether lbd has confirmed it: if not, lbd would not
    /// grant another lease, either.
    pub(crate) async fn end_failed(&self, client: &Inner, outcome: Outcome, deadline: Option<Instant>) -> bool {
        let ended = [Ended { id: self.id.clone(), outcome }];
        let confirmed = tokio::select! {
            done = within(deadline, done(client, &ended)) => done == Some(Ok(())),
            () = client.closed() => false,
        };
        if confirmed {
            lock(&self.leases.table).held.remove(&self.id);
        }
        confirmed
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.end(Outcome::Cancelled);
    }
}

/// An element of POST /v1/leases/done.
#[derive(Serialize)]
struct Ended {
    id: String,
    outcome: Outcome,
}

#[derive(Serialize)]
struct Done<'a> {
    leases: &'a [Ended],
}

/// The leases of a client.
#[derive(Default)]
pub(crate) struct Leases {
    wake: Notify,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    held: HashMap<String, Held>,
    ended: VecDeque<Ended>,
    running: bool,
}

struct Held {
    ttl: Duration,
    renew_at: Instant,
}

/// Notes the end of the background tasks, also that of their runtime.
struct Running(Arc<Leases>);

impl Drop for Running {
    fn drop(&mut self) {
        lock(&self.0.table).running = false;
    }
}

impl Leases {
    /// Renews a lease until it is ended.
    pub(crate) fn hold(self: &Arc<Self>, client: &Arc<Inner>, id: String, ttl: Duration) -> Lease {
        let mut table = lock(&self.table);
        table.held.insert(id.clone(), Held { ttl, renew_at: Instant::now() + ttl / 2 });
        let begins = !std::mem::replace(&mut table.running, true);
        drop(table);
        if begins {
            let (running, inner) = (Running(self.clone()), client.clone());
            client.start(async move {
                tokio::select! {
                    () = running.0.renew_all(&inner) => {}
                    () = inner.closed() => {}
                }
            });
            for _ in 0..ENDS_AT_ONCE {
                let (leases, inner) = (self.clone(), client.clone());
                client.start(async move { leases.end_all(&inner).await });
            }
        }
        Lease { id, leases: self.clone() }
    }

    /// One of the tasks that end leases.
    async fn end_all(&self, client: &Inner) {
        while !client.is_closed() {
            tokio::select! {
                () = self.wake.notified() => {}
                () = client.closed() => return,
            }
            if !self.send_ended(client, client.closed()).await {
                sleep(END_PAUSE).await;
                self.wake.notify_one();
            }
        }
    }

    /// Ends leases that wait for it, with one call. Another task ends those that are left. If that fails, or something
    /// happens before, they wait again, and it returns false.
    async fn send_ended(&self, client: &Inner, unless: impl Future<Output = ()>) -> bool {
        let mut part: Vec<Ended> = {
            let mut table = lock(&self.table);
            let n = table.ended.len().min(LEASES_AT_ONCE);
            let part = table.ended.drain(..n).collect();
            if !table.ended.is_empty() {
                self.wake.notify_one();
            }
            part
        };
        if part.is_empty() {
            return true;
        }
        let done = tokio::select! {
            done = done(client, &part) => done,
            () = unless => Err(String::new()),
        };
        let code = match done {
            Ok(()) => return true,
            Err(code) => code,
        };
        if code == "invalid_argument" {
            return true; // that would be the answer to the next try, too
        }
        let mut table = lock(&self.table);
        part.truncate(MAX_ENDED.saturating_sub(table.ended.len()));
        table.ended.extend(part);
        false
    }

    /// Renews the leases that have had half of their time.
    async fn renew_all(self: &Arc<Self>, client: &Arc<Inner>) {
        let slots = Arc::new(Semaphore::new(RENEWALS_AT_ONCE));
        loop {
            sleep(RENEW_TICK).await;
            for (id, ttl) in self.due() {
                let Ok(slot) = slots.clone().acquire_owned().await else { return };
                let (leases, inner) = (self.clone(), client.clone());
                client.start(async move {
                    tokio::select! {
                        () = leases.renew(&inner, &id, ttl) => {}
                        () = inner.closed() => {}
                    }
                    drop(slot);
                });
            }
        }
    }

    /// The leases to renew.
    fn due(&self) -> Vec<(String, Duration)> {
        let at = Instant::now();
        let mut due = Vec::new();
        for (id, held) in &mut lock(&self.table).held {
            if at >= held.renew_at {
                held.renew_at = at + held.ttl; // renew sets it again
                due.push((id.clone(), held.ttl));
            }
        }
        due
    }

    /// Renews a lease. If that fails, it is tried again, unless the lease has expired: the request goes on without it.
    async fn renew(&self, client: &Inner, id: &str, ttl: Duration) {
        if !lock(&self.table).held.contains_key(id) {
            return;
        }
        let mut call = Call::get(
            format!("/v1/leases/{}/renew", encode(id)),
            format!("ttl={}", milliseconds(ttl)),
            "",
            CALL_TIMEOUT,
        );
        (call.method, call.key) = (Method::POST, Some(String::new()));
        let renewed = client.call::<IgnoredAny>(&call).await;
        let mut table = lock(&self.table);
        let Some(held) = table.held.get_mut(id) else { return };
        match renewed {
            Ok(_) => held.renew_at = Instant::now() + ttl / 2,
            Err(error) if error.code() == "unknown_lease" => _ = table.held.remove(id),
            Err(_) => held.renew_at = Instant::now() + MAX_RENEW_PAUSE.min(ttl / 8),
        }
    }

    /// Ends all leases, after the tasks have ended.
    pub(crate) async fn close(&self, client: &Inner) {
        let mut left = {
            let mut table = lock(&self.table);
            let held = std::mem::take(&mut table.held);
            table.ended.extend(held.into_keys().map(|id| Ended { id, outcome: Outcome::Cancelled }));
            table.ended.len()
        };
        while left > 0 && self.send_ended(client, std::future::pending()).await {
            left = left.saturating_sub(LEASES_AT_ONCE); // lbd ends the others when their ttl has passed
        }
    }
}

/// Tells lbd that leases have ended. The error is the code of lbd.
async fn done(client: &Inner, ended: &[Ended]) -> Result<(), String> {
    let mut call = Call::post("/v1/leases/done", &Done { leases: ended });
    call.key = Some(String::new()); // the second end of a lease gets the answer of the first
    client.call::<IgnoredAny>(&call).await.map(drop).map_err(|error| error.code().to_owned())
}
