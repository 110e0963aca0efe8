//! What the conformance tests do not play. All tests with a real lbd are one program, which is linked once.

mod asked;
mod common;
mod examples;
#[cfg(feature = "tls")]
mod https;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use common::{Answer, Daemon, refused, until, upstream};
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use lbd_client::{Ask, Body, Client, Config, Error, ErrorKind, Host, Mode, Outcome, Received, ResponseBody};

async fn get(client: &Client) -> Result<String, Error> {
    text(client.send(Request::get("http://orders.lbd/").body(()).unwrap()).await?).await
}

async fn text(response: Response<ResponseBody<Received>>) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(&response.into_body().collect().await?.to_bytes()).into_owned())
}

fn lease() -> Config {
    Config { mode: Mode::Lease, ..Config::default() }
}

#[test]
fn settings_that_are_not_valid() {
    let invalid = |config: Config| Client::new(config).expect_err("an error").to_string();
    let address = |address: &str| invalid(Config { address: Some(address.into()), ..Config::default() });
    for wrong in ["", "localhost:8080", "unix:", "ftp://localhost", "http://localhost/v1", "http://localhost?a=b"] {
        assert!(address(wrong).contains("is not unix:PATH"), "{wrong}: {}", address(wrong));
    }
    assert!(!address("http://user:secret@localhost").contains("secret"));
    let host = |host: Host| invalid(Config { hosts: [("a".to_owned(), host)].into(), ..Config::default() });
    assert!(host(Host { target: Some("t".into()), ..Host::from("c") }).contains("not both"));
    for wrong in ["session", "cookie:", "query:a"] {
        assert!(host(Host { hash: Some(wrong.into()), ..Host::default() }).contains("is not header:NAME"), "{wrong}");
    }
    assert!(invalid(Config { ca: Some("/nowhere".into()), ..Config::default() }).contains("/nowhere"));
}

