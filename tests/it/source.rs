//! Git to KCP: each rule of what a GitSource does to the control plane.
//!
//! The daemon of a test has the controllers of GitSources and Watchers, with the real watches and queue. It acts as a
//! user of its own, so that the audit log tells its requests from others. Runtimes are not part of it.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tidegate::internals::{
    Metrics, Renderer,
    controller::{Context, Queue, Subject, dispatch, events},
    gateway::certificates::Certificates,
    queue::{self, Finish},
    source,
    source::registry::SourceRegistry,
    stores::{Stores, feed},
    watcher,
};
use tidegate_cluster::{Cluster, ClusterName, Kind, Limits, Pool, access, follower};
use tidegate_core::{
    api::{GitSource, Kyma, ModuleReleaseMeta, ModuleTemplate, names},
    landscape::SourceName,
    name::Key,
    plan,
    template::{Library, Templates},
};
use tidegate_git as git;
use tidegate_process::lock::{Mutex, RwLock};
use tidegate_testbed::Repository;
use tokio::task::JoinSet;

use crate::{
    harness::{self, SOON, eventually, holds},
    stage::{ADMINISTRATORS, Server, scenarios},
};

mod answers;
mod receiver;
mod remote;
mod rules;
mod trust;

/// How long a test waits for something that must not happen.
const QUIET: Duration = Duration::from_secs(2);

scenarios! {
    a_commit_reaches_kcp_with_its_mark_and_an_unrelated_one_writes_nothing,
    an_unchanged_revision_costs_no_request_and_a_second_process_no_write,
    a_broken_definition_is_withheld_the_rest_goes_on_and_nothing_is_pruned,
    a_refused_revision_changes_nothing_at_all,
    a_prune_waits_for_its_confirmation_and_then_happens,
    too_many_prunes_at_once_stop_and_go_on_when_confirmed,
    kymas_may_use_modules_of_another_source,
    another_path_in_the_source_is_a_mass_deletion,
    a_changed_field_of_a_source_acts_at_once_and_the_brake_names_it_as_the_cause,
    a_suspended_source_changes_nothing_and_goes_on_when_resumed,
    what_is_not_allowed_is_withheld,
    the_first_source_keeps_an_object_and_it_moves_without_a_delete_when_dropped,
    foreign_objects_are_refused_by_their_managers_names_unless_adopted,
    the_marks_of_flux_and_argo_cd_are_respected,
    a_changed_or_deleted_object_is_brought_back,
    a_source_that_is_gone_keeps_its_last_good_revision_also_across_a_restart,
    a_namespace_that_definitions_need_is_created_and_never_deleted,
    a_deleted_source_leaves_its_objects_without_its_mark,
    a_deleted_source_leaves_no_label_where_another_one_declares_something_else,
    a_source_that_is_applied_again_takes_back_what_it_left_and_what_differs_waits_for_adopt,
    a_deleted_source_takes_its_objects_along_where_it_says_so,
    a_deleted_source_whose_prune_waits_deletes_nothing_more_before_it_is_confirmed,
    an_object_that_says_something_else_in_its_next_source_stays_as_it_is_until_it_is_adopted,
    a_deleted_source_deletes_nothing_before_all_others_have_been_read,
    a_deleted_source_that_is_suspended_deletes_nothing_until_it_is_resumed,
    what_a_rewrite_takes_away_is_confirmed_also_after_a_restart_and_what_goes_later_is_not,
    a_rewrite_that_took_nothing_away_is_over_at_once,
    what_another_client_created_and_the_watch_does_not_show_yet_is_not_applied_over,
    a_secret_that_comes_late_is_found_long_before_the_next_poll,
    mirrors_of_former_urls_and_sources_are_removed,
    a_request_by_annotation_is_handled_once_and_said_so,
    a_moved_file_costs_no_write_and_its_place_follows_on_request_or_with_the_next_change,
    a_local_path_in_kcp_is_refused_unless_the_daemon_allows_it,
    a_panic_is_in_the_status_until_a_pass_ends_by_itself,
    a_source_that_says_otherwise_than_its_repository_is_an_error_until_they_agree,
    a_kcp_landscape_is_checked_and_said_not_to_be_reconciled_and_the_rest_goes_on,
    an_owner_whose_revision_is_refused_does_not_keep_others_from_their_status,
}

async fn a_commit_reaches_kcp_with_its_mark_and_an_unrelated_one_writes_nothing() {
    let mut world = World::new("commit").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.kyma("a", "mail");
    world.begin(json!({})).await;

    let kyma = world.api::<Kyma>().get("a").await.unwrap();
    let name = SourceName::new(Key::new(&world.namespace, "landscape"));
    assert_eq!(kyma.metadata.labels.as_ref().unwrap()[names::label::SOURCE], name.label_value());
    assert_eq!(kyma.metadata.annotations.as_ref().unwrap()[names::annotation::PATH], "a.yaml");
    assert_eq!(
        world.writes(),
        ["gitsources landscape", "kymas a", "modulereleasemetas mail", "moduletemplates mail-1.0.0"]
    );
    let status = world.source("landscape").await.status.unwrap();
    assert_eq!(status.counts.unwrap().applied, 3);
    assert_eq!(ready(&world.source("landscape").await), "True Applied");

    world.mark();
    world.repository.write("README.md", "unrelated\n").unwrap();
    let commit = world.commit();
    world.settled("landscape", &commit).await;
    assert_eq!(world.writes(), [""; 0]);
}

async fn a_panic_is_in_the_status_until_a_pass_ends_by_itself() {
    let mut world = World::new("panic").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.kyma("a", "mail");
    world.begin(json!({})).await;
    world.daemon().quiet().await;
    // From here on, the test is the only worker.
    world.daemon.as_mut().unwrap().tasks.shutdown().await;
    let context = Arc::clone(&world.daemon().context);
    let (said, mut tasks) = (Arc::new(Mutex::new(Vec::new())), JoinSet::new());
    tasks.spawn(statuses(&context, &world.namespace, &said, |source: GitSource| ready(&source)));
    tasks.spawn(statuses(&context, &world.namespace, &said, |kyma: Kyma| {
        let operation = kyma.status.and_then(|status| status.last_operation).map(|last| last.operation);
        operation.unwrap_or_default()
    }));
    let expects = async |expected: &[&str]| {
        eventually("the statuses are written in this order", SOON, async || {
            let said = said.lock();
            let holds = said.len() == expected.len() && said.iter().zip(expected).all(|(one, part)| one.contains(part));
            if holds { Ok(()) } else { Err(format!("{said:?}")) }
        })
        .await;
        said.lock().clear();
    };
    eventually(
        "the watches are there",
        SOON,
        async || if said.lock().len() == 2 { Ok(()) } else { Err(String::new()) },
    )
    .await;
    said.lock().clear();

    let next = async |subject: &Subject| {
        context.queue.push(subject.clone(), queue::Trigger::Changed);
        loop {
            let work = context.queue.next().await.expect("the queue is open");
            if work.subject() == subject {
                return work;
            }
            context.queue.finish(work, Finish::Done);
        }
    };
    let key = |name| Key::new(&world.namespace, name);
    for (subject, expected) in [
        (Subject::Source(key("landscape")), ["False Panicked", "True Applied"]),
        (Subject::Runtime(key("a")), ["the pass panicked, which is a bug in Tidegate", "no access Secret"]),
    ] {
        let work = next(&subject).await;
        let finish = dispatch::guarded(&context, &work, async { panic!("this may quote a Secret") }).await;
        assert!(matches!(finish, Finish::Failed(_)), "{finish:?}");
        context.queue.finish(work, finish);
        let work = next(&subject).await;
        let finish = dispatch::pass(&context, &work).await;
        context.queue.finish(work, finish);
        expects(&expected).await;
    }
}

