use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;

use super::*;

const TEXT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: b}\n";

fn objects(text: &str) -> Arc<ModuleObjects> {
    let path: Arc<str> = "objects/a.yaml".into();
    let files = [(&path, text.as_bytes())].into_iter();
    let limits = tidegate_core::yaml::Limits::default();
    Arc::new(definition::module_objects(Oid::new([1; 20]), files, &limits).unwrap())
}

#[test]
fn the_objects_of_a_module_are_in_memory_once_for_all_sources_and_gone_with_the_last() {
    let mut modules = Modules::default();
    let first = modules.share("objects", &objects(TEXT));
    let second = modules.share("objects", &objects(TEXT));
    assert!(Arc::ptr_eq(&first, &second));
    let elsewhere = modules.share("copy", &objects(TEXT));
    assert!(!Arc::ptr_eq(&first, &elsewhere), "diagnostics name another file");
    assert!(modules.find(Oid::new([1; 20]), "objects").is_ok_and(|found| Arc::ptr_eq(&found, &first)));

    let memory = Arc::downgrade(&first);
    drop((first, second));
    assert_eq!(memory.strong_count(), 0);
    assert!(modules.find(Oid::new([1; 20]), "objects").is_err(), "they are read again");
    modules.share("other", &objects(TEXT));
    assert!(modules.entries.len() <= 2, "no entry outlives its objects");
}

#[test]
fn passes_that_need_the_same_objects_read_them_once() {
    let mut modules = Modules::default();
    let (Err(first), Err(second)) = (modules.find(Oid::new([1; 20]), "a"), modules.find(Oid::new([1; 20]), "a")) else {
        panic!("nothing is read yet")
    };
    assert!(Arc::ptr_eq(&first, &second));
}

#[test]
fn diagnostics_of_all_sources_together_have_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let registry = SourceRegistry::new(git::State::open(folder.path()).unwrap());
    let mut all = 0;
    for number in 0..80 {
        let source = Key::new("kcp-system", &format!("source-{number}"));
        let listed = 1_000.min(registry.diagnostics_max(&source));
        registry.set_listed(&registry.slot(&source), listed);
        all += listed;
    }
    assert_eq!(all, LISTED_IN_PROCESS_MAX + 70 * status::ENTRIES_MAX, "each source lists what its status shows");
    let first = Key::new("kcp-system", "source-0");
    registry.set_listed(&registry.slot(&first), 0);
    assert_eq!(registry.diagnostics_max(&first), status::ENTRIES_MAX, "the others have used more than the limit");
}

#[test]
fn sources_that_are_checked_at_the_same_time_see_what_each_other_needs() {
    let folder = tempfile::tempdir().unwrap();
    let registry = SourceRegistry::new(git::State::open(folder.path()).unwrap());
    let [first, second] = ["first", "second"].map(|name| Key::new("kcp-system", name));
    let (slot, other) = (registry.slot(&first), registry.slot(&second));
    let seen = |others: &BTreeMap<Key, u64>| if others.is_empty() { Ok(()) } else { Err(others.clone()) };
    assert_eq!(registry.sizes_of_others(&second), BTreeMap::new(), "nothing is read yet");
    let reserved = registry.reserve(&first, &slot, 7, seen).ok().unwrap();
    assert_eq!(registry.reserve(&second, &other, 5, seen).err().unwrap(), BTreeMap::from([(first, 7)]));
    drop(reserved);
    assert!(registry.reserve(&second, &other, 5, seen).is_ok(), "the check has ended without an active revision");
}

#[tokio::test]
async fn a_pass_that_panics_leaves_nothing_known_and_another_does() {
    let slot = Slot::new();
    let handled = async |value: &str, panics: bool| {
        let pass = async {
            slot.known().await.handled = Some("before".to_owned());
            let mut known = slot.known().await;
            known.handled = Some(value.to_owned());
            assert!(!panics, "a bug");
        };
        let _ = AssertUnwindSafe(pass).catch_unwind().await;
        slot.known().await.handled.clone()
    };
    assert_eq!(handled("one", false).await.as_deref(), Some("one"));
    assert_eq!(handled("two", true).await, None);
}
