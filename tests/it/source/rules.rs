//! The smaller rules of what a source does to the control plane: what is kept, what is allowed, what waits, in which
//! order.

use tidegate_core::api::Watcher;

use super::*;

scenarios! {
    an_object_that_says_so_is_not_pruned_no_matter_who_wrote_that,
    a_source_that_does_not_prune_leaves_what_git_drops_until_it_does,
    names_that_are_not_allowed_are_withheld,
    a_definition_whose_object_is_terminating_waits_and_is_created_after,
    what_goes_goes_in_reverse_order_of_what_comes,
}

/// Why things wait, as the condition `Applied` says it.
async fn applied(world: &World) -> String {
    let source = world.source("landscape").await;
    let applied = condition(&source, "Applied");
    format!("{}: {}", applied.reason, applied.message)
}

async fn is_kept(world: &World, name: &str) {
    holds("it stays", QUIET, async || {
        let found = world.api::<ModuleTemplate>().get(name).await.map_err(text)?;
        if found.metadata.deletion_timestamp.is_none() { Ok(()) } else { Err("it goes".to_owned()) }
    })
    .await;
}

async fn an_object_that_says_so_is_not_pruned_no_matter_who_wrote_that() {
    let mut world = World::new("keep").await;
    world.module("mail", &["1.0.0", "2.0.0", "3.0.0", "4.0.0"], "4.0.0");
    let keep = "metadata: {annotations: {tidegate.dev/prune: disabled}, ";
    world.repository.replace("mail-1.0.0.yaml", "metadata: {", keep).unwrap();
    let commit = world.commit();
    world.declare("landscape", json!({})).await;
    world.start().await;
    world.settled("landscape", &commit).await;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {names::annotation::PRUNE: "disabled"}}}));
    world.api::<ModuleTemplate>().patch("mail-2.0.0", &PatchParams::default(), &patch).await.unwrap();

    for version in ["1.0.0", "2.0.0", "3.0.0"] {
        world.repository.remove(&format!("mail-{version}.yaml")).unwrap();
    }
    let commit = world.commit();
    world.attempted("landscape", &commit).await;
    world.gone::<ModuleTemplate>("mail-3.0.0").await;
    is_kept(&world, "mail-1.0.0").await;
    is_kept(&world, "mail-2.0.0").await;
    // Once the annotation is removed, the object is pruned.
    let patch = Patch::Merge(json!({"metadata": {"annotations": {names::annotation::PRUNE: null}}}));
    world.api::<ModuleTemplate>().patch("mail-2.0.0", &PatchParams::default(), &patch).await.unwrap();
    world.gone::<ModuleTemplate>("mail-2.0.0").await;
    is_kept(&world, "mail-1.0.0").await;
}

async fn a_source_that_does_not_prune_leaves_what_git_drops_until_it_does() {
    let mut world = World::new("unpruned").await;
    world.module("mail", &["1.0.0", "2.0.0"], "1.0.0");
    let commit = world.commit();
    world.declare("landscape", json!({"prune": false})).await;
    world.start().await;
    world.settled("landscape", &commit).await;
    world.repository.remove("mail-2.0.0.yaml").unwrap();
    let commit = world.commit();
    world.attempted("landscape", &commit).await;
    is_kept(&world, "mail-2.0.0").await;
    assert_eq!(
        world.source("landscape").await.status.unwrap().counts.unwrap().to_prune,
        1,
        "{}",
        applied(&world).await
    );
    world.declare("landscape", json!({"prune": true})).await;
    world.gone::<ModuleTemplate>("mail-2.0.0").await;
}