/// Writes down what `says` finds in the objects of a kind, whenever that changes.
fn statuses<K>(
    context: &Context,
    namespace: &str,
    said: &Arc<Mutex<Vec<String>>>,
    says: impl Fn(K) -> String + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope> + DeserializeOwned + Send + 'static,
{
    let options = follower::Options::all(Kind::namespaced::<K>()).namespace(namespace);
    let said = Arc::clone(said);
    follower::follow(
        Arc::clone(&context.kcp),
        options,
        move |object| Some(says(object)),
        move |change| {
            if let follower::Change::Set { new, .. } = change {
                said.lock().push(String::clone(&new));
            }
        },
    )
}

async fn an_unchanged_revision_costs_no_request_and_a_second_process_no_write() {
    let mut world = World::new("again").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.kyma("a", "mail");
    world.begin(json!({})).await;
    world.daemon().quiet().await;
    let before = world.daemon().requests();
    world.daemon().push("landscape", queue::Trigger::Git);
    world.daemon().quiet().await;
    assert_eq!(world.daemon().requests(), before, "a pass over an unchanged world");

    world.mark();
    world.restart().await;
    world.daemon().quiet().await;
    assert_eq!(world.writes(), [""; 0], "a new process over an unchanged world");
    assert_eq!(world.status_writes(), 0);
}

async fn a_broken_definition_is_withheld_the_rest_goes_on_and_nothing_is_pruned() {
    let mut world = World::new("broken").await;
    world.module("mail", &["1.0.0", "2.0.0"], "1.0.0");
    world.kyma("a", "mail");
    world.begin(json!({})).await;

    world.repository.remove("mail-2.0.0.yaml").unwrap();
    world.repository.replace("a.yaml", "channel: regular", "channel: 5").unwrap();
    world.kyma("b", "mail");
    let commit = world.commit();
    world.attempted("landscape", &commit).await;
    let source = world.source("landscape").await;
    assert_eq!(ready(&source), "False Withheld");
    world.answers_as_documented("landscape", "onError", "Applied", &[]).await;
    let status = source.status.unwrap();
    assert_eq!((status.withheld[0].name.as_str(), status.withheld[0].path.as_str()), ("a", "a.yaml"));
    assert_eq!(status.counts.unwrap().to_prune, 1);
    assert!(world.api::<Kyma>().get("b").await.is_ok(), "the rest goes on");
    assert_eq!(world.api::<Kyma>().get("a").await.unwrap().spec.channel, "regular");
    assert!(world.api::<ModuleTemplate>().get("mail-2.0.0").await.is_ok(), "nothing is pruned");

    world.repository.replace("a.yaml", "channel: 5", "channel: fast").unwrap();
    world.repository.replace("mail.yaml", "channel: regular", "channel: fast").unwrap();
    world.repository.replace("b.yaml", "channel: regular", "channel: fast").unwrap();
    let commit = world.commit();
    world.settled("landscape", &commit).await;
    assert_eq!(world.api::<Kyma>().get("a").await.unwrap().spec.channel, "fast");
    world.gone::<ModuleTemplate>("mail-2.0.0").await;
}

async fn a_kcp_landscape_is_checked_and_said_not_to_be_reconciled_and_the_rest_goes_on() {
    let mut world = World::new("setup").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.kyma("a", "mail");
    let landscape = include_str!("../../examples/kcp/landscape.yaml");
    let landscape = landscape.replace("namespace: kcp-system", &format!("namespace: {}", world.namespace));
    world.repository.write("kcp.yaml", &landscape).unwrap();
    world.begin(json!({})).await;

    assert_eq!(
        world.writes(),
        ["gitsources landscape", "kymas a", "modulereleasemetas mail", "moduletemplates mail-1.0.0"]
    );
    let source = world.source("landscape").await;
    let found = condition(&source, "tidegate.dev/KcpLandscapes");
    assert_eq!((found.status.as_str(), found.reason.as_str()), ("False", "NotReconciled"));
    assert!(found.message.starts_with("kcp.yaml:3:1: 6 definitions of kcp landscapes"), "{}", found.message);
    let status = source.status.unwrap();
    let of_kcp = |one: &&tidegate_core::api::git_source::DiagnosticEntry| one.path.as_deref() == Some("kcp.yaml");
    let told: Vec<&str> = status.diagnostics.iter().filter(of_kcp).map(|found| found.code.as_str()).collect();
    assert_eq!(told, ["kcp-not-reconciled"]);
    assert_eq!(status.counts.unwrap().applied, 3);

    // A mistake in it is an error, and nothing is pruned while it stands.
    world.mark();
    world.repository.write("kcp.yaml", &landscape.replace("port: 443", "port: 0")).unwrap();
    world.repository.remove("a.yaml").unwrap();
    let commit = world.commit();
    world.attempted("landscape", &commit).await;
    let source = world.source("landscape").await;
    let errors: Vec<_> = source.status.unwrap().diagnostics.into_iter().filter(|one| one.severity == "error").collect();
    assert!(errors.iter().all(|one| one.code == "kcp-rule" && one.path.as_deref() == Some("kcp.yaml")), "{errors:?}");
    assert_eq!(errors.len(), 3, "the port of a RootShard, of a FrontProxy and of a VirtualWorkspace: {errors:?}");
    assert!(world.api::<Kyma>().get("a").await.is_ok(), "nothing is pruned");
    assert_eq!(world.writes(), [""; 0]);

    // Without kcp landscapes the condition goes.
    world.repository.remove("kcp.yaml").unwrap();
    world.kyma("a", "mail");
    let commit = world.commit();
    world.settled("landscape", &commit).await;
    let conditions = world.source("landscape").await.status.unwrap().conditions;
    assert!(conditions.iter().all(|found| found.type_ != "tidegate.dev/KcpLandscapes"), "{conditions:?}");
}

async fn a_source_that_says_otherwise_than_its_repository_is_an_error_until_they_agree() {
    let mut world = World::new("otherwise").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.kyma("a", "mail");
    let own = "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nspec:\n  strict: false\n  ignore: ['/old/']\n";
    world.repository.write(".tidegate/source.yaml", own).unwrap();
    world.begin(json!({"ignore": ["/old/"]})).await;

    world.repository.replace(".tidegate/source.yaml", "strict: false", "strict: true").unwrap();
    world.kyma("b", "mail");
    world.repository.remove("a.yaml").unwrap();
    let commit = world.commit();
    world.attempted("landscape", &commit).await;
    let status = world.source("landscape").await.status.unwrap();
    let found = &status.diagnostics[0];
    let place = (found.path.as_deref(), found.line);
    assert_eq!((found.code.as_str(), place), ("source-differs", (Some(".tidegate/source.yaml"), Some(4))), "{found:?}");
    let message = "the GitSource has `false` as `spec.strict`, and this file `true`";
    assert!(found.message.starts_with(message), "{found:?}");
    assert_eq!(ready(&world.source("landscape").await), "False SourceDiffers");
    assert!(world.api::<Kyma>().get_opt("b").await.unwrap().is_none(), "nothing of the revision is applied");
    assert_eq!(world.api::<Kyma>().get("a").await.unwrap().spec.channel, "regular", "nothing is pruned");

    world.repository.replace(".tidegate/source.yaml", "strict: true", "strict: false").unwrap();
    let commit = world.commit();
    world.attempted("landscape", &commit).await;
    let status = world.source("landscape").await.status.unwrap();
    assert!(status.diagnostics.iter().all(|one| one.code != "source-differs"), "{:?}", status.diagnostics);
    assert!(world.api::<Kyma>().get("b").await.is_ok());
    assert_eq!(ready(&world.source("landscape").await), "False PruneUnconfirmed", "of the Kyma a");

    // The other side changes: what is active stays, for a process that starts now as well.
    let ignore = async |world: &World, files: Value| {
        let patch = json!({"spec": {"ignore": files}});
        world.api::<GitSource>().patch("landscape", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    };
    ignore(&world, json!(["/old/", "/b.yaml"])).await;
    world.ready_is("landscape", "False SourceDiffers").await;
    world.restart().await;
    world.ready_is("landscape", "False SourceDiffers").await;
    world.daemon().quiet().await;
    assert!(world.api::<Kyma>().get("b").await.unwrap().metadata.deletion_timestamp.is_none());
    ignore(&world, json!(["/old/"])).await;
    world.ready_is("landscape", "False PruneUnconfirmed").await;

    // An invalid file allows no more than a valid one.
    world.repository.replace(".tidegate/source.yaml", "strict: false", "strickt: false").unwrap();
    world.kyma("c", "mail");
    let commit = world.commit();
    world.attempted("landscape", &commit).await;
    assert_eq!(ready(&world.source("landscape").await), "False SourceFileInvalid");
    assert!(world.api::<Kyma>().get_opt("c").await.unwrap().is_none());

    // A new source says so as well, and waits for no poll once it is corrected.
    world.repository.replace(".tidegate/source.yaml", "strickt: false", "strict: false").unwrap();
    world.commit();
    world.declare("other", json!({"ignore": ["/old/", "/*.yaml"], "interval": "1h"})).await;
    world.ready_is("other", "False SourceDiffers").await;
    let correct = json!({"spec": {"ignore": ["/old/"], "paths": ["none"]}});
    world.api::<GitSource>().patch("other", &PatchParams::default(), &Patch::Merge(&correct)).await.unwrap();
    world.ready_is("other", "False Invalid").await;
}

async fn a_refused_revision_changes_nothing_at_all() {
    let mut world = World::new("refuse").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.kyma("a", "mail");
    world.begin(json!({"onError": "RefuseRevision"})).await;
    world.repository.replace("a.yaml", "channel: regular", "channel: 5").unwrap();
    world.kyma("b", "mail");
    let commit = world.commit();
    world.attempted("landscape", &commit).await;
    assert_eq!(ready(&world.source("landscape").await), "False RevisionRefused");
    world.answers_as_documented("landscape", "onError", "Applied", &[(&commit, "<commit>")]).await;
    assert!(world.api::<Kyma>().get_opt("b").await.unwrap().is_none());
}

async fn a_prune_waits_for_its_confirmation_and_then_happens() {
    let mut world = World::new("prune").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.kyma("a", "mail");
    world.kyma("b", "mail");
    world.begin(json!({})).await;

    world.repository.remove("a.yaml").unwrap();
    let commit = world.commit();
    world.attempted("landscape", &commit).await;
    let source = world.source("landscape").await;
    assert_eq!(ready(&source), "False PruneUnconfirmed");
    let command = format!(
        "kubectl annotate gitsource -n {} landscape tidegate.dev/confirm-prune={commit} --overwrite",
        world.namespace
    );
    let message = &condition(&source, "Applied").message;
    assert!(message.contains(&command), "{message}");
    let names = [(commit.as_str(), "<commit>")];
    world.answers_as_documented("landscape", "tidegate.dev/confirm-prune", "Applied", &names).await;
    assert!(world.api::<Kyma>().get("a").await.unwrap().metadata.deletion_timestamp.is_none());

    world.annotate("landscape", names::annotation::CONFIRM_PRUNE, &commit).await;
    eventually("the Kyma is deleted", SOON, async || {
        let kyma = world.api::<Kyma>().get_opt("a").await.map_err(text)?;
        let going = kyma.is_none_or(|kyma| kyma.metadata.deletion_timestamp.is_some());
        going.then_some(()).ok_or("it is still there".to_owned())
    })
    .await;
    assert!(world.api::<Kyma>().get("b").await.unwrap().metadata.deletion_timestamp.is_none());
}

async fn too_many_prunes_at_once_stop_and_go_on_when_confirmed() {
    let mut world = World::new("brake").await;
    let versions: Vec<String> = (0..8).map(|patch| format!("1.0.{patch}")).collect();
    let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
    world.module("mail", &versions, "1.0.0");
    world.begin(json!({})).await;
    for version in &versions[1..7] {
        world.repository.remove(&format!("mail-{version}.yaml")).unwrap();
    }
    let commit = world.commit();
    world.attempted("landscape", &commit).await;
    assert_eq!(ready(&world.source("landscape").await), "False PruneLimit");
    let names = [(commit.as_str(), "<commit>")];
    world.answers_as_documented("landscape", "tidegate.dev/confirm-prune", "Applied", &names).await;
    assert_eq!(world.api::<ModuleTemplate>().list(&Default::default()).await.unwrap().items.len(), 8);
    world.annotate("landscape", names::annotation::CONFIRM_PRUNE, &commit).await;
    world.gone::<ModuleTemplate>("mail-1.0.6").await;
    eventually("the source is ready", SOON, async || {
        let found = ready(&world.source("landscape").await);
        (found == "True Applied").then_some(()).ok_or(found)
    })
    .await;
}

async fn kymas_may_use_modules_of_another_source() {
    let mut world = World::new("elsewhere").await;
    let write = |path: &str, text: String| world.repository.write(path, &text).unwrap();
    write("kymas/a.yaml", kyma(&world.namespace, "a", "mail", "regular"));
    write("modules/none.yaml", String::new());
    let commit = world.commit();
    world.declare("kymas", json!({"paths": ["kymas"]})).await;
    world.start().await;
    world.attempted("kymas", &commit).await;
    eventually("no source declares the module", SOON, async || {
        let ready = ready(&world.source("kymas").await);
        if ready == "False Withheld" { Ok(()) } else { Err(ready) }
    })
    .await;

    let write = |path: &str, text: String| world.repository.write(path, &text).unwrap();
    write("modules/mail-1.0.0.yaml", template(&world.namespace, "mail", "1.0.0"));
    write("modules/mail.yaml", release(&world.namespace, "mail", "1.0.0"));
    let commit = world.commit();
    world.declare("modules", json!({"paths": ["modules"]})).await;
    world.settled("modules", &commit).await;
    world.settled("kymas", &commit).await;
    assert_eq!(world.api::<Kyma>().get("a").await.unwrap().spec.modules[0].name, "mail");

    world.repository.replace("modules/mail.yaml", "channel: regular", "channel: fast").unwrap();
    let commit = world.commit();
    world.settled("modules", &commit).await;
    eventually("the channel is gone, and who uses it says so", SOON, async || {
        let source = world.source("kymas").await;
        let first = source.status.as_ref().and_then(|status| status.withheld.first().cloned());
        let message = first.map(|withheld| withheld.message).unwrap_or_default();
        if message.contains("no channel `regular`") { Ok(()) } else { Err(format!("{} {message}", ready(&source))) }
    })
    .await;
    assert!(world.api::<Kyma>().get("a").await.is_ok(), "it stays as it was");
}

async fn another_path_in_the_source_is_a_mass_deletion() {
    let mut world = World::new("moved").await;
    world.module("mail", &["1.0.0", "2.0.0"], "1.0.0");
    world.repository.write("other/note-1.0.0.yaml", &template(&world.namespace, "note", "1.0.0")).unwrap();
    world.begin(json!({})).await;
    world.declare("landscape", json!({"paths": ["other"]})).await;
    eventually("the prune waits", SOON, async || {
        let found = ready(&world.source("landscape").await);
        (found == "False PruneUnconfirmed").then_some(()).ok_or(found)
    })
    .await;
    assert_eq!(world.api::<ModuleTemplate>().list(&Default::default()).await.unwrap().items.len(), 3);
    world.restart().await;
    world.daemon().quiet().await;
    assert_eq!(ready(&world.source("landscape").await), "False PruneUnconfirmed", "a restart forgets nothing");
    assert_eq!(world.api::<ModuleTemplate>().list(&Default::default()).await.unwrap().items.len(), 3);
}

async fn a_changed_field_of_a_source_acts_at_once_and_the_brake_names_it_as_the_cause() {
    let mut world = World::new("ignored").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.kyma("a", "mail");
    world.kyma("b", "mail");
    let commit = world.begin(json!({})).await;
    // No commit follows.
    world.declare("landscape", json!({"ignore": ["/b.yaml"]})).await;
    world.ready_is("landscape", "False PruneUnconfirmed").await;
    let conditions = world.source("landscape").await.status.unwrap().conditions;
    let message = |type_: &str| conditions.iter().find(|found| found.type_ == type_).unwrap().message.clone();
    let cause = "1 object no longer selected, because url, ref, paths or ignore of the GitSource changed; the prune";
    assert!(message("Applied").starts_with(cause), "{}", message("Applied"));
    let ready = message("Ready");
    assert!(ready.contains("` prunes 1 object"), "{ready}");
    assert!(world.api::<Kyma>().get("b").await.is_ok(), "it waits for the confirmation");
    world.annotate("landscape", names::annotation::CONFIRM_PRUNE, &commit).await;
    // Its finalizer stays: the controller of runtimes is not part of this daemon.
    eventually("the confirmed prune", SOON, async || {
        let kyma = world.api::<Kyma>().get("b").await.map_err(text)?;
        kyma.metadata.deletion_timestamp.map(drop).ok_or_else(|| "not deleted".to_owned())
    })
    .await;

    world.declare("landscape", json!({"ignore": ["/b.yaml"], "allow": {"kinds": ["Kyma"]}})).await;
    world.ready_is("landscape", "False Withheld").await;
    world.declare("landscape", json!({"ignore": ["/b.yaml"]})).await;
    world.ready_is("landscape", "True Applied").await;
}

async fn a_suspended_source_changes_nothing_and_goes_on_when_resumed() {
    let mut world = World::new("suspend").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.begin(json!({})).await;
    world.declare("landscape", json!({"suspend": true})).await;
    eventually("the status says so", SOON, async || {
        let found = ready(&world.source("landscape").await);
        (found == "False Suspended").then_some(()).ok_or(found)
    })
    .await;
    world.kyma("a", "mail");
    let commit = world.commit();
    holds("nothing is applied", QUIET, async || {
        let found = world.api::<Kyma>().get_opt("a").await.map_err(text)?;
        found.map_or(Ok(()), |_| Err("the Kyma is there".to_owned()))
    })
    .await;
    world.declare("landscape", json!({"suspend": false})).await;
    world.settled("landscape", &commit).await;
    assert!(world.api::<Kyma>().get("a").await.is_ok());
}

async fn what_is_not_allowed_is_withheld() {
    let mut world = World::new("allow").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.kyma("a", "mail");
    let commit = world.commit();
    world.declare("landscape", json!({"allow": {"kinds": ["ModuleTemplate", "ModuleReleaseMeta"]}})).await;
    world.start().await;
    world.attempted("landscape", &commit).await;
    assert!(world.api::<ModuleReleaseMeta>().get("mail").await.is_ok());
    assert!(world.api::<Kyma>().get_opt("a").await.unwrap().is_none());
    let status = world.source("landscape").await.status.unwrap();
    assert!(
        status.diagnostics.iter().any(|found| found.severity == "error" && found.path.as_deref() == Some("a.yaml"))
    );
}

async fn the_first_source_keeps_an_object_and_it_moves_without_a_delete_when_dropped() {
    let mut world = World::new("owner").await;
    world.repository.write("one/mail-1.0.0.yaml", &template(&world.namespace, "mail", "1.0.0")).unwrap();
    world.repository.write("one/note-1.0.0.yaml", &template(&world.namespace, "note", "1.0.0")).unwrap();
    world.repository.write("two/mail-1.0.0.yaml", &template(&world.namespace, "mail", "1.0.0")).unwrap();
    let commit = world.commit();
    world.declare("one", json!({"paths": ["one"]})).await;
    world.start().await;
    world.settled("one", &commit).await;
    world.declare("two", json!({"paths": ["two"]})).await;
    world.attempted("two", &commit).await;
    let second = world.source("two").await;
    assert_eq!(ready(&second), "False Withheld");
    assert_eq!(second.status.unwrap().diagnostics[0].code, "owned-by-source");
    let owner = |template: &ModuleTemplate| template.metadata.labels.as_ref().unwrap()[names::label::SOURCE].clone();
    let before = world.api::<ModuleTemplate>().get("mail-1.0.0").await.unwrap();
    assert_eq!(owner(&before), format!("{}.one", world.namespace));

    world.repository.remove("one/mail-1.0.0.yaml").unwrap();
    let commit = world.commit();
    world.settled("one", &commit).await;
    world.settled("two", &commit).await;
    let after = world.api::<ModuleTemplate>().get("mail-1.0.0").await.unwrap();
    assert_eq!(owner(&after), format!("{}.two", world.namespace));
    assert_eq!(after.metadata.uid, before.metadata.uid);
}

async fn an_owner_whose_revision_is_refused_does_not_keep_others_from_their_status() {
    let mut world = World::new("early").await;
    world.repository.write("one/mail-1.0.0.yaml", &template(&world.namespace, "mail", "1.0.0")).unwrap();
    world.repository.write("two/mail-1.0.0.yaml", &template(&world.namespace, "mail", "1.0.0")).unwrap();
    let commit = world.commit();
    world.declare("one", json!({"paths": ["one"]})).await;
    world.start().await;
    world.settled("one", &commit).await;
    world.declare("two", json!({"paths": ["two"]})).await;
    world.ready_is("two", "False Withheld").await;

    // The file names only one of the two sources.
    let own = "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: two}\nspec:\n  strict: false\n";
    world.repository.write(".tidegate/source.yaml", own).unwrap();
    world.commit();
    world.ready_is("one", "False SourceDiffers").await;
    world.stop().await;
    world.lose_state();
    world.repository.write("two/note-1.0.0.yaml", &template(&world.namespace, "note", "1.0.0")).unwrap();
    let commit = world.commit();
    world.start().await;
    // The process has no revision of the owner, and will have none.
    eventually("the status says what waits", SOON, async || {
        let status = world.source("two").await.status.unwrap();
        let is_it = |found: &str| found.ends_with("/one, which has not been read yet");
        let says = status.diagnostics.iter().any(|found| is_it(found.message.split(';').next().unwrap_or_default()));
        let is_new = status.attempted_revision.as_deref() == Some(&*format!("main@sha1:{commit}"));
        (says && is_new).then_some(()).ok_or_else(|| serde_json::to_string(&status).unwrap())
    })
    .await;
    assert_eq!(ready(&world.source("two").await), "False Withheld");
    assert!(world.api::<ModuleTemplate>().get("note-1.0.0").await.is_ok(), "the rest is applied");
}

async fn foreign_objects_are_refused_by_their_managers_names_unless_adopted() {
    let mut world = World::new("foreign").await;
    world.apply_as("kim", &kyma(&world.namespace, "a", "mail", "alpha")).await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.kyma("a", "mail");
    let commit = world.commit();
    world.declare("landscape", json!({})).await;
    world.start().await;
    world.attempted("landscape", &commit).await;
    let status = world.source("landscape").await.status.unwrap();
    assert_eq!(status.diagnostics[0].code, "foreign-object");
    assert!(status.diagnostics[0].message.contains("kim"), "{}", status.diagnostics[0].message);
    assert_eq!(world.api::<Kyma>().get("a").await.unwrap().spec.channel, "alpha");

    world
        .repository
        .replace("a.yaml", "metadata: {", "metadata: {annotations: {tidegate.dev/adopt: \"true\"}, ")
        .unwrap();
    let commit = world.commit();
    world.settled("landscape", &commit).await;
    assert_eq!(world.api::<Kyma>().get("a").await.unwrap().spec.channel, "regular");
}

async fn the_marks_of_flux_and_argo_cd_are_respected() {
    let mut world = World::new("tools").await;
    let mut flux = json_of(&kyma(&world.namespace, "a", "mail", "alpha"));
    flux["metadata"]["labels"] =
        json!({"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"});
    world.apply_as("kustomize-controller", &flux.to_string()).await;
    let mut argo = json_of(&kyma(&world.namespace, "b", "mail", "alpha"));
    argo["metadata"]["labels"] = json!({"app.kubernetes.io/instance": "shop"});
    world.apply_as("argocd-controller", &argo.to_string()).await;
    world.module("mail", &["1.0.0"], "1.0.0");
    for name in ["a", "b"] {
        world.kyma(name, "mail");
        let adopt = "metadata: {annotations: {tidegate.dev/adopt: \"true\"}, ";
        world.repository.replace(&format!("{name}.yaml"), "metadata: {", adopt).unwrap();
    }
    let commit = world.commit();
    world.declare("landscape", json!({})).await;
    world.start().await;
    world.attempted("landscape", &commit).await;
    let status = world.source("landscape").await.status.unwrap();
    let codes: BTreeSet<&str> = status.diagnostics.iter().map(|found| found.code.as_str()).collect();
    assert!(codes.contains("managed-by-flux") && codes.contains("managed-by-argocd"), "{codes:?}");
    for name in ["a", "b"] {
        assert_eq!(world.api::<Kyma>().get(name).await.unwrap().spec.channel, "alpha", "{name} is untouched");
    }
}

async fn a_changed_or_deleted_object_is_brought_back() {
    let mut world = World::new("drift").await;
    world.module("mail", &["1.0.0", "2.0.0"], "1.0.0");
    world.kyma("a", "mail");
    world.begin(json!({})).await;
    let patch = Patch::Merge(json!({"spec": {"channel": "fast"}}));
    world.api::<Kyma>().patch("a", &PatchParams::default(), &patch).await.unwrap();
    eventually("the channel is as git has it", SOON, async || {
        let found = world.api::<Kyma>().get("a").await.map_err(text)?.spec.channel;
        (found == "regular").then_some(()).ok_or(found)
    })
    .await;
    world.api::<ModuleTemplate>().delete("mail-2.0.0", &DeleteParams::default()).await.unwrap();
    eventually("the template is back", SOON, async || {
        world.api::<ModuleTemplate>().get("mail-2.0.0").await.map(drop).map_err(text)
    })
    .await;
    // Drift while the daemon is stopped is found by comparing.
    world.stop().await;
    world.api::<Kyma>().patch("a", &PatchParams::default(), &patch).await.unwrap();
    world.start().await;
    eventually("the channel is as git has it", SOON, async || {
        let found = world.api::<Kyma>().get("a").await.map_err(text)?.spec.channel;
        (found == "regular").then_some(()).ok_or(found)
    })
    .await;
}

async fn a_source_that_is_gone_keeps_its_last_good_revision_also_across_a_restart() {
    let mut world = World::new("gone").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.kyma("a", "mail");
    let commit = world.begin(json!({})).await;
    fs::rename(world.repository.path(), world.folder.path().join("elsewhere")).unwrap();
    world.restart().await;
    eventually("the status says so", SOON, async || {
        let source = world.source("landscape").await;
        let fetched = condition(&source, "Fetched");
        let in_force = fetched.message.ends_with(&format!("main@sha1:{commit} stays active"));
        (fetched.status == "False" && in_force).then_some(()).ok_or(fetched.message.clone())
    })
    .await;
    world.api::<ModuleReleaseMeta>().delete("mail", &DeleteParams::default()).await.unwrap();
    eventually("the release is back", SOON, async || {
        world.api::<ModuleReleaseMeta>().get("mail").await.map(drop).map_err(text)
    })
    .await;
}

async fn a_namespace_that_definitions_need_is_created_and_never_deleted() {
    let mut world = World::new("namespace").await;
    let other = format!("{}-made", world.namespace);
    world.namespaces.insert(other.clone());
    world.repository.write("mail-1.0.0.yaml", &template(&other, "mail", "1.0.0")).unwrap();
    world.module("note", &["1.0.0"], "1.0.0");
    world.begin(json!({})).await;
    assert!(Api::<ModuleTemplate>::namespaced(world.client.clone(), &other).get("mail-1.0.0").await.is_ok());
    world.repository.remove("mail-1.0.0.yaml").unwrap();
    let commit = world.commit();
    world.settled("landscape", &commit).await;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(world.client.clone());
    assert!(namespaces.get(&other).await.unwrap().metadata.deletion_timestamp.is_none());
}

async fn a_deleted_source_leaves_its_objects_without_its_mark() {
    let mut world = World::new("orphan").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.begin(json!({})).await;
    world.api::<GitSource>().delete("landscape", &DeleteParams::default()).await.unwrap();
    world.gone::<GitSource>("landscape").await;
    let template = world.api::<ModuleTemplate>().get("mail-1.0.0").await.unwrap();
    let labels = template.metadata.labels.iter().flatten();
    assert_eq!(labels.filter(|(key, _)| key.starts_with("tidegate.dev/")).count(), 0);
    assert!(template.metadata.deletion_timestamp.is_none());
}

async fn a_deleted_source_leaves_no_label_where_another_one_declares_something_else() {
    for policy in ["Orphan", "Delete"] {
        let mut world = World::new("differs").await;
        for (folder, channel) in [("one", "regular"), ("two", "fast")] {
            let text = release(&world.namespace, "mail", "1.0.0").replace("regular", channel);
            world.repository.write(&format!("{folder}/mail.yaml"), &text).unwrap();
            // Both say the same of this one.
            let text = template(&world.namespace, "mail", "1.0.0");
            world.repository.write(&format!("{folder}/mail-1.0.0.yaml"), &text).unwrap();
        }
        let commit = world.commit();
        world.declare("one", json!({"paths": ["one"], "deletionPolicy": policy})).await;
        world.start().await;
        world.settled("one", &commit).await;
        world.declare("two", json!({"paths": ["two"]})).await;
        world.attempted("two", &commit).await;
        let before = world.api::<ModuleReleaseMeta>().get("mail").await.unwrap();
        let mark = |metadata: &kube::core::ObjectMeta| {
            metadata.labels.as_ref().and_then(|labels| labels.get(names::label::SOURCE).cloned())
        };
        assert_eq!(mark(&before.metadata), Some(format!("{}.one", world.namespace)));

        world.api::<GitSource>().delete("one", &DeleteParams::default()).await.unwrap();
        world.gone::<GitSource>("one").await;
        eventually("the other source says what it needs", SOON, async || {
            let source = world.source("two").await;
            let said = condition(&source, "Applied").message.clone();
            let is_it =
                said.contains("without the ownership label of a GitSource") && said.contains("tidegate.dev/adopt");
            if is_it { Ok(()) } else { Err(said) }
        })
        .await;
        let after = world.api::<ModuleReleaseMeta>().get("mail").await.unwrap();
        assert_eq!((mark(&after.metadata), &after.metadata.uid), (None, &before.metadata.uid), "{policy}");
        assert_eq!(after.spec, before.spec, "{policy}");
        let taken = world.api::<ModuleTemplate>().get("mail-1.0.0").await.unwrap();
        assert_eq!(mark(&taken.metadata), Some(format!("{}.two", world.namespace)), "{policy}");
    }
}

async fn a_source_that_is_applied_again_takes_back_what_it_left_and_what_differs_waits_for_adopt() {
    let mut world = World::new("back").await;
    world.module("mail", &["1.0.0", "2.0.0"], "1.0.0");
    world.kyma("a", "mail");
    world.kyma("b", "mail");
    let commit = world.begin(json!({})).await;
    let delete = async |world: &World| {
        world.api::<GitSource>().delete("landscape", &DeleteParams::default()).await.unwrap();
        world.gone::<GitSource>("landscape").await;
    };
    let mark = |labels: &Option<std::collections::BTreeMap<String, String>>| {
        labels.as_ref().and_then(|labels| labels.get(names::label::SOURCE).cloned())
    };
    delete(&world).await;
    assert_eq!(mark(&world.api::<Kyma>().get("a").await.unwrap().metadata.labels), None);
    world.declare("landscape", json!({})).await;
    world.settled("landscape", &commit).await;
    for kyma in ["a", "b"] {
        assert!(mark(&world.api::<Kyma>().get(kyma).await.unwrap().metadata.labels).is_some(), "{kyma}");
    }
    assert!(mark(&world.api::<ModuleTemplate>().get("mail-2.0.0").await.unwrap().metadata.labels).is_some());

    // Git says something else by now of one object, and another client has written another one.
    delete(&world).await;
    let theirs = Patch::Merge(json!({"metadata": {"labels": {"theirs": "1"}}}));
    let params = PatchParams { field_manager: Some("other".to_owned()), ..PatchParams::default() };
    world.api::<Kyma>().patch("b", &params, &theirs).await.unwrap();
    world.repository.write("a.yaml", &kyma(&world.namespace, "a", "mail", "fast")).unwrap();
    let release = release(&world.namespace, "mail", "1.0.0")
        .replace("channels:", "channels:\n  - {channel: fast, version: 2.0.0}");
    world.repository.write("mail.yaml", &release).unwrap();
    let commit = world.commit();
    world.declare("landscape", json!({})).await;
    world.attempted("landscape", &commit).await;
    world.ready_is("landscape", "False Withheld").await;
    let entries = world.source("landscape").await.status.unwrap().diagnostics;
    let said: Vec<String> = entries.into_iter().map(|entry| entry.message).collect();
    let kyma = |name: &str| format!("Kyma {}/{name}", world.namespace);
    let differs =
        format!("{} is owned by a GitSource that no longer exists, and differs from this definition", kyma("a"));
    let theirs =
        format!("{} exists in KCP without the ownership label of a GitSource; its field managers are ", kyma("b"));
    for (sentence, hint) in [(differs, "with this content, annotate"), (theirs, "annotate the definition")] {
        let found = said.iter().find(|line| line.starts_with(&sentence));
        assert!(found.is_some_and(|line| line.contains(hint) && line.contains("tidegate.dev/adopt")), "{said:#?}");
    }
    assert!(mark(&world.api::<Kyma>().get("a").await.unwrap().metadata.labels).is_none());
    assert!(mark(&world.api::<ModuleTemplate>().get("mail-2.0.0").await.unwrap().metadata.labels).is_some());
}

async fn a_deleted_source_takes_its_objects_along_where_it_says_so() {
    let mut world = World::new("delete").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    let commit = world.begin(json!({"deletionPolicy": "Delete"})).await;
    world.api::<GitSource>().delete("landscape", &DeleteParams::default()).await.unwrap();
    world.ready_is("landscape", "False PruneUnconfirmed").await;
    let source = world.source("landscape").await;
    let (ready, whole) = (&condition(&source, "Ready").message, &condition(&source, "Applied").message);
    let command = format!("{}=deletion:{commit}", names::annotation::CONFIRM_PRUNE);
    assert!(whole.contains("ModuleReleaseMeta") && whole.contains(&command), "{whole}");
    assert!(ready.starts_with("`kubectl annotate gitsource ") && ready.contains(&command), "{ready}");
    assert!(ready.chars().count() <= 200, "{ready}");
    world.answers_as_documented("landscape", "deletionPolicy", "Applied", &[(&commit, "<commit>")]).await;
    // It confirms only what the commit removes from git.
    world.annotate("landscape", names::annotation::CONFIRM_PRUNE, &commit).await;
    world.restart().await;
    world.daemon().quiet().await;
    let template = world.api::<ModuleTemplate>().get("mail-1.0.0").await.unwrap();
    assert!(template.metadata.deletion_timestamp.is_none(), "nothing goes before all of it is confirmed");
    world.annotate("landscape", names::annotation::CONFIRM_PRUNE, &format!("deletion:{commit}")).await;
    world.gone::<GitSource>("landscape").await;
    world.gone::<ModuleTemplate>("mail-1.0.0").await;
}

async fn a_deleted_source_whose_prune_waits_deletes_nothing_more_before_it_is_confirmed() {
    let mut world = World::new("delete-brake").await;
    let versions: Vec<String> = (0..8).map(|patch| format!("1.0.{patch}")).collect();
    let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
    world.module("mail", &versions, "1.0.0");
    world.begin(json!({"deletionPolicy": "Delete"})).await;
    for version in &versions[1..7] {
        world.repository.remove(&format!("mail-{version}.yaml")).unwrap();
    }
    let commit = world.commit();
    world.attempted("landscape", &commit).await;
    assert_eq!(ready(&world.source("landscape").await), "False PruneLimit");
    world.api::<GitSource>().delete("landscape", &DeleteParams::default()).await.unwrap();
    world.ready_is("landscape", "False PruneUnconfirmed").await;
    world.daemon().quiet().await;
    let all = world.api::<ModuleTemplate>().list(&Default::default()).await.unwrap().items;
    assert_eq!(all.iter().filter(|one| one.metadata.deletion_timestamp.is_none()).count(), 8);
    world.annotate("landscape", names::annotation::CONFIRM_PRUNE, &format!("deletion:{commit}")).await;
    world.gone::<GitSource>("landscape").await;
    for version in versions {
        world.gone::<ModuleTemplate>(&format!("mail-{version}")).await;
    }
}

async fn an_object_that_says_something_else_in_its_next_source_stays_as_it_is_until_it_is_adopted() {
    let mut world = World::new("transfer").await;
    let release = |world: &World, from: &str, channel: &str, annotations: Value| {
        let text = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
            "metadata": {"name": "mail", "namespace": world.namespace, "annotations": annotations},
            "spec": {"moduleName": "mail", "channels": [{"channel": channel, "version": "1.0.0"}]},
        });
        world.repository.write(&format!("{from}/mail.yaml"), &text.to_string()).unwrap();
    };
    let text = template(&world.namespace, "mail", "1.0.0");
    world.repository.write("two/mail-1.0.0.yaml", &text).unwrap();
    release(&world, "one", "regular", json!({}));
    let commit = world.commit();
    world.declare("one", json!({"paths": ["one"]})).await;
    world.declare("two", json!({"paths": ["two"]})).await;
    world.start().await;
    world.settled("two", &commit).await;
    let before = eventually("it is created", SOON, async || {
        world.api::<ModuleReleaseMeta>().get("mail").await.map_err(|error| error.to_string())
    })
    .await;
    let owner =
        |object: &ModuleReleaseMeta| object.metadata.labels.clone().unwrap_or_default()[names::label::SOURCE].clone();

    world.repository.remove("one/mail.yaml").unwrap();
    release(&world, "two", "fast", json!({}));
    let commit = world.commit();
    world.attempted("two", &commit).await;
    // Before the other source has read the commit, it still declares the object.
    world.attempted("one", &commit).await;
    eventually("it says what differs", SOON, async || {
        let source = world.source("two").await;
        let said = |type_: &str| condition(&source, type_).message.clone();
        let differs = said("Applied").contains("which no longer declares it, and differs from this definition");
        let is_it = differs && said("Ready").contains("annotate the definition with `tidegate.dev/adopt: \"true\"`");
        if is_it { Ok(()) } else { Err(format!("{} {}", said("Ready"), said("Applied"))) }
    })
    .await;
    world.daemon().quiet().await;
    let after = world.api::<ModuleReleaseMeta>().get("mail").await.unwrap();
    assert_eq!((owner(&after), &after.spec), (format!("{}.one", world.namespace), &before.spec));

    release(&world, "two", "fast", json!({names::annotation::ADOPT: "true"}));
    let commit = world.commit();
    world.settled("two", &commit).await;
    let after = world.api::<ModuleReleaseMeta>().get("mail").await.unwrap();
    assert_eq!(owner(&after), format!("{}.two", world.namespace));
    assert_eq!((after.spec.channels[0].channel.as_str(), &after.metadata.uid), ("fast", &before.metadata.uid));
}

