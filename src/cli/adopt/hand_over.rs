//! `tidegate adopt from-flux` and `from-argocd`: how another tool hands definitions over, step by step. Sends reads
//! only.

use std::collections::BTreeMap;

use anyhow::Context as _;
use tidegate_cluster::{Cluster, Error, Network};
use tidegate_core::{
    adopt::{
        Finding, empty,
        hand_over::{Checked, HandOver, Left, Program, Progress, hand_overs, left},
        kinds,
    },
    definition,
    intake::{Id, OtherTool},
    name::Key,
    object::{Gvk, Object},
};
use tidegate_process::{Exit, say, tell};

use super::{
    HandOverArguments, Output,
    read::{check_namespaces, key_of, list_of, missing},
};
use crate::cli::control_plane;

/// The objects of the tool, by namespace and name.
type Owners = BTreeMap<Key, Object>;

/// Prints the steps for the first kind that is not handed over yet. Fails if a request fails.
pub(super) async fn run(program: Program, arguments: &HandOverArguments, network: &Network) -> anyhow::Result<Exit> {
    let cluster = super::connect(&arguments.access, network).await?;
    let namespaces = control_plane::namespaces(&arguments.namespaces);
    check_namespaces(&cluster, &namespaces).await?;
    let missing: Vec<&str> = missing(&cluster).await?.into_iter().filter(|kind| *kind != "Manifest").collect();
    if let Some(Finding { message, next, .. }) = kinds(&missing) {
        tell!("error: {message}: {}", next.unwrap_or_default());
        return Ok(Exit::Incomplete);
    }
    let mut live: Vec<(Id, Object)> = Vec::new();
    for kind in definition::Kind::ALL {
        let (group, version) = kind.api();
        let found = list_of(&cluster, &Gvk::new(group, version, kind.as_str()), &namespaces).await;
        let found = found.with_context(|| format!("cannot list {kind}s"))?;
        live.extend(found.into_iter().map(|object| ((kind, key_of(&object)), object)));
    }
    if let Some(Finding { message, next, .. }) = empty(&namespaces, false).filter(|_| live.is_empty()) {
        tell!("{message}: {}", next.unwrap_or_default());
        if let Output::Json = arguments.output {
            say!("[]");
        }
        return Ok(Exit::Changes);
    }
    let (kustomizations, releases, applications) = match program {
        Program::Flux => (
            owners(&cluster, "kustomize.toolkit.fluxcd.io", &["v1", "v1beta2"], "Kustomization").await?,
            owners(&cluster, "helm.toolkit.fluxcd.io", &["v2", "v2beta2"], "HelmRelease").await?,
            Owners::new(),
        ),
        Program::ArgoCd => {
            (Owners::new(), Owners::new(), owners(&cluster, "argoproj.io", &["v1alpha1"], "Application").await?)
        }
    };
    let owner = |tool: &OtherTool| match tool {
        OtherTool::Kustomization(key) => kustomizations.get(key).map(Object::value),
        OtherTool::HelmRelease(key) => releases.get(key).map(Object::value),
        OtherTool::Application(name) => {
            // Outside of Argo CD's own namespace, an Application is tracked with the namespace before its name.
            let is_it = |key: &Key| key.name() == name || format!("{}_{}", key.namespace(), key.name()) == *name;
            applications.iter().find(|(key, _)| is_it(key)).map(|(_, object)| object.value())
        }
    };
    let found = {
        let live = live.iter().map(|(id, object)| (id, object.value()));
        hand_overs(program, live, owner, &arguments.checked.iter().copied().collect())
    };
    let left = {
        let owners = [&kustomizations, &applications].into_iter().flatten();
        let owners: Vec<_> = owners.map(|(key, owner)| (key, owner.value())).collect();
        left(program, live.iter().map(|(id, object)| (id, object.value())), &owners)
    };
    idle(&arguments.checked, &found).iter().for_each(|sentence| tell!("warning: {sentence}"));
    match arguments.output {
        Output::Text => print(program, &found, &left, &namespaces),
        Output::Json => {
            left.iter().for_each(|left| tell!("warning: {}", left.what));
            say!("{}", serde_json::to_string_pretty(&found)?);
        }
    }
    Ok(if found.is_empty() && left.is_empty() { Exit::Ok } else { Exit::Changes })
}