async fn names_that_are_not_allowed_are_withheld() {
    let mut world = World::new("names").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.module("note", &["1.0.0"], "1.0.0");
    let commit = world.commit();
    world.declare("landscape", json!({"allow": {"names": ["mail", "mail-*"]}})).await;
    world.start().await;
    world.attempted("landscape", &commit).await;
    assert!(world.api::<ModuleTemplate>().get("mail-1.0.0").await.is_ok());
    assert!(world.api::<ModuleReleaseMeta>().get("mail").await.is_ok());
    assert!(world.api::<ModuleTemplate>().get_opt("note-1.0.0").await.unwrap().is_none());
    assert!(world.api::<ModuleReleaseMeta>().get_opt("note").await.unwrap().is_none());
    let status = world.source("landscape").await.status.unwrap();
    let blamed: BTreeSet<&str> = status.diagnostics.iter().filter_map(|found| found.path.as_deref()).collect();
    assert_eq!(blamed, BTreeSet::from(["note-1.0.0.yaml", "note.yaml"]));
}

async fn a_definition_whose_object_is_terminating_waits_and_is_created_after() {
    let mut world = World::new("terminating").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    let commit = world.commit();
    world.declare("landscape", json!({})).await;
    world.start().await;
    world.settled("landscape", &commit).await;
    let hold = Patch::Merge(json!({"metadata": {"finalizers": ["example.org/hold"]}}));
    let templates = world.api::<ModuleTemplate>();
    let before = templates.patch("mail-1.0.0", &PatchParams::default(), &hold).await.unwrap();
    templates.delete("mail-1.0.0", &DeleteParams::default()).await.unwrap();
    eventually("it is waited for", SOON, async || {
        let found = ready(&world.source("landscape").await);
        found.ends_with(" Terminating").then_some(()).ok_or(found)
    })
    .await;
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    templates.patch("mail-1.0.0", &PatchParams::default(), &release).await.unwrap();
    world.settled("landscape", &commit).await;
    let after = templates.get("mail-1.0.0").await.unwrap();
    assert_ne!(after.metadata.uid, before.metadata.uid, "it is another one");
    assert!(after.metadata.deletion_timestamp.is_none());
}

async fn what_goes_goes_in_reverse_order_of_what_comes() {
    let mut world = World::new("reverse").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.kyma("a", "mail");
    let watcher = format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: Watcher\n\
         metadata: {{name: events, namespace: {}, labels: {{operator.kyma-project.io/managed-by: lifecycle-manager}}}}\n\
         spec:\n  serviceInfo: {{name: events, namespace: {}, port: 8082}}\n  \
         labelsToWatch: {{operator.kyma-project.io/watched-by: kyma}}\n  field: spec\n  \
         resourceToWatch: {{group: operator.kyma-project.io, version: '*', resource: kymas}}\n  \
         gateway: {{selector: {{matchLabels: {{app: gateway}}}}}}\n",
        world.namespace, world.namespace
    );
    world.repository.write("watcher.yaml", &watcher).unwrap();
    let commit = world.commit();
    world.declare("landscape", json!({})).await;
    world.start().await;
    world.settled("landscape", &commit).await;
    let of = |verb: &str| -> Vec<String> {
        let records = world.records().filter(|record| record.verb == verb && !record.resource.contains('/'));
        let plural = |resource: &str| resource.split('.').next().unwrap_or_default().to_owned();
        records
            .map(|record| plural(&record.resource))
            .filter(|plural| plural != "gitsources" && plural != "events")
            .collect()
    };
    let kinds = ["moduletemplates", "modulereleasemetas", "watchers", "kymas"];
    assert_eq!(of("patch"), kinds);

    for file in ["mail-1.0.0.yaml", "mail.yaml", "watcher.yaml", "a.yaml"] {
        world.repository.remove(file).unwrap();
    }
    let commit = world.commit();
    world.attempted("landscape", &commit).await;
    assert!(world.api::<Watcher>().get_opt("events").await.unwrap().is_some(), "an empty tree is a mass deletion");
    world.annotate("landscape", names::annotation::CONFIRM_PRUNE, &commit).await;
    world.gone::<ModuleTemplate>("mail-1.0.0").await;
    let reversed: Vec<&str> = kinds.into_iter().rev().collect();
    assert_eq!(of("delete"), reversed);
}