async fn a_deleted_source_deletes_nothing_before_all_others_have_been_read() {
    let mut world = World::new("heirs").await;
    for folder in ["one", "two"] {
        let text = template(&world.namespace, "mail", "1.0.0");
        world.repository.write(&format!("{folder}/mail-1.0.0.yaml"), &text).unwrap();
    }
    let commit = world.commit();
    world.declare("one", json!({"paths": ["one"], "deletionPolicy": "Delete"})).await;
    world.start().await;
    world.settled("one", &commit).await;
    world.stop().await;
    let absent = format!("file://{}/absent", world.folder.path().display());
    world.declare("two", json!({"paths": ["two"], "url": absent})).await;
    world.api::<GitSource>().delete("one", &DeleteParams::default()).await.unwrap();
    world.start().await;
    world.ready_is("one", "False PruneWaits").await;
    let message = condition(&world.source("one").await, "Ready").message.clone();
    assert!(message.ends_with(&format!("{}/two", world.namespace)), "{message}");
    world.answers_as_documented("one", "deletionPolicy", "Ready", &[("/two", "/other")]).await;
    world.daemon().push("one", queue::Trigger::Changed);
    let before = world.api::<ModuleTemplate>().get("mail-1.0.0").await.unwrap();
    assert!(before.metadata.deletion_timestamp.is_none());

    world.declare("two", json!({"paths": ["two"]})).await;
    world.gone::<GitSource>("one").await;
    world.settled("two", &commit).await;
    let after = world.api::<ModuleTemplate>().get("mail-1.0.0").await.unwrap();
    assert_eq!(after.metadata.uid, before.metadata.uid, "it was inherited");
    assert_eq!(after.metadata.labels.unwrap()[names::label::SOURCE], format!("{}.two", world.namespace));
}

