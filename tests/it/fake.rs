//! A stand-in for an API server, or for a proxy in front of one, which is slow on request or answers as a proxy does.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, extract::Request, http::StatusCode, response::IntoResponse};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tidegate_cluster::{Cause, Cluster, ClusterName, Error, Kind, Limits, OnConflict, follower, lease};
use tidegate_core::{name::Key, object::Gvk};
use tidegate_process::retry::BACKOFF_MAX;
use tokio::{sync::Semaphore, task::JoinSet};

use crate::harness::{self, Followed, SOON, eventually};

/// Serves until the set of tasks is dropped. Returns a cluster connected to this server.
async fn serve(tasks: &mut JoinSet<()>, router: Router, limits: Limits) -> Cluster {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
    Cluster::new(ClusterName::Kcp, &kube::Config::new(url.parse().unwrap()), limits).unwrap()
}

#[tokio::test]
async fn a_write_that_waited_for_its_place_does_not_leave_once_leadership_is_lost() {
    let client = harness::skr().await.client().unwrap();
    let namespace = harness::namespace(&client, "queued").await;
    let kubeconfig = harness::skr().await.kubeconfig();
    let access = tidegate_cluster::access::parse(kubeconfig.text().as_bytes()).unwrap();
    let election = Arc::new(Cluster::new(ClusterName::Kcp, &access.config().unwrap(), Limits::default()).unwrap());
    let options = lease::Options {
        lease: Key::new(&namespace, "leader"),
        identity: "tidegate_a".to_owned(),
        timing: lease::Timing::default(),
    };
    let (elector, leadership) = lease::Elector::new(election, options);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut tasks = JoinSet::new();
    let elected = tokio::spawn(elector.run(async {
        let _ = stopped.await;
    }));
    tokio::time::timeout(SOON, leadership.acquired()).await.expect("we lead");

    // A server that answers on request, with one request permit.
    let (seen, answers) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(0)));
    let router = Router::new().fallback({
        let (seen, answers) = (Arc::clone(&seen), Arc::clone(&answers));
        async move |request: Request| {
            seen.lock().unwrap().push(request.method().to_string());
            answers.acquire().await.unwrap().forget();
            (StatusCode::NOT_FOUND, "404 page not found\n")
        }
    });
    let limits = Limits { concurrency: 1, ..Limits::default() };
    let cluster = serve(&mut tasks, router, limits).await.guarded(leadership.clone());
    let kind = Kind::built_in(&Gvk::new("", "v1", "ConfigMap")).unwrap();
    let key = Key::new("default", "a");
    let mut read = Box::pin(cluster.get(&kind, &key));
    eventually("the read is under way", SOON, async || {
        assert!(futures::poll!(&mut read).is_pending());
        if seen.lock().unwrap().len() == 1 { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    let (cause, id) = (Cause::default(), kind.id(&key));
    let mut write = Box::pin(cluster.apply(&cause, &kind, &id, "{}".into(), OnConflict::Report));
    assert!(futures::poll!(&mut write).is_pending(), "it waits for the place");

    stop.send(()).unwrap();
    elected.await.unwrap();
    assert!(!leadership.is_leading());
    answers.add_permits(2);
    assert!(read.await.unwrap().is_none());
    let error = write.await.unwrap_err();
    assert!(matches!(error, Error::NotLeading), "{error:?}");
    assert_eq!(*seen.lock().unwrap(), ["GET"]);
}

#[tokio::test]
async fn whatever_an_api_server_asks_to_wait_has_a_limit_also_if_its_answer_never_ends() {
    let kind = Kind::built_in(&Gvk::new("", "v1", "ConfigMap")).unwrap();
    let limits = Limits { request_timeout: Duration::from_secs(1), ..Limits::default() };
    for (value, expected) in [
        ("7", Some(Duration::from_secs(7))),
        ("86400", Some(BACKOFF_MAX)),
        ("18446744073709551615", Some(BACKOFF_MAX)),
        ("99999999999999999999999", Some(BACKOFF_MAX)),
        ("Fri, 31 Dec 9999 23:59:59 GMT", Some(BACKOFF_MAX)),
        ("soon", None),
    ] {
        let mut tasks = JoinSet::new();
        let router = Router::new().fallback(async move || {
            (StatusCode::TOO_MANY_REQUESTS, [("retry-after", value)], "slow down").into_response()
        });
        let cluster = serve(&mut tasks, router, limits).await;
        let error = cluster.get(&kind, &Key::new("default", "a")).await.unwrap_err();
        assert_eq!(error.retry_after(), expected, "{value}: {error}");
    }
    // Only the head of the answer comes.
    let mut tasks = JoinSet::new();
    let router = Router::new().fallback(async || {
        let body = Body::from_stream(futures::stream::pending::<Result<axum::body::Bytes, std::io::Error>>());
        (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "99999999999999999999999")], body).into_response()
    });
    let cluster = serve(&mut tasks, router, limits).await;
    let asked = tokio::time::timeout(SOON, cluster.get(&kind, &Key::new("default", "a"))).await;
    let error = asked.expect("the request has a limit").unwrap_err();
    assert!(error.is_unreachable() && error.retry_after().is_none(), "{error}");
}

