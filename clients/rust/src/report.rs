//! Reports of how requests ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::IgnoredAny;
use tokio::time::sleep;

use crate::api::Call;
use crate::client::Inner;
use crate::counts::Tally;
use crate::util::{lock, milliseconds};

/// The time for which connects that failed are collected.
const TELL_PAUSE: Duration = Duration::from_millis(50);
/// A cluster with so many errors is reported early.
const EARLY_ERRORS: u64 = 5;
const EARLY_INTERVAL: Duration = Duration::from_secs(1);
/// The number of endpoints in a report, at most.
const MAX_ENDPOINTS: usize = 1000;
/// Bounds of lbd for the interval of a report.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
const MAX_INTERVAL: Duration = Duration::from_secs(300);

/// The body of POST /v1/reports.
#[derive(Serialize)]
struct Report<'a, T> {
    reporter: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<String>,
    clusters: Vec<ClusterReport<'a, T>>,
}

#[derive(Serialize)]
struct ClusterReport<'a, T> {
    cluster: &'a str,
    endpoints: T,
}

#[derive(Serialize)]
struct Failure<'a> {
    address: &'a str,
    connect_failures: u64,
}

struct Reporting(Arc<Inner>);

impl Drop for Reporting {
    fn drop(&mut self) {
        self.0.reporting.store(false, Ordering::Relaxed);
    }
}

/// The task that tells of failed connects, and whether it has come to its end: else its runtime has.
struct Telling(Arc<Inner>, bool);

impl Telling {
    async fn run(&mut self) {
        tokio::select! {
            () = self.0.tell() => self.1 = true,
            () = self.0.closed() => {}
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        if !self.1 {
            *lock(&self.0.failures) = None;
        }
    }
}

impl Inner {
    /// Has lbd told that a connect has failed.
    pub(crate) fn unreachable(self: &Arc<Self>, cluster: &str, address: &str) {
        let mut failures = lock(&self.failures);
        let begins = failures.is_none();
        let failed = failures.get_or_insert_default();
        if failed.len() < MAX_ENDPOINTS {
            *failed.entry((cluster.into(), address.into())).or_default() += 1;
        }
        drop(failures);
        if begins {
            let mut telling = Telling(self.clone(), false);
            self.start(async move { telling.run().await });
        }
    }

    /// Reports connects that failed, until there are no more.
    async fn tell(&self) {
        loop {
            sleep(TELL_PAUSE).await;
            let failed = {
                let mut failures = lock(&self.failures);
                match failures.take_if(|failed| failed.is_empty()) {
                    Some(_) => return,
                    None => failures.replace(HashMap::new()).unwrap_or_default(),
                }
            };
            let mut by_cluster: HashMap<&str, Vec<Failure<'_>>> = HashMap::new();
            for ((cluster, address), &connect_failures) in &failed {
                by_cluster.entry(cluster).or_default().push(Failure { address, connect_failures });
            }
            let clusters =
                by_cluster.into_iter().map(|(cluster, endpoints)| ClusterReport { cluster, endpoints }).collect();
            let report = Report { reporter: &self.reporter, interval: None, clusters };
            // What lbd does not hear now would come too late.
            _ = self.call::<IgnoredAny>(&Call::post("/v1/reports", &report)).await;
        }
    }

    /// Starts the task that reports, unless it runs.
    pub(crate) fn start_reports(self: &Arc<Self>) {
        if self.reporting.swap(true, Ordering::Relaxed) {
            return;
        }
        let reporting = Reporting(self.clone());
        self.start(async move {
            let client = &reporting.0;
            let interval = client.config.report_interval.max(MIN_INTERVAL);
            let pause = interval.min(EARLY_INTERVAL);
            let mut reported = Instant::now();
            loop {
                tokio::select! {
                    () = sleep(pause) => {}
                    () = client.closed() => return,
                }
                let early = reported.elapsed() < interval - pause / 2;
                client.report(early).await; // comes to its end: lbd may have counted it
                if !early {
                    reported = Instant::now();
                }
            }
        });
    }

    /// Sends what was counted since the last report; early, only of clusters with some errors. What could not be sent is
    /// in the next one.
    pub(crate) async fn report(&self, early: bool) {
        for cluster in self.clusters() {
            if early && cluster.counts.errors() < EARLY_ERRORS {
                continue;
            }
            let (since, mut taken) = cluster.counts.take();
            let interval = Some(milliseconds(since.elapsed().clamp(MIN_INTERVAL, MAX_INTERVAL)));
            while !taken.is_empty() {
                let part: Vec<Tally> = taken.drain(..taken.len().min(MAX_ENDPOINTS)).collect();
                let clusters = vec![ClusterReport { cluster: &cluster.name, endpoints: &part }];
                let report = Report { reporter: &self.reporter, interval: interval.clone(), clusters };
                if self.call::<IgnoredAny>(&Call::post("/v1/reports", &report)).await.is_err() {
                    cluster.counts.give_back(since, part);
                }
            }
        }
    }
}