async fn a_deleted_source_that_is_suspended_deletes_nothing_until_it_is_resumed() {
    let mut world = World::new("paused").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    let commit = world.begin(json!({"deletionPolicy": "Delete"})).await;
    let suspend = async |suspend: bool| {
        let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
        world.api::<GitSource>().patch("landscape", &PatchParams::default(), &patch).await.unwrap();
    };
    suspend(true).await;
    world.ready_is("landscape", "False Suspended").await;
    world.api::<GitSource>().delete("landscape", &DeleteParams::default()).await.unwrap();
    eventually("it says what it waits for", SOON, async || {
        let message = condition(&world.source("landscape").await, "Ready").message.clone();
        if message.contains("resume it to delete its objects") { Ok(()) } else { Err(message) }
    })
    .await;
    assert!(world.api::<ModuleTemplate>().get("mail-1.0.0").await.unwrap().metadata.deletion_timestamp.is_none());
    suspend(false).await;
    world.ready_is("landscape", "False PruneUnconfirmed").await;
    world.annotate("landscape", names::annotation::CONFIRM_PRUNE, &format!("deletion:{commit}")).await;
    world.gone::<GitSource>("landscape").await;
    world.gone::<ModuleTemplate>("mail-1.0.0").await;
}

async fn what_a_rewrite_takes_away_is_confirmed_also_after_a_restart_and_what_goes_later_is_not() {
    let mut world = World::new("rewrite").await;
    world.module("mail", &["1.0.0", "2.0.0", "3.0.0"], "1.0.0");
    world.commit();
    world.repository.write("README.md", "to be rewritten\n").unwrap();
    world.begin(json!({"allowRewrite": true})).await;

    world.drop_last_commit();
    world.repository.remove("mail-2.0.0.yaml").unwrap();
    let commit = world.commit();
    world.attempted("landscape", &commit).await;
    world.ready_is("landscape", "False PruneUnconfirmed").await;
    world.restart().await;
    world.daemon().quiet().await;
    assert_eq!(ready(&world.source("landscape").await), "False PruneUnconfirmed", "a restart forgets nothing");
    assert!(world.api::<ModuleTemplate>().get("mail-2.0.0").await.is_ok());
    world.annotate("landscape", names::annotation::CONFIRM_PRUNE, &commit).await;
    world.gone::<ModuleTemplate>("mail-2.0.0").await;
    world.settled("landscape", &commit).await;

    world.repository.remove("mail-3.0.0.yaml").unwrap();
    let commit = world.commit();
    world.settled("landscape", &commit).await;
    world.gone::<ModuleTemplate>("mail-3.0.0").await;
}