#[tokio::test]
async fn a_body_that_is_late_ends_at_the_deadline() {
    let lbd = Daemon::start().await;
    lbd.push(&[&upstream(Answer::Half).await]).await;
    let client = lbd.client(Config { timeout: Some(Duration::from_millis(300)), ..Config::default() });
    assert_eq!(get(&client).await.expect_err("an error").kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn a_request_that_its_caller_drops_is_cancelled_and_its_lease_ended() {
    let lbd = Daemon::start().await;
    lbd.push(&[&upstream(Answer::Hang).await]).await;
    let client = lbd.client(lease());
    let sender = client.clone();
    let request = tokio::spawn(async move { get(&sender).await });
    until(async || lbd.in_flight().await == 1).await;
    request.abort();
    until(async || lbd.in_flight().await == 0).await;
    assert!(lbd.metric(&["lbd_leases_finished_total", "cancelled"]).await >= 1.0);
}

#[tokio::test]
async fn a_pick_that_is_dropped_ends_its_lease() {
    let lbd = Daemon::start().await;
    lbd.push(&["127.0.0.1:1"]).await;
    let client = lbd.client(lease());
    let pick = client.pick("orders", &Ask::default()).await.unwrap();
    assert_eq!(lbd.in_flight().await, 1);
    drop(pick);
    until(async || lbd.in_flight().await == 0).await;
}

/// A pick may be dropped or end in a thread without a runtime.
#[tokio::test]
async fn a_pick_ends_in_any_thread() {
    let lbd = Daemon::start().await;
    lbd.push(&["127.0.0.1:1"]).await;
    for mode in [Mode::Batch, Mode::Pick, Mode::Lease] {
        let client = lbd.client(Config { mode, ..Config::default() });
        let pick = client.pick("orders", &Ask::default()).await.unwrap();
        std::thread::spawn(move || pick.end(Outcome::Unreachable)).join().expect("no panic");
    }
}

#[tokio::test]
async fn a_lease_is_renewed() {
    let lbd = Daemon::start().await;
    lbd.push(&["127.0.0.1:1"]).await;
    let client = lbd.client(Config { ttl: Duration::from_secs(1), ..lease() });
    let pick = client.pick("orders", &Ask::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(lbd.in_flight().await, 1);
    pick.end(Outcome::Success);
    until(async || lbd.in_flight().await == 0).await;
}

#[tokio::test]
async fn the_last_clone_of_a_client_sends_the_last_report() {
    let lbd = Daemon::start().await;
    lbd.push(&[&upstream(Answer::Address).await]).await;
    let client = lbd.client(Config { report_interval: Duration::from_secs(300), ..Config::default() });
    get(&client.clone()).await.unwrap();
    drop(client);
    until(async || lbd.metric(&["lbd_reported_requests_total", "success"]).await == 1.0).await;
}

#[tokio::test]
async fn a_closed_client_sends_nothing() {
    let lbd = Daemon::start().await;
    lbd.push(&[&upstream(Answer::Address).await]).await;
    for mode in [Mode::Batch, Mode::Pick, Mode::Lease] {
        let client = lbd.client(Config { mode, ..Config::default() });
        get(&client).await.unwrap();
        client.close().await;
        client.close().await;
        assert!(get(&client).await.expect_err("an error").to_string().contains("closed"), "{mode:?}");
    }
}

/// Each test has a runtime of its own: so may programs.
#[test]
fn a_client_outlives_a_runtime() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let lbd = first.block_on(Daemon::start());
    let client = lbd.client(Config { stale_for: Duration::ZERO, ..Config::default() });
    for runtime in [first, runtime()] {
        runtime.block_on(async {
            lbd.push(&[&upstream(Answer::Address).await]).await;
            get(&client).await.unwrap();
        });
    }
}

/// A body that is made once.
fn stream(parts: &'static [Result<&'static str, &'static str>]) -> Body {
    let mut parts = parts.iter();
    Body::stream(StreamBody::new(Next(move || {
        parts.next().map(|part| part.map(|text| http_body::Frame::data(Bytes::from_static(text.as_bytes()))))
    })))
}

struct Next<F>(F);

impl<T, F: FnMut() -> Option<T> + Unpin> futures_core::Stream for Next<F> {
    type Item = T;

    fn poll_next(mut self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<Option<T>> {
        std::task::Poll::Ready((self.0)())
    }
}

#[tokio::test]
async fn a_stream_is_sent_again_only_if_nothing_of_it_was_read() {
    let lbd = Daemon::start().await;
    let (refused, good) = (refused().await, upstream(Answer::Address).await);
    lbd.push(&[&refused, &good]).await;
    let client = lbd.client(Config::default());
    for _ in 0..8 {
        let body = stream(&[Ok("the "), Ok("end")]);
        let response = client.send(Request::put("http://orders.lbd/").body(body).unwrap()).await.unwrap();
        assert_eq!(text(response).await.unwrap(), good);
    }
    lbd.push(&[&upstream(Answer::Close).await, &upstream(Answer::Close).await]).await;
    let tries = Arc::new(Mutex::new(0));
    let counted = tries.clone();
    let on_attempt = Some(Arc::new(move |_: &lbd_client::Attempt| *counted.lock().unwrap() += 1) as _);
    let client = lbd.client(Config { on_attempt, ..Config::default() });
    let request = Request::put("http://orders.lbd/").body(stream(&[Ok("the "), Ok("end")])).unwrap();
    assert_eq!(client.send(request).await.expect_err("an error").kind(), ErrorKind::Connection);
    assert_eq!(*tries.lock().unwrap(), 1);
}

#[tokio::test]
async fn a_body_that_fails_is_not_the_fault_of_the_endpoint() {
    let lbd = Daemon::start().await;
    lbd.push(&[&upstream(Answer::Address).await]).await;
    let client = lbd.client(Config::default());
    let request = Request::put("http://orders.lbd/").body(stream(&[Ok("the "), Err("no more")])).unwrap();
    assert_eq!(client.send(request).await.expect_err("an error").kind(), ErrorKind::Invalid);
    client.close().await;
    assert_eq!(lbd.metric(&["lbd_reported_requests_total", "cancelled"]).await, 1.0);
}

#[tokio::test]
async fn other_hosts_are_not_touched() {
    let client = Client::new(Config { address: Some("unix:/nowhere".into()), ..Config::default() }).unwrap();
    let address = upstream(Answer::Address).await;
    let response = client.send(Request::get(format!("http://{address}/")).body(()).unwrap()).await.unwrap();
    assert!(response.body().choice().is_none());
    assert_eq!(text(response).await.unwrap(), address);
}

#[tokio::test]
async fn hosts_have_no_upper_and_lower_case() {
    let lbd = Daemon::start().await;
    let address = upstream(Answer::Address).await;
    lbd.push(&[&address]).await;
    let client = lbd.client(Config { hosts: [("Shop.Example".into(), "orders".into())].into(), ..Config::default() });
    for host in ["Shop.Example", "shop.example", "SHOP.EXAMPLE", "Orders.LBD"] {
        let response = client.send(Request::get(format!("http://{host}/")).body(()).unwrap()).await.expect(host);
        assert_eq!(text(response).await.unwrap(), address);
    }
}

/// Connections are used again, and an answer without a body gives its connection back as well.
#[tokio::test]
async fn connections_stay_open() {
    let lbd = Daemon::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    lbd.push(&[&listener.local_addr().unwrap().to_string()]).await;
    let client = lbd.client(Config { mode: Mode::Pick, ..Config::default() });
    let requests = async {
        for _ in 0..5 {
            get(&client).await.unwrap();
        }
    };
    let server = async {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = listener.accept().await.unwrap(); // and no other
        let mut request = [0; 4096];
        while stream.read(&mut request).await.unwrap() > 0 {
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        }
    };
    tokio::select! { () = requests => {}, () = server => panic!("the connection has ended") }
}
