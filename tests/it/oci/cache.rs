//! The cache on disk: each blob is fetched once, and serves while the registry is away.

use std::{fs, sync::Arc};

use tidegate_core::component::{BlobDigest, LayerKind};
use tidegate_oci::{Layers, Unpacker, stored_descriptor, stored_layer};

use super::{
    artifact::{Artifact, Schema, YAML, component, gzip, tar},
    hostile::{host, plain, serve},
    registry, source,
};
use crate::{git::server::Action, harness};

const QUOTA: u64 = 1 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn each_blob_is_fetched_once_and_outlives_the_registry() {
    let server = plain();
    let artifact = Artifact::new(&component("1.0.0"), Schema::V2, gzip(&tar(&[("x.yaml", YAML)])), "application/x-tar");
    let layer = artifact.layer.clone();
    server.behave(move |request| serve(&artifact, request));
    let (folder, registry) = (harness::folder(), registry(&host(&server)));
    let layers = Layers::open(folder.path(), QUOTA, Unpacker::local()).unwrap();

    // Many runtimes want the same module at once.
    let wanted = (0..20).map(|_| {
        let (layers, registry) = (layers.clone(), registry.clone());
        tokio::spawn(async move {
            let found = layers.descriptor(&registry, &component("1.0.0")).await.unwrap();
            layers.layer(&registry, &source(&registry, &component("1.0.0"), &found)).await.unwrap()
        })
    });
    for text in wanted.collect::<Vec<_>>() {
        assert_eq!(text.await.unwrap(), YAML);
    }
    // Manifest, configuration, descriptor and layer.
    assert_eq!(server.requests().len(), 4);

    // The registry is away, here and after a restart.
    server.behave(|_| Action::Answer(503, Vec::new(), Vec::new()));
    drop(layers);
    let layers = Layers::open(folder.path(), QUOTA, Unpacker::local()).unwrap();
    let found = layers.descriptor(&registry, &component("1.0.0")).await.unwrap();
    let module = source(&registry, &component("1.0.0"), &found);
    assert_eq!(layers.layer(&registry, &module).await.unwrap(), YAML);
    assert_eq!(server.requests().len(), 4);
    let offline = stored_descriptor(folder.path(), registry.address(), &component("1.0.0")).unwrap();
    assert_eq!(offline, Some(found));
    assert_eq!(stored_layer(folder.path(), &module).unwrap().unwrap(), YAML);

    // A damaged file is noticed, and what cannot be fetched is not replaced by anything.
    let path = folder.path().join(module.digest.hex());
    fs::write(&path, &layer[..layer.len() / 2]).unwrap();
    let error = layers.layer(&registry, &module).await.unwrap_err();
    assert!(error.to_string().contains("answered with HTTP status 503"), "{error}");
    let good = Artifact::new(&component("1.0.0"), Schema::V2, layer, "application/x-tar");
    server.behave(move |request| serve(&good, request));
    assert_eq!(layers.layer(&registry, &module).await.unwrap(), YAML);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moved_tag_changes_nothing_until_it_is_asked_for() {
    let server = plain();
    let first = Artifact::new(&component("1.0.0"), Schema::V2, YAML.to_vec(), "");
    server.behave(move |request| serve(&first, request));
    let (folder, registry) = (harness::folder(), registry(&host(&server)));
    let layers = Layers::open(folder.path(), QUOTA, Unpacker::local()).unwrap();
    let before = layers.descriptor(&registry, &component("1.0.0")).await.unwrap();
    let asked = server.requests().len();
    assert_eq!(layers.fetch_descriptor(&registry, &component("1.0.0")).await.unwrap(), before);
    let targets: Vec<String> = server.requests().iter().map(|request| request.target.clone()).collect();
    assert_eq!(targets.len(), asked + 1, "the tag alone, and no blob twice: {targets:?}");

    let second = Artifact::new(&component("1.0.0"), Schema::V2, b"kind: Secret\n".to_vec(), "");
    server.behave(move |request| serve(&second, request));
    assert_eq!(layers.descriptor(&registry, &component("1.0.0")).await.unwrap(), before);
    assert_ne!(registry.resolve(&component("1.0.0")).await.unwrap(), before.manifest, "that it was moved can be seen");
    let after = layers.fetch_descriptor(&registry, &component("1.0.0")).await.unwrap();
    assert_eq!(after.module.layer.digest, BlobDigest::of(b"kind: Secret\n"));
    assert_eq!(layers.descriptor(&registry, &component("1.0.0")).await.unwrap(), after);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_keeps_its_quota() {
    let server = plain();
    let contents: Vec<Vec<u8>> = (b'a'..b'g').map(|byte| vec![byte; 1000]).collect();
    let blobs = Arc::new(contents.clone());
    server.behave(move |request| {
        let found = blobs.iter().find(|blob| request.target.ends_with(&BlobDigest::of(blob).to_string()));
        Action::Answer(200, Vec::new(), found.unwrap().clone())
    });
    let (folder, registry) = (harness::folder(), registry(&host(&server)));
    let layers = Layers::open(folder.path(), 3500, Unpacker::local()).unwrap();
    let of = |content: &[u8]| tidegate_core::component::Source {
        repo: registry.address().to_string(),
        name: component("1.0.0").name,
        digest: BlobDigest::of(content),
        kind: LayerKind::Yaml,
    };
    for content in &contents {
        assert_eq!(layers.layer(&registry, &of(content)).await.unwrap(), content.as_slice());
        let on_disk: u64 =
            fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert_eq!(on_disk, layers.total_bytes());
        assert!(on_disk <= 3500, "{on_disk}");
    }
    assert_eq!((layers.total_bytes(), server.requests().len()), (3000, contents.len()));

    let small = harness::folder();
    let layers = Layers::open(small.path(), 999, Unpacker::local()).unwrap();
    let error = layers.layer(&registry, &of(&contents[0])).await.unwrap_err();
    assert!(
        error.to_string().ends_with("has more than 999 bytes, which is the quota of the module cache: raise the quota")
    );
    assert_eq!(fs::read_dir(small.path()).unwrap().count(), 0, "nothing is left behind");
}