async fn a_rewrite_that_took_nothing_away_is_over_at_once() {
    let mut world = World::new("amend").await;
    world.module("mail", &["1.0.0", "2.0.0"], "1.0.0");
    world.commit();
    world.repository.write("README.md", "to be rewritten\n").unwrap();
    world.begin(json!({"allowRewrite": true})).await;
    world.drop_last_commit();
    world.repository.write("README.md", "rewritten\n").unwrap();
    let commit = world.commit();
    world.settled("landscape", &commit).await;
    world.repository.remove("mail-2.0.0.yaml").unwrap();
    let commit = world.commit();
    world.settled("landscape", &commit).await;
    world.gone::<ModuleTemplate>("mail-2.0.0").await;
}

async fn what_another_client_created_and_the_watch_does_not_show_yet_is_not_applied_over() {
    let mut world = World::new("late").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.begin(json!({})).await;
    world.daemon().quiet().await;
    world.daemon.as_mut().unwrap().feed.shutdown().await;
    world.apply_as("kim", &kyma(&world.namespace, "a", "mail", "regular")).await;
    world.kyma("a", "mail");
    let commit = world.commit();
    world.attempted("landscape", &commit).await;
    let source = world.source("landscape").await;
    assert_eq!(ready(&source), "False ApplyFailed");
    assert!(condition(&source, "Applied").message.contains("appeared a moment ago"));
    let kyma = world.api::<Kyma>().get("a").await.unwrap();
    assert_eq!(kyma.metadata.labels, None, "kim's Kyma does not bear our mark");
}

