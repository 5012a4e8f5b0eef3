//! One registry: layers that inflate without end, and archives that lead elsewhere.

use serde_json::Value;

use crate::{
    conformance::oci::{artifact, component, fails, landscape, module, text_is},
    oci::artifact::{Artifact, Schema, archive, gzip},
    survive::pod::{Pod, Watched},
};

const MIB: usize = 1 << 20;

/// What a layer that cannot be read says of its module.
const NOT_PULLED: &str = "failed to extract raw manifest from layer digest: failed to pull layer due to: the blob of ";

/// A zstd frame of a few KiB that describes so many MiB of spaces.
fn zstd_bomb(mebibytes: usize) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38];
    // Four bytes say that one byte is repeated 131,072 times.
    frame.extend([0x02, 0x00, 0x10, b' '].repeat(8 * mebibytes));
    frame.extend([0x01, 0x00, 0x00]);
    frame
}

fn with_layer(module: &str, layer: Vec<u8>, media_type: &str) -> Artifact {
    Artifact::new(&component(module, "1.0.0"), Schema::V2, layer, media_type)
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_without_end_are_one_sentence_about_their_modules_and_cost_the_daemon_nothing() {
    let (yaml, archived) = ("application/x-yaml", "application/x-tar");
    let zeros = gzip(&vec![0; MIB]).repeat(2048);
    let text = objects_of("outside");
    let too_large = "has more than 33554432 bytes when it is inflated";
    let outside = "is a tar archive with a path that is absolute or contains `..`";
    let descriptor = Artifact::with_descriptor(
        &component("descriptor", "1.0.0"),
        text.clone(),
        gzip(&archive("a", tar::EntryType::Regular, &vec![0; 4 * MIB])),
    );
    let cases = [
        (with_layer("gzip", zeros.clone(), yaml), too_large),
        (
            with_layer("gzip-tar", gzip(&archive("._a", tar::EntryType::Regular, &vec![0; 64 * MIB])), archived),
            too_large,
        ),
        (with_layer("zstd", zstd_bomb(4096), yaml), too_large),
        (with_layer("outside", archive("../a.yaml", tar::EntryType::Regular, &text), archived), outside),
        (with_layer("absolute", archive("/etc/a.yaml", tar::EntryType::Regular, &text), archived), outside),
        (with_layer("link", archive("a.yaml", tar::EntryType::Symlink, b""), archived), "with a link or a device"),
        (descriptor, "has more than 1048576 bytes when it is inflated"),
    ];
    let names: Vec<String> = cases.iter().map(|(artifact, _)| module_of(artifact)).collect();
    let good = artifact("good", "1.0.0", "fine");
    let mut modules: Vec<&str> = names.iter().map(String::as_str).collect();
    modules.push("good");
    let mut artifacts: Vec<Artifact> = Vec::new();
    let mut sentences = Vec::new();
    for (artifact, sentence) in cases {
        artifacts.push(artifact);
        sentences.push(sentence);
    }
    artifacts.push(good);
    let (_server, stage) = landscape(&artifacts, &modules).await;
    stage.start();
    let pid = stage.process_id().await;
    let pod = Pod::of(pid);
    let watched = Watched::start(pid);
    for (name, sentence) in names.iter().zip(sentences) {
        let start = if name == "descriptor" { "error finding ComponentDescriptor: " } else { NOT_PULLED };
        let found: Value = module(&stage, name, "the limit is reported", fails(start, sentence)).await;
        let message = found["message"].as_str().unwrap();
        assert!(name == "descriptor" || message.contains("@sha256:"), "it names the digest: {message}");
    }
    text_is(&stage, "good", "fine").await;
    let (own, engine) = (watched.daemon_mib(), watched.engine_mib());
    println!("{pod}; largest memory: daemon {own} MiB, an engine {engine} MiB");
    assert!(watched.commands().contains("oci engine"), "{:?}", watched.commands());
    assert!(own < 192, "the daemon had {own} MiB");
    // The daemon ends before its limit goes.
    drop(stage);
}

fn objects_of(module: &str) -> Vec<u8> {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {module}, namespace: kyma-system}}\n").into_bytes()
}

/// The module of an artifact: the last part of its component's name.
fn module_of(artifact: &Artifact) -> String {
    artifact.component.name.as_str().rsplit('/').next().unwrap().to_owned()
}
