//! Names, what requests ask, and calls to lbd for it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use lbd_client::{Ask, Client, Config, Error, ErrorKind, Host, Mode, Outcome};
use tokio::time::sleep;

use crate::common::{Answer, Daemon, refused, until, upstream};

fn key(key: &str) -> Ask {
    Ask { hash: Some(key.into()), ..Ask::default() }
}

async fn pick(client: &Client, name: &str, ask: &Ask) -> Result<String, Error> {
    let pick = client.pick(name, ask).await?;
    let address = pick.address().to_owned();
    pick.end(Outcome::Success);
    Ok(address)
}

async fn picks(lbd: &Daemon, status: &str) -> f64 {
    lbd.metric(&["lbd_http_requests_total", r#"route="/v1/pick""#, status]).await
}

/// Names that lbd does not know neither keep lbd busy, nor clusters from being used, which may be pushed later.
#[tokio::test]
async fn unknown_names_cost_nothing_for_long() {
    let lbd = Daemon::start().await;
    lbd.push(&["127.0.0.1:1"]).await;
    let client = lbd.client(Config::default());
    for i in (0..1100).chain([1099; 20]) {
        let error = pick(&client, &format!("later-{i}"), &Ask::default()).await.expect_err("an error");
        assert_eq!(error.kind(), ErrorKind::UnknownCluster, "{i}: {error}");
    }
    let rejected = picks(&lbd, "404").await;
    assert!((1100.0..1110.0).contains(&rejected), "{rejected}");
    sleep(Duration::from_millis(1500)).await; // longer than an answer is remembered
    assert_eq!(picks(&lbd, "404").await, rejected);
    pick(&client, "orders", &Ask::default()).await.unwrap();
    lbd.push_to("later-1099", &["127.0.0.1:1"]).await;
    until(async || pick(&client, "later-1099", &Ask::default()).await.is_ok()).await;
}

/// In the modes without a batch, the first to be forgotten are those that lbd never gave an endpoint.
#[tokio::test]
async fn a_budget_outlives_unknown_names() {
    let lbd = Daemon::start().await;
    for name in ["orders", "other"] {
        lbd.push_to(name, &["127.0.0.1:1", "127.0.0.1:2"]).await;
    }
    let client = lbd.client(Config { mode: Mode::Pick, max_tokens: 3.0, ..Config::default() });
    let retries = async |name| client.pick(name, &Ask::default()).await.unwrap().next(Outcome::Error).await;
    for name in ["orders", "other"] {
        assert!(retries(name).await);
        assert!(!retries(name).await);
    }
    for i in 0..1100 {
        pick(&client, &format!("later-{i}"), &Ask::default()).await.expect_err("an error");
    }
    assert!(!retries("other").await);
    assert!(!retries("orders").await);
    for i in 0..999 {
        lbd.push_to(&format!("known-{i}"), &["127.0.0.1:1"]).await;
        pick(&client, &format!("known-{i}"), &Ask::default()).await.unwrap();
    }
    assert!(!retries("orders").await);
    assert!(retries("other").await, "it got its last endpoint longest ago");
}

/// What is counted at the cluster that a target has chosen is reported, whatever other names there are.
#[tokio::test]
async fn clusters_of_targets_are_not_forgotten() {
    let lbd = Daemon::start().await;
    lbd.push(&["127.0.0.1:1"]).await;
    lbd.route("shop", "orders").await;
    let client = lbd.client(Config { report_interval: Duration::from_secs(300), ..Config::default() });
    pick(&client, "xds:///shop", &Ask::default()).await.unwrap();
    for i in 0..1000 {
        pick(&client, &format!("invented-{i}"), &Ask::default()).await.expect_err("an error");
    }
    client.close().await;
    assert_eq!(lbd.metric(&["lbd_reported_requests_total", "orders", "success"]).await, 1.0);
}

/// Clusters that are forgotten are no longer followed, also while lbd is unreachable.
#[tokio::test]
async fn forgotten_names_are_not_followed() {
    let client = Client::new(Config { address: Some("unix:/nowhere".into()), ..Config::default() }).unwrap();
    for i in 0..1010 {
        let error = pick(&client, &i.to_string(), &Ask::default()).await.expect_err("an error");
        assert!(error.to_string().contains("/nowhere"), "{i}: {error}");
    }
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    until(async || tasks() < 20).await; // 10 clusters, and reports
}

/// What is too long for lbd is an error of the request, and does not make lbd unreachable.
#[tokio::test]
async fn what_is_too_long_is_an_error_of_the_request() {
    let lbd = Daemon::start().await;
    let good = upstream(Answer::Address).await;
    lbd.push(&[&good]).await;
    lbd.route("shop", "orders").await;
    for mode in [Mode::Batch, Mode::Pick, Mode::Lease] {
        let hosts = [("shop.lbd".into(), Host { target: Some("shop".into()), ..Host::default() })].into();
        let states = Arc::new(Mutex::new(Vec::new()));
        let seen = states.clone();
        let on_state = Some(Arc::new(move |state| seen.lock().unwrap().push(state)) as _);
        let client = lbd.client(Config { mode, hosts, on_state, fallback: Some(good.clone()), ..Config::default() });
        let send = async |url: String| client.send(Request::get(url).body(()).unwrap()).await;
        // lbd rejects the first one, and would say nothing that a client understands to the others.
        let (path, name) = ("%2F".repeat(20_000), "a".repeat(600));
        for url in [
            format!("http://shop.lbd/{}", "a".repeat(5000)),
            format!("http://shop.lbd/{path}"),
            format!("http://{name}.lbd/"),
        ] {
            let error = send(url).await.expect_err("an error");
            assert_eq!((error.kind(), error.code()), (ErrorKind::Unavailable, "invalid_argument"), "{mode:?}");
            assert!(error.to_string().len() < 1000);
            assert_eq!(send("http://shop.lbd/a".into()).await.expect("the target").status(), 200);
        }
        assert_eq!(*states.lock().unwrap(), []);
    }
}

/// Requests that need the batch of a key at the same time wait for one call, which does not end with the first of them.
#[tokio::test]
async fn one_call_for_a_key() {
    let lbd = Daemon::start().await;
    lbd.push(&["127.0.0.1:1"]).await;
    let client = lbd.client(Config { max_age: Duration::from_secs(3600), ..Config::default() });
    pick(&client, "orders", &key("a")).await.unwrap();
    let before = picks(&lbd, "200").await;
    lbd.signal("STOP");
    let request = || {
        let client = client.clone();
        tokio::spawn(async move { pick(&client, "orders", &key("b")).await })
    };
    let first = request();
    sleep(Duration::from_millis(100)).await;
    first.abort();
    let others: Vec<_> = (0..100).map(|_| request()).collect();
    sleep(Duration::from_millis(100)).await;
    lbd.signal("CONT");
    for other in others {
        other.await.unwrap().unwrap();
    }
    assert_eq!(picks(&lbd, "200").await - before, 1.0);
}

/// While lbd is away, a new key goes to any endpoint, also if another one is set aside.
#[tokio::test]
async fn a_new_key_while_lbd_is_away() {
    let lbd = Daemon::start().await;
    let (refused, good) = (refused().await, upstream(Answer::Address).await);
    lbd.push(&[&refused, &good]).await;
    let client = lbd.client(Config::default());
    let send = async |key_of: &str| {
        let request = Request::get("http://orders.lbd/").extension(key(key_of)).body(()).unwrap();
        client.send(request).await.map(|response| response.body().choice().unwrap().attempt())
    };
    until(async || send("a").await.expect("a response") == 2).await; // one is set aside
    lbd.signal("KILL");
    for i in 0..10 {
        let attempt = send(&i.to_string()).await.expect("a response");
        assert!(attempt <= 2, "{attempt}");
    }
}
