use serde_json::json;
use tidegate_core::conditions;

use super::*;
use tidegate_core::name::Key;

/// The answers of the control plane to a pass.
#[derive(Clone)]
struct World {
    served: &'static [&'static str],
    live: Option<Value>,
    desired: Result<(), &'static str>,
    refuses: Option<&'static str>,
}

/// Every act of a pass, one line each, and the state after it.
struct Played {
    script: Vec<String>,
    status: WatcherStatus,
    remembered: Option<Digest>,
}

const ALL: &[&str] = &["VirtualService", "Gateway"];

#[test]
fn a_pass_starts_with_what_can_be_read() {
    let (live, leaving) =
        (Arc::new(held()), Arc::new(watcher(&json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }))));
    let start = |watcher: Option<&Arc<Watcher>>, unreadable: Option<&Arc<Watcher>>| match start(
        watcher,
        unreadable.map(|watcher| &watcher.metadata),
    ) {
        Start::BeginWithTemplates(_) => "with templates",
        Start::Begin(_) => "without templates",
        Start::Defer => "defer",
        Start::Forget => "forget",
    };
    assert_eq!(start(Some(&live), None), "with templates");
    assert_eq!(start(Some(&leaving), None), "without templates");
    assert_eq!(start(Some(&live), Some(&live)), "with templates", "its last readable state is still routed");
    assert_eq!(start(Some(&live), Some(&leaving)), "defer", "the route of an unknown manager is not deleted");
    assert_eq!(start(Some(&leaving), Some(&live)), "defer");
    assert_eq!(start(None, Some(&live)), "defer");
    assert_eq!(start(None, None), "forget");
}

#[test]
fn a_new_watcher_gets_its_finalizer_before_its_route() {
    let (watcher, key) = (watcher(&json!({})), key());
    let played = play(known(&watcher, &key), &world());
    let script = [
        "take charge",
        "render",
        "discover VirtualService",
        "read",
        "apply",
        "report Ready",
        "end After(300s, Resync)",
    ];
    assert_eq!(played.script, script);
    assert_eq!(played.remembered, Some(virtual_service().digest()));
}

#[test]
fn an_unchanged_watcher_costs_no_request_in_this_process_nor_in_the_next() {
    let (mut watcher, key) = (held(), key());
    watcher.status = Some(play(known(&watcher, &key), &world()).status);
    let in_next_process = play(known(&watcher, &key), &world());
    assert_eq!(in_next_process.script, ["render", "end After(300s, Resync)"]);
    assert_eq!(in_next_process.remembered, Some(virtual_service().digest()));
    let known = Known { remembered: in_next_process.remembered, ..known(&watcher, &key) };
    assert_eq!(play(known, &world()).script, ["render", "end After(300s, Resync)"]);
}

#[test]
fn a_look_reads_the_route_and_writes_only_what_differs() {
    let (mut watcher, key) = (held(), key());
    watcher.status = Some(play(known(&watcher, &key), &world()).status);
    let known = Known { look: true, ..known(&watcher, &key) };
    let same = World { live: Some(live(&json!({ "hosts": ["a"] }), "u1")), ..world() };
    assert_eq!(play(known.clone(), &same).script[1..], ["discover VirtualService", "read", "end After(300s, Resync)"]);
    let edited = World { live: Some(live(&json!({ "hosts": ["b"] }), "u1")), ..world() };
    let script = ["discover VirtualService", "read", "apply", "end After(300s, Resync)"];
    assert_eq!(play(known, &edited).script[1..], script);
}

#[test]
fn a_route_of_others_is_not_applied_over() {
    let (watcher, key) = (held(), key());
    let theirs = World { live: Some(live(&json!({ "hosts": ["b"] }), "another")), ..world() };
    let played = play(known(&watcher, &key), &theirs);
    assert_eq!(played.script, ["render", "discover VirtualService", "read", "report Error", "end Failed(Stalled)"]);
    assert!(problem(&played).contains("exists and is not managed by Tidegate"), "{}", problem(&played));
    assert_eq!(played.remembered, None);
}

