use k8s_openapi::jiff::Timestamp;
use tidegate_core::api::shared::{State, Time};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn manifest(name: &str, resource_version: &str) -> Arc<Manifest> {
    let mut manifest = Manifest::default();
    manifest.metadata.name = Some(name.to_owned());
    manifest.metadata.namespace = Some("kcp-system".to_owned());
    manifest.metadata.resource_version = Some(resource_version.to_owned());
    Arc::new(manifest)
}

fn shown(manifests: &[&Arc<Manifest>]) -> ShownManifests {
    manifests.iter().map(|&manifest| (landscape::key(&manifest.metadata), Arc::clone(manifest))).collect()
}

fn versions(manifests: &[Arc<Manifest>]) -> Vec<String> {
    let text = |manifest: &Arc<Manifest>| {
        let metadata = &manifest.metadata;
        format!("{} {}", metadata.name.clone().unwrap(), metadata.resource_version.clone().unwrap())
    };
    manifests.iter().map(text).collect()
}

fn key(name: &str) -> Key {
    Key::new("kcp-system", name)
}

#[test]
fn our_own_write_counts_until_the_watch_has_caught_up() {
    assert!(is_newer(Some("10"), Some("9")));
    assert!(!is_newer(Some("9"), Some("10")));
    assert!(!is_newer(Some("10"), Some("10")));
    assert!(!is_newer(Some("x"), Some("9")), "what is no number is not compared");
    assert!(!is_newer(None, Some("9")));
}

#[test]
fn the_latest_of_each_manifest_is_what_the_watch_shows_or_what_we_wrote_since() {
    let mut writes = ManifestWrites::default();
    for manifest in [manifest("b", "10"), manifest("c", "10"), manifest("d", "10")] {
        writes.written(&manifest, Instant::now());
    }
    let watched = [manifest("a", "1"), manifest("b", "9"), manifest("c", "11")];
    let latest = writes.latest(shown(&watched.each_ref()));
    assert_eq!(versions(&latest), ["a 1", "b 10", "c 11", "d 10"], "d is not shown yet");
    assert_eq!(versions(&writes.latest(shown(&[]))), ["b 10", "d 10"], "the watch is past what we wrote of c");
}

#[test]
fn what_the_watch_does_not_show_is_asked_for_after_two_seconds() {
    let (start, mut writes) = (Instant::now(), ManifestWrites::default());
    let one = manifest("one", "1");
    writes.written(&one, start);
    let mut asked = |shown: &ShownManifests, after| Vec::from_iter(writes.must_ask(shown, |_| false, start + after));
    assert_eq!(asked(&shown(&[]), LAG_MAX - SECOND), []);
    assert_eq!(asked(&shown(&[]), LAG_MAX), [key("one")]);
    assert_eq!(asked(&shown(&[&one]), LAG_MAX), []);
}

#[test]
fn what_we_brought_to_its_end_or_another_runtime_has_is_forgotten() {
    let (start, mut writes) = (Instant::now(), ManifestWrites::default());
    let mut released = Manifest::clone(&manifest("released", "1"));
    released.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let released = Arc::new(released);
    writes.written(&released, start);
    writes.written(&manifest("elsewhere", "1"), start);
    assert!(writes.must_ask(&shown(&[&released]), |key| key.name() == "elsewhere", start + LAG_MAX).is_empty());
    assert_eq!(versions(&writes.latest(shown(&[]))), ["released 1"], "the watch showed it still");
    assert!(writes.must_ask(&shown(&[]), |_| false, start + LAG_MAX).is_empty());
    assert_eq!(versions(&writes.latest(shown(&[]))), Vec::<String>::new());
}

#[test]
fn what_may_have_been_written_is_asked_for_at_once_until_there_is_an_answer() {
    let (start, mut writes) = (Instant::now(), ManifestWrites::default());
    let one = manifest("one", "1");
    writes.written(&one, start);
    writes.doubt(key("one"));
    for _ in 0..2 {
        assert_eq!(Vec::from_iter(writes.must_ask(&shown(&[&one]), |_| true, start)), [key("one")]);
    }
    writes.written(&manifest("one", "2"), start);
    assert!(writes.must_ask(&shown(&[&one]), |_| false, start).is_empty());
    assert_eq!(versions(&writes.latest(shown(&[&one]))), ["one 2"]);
    writes.doubt(key("one"));
    writes.forget(&key("one"));
    assert!(writes.must_ask(&shown(&[]), |_| false, start).is_empty(), "it is gone");
}

#[test]
fn the_status_that_we_wrote_last_counts_until_the_watch_has_caught_up() {
    let written = |resource_version: &str| WrittenStatus {
        resource_version: resource_version.to_owned(),
        status: KymaStatus { state: State::Ready, ..KymaStatus::default() },
    };
    let mut kyma = Kyma::default();
    kyma.metadata.resource_version = Some("9".to_owned());
    let state =
        |written: Option<&WrittenStatus>| WrittenStatus::latest(written, &kyma).status.map(|status| status.state);
    assert_eq!(state(None), None);
    assert_eq!(state(Some(&written("8"))), None);
    assert_eq!(state(Some(&written("10"))), Some(State::Ready));
}
