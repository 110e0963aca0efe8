//! The examples, with a real lbd.

#[allow(dead_code, reason = "its main")]
#[path = "../../examples/otel.rs"]
mod otel;
#[allow(dead_code, reason = "its main")]
#[path = "../../examples/reqwest.rs"]
mod with_reqwest;

use std::collections::BTreeMap;

use crate::common::{Answer, Daemon, refused, until, upstream};
use http::Request;
use lbd_client::{Config, Mode};
use opentelemetry::Context;
use opentelemetry::trace::{FutureExt, SpanKind, TraceContextExt, Tracer, TracerProvider};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData};

fn attributes(span: &SpanData) -> BTreeMap<String, String> {
    span.attributes.iter().map(|pair| (pair.key.to_string(), pair.value.to_string())).collect()
}

#[tokio::test]
async fn spans_of_tries() {
    let lbd = Daemon::start().await;
    let failing = [upstream(Answer::Status(503)).await, upstream(Answer::Close).await];
    lbd.push(&[&failing[0], &failing[1]]).await;
    let exporter = otel::InMemory::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let client = lbd.client(Config { on_attempt: Some(otel::on_attempt(&provider)), ..Config::default() });
    let parent = Context::current_with_span(provider.tracer("test").start("parent"));
    let request = Request::get("http://orders.lbd/?secret=1").body(()).unwrap();
    _ = client.send(request).with_context(parent.clone()).await;
    let spans = exporter.0.lock().unwrap().clone();
    assert_eq!(spans.len(), 2);
    for (i, span) in spans.iter().enumerate() {
        assert_eq!((&*span.name, &span.span_kind), ("GET", &SpanKind::Client));
        assert_eq!(span.parent_span_id, parent.span().span_context().span_id());
        assert!(span.start_time < span.end_time);
        let is = attributes(span);
        let peer = format!("{}:{}", is["network.peer.address"], is["network.peer.port"]);
        let mut want = BTreeMap::from([
            ("http.request.method", "GET"),
            ("server.address", "orders.lbd"),
            ("server.port", "80"),
            ("lbd.cluster", "orders"),
            ("network.peer.address", "127.0.0.1"),
            ("network.peer.port", peer.rsplit_once(':').unwrap().1),
            ("error.type", "error"),
        ]);
        if peer == failing[0] {
            want.extend([("http.response.status_code", "503"), ("error.type", "503")]);
        }
        if i == 1 {
            want.insert("http.request.resend_count", "1");
        }
        assert_eq!(is, want.into_iter().map(|(key, value)| (key.into(), value.into())).collect());
    }
}

#[tokio::test]
async fn requests_by_reqwest() {
    let lbd = Daemon::start().await;
    let (refused, failing, good) =
        (refused().await, upstream(Answer::Status(503)).await, upstream(Answer::Address).await);
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let post = || http.post("http://orders.lbd/").body("the end").build().unwrap();
    for mode in [Mode::Batch, Mode::Pick, Mode::Lease] {
        let client = lbd.client(Config { mode, ..Config::default() });
        lbd.push(&[&refused, &good]).await;
        for _ in 0..6 {
            let response = with_reqwest::send(&client, &http, post()).await.unwrap();
            assert_eq!(response.text().await.unwrap(), good);
        }
        client.close().await;
        let client = lbd.client(Config { mode, ..Config::default() });
        lbd.push(&[&failing, &good]).await;
        let mut failed = 0;
        for _ in 0..16 {
            let request = http.get("http://orders.lbd/").build().unwrap();
            assert_eq!(with_reqwest::send(&client, &http, request).await.unwrap().status(), 200);
            failed += u32::from(with_reqwest::send(&client, &http, post()).await.unwrap().status() == 503);
        }
        assert!(failed > 0, "{mode:?}");
        client.close().await;
        until(async || lbd.in_flight().await == 0).await;
    }
    assert!(lbd.metric(&["lbd_reported_requests_total", "error"]).await > 0.0);
}