#[test]
fn a_younger_rival_gives_up_its_route_and_no_other() {
    let (watcher, key) = (held(), key());
    let remembered = Some(virtual_service().digest());
    let known = Known { rival: Some(Key::new("kcp-system", "older")), remembered, ..known(&watcher, &key) };
    let own = World { live: Some(live(&json!({}), "u1")), ..world() };
    let played = play(known.clone(), &own);
    let script = ["discover VirtualService", "read", "delete", "report Error", "end Failed(Stalled)"];
    assert_eq!(played.script, script);
    assert_eq!(played.remembered, None);
    assert!(problem(&played).starts_with("Watcher kcp-system/older has the same manager"));
    let theirs = World { live: Some(live(&json!({}), "another")), ..world() };
    let script = ["discover VirtualService", "read", "report Error", "end Failed(Stalled)"];
    assert_eq!(play(known, &theirs).script, script);
}

#[test]
fn a_watcher_whose_agents_reach_this_process_needs_no_istio() {
    let (mut watcher, key) = (held(), key());
    watcher.spec.manager = Some(names::MANAGED_BY_KCP.to_owned());
    let direct = Known { has_address: true, gateways: Vec::new(), ..known(&watcher, &key) };
    assert_eq!(play(direct.clone(), &World { served: &[], ..world() }).script, ["report Ready", "end Done"]);
    let remembered = Some(virtual_service().digest());
    let before = World { live: Some(live(&json!({}), "u1")), ..world() };
    let played = play(Known { remembered, ..direct.clone() }, &before);
    assert_eq!(played.script, ["discover VirtualService", "read", "delete", "report Ready", "end Done"]);
    assert_eq!(played.remembered, None);
    // A Gateway that its selector matches requires a route nevertheless.
    let script = play(Known { gateways: vec![gateway()], ..direct }, &world()).script;
    assert_eq!(script[..2], ["render", "discover VirtualService"]);
}

#[test]
fn what_is_missing_is_named() {
    let (watcher, key) = (held(), key());
    let check = |world: &World, gateways: Vec<reporting::Gateway>, end: &str, why: &str| {
        let played = play(Known { gateways, ..known(&watcher, &key) }, world);
        assert_eq!(played.script.last().unwrap(), end);
        assert!(problem(&played).contains(why), "{}", problem(&played));
        assert!(!played.script.iter().any(|line| line == "apply"), "{:?}", played.script);
    };
    let no_route = World { desired: Err("no Gateway matches"), ..world() };
    check(&no_route, Vec::new(), "end Failed(Stalled)", "no Gateway matches");
    check(&World { served: &[], ..no_route.clone() }, Vec::new(), "end Failed(Waiting)", "serves no Gateways");
    check(&World { served: &[], ..no_route }, vec![gateway()], "end Failed(Stalled)", "no Gateway matches");
    check(&World { served: &["Gateway"], ..world() }, vec![gateway()], "end Failed(Waiting)", "no VirtualServices");
}

#[test]
fn what_the_api_server_refuses_is_reported_and_not_remembered() {
    let (watcher, key) = (held(), key());
    let played = play(known(&watcher, &key), &World { refuses: Some("spec.hosts: invalid"), ..world() });
    let script = ["render", "discover VirtualService", "read", "apply", "report Error", "end Failed(Stalled)"];
    assert_eq!(played.script, script);
    assert_eq!((problem(&played), played.remembered), ("spec.hosts: invalid", None));
}

#[test]
fn a_deleted_watcher_keeps_its_finalizer_until_its_route_is_gone() {
    let (mut watcher, key) = (held(), key());
    watcher.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let own = World { live: Some(live(&json!({}), "u1")), ..world() };
    let script = ["discover VirtualService", "read", "delete", "release", "end Gone"];
    assert_eq!(play(known(&watcher, &key), &own).script, script);
    let without_istio = World { served: &[], ..world() };
    assert_eq!(play(known(&watcher, &key), &without_istio).script, ["discover VirtualService", "release", "end Gone"]);
    watcher.metadata.finalizers = None;
    assert_eq!(play(known(&watcher, &key), &own).script, ["end Gone"]);
}

#[test]
fn companions_and_the_request_are_in_the_status_until_they_are_over() {
    let (mut watcher, key) = (held(), key());
    let requested = (annotation::RECONCILE_REQUESTED_AT.to_owned(), "now".to_owned());
    watcher.metadata.annotations = Some([requested].into());
    assert!(looks(Triggers::default(), &watcher));
    let known_with = Known { companions: vec![Key::new("kcp-system", "second")], ..known(&watcher, &key) };
    let status = play(known_with, &world()).status;
    let message = conditions::message(&status.conditions, conditions::SHARED_MANAGER).unwrap().to_owned();
    assert!(message.contains("Watcher kcp-system/second"), "{message}");
    watcher.status = Some(status);
    assert!(!looks(Triggers::default(), &watcher));
    let after = play(known(&watcher, &key), &world()).status;
    assert_eq!(conditions::find(&after.conditions, conditions::SHARED_MANAGER), None);
}

