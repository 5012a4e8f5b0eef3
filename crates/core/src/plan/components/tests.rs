use serde_json::json;

use super::*;
use crate::component::LayerKind;

fn digest(of: u8) -> BlobDigest {
    BlobDigest::of(&[of])
}

/// A component whose tag names the manifest with this number, with a layer of its own.
pub(in crate::plan) fn published(number: u8) -> Arc<Published> {
    Arc::new(Published {
        repo: "r.example.com/modules".to_owned(),
        module: Module {
            layer: Layer { digest: digest(number), kind: LayerKind::Tar },
            localized_images: vec![format!("r.example.com/cache:{number}")],
        },
        record: ComponentRecord { manifest: Some(digest(100 + number)), read: Some(digest(number)) },
    })
}

fn component() -> Component {
    Component::new("kyma-project.io/module/cache", "1.2.0").unwrap()
}

/// The Manifest that installs what was published.
fn manifest(published: &Published) -> Manifest {
    let layer = published.module.layer;
    let source =
        Source { repo: published.repo.clone(), name: component().name, digest: layer.digest, kind: layer.kind };
    let mut annotations = serde_json::Map::new();
    annotations.insert(annotation::OCM_COMPONENT_NAME.to_owned(), json!(component().name.as_str()));
    let ComponentRecord { manifest, read } = published.record;
    for (name, digest) in [(annotation::COMPONENT_DIGEST, manifest), (annotation::SYNC_OCI_REF, read)] {
        annotations.extend(digest.map(|digest| (name.to_owned(), json!(digest.to_string()))));
    }
    serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
        "metadata": {"namespace": "kcp-system", "name": "one-cache-1", "annotations": annotations},
        "spec": {
            "remote": true, "version": "1.2.0",
            "install": {"name": "raw-manifest", "source": source.to_value()},
            "localizedImages": published.module.localized_images,
        },
    }))
    .unwrap()
}

fn with_record(published: &Published, record: ComponentRecord) -> Published {
    Published { record, ..published.clone() }
}

#[test]
fn a_manifest_records_its_component() {
    let (found, expected) = (recorded(&manifest(&published(1))), Published::clone(&published(1)));
    assert_eq!(found, Some((component(), expected)));
    let mut other = manifest(&published(1));
    other
        .metadata
        .annotations
        .as_mut()
        .unwrap()
        .insert(annotation::OCM_COMPONENT_NAME.to_owned(), "kyma-project.io/module/other".to_owned());
    assert_eq!(recorded(&other), None, "its layer is in the repository of another component");
}

#[test]
fn what_is_installed_stays_whatever_the_registry_says() {
    let (one, two) = (published(1), published(2));
    let unread = ComponentRecord { read: None, ..one.record };
    let by_klm = with_record(&one, ComponentRecord { manifest: None, ..one.record });
    let moved_host = Published { repo: "other.example.com".to_owned(), ..Published::clone(&two) };
    let found = |published: &Published| Answer::Found(Arc::new(published.clone()));
    let failed = Answer::Failed("no".to_owned());
    for (what, answer, installed, is_renewed, expected) in [
        ("a registry that has not answered", Answer::Pending, &*one, false, &*one),
        ("a registry that is away", failed.clone(), &one, false, &one),
        ("a registry that is away, and a request", failed, &one, true, &one),
        ("the same tag", found(&one), &one, false, &one),
        ("the same tag, whose layer was not read yet", found(&with_record(&one, unread)), &one, false, &one),
        ("a tag that was moved", found(&two), &one, false, &one),
        ("a tag that was moved, and a request", found(&two), &one, true, &two),
        ("a Manifest of Lifecycle Manager", found(&one), &by_klm, false, &one),
        ("a Manifest of Lifecycle Manager, and a tag that was moved", found(&two), &by_klm, false, &by_klm),
        (
            "another registry, and a tag that was moved",
            found(&moved_host),
            &one,
            false,
            &Published { repo: moved_host.repo.clone(), ..Published::clone(&one) },
        ),
    ] {
        let seen = Components::new(Arc::default(), answer).seen_by([&manifest(installed)], &|_| is_renewed);
        assert_eq!(seen.get(&component()), &found(expected), "{what}");
    }
}

#[test]
fn another_version_and_a_manifest_that_goes_are_not_recorded() {
    let mut going = manifest(&published(1));
    going.metadata.deletion_timestamp = Some(crate::api::shared::Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
    let seen = Components::new(Arc::default(), Answer::Pending).seen_by([&going], &|_| false);
    assert_eq!(seen.get(&component()), &Answer::Pending);
    let next = Component::new("kyma-project.io/module/cache", "1.3.0").unwrap();
    let seen = Components::new(Arc::default(), Answer::Pending).seen_by([&manifest(&published(1))], &|_| false);
    assert_eq!(seen.get(&next), &Answer::Pending);
}

#[test]
fn what_a_manifest_records_is_pending_until_the_registry_has_answered() {
    let installed = manifest(&published(1));
    let pending = |answer: Option<Answer>| {
        let known: BTreeMap<Component, Answer> = answer.map(|answer| (component(), answer)).into_iter().collect();
        let seen = Components::new(Arc::new(known), Answer::Pending).seen_by([&installed], &|_| false);
        assert!(matches!(seen.get(&component()), Answer::Found(_)), "it is installed");
        seen.is_pending(&component())
    };
    assert!(pending(Some(Answer::Pending)));
    assert!(!pending(Some(Answer::Found(published(1)))) && !pending(Some(Answer::Failed("no".to_owned()))));
    // No channel offers it, so it is not looked up.
    assert!(!pending(None));
}