async fn a_secret_that_comes_late_is_found_long_before_the_next_poll() {
    let mut world = World::new("credentials").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    let commit = world.commit();
    world.declare("landscape", json!({"secretRef": {"name": "git"}, "interval": "1h"})).await;
    world.start().await;
    world.ready_is("landscape", "False SecretNotFound").await;
    let secret = |data: Value| {
        let metadata = json!({"name": "git", "namespace": world.namespace});
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})
    };
    harness::apply(&world.client, &secret(json!({"username": "only"}))).await;
    world.ready_is("landscape", "False SecretInvalid").await;
    harness::apply(&world.client, &secret(json!({"username": "a", "password": "b"}))).await;
    world.settled("landscape", &commit).await;
}

async fn mirrors_of_former_urls_and_sources_are_removed() {
    let mut world = World::new("mirrors").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    let commit = world.begin(json!({})).await;
    let mirrors = world.folder.path().join("state/git").join(format!("{}.landscape", world.namespace));
    let count = || fs::read_dir(&mirrors).map_or(0, Iterator::count);
    assert_eq!(count(), 1);

    let absent = format!("file://{}/absent", world.folder.path().display());
    world.declare("landscape", json!({"url": absent})).await;
    eventually("the URL is tried", SOON, async || {
        let found = count();
        if found == 2 { Ok(()) } else { Err(format!("{found} mirrors")) }
    })
    .await;
    let moved = world.folder.path().join("moved");
    fs::rename(world.repository.path(), &moved).unwrap();
    world.declare("landscape", json!({"url": format!("file://{}", moved.display())})).await;
    world.settled("landscape", &commit).await;
    // The status may still be that of the URL before.
    eventually("the URL that works replaces the one before and the mistake", SOON, async || {
        let found = count();
        if found == 1 { Ok(()) } else { Err(format!("{found} mirrors")) }
    })
    .await;

    world.api::<GitSource>().delete("landscape", &DeleteParams::default()).await.unwrap();
    eventually("its mirrors are gone", SOON, async || {
        if mirrors.exists() { Err("they are still there".to_owned()) } else { Ok(()) }
    })
    .await;
}

#[tokio::test]
async fn mirrors_of_sources_that_went_while_no_process_looked_are_swept() {
    let folder = harness::folder();
    let state = git::State::open(folder.path()).unwrap();
    let keys = ["stays", "went"].map(|name| Key::new("kcp-system", name));
    for key in &keys {
        state.mirror(key, &"https://git.example.org/a".parse().unwrap()).unwrap();
    }
    SourceRegistry::new(state).sweep(&BTreeSet::from([keys[0].clone()])).await;
    let left: Vec<_> =
        fs::read_dir(folder.path().join("git")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["kcp-system.stays"]);
}