/// Runs a pass over a world that answers at once.
fn play(mut known: Known<'_>, world: &World) -> Played {
    let mut observed = Observed::new(known.watcher);
    let mut status = known.watcher.status.clone().unwrap_or_default();
    let mut script = Vec::new();
    loop {
        let decision = decide(&known, &observed, Timestamp::UNIX_EPOCH);
        known.remembered = decision.remembered;
        let act = match decision.next {
            Next::Do(act) => act,
            Next::End(finish) => {
                script.push(format!("end {finish:?}"));
                return Played { script, status, remembered: known.remembered };
            }
        };
        script.push(name(&act));
        assert!(script.len() < 20, "a question is asked twice: {script:?}");
        match act {
            Act::TakeCharge => observed.charge = Charge::Taken,
            Act::Discover(gvk) => {
                let kind = Kind::new(gvk.clone(), "plural", true);
                let is_served = world.served.contains(&&*gvk.kind);
                observed.kinds.insert(gvk, is_served.then_some(kind));
            }
            Act::Render => observed.desired = Some(world.desired.map(|()| virtual_service()).map_err(str::to_owned)),
            Act::Read(_) => {
                let live = world.live.clone().map(|live| Object::new(live).unwrap());
                observed.route = live.map_or(Route::Absent, Route::Found);
            }
            Act::Apply(..) => {
                observed.route = world.refuses.map_or(Route::Applied, |why| Route::Refused(why.to_owned()));
            }
            Act::Delete(..) => observed.route = Route::Absent,
            Act::Report(written) => {
                status = written;
                observed.is_reported = true;
            }
            Act::Release => observed.charge = Charge::Released,
        }
    }
}

fn name(act: &Act) -> String {
    match act {
        Act::TakeCharge => "take charge".to_owned(),
        Act::Discover(gvk) => format!("discover {}", gvk.kind),
        Act::Render => "render".to_owned(),
        Act::Read(_) => "read".to_owned(),
        Act::Apply(..) => "apply".to_owned(),
        Act::Delete(..) => "delete".to_owned(),
        Act::Report(status) => format!("report {:?}", status.state),
        Act::Release => "release".to_owned(),
    }
}

/// Why there is no route, according to the status.
fn problem(played: &Played) -> &str {
    conditions::find(&played.status.conditions, conditions::ROUTE).map_or("", |condition| &condition.message)
}

fn world() -> World {
    World { served: ALL, live: None, desired: Ok(()), refuses: None }
}

fn known<'a>(watcher: &'a Watcher, key: &'a Key) -> Known<'a> {
    Known {
        watcher,
        key,
        remembered: None,
        rival: None,
        companions: Vec::new(),
        gateways: vec![gateway()],
        has_address: false,
        look: false,
    }
}

fn key() -> Key {
    Key::new("kcp-system", "first")
}

fn held() -> Watcher {
    watcher(&json!({ "finalizers": [names::finalizer::WATCHER] }))
}

fn watcher(more: &Value) -> Watcher {
    let mut metadata = json!({ "name": "first", "namespace": "kcp-system", "uid": "u1" });
    metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut watcher = Watcher::new("first", tidegate_core::api::watcher::WatcherSpec::default());
    watcher.metadata = serde_json::from_value(metadata).unwrap();
    watcher
}

fn gateway() -> reporting::Gateway {
    reporting::Gateway { key: Key::new("kcp-system", "gateway"), servers: Vec::new() }
}

fn virtual_service() -> Object {
    Object::new(json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "VirtualService",
        "metadata": { "name": "first", "namespace": "kcp-system" },
        "spec": { "hosts": ["a"] },
    }))
    .unwrap()
}

fn live(spec: &Value, owner: &str) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "VirtualService",
        "metadata": {
            "name": "first", "namespace": "kcp-system", "uid": "v1", "resourceVersion": "7",
            "ownerReferences": [{ "uid": owner }],
        },
        "spec": spec,
    })
}
