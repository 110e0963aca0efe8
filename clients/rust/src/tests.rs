//! What can be tested without lbd.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Request;

use crate::aside::Asides;
use crate::ask::{Asked, MAX_QUERY, Picked};
use crate::batch::{Batch, Budget};
use crate::{Ask, Choice, Error, Host};

#[test]
fn a_budget_permits_retries_until_half_of_the_tokens_are_left() {
    let budget = Budget::new(10.0);
    let permitted: Vec<bool> = (0..12).map(|_| budget.failed()).collect();
    assert_eq!(permitted, [[true; 4].as_slice(), &[false; 8]].concat());
    (0..59).for_each(|_| budget.succeeded());
    assert!(!budget.failed()); // 4.9 of 10 are left
    (0..1000).for_each(|_| budget.succeeded());
    assert!(budget.failed());
    budget.fit(200); // adds 10 tokens
    assert_eq!((0..10).filter(|_| budget.failed()).count(), 8);
    budget.fit(20);
    assert_eq!((0..10).filter(|_| budget.failed()).count(), 3);
}

#[test]
fn an_address_is_set_aside_until_its_trial() {
    let asides = Asides::default();
    let after = |seconds| Instant::now() + Duration::from_secs(seconds);
    asides.failed("a", false, 1);
    asides.failed("b", false, 1); // one too many
    assert!(asides.avoids("a", after(0)) && !asides.avoids("b", after(0)));
    assert_eq!(asides.avoided(), ["a"]);
    assert!(!asides.avoids("a", after(2))); // the trial
    assert!(asides.avoids("a", after(2)));
    asides.failed("a", false, 1);
    assert!(asides.avoids("a", after(1)) && !asides.avoids("a", after(3)));
    asides.answered("a");
    assert!(!asides.avoids("a", after(0)));
    for set_aside in [false, false, true] {
        asides.failed("a", true, 1);
        assert_eq!(asides.avoids("a", after(0)), set_aside);
    }
    asides.retain(|address| address == "b");
    assert!(!asides.avoids("a", after(0)));
}

#[test]
fn batches_that_were_used_last_are_kept() {
    let mut asked = Asked::default();
    let put = |asked: &mut Asked, query: String| {
        let batch = Batch::refused(query, Error::closed("orders"), Duration::from_secs(1));
        asked.put(&Arc::new(batch), false);
    };
    for long in ["", &"x".repeat(MAX_QUERY)] {
        let key = |i: usize| format!("{i}{long}");
        put(&mut asked, "used".into());
        for i in 0..1200 {
            put(&mut asked, key(i));
            assert!(asked.get("used").is_some(), "{i}");
        }
        let most = if long.is_empty() { 1000 } else { 4 * 1024 / 24 + 4 };
        let kept = (0..1200).filter(|i| asked.get(&key(*i)).is_some()).count();
        assert!(kept >= most / 3 && kept <= most, "{kept}");
    }
}

#[test]
fn what_requests_ask() {
    let request = Request::get("http://shop.lbd/a%20b?c=d")
        .header("x-user", "a b&")
        .header("cookie", "a=1; b=2")
        .header("tenant", "x")
        .header("tenant", "y");
    let request = request.body(()).unwrap();
    let query = |name: &str, host: &Host, ask: Option<&Ask>| host.query(name, Some(&request), ask);
    let hash = |hash: &str| Host { hash: Some(hash.into()), ..Host::default() };
    assert_eq!(query("shop", &hash("header:X-User"), None), "&hash=a%20b%26");
    assert_eq!(query("shop", &hash("cookie:b"), None), "&hash=2");
    assert_eq!(query("shop", &hash("cookie:c"), None), "");
    let mine = Ask { hash: Some("ü".repeat(1000)), ..Ask::default() };
    assert_eq!(query("shop", &hash("cookie:b"), Some(&mine)), format!("&hash={}", "%C3%BC".repeat(512)));
    let target = Host { headers: vec!["tenant".into(), "none".into()], ..Host::default() };
    assert_eq!(query("xds:///shop", &target, None), "&path=%2Fa%2520b&header.tenant=x&header.tenant=y");
    let given = Ask { path: Some("/p".into()), headers: Some(vec![("a&b".into(), "1".into())]), ..Ask::default() };
    assert_eq!(query("xds:///shop", &target, Some(&given)), "&path=%2Fp&header.a%26b=1");
}

#[test]
fn a_choice_has_what_lbd_says() {
    let answer = r#"{"cluster":"orders","address":"10.0.0.7:80","hostname":"h","priority":1,
        "locality":{"region":"r","zone":"z","sub_zone":"s"},"new":[]}"#;
    let choice = Choice { picked: Arc::new(serde_json::from_str::<Picked>(answer).unwrap()), attempt: 2 };
    assert_eq!((choice.cluster(), choice.address(), choice.hostname()), ("orders", "10.0.0.7:80", "h"));
    assert_eq!((choice.priority(), choice.attempt()), (1, 2));
    let locality = choice.locality();
    assert_eq!((&*locality.region, &*locality.zone, &*locality.sub_zone), ("r", "z", "s"));
}