/// All objects of a kind of a tool; none if the control plane does not serve it, as where the tool runs elsewhere.
async fn owners(cluster: &Cluster, group: &str, versions: &[&str], kind: &str) -> anyhow::Result<Owners> {
    for version in versions {
        let found: Result<_, Error> = cluster.kind(&Gvk::new(group, version, kind)).await;
        let Some(served) = found.with_context(|| format!("cannot ask for {kind}s"))? else { continue };
        let all = cluster.list(&served, None, None).await.with_context(|| format!("cannot list {kind}s"))?;
        return Ok(all.into_iter().map(|object| (key_of(&object), object)).collect());
    }
    Ok(Owners::new())
}

fn print(program: Program, found: &[HandOver], left: &[Left], namespaces: &[String]) {
    let name = program.name();
    let Some(first) = found.first() else {
        match left.is_empty() {
            true => say!("{name} manages no definition in {}: go on with `tidegate adopt plan`", namespaces.join(", ")),
            false => print_left(left),
        }
        return;
    };
    let (now, later): (Vec<&HandOver>, Vec<&HandOver>) = found.iter().partition(|one| one.kind == first.kind);
    for hand_over in now {
        say!("{}:\n", hand_over.title());
        for step in &hand_over.steps {
            let checked = if step.progress == Progress::Checked { ", as you have checked" } else { "" };
            let progress = match step.progress {
                Progress::Done | Progress::Checked => "done",
                Progress::Check => "check",
                Progress::Next => "next",
                Progress::Then => "then",
            };
            say!("  {progress:<5} {}{checked}", step.what);
            match step.progress {
                Progress::Done | Progress::Checked => {}
                Progress::Check | Progress::Next | Progress::Then => {
                    step.commands.iter().for_each(|command| say!("          {command}"));
                }
            }
            if step.progress == Progress::Check {
                say!("          once it is done: --checked {}/{}", hand_over.kind, step.aim.as_str());
            }
        }
        say!("");
    }
    if !later.is_empty() {
        say!("After that:");
        later.iter().for_each(|hand_over| say!("  {}", hand_over.title()));
        say!("");
    }
    print_left(left);
    say!(
        "`check` means that the control plane does not show it: look at {name} and its repository. If it is done, run \
         this command again with the option that is named; otherwise do it first."
    );
}

/// What is left on objects without marks, with the commands.
fn print_left(left: &[Left]) {
    for Left { what, commands } in left {
        say!("{what}");
        commands.iter().for_each(|command| say!("          {command}"));
        say!("");
    }
}

/// The steps that a user has checked, and that no control plane leaves open: one sentence each.
fn idle(checked: &[Checked], found: &[HandOver]) -> Vec<String> {
    let is_said = |one: &Checked| {
        let mut steps = found.iter().filter(|of| of.kind == one.kind.as_str()).flat_map(|of| &of.steps);
        steps.any(|step| step.aim == one.aim && step.progress == Progress::Checked)
    };
    let sentence = |one: &Checked| {
        format!("--checked {one} changes nothing: the control plane shows whether it is done, or there is no such step")
    };
    checked.iter().filter(|one| !is_said(one)).map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_json_has_is_what_the_text_says() {
        let labels = json!({"helm.toolkit.fluxcd.io/name": "kcp", "helm.toolkit.fluxcd.io/namespace": "flux-system"});
        let id: Id = (definition::Kind::Kyma, Key::new("kcp-system", "dev"));
        let object: Value = json!({"metadata": {"labels": labels}});
        let found = hand_overs(Program::Flux, [(&id, &object)], |_| None, &BTreeSet::new());
        let shown = serde_json::to_value(&found).unwrap();
        assert_eq!(shown[0]["owner"], "the Flux HelmRelease flux-system/kcp");
        assert_eq!(shown[0]["names"], json!(["dev"]));
        assert_eq!(shown[0]["steps"][0]["progress"], "next");
        assert_eq!(shown[0]["steps"][0]["aim"], "protect");
    }

    #[test]
    fn a_checked_step_that_the_control_plane_shows_changes_nothing() {
        let labels = json!({
            "kustomize.toolkit.fluxcd.io/name": "kcp", "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
        });
        let id: Id = (definition::Kind::Kyma, Key::new("kcp-system", "dev"));
        let object: Value = json!({"metadata": {"labels": labels}});
        let checked: Vec<Checked> =
            ["Kyma/stop", "Kyma/protect", "Watcher/stop"].iter().map(|text| text.parse().unwrap()).collect();
        let found = hand_overs(Program::Flux, [(&id, &object)], |_| None, &checked.iter().copied().collect());
        let idle = idle(&checked, &found);
        let named: Vec<&str> = idle.iter().filter_map(|sentence| sentence.split(' ').nth(1)).collect();
        assert_eq!(named, ["Kyma/protect", "Watcher/stop"]);
    }
}