async fn a_request_by_annotation_is_handled_once_and_said_so() {
    let mut world = World::new("request").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.begin(json!({})).await;
    world.annotate("landscape", names::annotation::RECONCILE_REQUESTED_AT, "now").await;
    eventually("the status says so", SOON, async || {
        let handled = world.source("landscape").await.status.and_then(|status| status.last_handled_reconcile_at);
        (handled.as_deref() == Some("now")).then_some(()).ok_or(format!("{handled:?}"))
    })
    .await;
}

async fn a_moved_file_costs_no_write_and_its_place_follows_on_request_or_with_the_next_change() {
    let mut world = World::new("moved").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.kyma("a", "mail");
    world.begin(json!({})).await;
    let place = async || world.api::<Kyma>().get("a").await.unwrap().metadata.annotations.unwrap_or_default();
    let place = async || place().await.remove(names::annotation::PATH).unwrap_or_default();
    let text = world.repository.read("a.yaml").unwrap();
    world.repository.remove("a.yaml").unwrap();
    world.repository.write("kymas/a.yaml", &text).unwrap();
    let marked = world.server.mark();
    let commit = world.commit();
    world.settled("landscape", &commit).await;
    world.daemon().quiet().await;
    let writes = |world: &World| -> Vec<String> {
        let of_kymas = world.server.records_since(marked).into_iter().filter(|record| record.user == world.user);
        of_kymas
            .filter(|record| record.resource.starts_with("kymas") && record.verb == "patch")
            .map(|record| record.name)
            .collect()
    };
    assert_eq!((writes(&world), place().await), (Vec::new(), "a.yaml".to_owned()));

    for (round, expected) in [("one", 1), ("two", 1)] {
        world.annotate("landscape", names::annotation::RECONCILE_REQUESTED_AT, round).await;
        eventually("the request is handled", SOON, async || {
            let handled = world.source("landscape").await.status.and_then(|status| status.last_handled_reconcile_at);
            (handled.as_deref() == Some(round)).then_some(()).ok_or(format!("{handled:?}"))
        })
        .await;
        world.daemon().quiet().await;
        assert_eq!((writes(&world).len(), place().await), (expected, "kymas/a.yaml".to_owned()), "request {round}");
    }

    world.repository.remove("kymas/a.yaml").unwrap();
    let changed = text.replace("channel: regular", "channel: regular\n  skipMaintenanceWindows: true");
    world.repository.write("b/a.yaml", &changed).unwrap();
    let commit = world.commit();
    world.settled("landscape", &commit).await;
    assert_eq!((writes(&world).len(), place().await), (2, "b/a.yaml".to_owned()), "with a change");
}

async fn a_local_path_in_kcp_is_refused_unless_the_daemon_allows_it() {
    let mut world = World::new("local").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.commit();
    world.allow_local = false;
    world.declare("landscape", json!({})).await;
    world.start().await;
    eventually("it is refused", SOON, async || {
        let found = ready(&world.source("landscape").await);
        (found == "False LocalSourceRefused").then_some(()).ok_or(found)
    })
    .await;
    assert!(world.api::<ModuleTemplate>().get_opt("mail-1.0.0").await.unwrap().is_none());
}

/// Definitions in one source. `cargo test --release --test it source::many -- --nocapture` with
/// `TIDEGATE_DEFINITIONS=20000 TIDEGATE_TEST_SERVERS=real` prints the times of a full-size one.
#[tokio::test(flavor = "multi_thread")]
async fn many_definitions_in_one_source_are_applied_once_each_and_one_change_is_one_write() {
    let count: usize = std::env::var("TIDEGATE_DEFINITIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(1000);
    let late = Duration::from_secs(60 + count as u64 / 20);
    let mut world = World::new("many").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    for number in 0..count {
        let name = format!("k{number}");
        world
            .repository
            .write(&format!("kymas/{name}.yaml"), &kyma(&world.namespace, &name, "mail", "regular"))
            .unwrap();
    }
    let commit = world.commit();
    world.declare("landscape", json!({})).await;
    let begin = Instant::now();
    world.start().await;
    world.settled_within("landscape", &commit, late).await;
    println!("{count} definitions: first sync {:.2?}", begin.elapsed());
    assert_eq!(world.writes().len(), count + 3, "one write an object and one for the finalizer");

    world.daemon().quiet().await;
    world.mark();
    let begin = Instant::now();
    world
        .repository
        .replace("kymas/k7.yaml", "channel: regular", "channel: regular\n  skipMaintenanceWindows: true")
        .unwrap();
    let commit = world.commit();
    let committed = Instant::now();
    world.settled_within("landscape", &commit, late).await;
    println!("one changed: {:.2?} after {:.2?} of committing", committed.elapsed(), committed - begin);
    assert_eq!(world.writes(), ["kymas k7"]);

    world.mark();
    world.restart().await;
    world.daemon().quiet().await;
    assert_eq!(world.writes(), [""; 0]);
}

// === the world of a test ===

/// A namespace of a shared KCP, a repository, and a daemon that follows it.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    namespaces: BTreeSet<String>,
    folder: tidegate_testbed::Folder,
    pub(crate) repository: Repository,
    allow_local: bool,
    user: String,
    marked: u64,
    daemon: Option<Daemon>,
}

/// The controllers of a daemon that need no runtime.
pub(crate) struct Daemon {
    pub(crate) context: Arc<Context>,
    namespace: String,
    feed: JoinSet<()>,
    tasks: JoinSet<()>,
}

impl World {
    pub(crate) async fn new(prefix: &str) -> World {
        let server = Server::kcp().await;
        let client = server.client();
        let namespace = harness::namespace(&client, &format!("source-{prefix}")).await;
        let folder = harness::folder();
        let repository = Repository::init(&folder.path().join("repository")).unwrap();
        let namespaces = BTreeSet::from([namespace.clone()]);
        let user = format!("tidegate-{namespace}");
        let marked = server.mark();
        World {
            server,
            client,
            namespace,
            namespaces,
            folder,
            repository,
            allow_local: true,
            user,
            marked,
            daemon: None,
        }
    }

    // --- git ---

    pub(crate) fn module(&self, module: &str, versions: &[&str], regular: &str) {
        for version in versions {
            let file = format!("{module}-{version}.yaml");
            self.repository.write(&file, &template(&self.namespace, module, version)).unwrap();
        }
        self.repository.write(&format!("{module}.yaml"), &release(&self.namespace, module, regular)).unwrap();
    }

    pub(crate) fn kyma(&self, name: &str, module: &str) {
        self.repository.write(&format!("{name}.yaml"), &kyma(&self.namespace, name, module, "regular")).unwrap();
    }

    pub(crate) fn commit(&self) -> String {
        self.repository.commit("a change").unwrap()
    }

    /// The branch goes back by one commit; the work tree stays, so that the next commit rewrites what was fetched.
    pub(crate) fn drop_last_commit(&self) {
        let repository = git2::Repository::open(self.repository.path()).unwrap();
        let parent = repository.head().unwrap().peel_to_commit().unwrap().parent_id(0).unwrap();
        repository.find_reference("refs/heads/main").unwrap().set_target(parent, "rewritten").unwrap();
    }

