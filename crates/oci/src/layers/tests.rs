use std::time::Duration;

use tidegate_core::component::LayerKind;

use super::*;

const QUOTA: u64 = 1000;

fn source(content: &[u8]) -> Source {
    Source {
        repo: "r.example.com/modules".to_owned(),
        name: "kyma-project.io/module/keda".parse().unwrap(),
        digest: BlobDigest::of(content),
        kind: LayerKind::Yaml,
    }
}

fn component() -> Component {
    Component::new("kyma-project.io/module/keda", "1.2.0").unwrap()
}

/// Puts a layer into the cache, as if it had been fetched.
fn put(layers: &Layers, content: &[u8]) {
    let unfinished = layers.0.unfinished();
    fs::write(&unfinished, content).unwrap();
    layers.0.put(&unfinished, &BlobDigest::of(content).hex(), content.len() as u64).unwrap();
}

async fn is_there(layers: &Layers, content: &[u8]) -> bool {
    match layers.read_layer(&source(content)).await.unwrap() {
        Some(text) => {
            assert_eq!(text, content);
            true
        }
        None => false,
    }
}

fn descriptor() -> String {
    serde_json::json!({
        "meta": {"schemaVersion": "v2"},
        "component": {
            "name": "kyma-project.io/module/keda",
            "version": "1.2.0",
            "repositoryContexts": [{"type": "OCIRegistry"}],
            "resources": [{
                "name": "raw-manifest",
                "access": {"type": "localBlob", "localReference": BlobDigest::of(b"x").to_string()},
            }],
        },
    })
    .to_string()
}

#[tokio::test]
async fn what_was_not_used_for_the_longest_time_is_removed_first() {
    let folder = tempfile::tempdir().unwrap();
    let layers = Layers::open(folder.path(), QUOTA, Unpacker::local()).unwrap();
    let contents: Vec<Vec<u8>> = (b'a'..b'e').map(|byte| vec![byte; 300]).collect();
    for content in &contents[..3] {
        put(&layers, content);
    }
    assert!(is_there(&layers, &contents[0]).await);
    put(&layers, &contents[3]);
    let mut found = Vec::new();
    for content in &contents {
        found.push(is_there(&layers, content).await);
    }
    assert_eq!(found, [true, false, true, true]);
    assert_eq!((layers.total_bytes(), fs::read_dir(folder.path()).unwrap().count()), (900, 3));
}

#[tokio::test]
async fn the_next_process_goes_on_with_the_cache_and_its_order() {
    let folder = tempfile::tempdir().unwrap();
    let contents: Vec<Vec<u8>> = (b'a'..b'd').map(|byte| vec![byte; 300]).collect();
    for (content, age) in contents.iter().zip([10, 30, 20]) {
        let path = folder.path().join(BlobDigest::of(content).hex());
        fs::write(&path, content).unwrap();
        let used = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 - age);
        File::options().append(true).open(path).unwrap().set_modified(used).unwrap();
    }
    // What a killed process left, and what is not ours.
    fs::write(folder.path().join("new-0"), b"half").unwrap();
    fs::write(folder.path().join("lost+found"), b"").unwrap();
    let layers = Layers::open(folder.path(), 600, Unpacker::local()).unwrap();
    assert_eq!(layers.total_bytes(), 600);
    assert!(!folder.path().join("new-0").exists());
    assert!(folder.path().join("lost+found").exists());
    assert!(!is_there(&layers, &contents[1]).await, "the oldest one is removed");
    // A read counts for the process after this one.
    assert!(is_there(&layers, &contents[2]).await);
    drop(layers);
    let layers = Layers::open(folder.path(), 300, Unpacker::local()).unwrap();
    assert!(is_there(&layers, &contents[2]).await);
    assert!(!is_there(&layers, &contents[0]).await);
}

#[tokio::test]
async fn a_damaged_layer_is_removed_at_its_next_read() {
    let folder = tempfile::tempdir().unwrap();
    let layers = Layers::open(folder.path(), QUOTA, Unpacker::local()).unwrap();
    put(&layers, b"kind: ConfigMap\n");
    let source = source(b"kind: ConfigMap\n");
    let path = folder.path().join(source.digest.hex());
    for damage in [b"kind: ".as_slice(), b"kind: Secret   \n", b""] {
        put(&layers, b"kind: ConfigMap\n");
        fs::write(&path, damage).unwrap();
        assert_eq!(stored_layer(folder.path(), &source).unwrap(), None);
        assert!(path.exists(), "a reader of another process's cache changes nothing");
        assert_eq!(layers.read_layer(&source).await.unwrap(), None);
        assert_eq!((path.exists(), layers.total_bytes()), (false, 0));
    }
    put(&layers, b"kind: ConfigMap\n");
    fs::remove_file(&path).unwrap();
    assert_eq!(layers.read_layer(&source).await.unwrap(), None);
    assert_eq!(layers.total_bytes(), 0);
}

#[tokio::test]
async fn a_descriptor_is_kept_by_registry_name_and_version() {
    let folder = tempfile::tempdir().unwrap();
    let layers = Layers::open(folder.path(), 4000, Unpacker::local()).unwrap();
    let registry: RegistryAddress = "r.example.com/modules".parse().unwrap();
    let name = descriptor_name(&registry, &component());
    let manifest = BlobDigest::of(b"manifest");
    layers.0.store_descriptor(&name, &Record { manifest, text: descriptor() }).unwrap();
    let found = layers.read_descriptor(&registry, &component()).await.unwrap().unwrap();
    assert_eq!((found.manifest, found.module.layer.digest), (manifest, BlobDigest::of(b"x")));
    assert_eq!(stored_descriptor(folder.path(), &registry, &component()).unwrap(), Some(found));
    for (registry, version) in [("r.example.com", "1.2.0"), ("r.example.com/modules", "1.2.1")] {
        let component = Component::new("kyma-project.io/module/keda", version).unwrap();
        assert_eq!(layers.read_descriptor(&registry.parse().unwrap(), &component).await.unwrap(), None);
    }
    // The next process has it as well; damaged, it is fetched again.
    let layers = Layers::open(folder.path(), 4000, Unpacker::local()).unwrap();
    assert!(layers.read_descriptor(&registry, &component()).await.unwrap().is_some());
    let path = folder.path().join(&name);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("localBlob", "localBlub")).unwrap();
    assert_eq!(layers.read_descriptor(&registry, &component()).await.unwrap(), None);
    assert!(!path.exists());
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, b"").unwrap();
    let error = Layers::open(&path.join("cache"), QUOTA, Unpacker::local()).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot create {}/cache", path.display()));
    assert_eq!((error.reason(), error.class()), ("StorageFailed", tidegate_process::retry::Class::Transient));
}