/// The answers of the server in the next test.
const SERVED: u8 = 0;
const HIDDEN: u8 = 1;
const REMOVED: u8 = 2;

#[tokio::test]
async fn a_list_whose_next_page_is_too_old_begins_anew_once_and_is_never_taken_for_all_of_it() {
    for (too_old, expected) in [(1, Some(["a2", "b"])), (2, None)] {
        let (first, left) = (AtomicUsize::new(0), AtomicUsize::new(too_old));
        let pages = Arc::new((first, left));
        let router = Router::new().fallback(async move |request: Request| {
            let (first, left) = &*pages;
            let item = |name: &str| json!({"metadata": {"name": name, "namespace": "default"}});
            if !request.uri().to_string().contains("continue=") {
                let name = format!("a{}", first.fetch_add(1, Ordering::SeqCst) + 1);
                return axum::Json(json!({"metadata": {"continue": "next"}, "items": [item(&name)]})).into_response();
            }
            if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
                let gone = json!({"kind": "Status", "code": 410, "reason": "Expired"});
                return (StatusCode::GONE, axum::Json(gone)).into_response();
            }
            axum::Json(json!({"metadata": {"resourceVersion": "1"}, "items": [item("b")]})).into_response()
        });
        let mut tasks = JoinSet::new();
        let cluster = serve(&mut tasks, router, Limits::default()).await;
        let kind = Kind::built_in(&Gvk::new("", "v1", "ConfigMap")).expect("a built-in kind");
        let listed = cluster.list_metadata(&kind, None, None).await;
        let names = listed.map(|all| all.iter().map(|one| one.id.name.to_string()).collect::<Vec<_>>());
        match expected {
            Some(expected) => assert_eq!(names.expect("the second list ends"), expected),
            None => assert!(matches!(names, Err(Error::Expired { .. })), "{names:?}"),
        }
    }
}

#[tokio::test]
async fn a_404_of_a_proxy_empties_no_table_and_one_that_discovery_confirms_does() {
    let (mode, hidden) = (Arc::new(AtomicU8::new(SERVED)), Arc::new(AtomicUsize::new(0)));
    let router = Router::new().fallback({
        let (mode, hidden) = (Arc::clone(&mode), Arc::clone(&hidden));
        async move |request: Request| answer(mode.load(Ordering::SeqCst), &hidden, &request)
    });
    let mut tasks = JoinSet::new();
    let cluster = Arc::new(serve(&mut tasks, router, Limits::default()).await);
    let kind = Kind::new(Gvk::new("example.org", "v1", "Boat"), "boats", true);
    let options = follower::Options::all(kind).absent_pause(Duration::from_millis(100));
    let store = Followed::new();
    let known = store.clone();
    tasks.spawn(follower::follow::<ConfigMap, String>(
        cluster,
        options,
        |object| object.data?.remove("key"),
        move |change| known.take(&change),
    ));
    tokio::time::timeout(SOON, store.synced()).await.expect("the first list is complete");
    let key = Key::new("default", "a");
    assert_eq!(store.get(&key).as_deref().map(String::as_str), Some("1"));

    mode.store(HIDDEN, Ordering::SeqCst);
    eventually("the proxy was believed or not, three times", SOON, async || {
        let lists = hidden.load(Ordering::SeqCst);
        if 3 <= lists { Ok(()) } else { Err(format!("{lists} lists")) }
    })
    .await;
    assert!(store.get(&key).is_some(), "discovery says that the kind is served");

    mode.store(REMOVED, Ordering::SeqCst);
    eventually(
        "the table is empty",
        SOON,
        async || if store.all().is_empty() { Ok(()) } else { Err("not yet".to_owned()) },
    )
    .await;
}

fn answer(mode: u8, hidden: &AtomicUsize, request: &Request) -> axum::response::Response {
    let uri = request.uri().to_string();
    let boat = json!({"resource": "boats", "responseKind": {"kind": "Boat"}, "scope": "Namespaced"});
    let groups = json!([{"metadata": {"name": "example.org"}, "versions": [{"version": "v1", "resources": [boat]}]}]);
    let items = if mode == REMOVED { json!([]) } else { groups };
    match (uri.as_str(), mode) {
        ("/apis", _) => axum::Json(json!({"kind": "APIGroupDiscoveryList", "items": items})).into_response(),
        (uri, SERVED) if uri.contains("watch=true") => {
            let gone = json!({"kind": "Status", "code": 410, "reason": "Expired"});
            (StatusCode::GONE, axum::Json(gone)).into_response()
        }
        (_, SERVED) => {
            let item = json!({"metadata": {"name": "a", "namespace": "default"}, "data": {"key": "1"}});
            axum::Json(json!({"metadata": {"resourceVersion": "1"}, "items": [item]})).into_response()
        }
        (_, HIDDEN) => {
            hidden.fetch_add(1, Ordering::SeqCst);
            (StatusCode::NOT_FOUND, "no such backend\n").into_response()
        }
        _ => (StatusCode::NOT_FOUND, "404 page not found\n").into_response(),
    }
}