    // --- KCP ---

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        harness::namespaced(&self.client, &self.namespace)
    }

    pub(crate) async fn declare(&self, name: &str, spec: Value) {
        let mut full = json!({"url": self.repository.url(), "interval": "10s"});
        full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let source = json!({
            "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
            "metadata": {"name": name, "namespace": self.namespace}, "spec": full,
        });
        harness::apply(&self.client, &source).await;
    }

    async fn apply_as(&self, manager: &str, text: &str) {
        let object = json_of(text);
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let params = PatchParams::apply(manager).force();
        self.api::<Kyma>().patch(&name, &params, &Patch::Apply(object)).await.unwrap();
    }

    /// Commits, declares the repository as `landscape`, starts the daemon, and waits until that commit is settled.
    /// Returns the commit.
    pub(crate) async fn begin(&mut self, spec: Value) -> String {
        let commit = self.commit();
        self.declare("landscape", spec).await;
        self.start().await;
        self.settled("landscape", &commit).await;
        commit
    }

    async fn annotate(&self, source: &str, key: &str, value: &str) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
        self.api::<GitSource>().patch(source, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn source(&self, name: &str) -> GitSource {
        self.api::<GitSource>().get(name).await.unwrap()
    }

    /// Waits until `Ready` has a status and a reason.
    async fn ready_is(&self, name: &str, expected: &str) {
        eventually(expected, SOON, async || {
            let found = ready(&self.source(name).await);
            if found == expected { Ok(()) } else { Err(found) }
        })
        .await;
    }

    /// Waits until a commit has been attempted.
    pub(crate) async fn attempted(&self, name: &str, commit: &str) {
        let wanted = format!("main@sha1:{commit}");
        eventually("the commit is looked at", SOON, async || {
            let found = self.source(name).await.status.and_then(|status| status.attempted_revision);
            (found.as_deref() == Some(wanted.as_str())).then_some(()).ok_or(format!("{found:?}"))
        })
        .await;
    }

    /// Waits until a commit is applied completely and no object is pending.
    pub(crate) async fn settled(&self, name: &str, commit: &str) {
        self.settled_within(name, commit, SOON).await;
    }

    async fn settled_within(&self, name: &str, commit: &str, deadline: Duration) {
        self.settled_as(name, &format!("main@sha1:{commit}"), deadline).await;
    }

    async fn settled_as(&self, name: &str, wanted: &str, deadline: Duration) {
        eventually("the commit is applied", deadline, async || {
            let source = self.source(name).await;
            let revision = source.status.as_ref().and_then(|status| status.applied_revision.clone());
            let done = revision.as_deref() == Some(wanted) && ready(&source) == "True Applied";
            done.then_some(()).ok_or_else(|| serde_json::to_string(&source.status).unwrap())
        })
        .await;
    }

    async fn gone<K>(&self, name: &str)
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        eventually("it goes", SOON, async || {
            let found = self.api::<K>().get_opt(name).await.map_err(text)?;
            found.map_or(Ok(()), |_| Err(format!("{name} is still there")))
        })
        .await;
    }

    // --- the daemon ---

    pub(crate) async fn start(&mut self) {
        let state = self.folder.path().join("state");
        let daemon =
            Daemon::start(&self.server, &self.user, &self.namespaces, &state, self.allow_local, &self.namespace);
        self.daemon = Some(daemon.await);
    }

    pub(crate) async fn stop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.tasks.shutdown().await;
            daemon.feed.shutdown().await;
        }
    }

    /// The folder of mirrors is gone, as after the replacement of a Pod without a volume.
    pub(crate) fn lose_state(&self) {
        fs::remove_dir_all(self.folder.path().join("state")).unwrap();
    }

    pub(crate) async fn restart(&mut self) {
        self.stop().await;
        self.start().await;
    }

    pub(crate) fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("a daemon runs")
    }

    // --- requests ---

    /// [`World::writes`] returns only later writes from now on.
    pub(crate) fn mark(&mut self) {
        self.marked = self.server.mark();
    }

    /// The daemon's writes, sorted, without statuses and Events.
    pub(crate) fn writes(&self) -> Vec<String> {
        let mut writes: Vec<String> = self
            .records()
            .filter(|record| !record.resource.contains('/') && !record.resource.starts_with("events"))
            .map(|record| format!("{} {}", record.resource.split('.').next().unwrap_or_default(), record.name))
            .collect();
        writes.sort();
        writes
    }

    fn status_writes(&self) -> usize {
        self.records().filter(|record| record.resource.ends_with("/status")).count()
    }

    fn records(&self) -> impl Iterator<Item = tidegate_testbed::Record> {
        self.server
            .records_since(self.marked)
            .into_iter()
            .filter(|record| record.user == self.user && !["get", "list", "watch"].contains(&record.verb.as_str()))
    }
}

impl Daemon {
    async fn start(
        server: &Server,
        user: &str,
        namespaces: &BTreeSet<String>,
        state: &Path,
        allow_local: bool,
        namespace: &str,
    ) -> Daemon {
        let kubeconfig = server.kubeconfig_of(user, ADMINISTRATORS);
        let config = access::parse(kubeconfig.text().as_bytes()).unwrap().config().unwrap();
        let network = Server::network([server]);
        let kcp = Arc::new(Cluster::on(&network, ClusterName::Kcp, &config, Limits::default()).unwrap());
        let limits = queue::Limits { running_max: 8, subjects_max: 100_000, interval: Duration::from_secs(60) };
        let queue = Queue::new(Subject::lane, limits);
        let stores = Stores::new(queue.clone());
        // A read from git may end a moment after the daemon's tasks.
        let open = eventually("the former daemon lets go of its state", SOON, async || {
            // The lock uses the machine's clock, not the simulated one.
            let wait = |_: &git::Error| thread::park_timeout(Duration::from_millis(5));
            git::State::open(state).inspect_err(wait).map_err(|error| error.to_string())
        })
        .await;
        let (recorder, writer) = events::recorder("test");
        let certificates = Arc::new(Certificates::unwanted());
        let context = Arc::new(Context {
            pool: Pool::new(Arc::clone(&kcp), Limits::default(), None),
            kcp: Arc::clone(&kcp),
            stores: stores.clone(),
            queue: queue.clone(),
            settings: plan::Settings::default(),
            metrics: Metrics::default(),
            events: recorder,
            namespaces: namespaces.clone(),
            allow_local_sources: allow_local,
            resync: Duration::from_secs(3600),
            rollout_delay_max: Duration::ZERO,
            drift_repair_pause_max: Duration::from_secs(60),
            renderer: Renderer::local(),
            library: RwLock::new(Arc::new(Library::new(Templates::embedded()))),
            sources: SourceRegistry::new(open),
            runtimes: Default::default(),
            inbox: Default::default(),
            shared: Default::default(),
            contacts: Default::default(),
            agent: None,
            maintenance: tidegate::internals::Maintenance::default(),
            components: tidegate::internals::Components::open(
                &tidegate::internals::config::Registries::default(),
                Path::new(""),
                tidegate_oci::Unpacker::local(),
            )
            .unwrap(),
            watchers: Default::default(),
            setup_memory: Default::default(),
            panicked: Default::default(),
            observation: None,
            certificates: Arc::clone(&certificates),
        });
        let (mut feed, mut tasks) = (JoinSet::new(), JoinSet::new());
        for watch in feed::feed(&kcp, &stores, &context.events, namespaces, "kcp-system", &certificates) {
            feed.spawn(watch);
        }
        tasks.spawn(writer.run(kcp));
        let listed = tokio::time::timeout(SOON, stores.complete()).await;
        assert!(listed.is_ok(), "not listed: {:?}", stores.missing());
        stores.start();
        for _ in 0..4 {
            let context = Arc::clone(&context);
            tasks.spawn(async move {
                while let Some(work) = context.queue.next().await {
                    let pass = match work.subject().clone() {
                        Subject::Source(key) => source::reconcile(context.source(), &key, work.triggers()).await,
                        Subject::Watcher(key) => watcher::reconcile(context.watcher(), &key, work.triggers()).await,
                        Subject::Runtime(_) | Subject::Gateway(_) | Subject::Release(_) | Subject::Setup(..) => {
                            Ok(Finish::Done)
                        }
                    };
                    context.queue.finish(work, pass.unwrap_or_else(|failure| Finish::Failed(failure.class)));
                }
            });
        }
        let settled = Arc::clone(&context);
        tasks.spawn(async move {
            loop {
                settled.stores.catalog_changed().await;
                settled.stores.spread();
            }
        });
        let local = Arc::clone(&context);
        tasks.spawn(async move { local.sources.watch_local(&local.queue).await });
        let fetching = Arc::clone(&context);
        tasks.spawn(async move { fetching.sources.run_fetches(&fetching.kcp, &fetching.queue).await });
        let receiving = Arc::clone(&context);
        tasks.spawn(async move { receiving.sources.run_receivers(&receiving.queue).await });
        Daemon { context, namespace: namespace.to_owned(), feed, tasks }
    }

    fn push(&self, source: &str, trigger: queue::Trigger) {
        self.context.queue.push(Subject::Source(Key::new(&self.namespace, source)), trigger);
    }

    /// Waits until nothing is left but what comes with time.
    pub(crate) async fn quiet(&self) {
        self.context.queue.settled().await;
    }

    fn requests(&self) -> String {
        format!("{:?}", self.context.kcp.requests())
    }
}

fn template(namespace: &str, module: &str, version: &str) -> String {
    format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\n\
         metadata: {{name: {module}-{version}, namespace: {namespace}}}\n\
         spec:\n  moduleName: {module}\n  version: {version}\n  descriptor: {{}}\n"
    )
}

fn release(namespace: &str, module: &str, regular: &str) -> String {
    format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleReleaseMeta\n\
         metadata: {{name: {module}, namespace: {namespace}}}\n\
         spec:\n  moduleName: {module}\n  ocmComponentName: kyma-project.io/module/{module}\n  \
         channels:\n  - channel: regular\n    version: {regular}\n"
    )
}

fn kyma(namespace: &str, name: &str, module: &str, channel: &str) -> String {
    format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\n\
         metadata: {{name: {name}, namespace: {namespace}}}\n\
         spec:\n  channel: {channel}\n  modules: [{{name: {module}}}]\n"
    )
}

fn json_of(text: &str) -> Value {
    tidegate_core::yaml::parse(text, &tidegate_core::yaml::Limits::default()).unwrap().remove(0).to_json()
}

fn condition<'a>(source: &'a GitSource, type_: &str) -> &'a tidegate_core::api::shared::Condition {
    let conditions = &source.status.as_ref().expect("a status").conditions;
    conditions.iter().find(|condition| condition.type_ == type_).unwrap_or_else(|| panic!("no condition {type_}"))
}

/// Status and reason of `Ready`, or nothing.
pub(crate) fn ready(source: &GitSource) -> String {
    let conditions = source.status.iter().flat_map(|status| &status.conditions);
    conditions
        .filter(|condition| condition.type_ == "Ready")
        .map(|condition| format!("{} {}", condition.status, condition.reason))
        .collect()
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` gives it by value")]
fn text(error: kube::Error) -> String {
    error.to_string()
}
