//! Decides what happens in the workspaces of a Kubeconfig: a decision over values, made again after every request.
//!
//! * Where ClusterRoleBindings may be is in the status before the first of them can exist.
//! * Those of a former workspace go before the new one is recorded.
//! * Only what has the UID of the Kubeconfig in its label is deleted: so those of kcp-operator belong to it as well.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tidegate_cluster::OnConflict;
use tidegate_core::{changes::covers, object::Object, plan::setup::Grants};

/// The label with the UID of the Kubeconfig. kcp-operator has the same.
pub(super) const LABEL: &str = "operator.kcp.io/kubeconfig";
/// The API group of permissions.
const GROUP: &str = "rbac.authorization.k8s.io";
/// ClusterRoles that every workspace has, although none of them is in it: kcp reads them elsewhere as well.
const BUILT_IN: [&str; 4] = ["cluster-admin", "admin", "edit", "view"];
/// Prefix of further such ClusterRoles.
const SYSTEM: &str = "system:";
/// The built-in ClusterRoles that allow to enter a workspace.
const ENTERING: [&str; 2] = ["cluster-admin", "system:kcp:workspace:access"];

/// What is known at the start.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// The UID of the Kubeconfig.
    pub(super) uid: String,
    /// The group that gets the permissions.
    pub(super) group: String,
    /// The workspace that the status records.
    pub(super) provisioned: Option<String>,
    /// What the Kubeconfig asks for; `None` for nothing.
    pub(super) wanted: Option<Grants>,
}

/// The results so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// The workspace that was recorded.
    pub(super) recorded: Option<Option<String>>,
    /// The ClusterRoleBindings with the label, by workspace.
    pub(super) bindings: BTreeMap<String, Vec<Object>>,
    /// Workspace and name of those that were deleted.
    pub(super) deleted: BTreeSet<(String, String)>,
    /// The names of those that were applied.
    pub(super) applied: BTreeSet<String>,
    /// The ClusterRoles that were read; `None` for one that does not exist.
    pub(super) roles: BTreeMap<String, Option<Object>>,
}

/// One act: one request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Act {
    /// Writes into the status which workspace may have ClusterRoleBindings.
    Record(Option<String>),
    /// Lists the ClusterRoleBindings with the label in a workspace.
    List(String),
    /// Deletes one.
    Delete(String, Box<Object>),
    /// Applies one.
    Apply(String, Box<Object>, OnConflict),
    /// Reads a ClusterRole.
    ReadRole(String, String),
}

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Next {
    /// Enact this act, then decide again.
    Do(Act),
    /// Everything is done. Contains what a user has to provide: one sentence each.
    End(Vec<String>),
}

/// Decides the next step.
pub(super) fn next(known: &Known, observed: &Observed) -> Next {
    match step(known, observed) {
        Ok(missing) => Next::End(missing),
        Err(act) => Next::Do(act),
    }
}

fn step(known: &Known, observed: &Observed) -> Result<Vec<String>, Act> {
    let provisioned = observed.recorded.as_ref().unwrap_or(&known.provisioned);
    let workspace = known.wanted.as_ref().map(|wanted| &wanted.workspace);
    if provisioned.as_ref() != workspace {
        if let Some(former) = provisioned {
            for binding in listed(observed, former)? {
                delete(observed, former, binding)?;
            }
        }
        return Err(Act::Record(workspace.cloned()));
    }
    let Some(Grants { workspace, roles }) = &known.wanted else { return Ok(Vec::new()) };
    let all = listed(observed, workspace)?;
    let desired: BTreeMap<String, Object> = roles.iter().map(|role| binding(known, role)).collect();
    for found in all {
        // A binding cannot get another role.
        let stays = desired.get(found.name()).is_some_and(|wanted| same(wanted, found, "roleRef"));
        if !stays {
            delete(observed, workspace, found)?;
        }
    }
    for (name, object) in desired {
        let found = all.iter().find(|found| found.name() == name && same(&object, found, "roleRef"));
        let is_well = found.is_some_and(|found| covers(object.value(), found.value()));
        if !is_well && !observed.applied.contains(&name) {
            let on_conflict = if found.is_some() { OnConflict::Force } else { OnConflict::Report };
            return Err(Act::Apply(workspace.clone(), Box::new(object), on_conflict));
        }
    }
    missing(observed, workspace, roles)
}

/// The workspaces above one and itself, from the root down: the path of each parent, and the name in it. None if its
/// path does not begin at the root.
pub(super) fn ancestry(path: &str) -> Vec<(&str, &str)> {
    let Some(rest) = path.strip_prefix("root:").filter(|rest| !rest.is_empty()) else { return Vec::new() };
    let begin = path.len() - rest.len();
    let ends = rest.match_indices(':').map(|(at, _)| begin + at).chain([path.len()]);
    ends.filter_map(|end| path[..end].rsplit_once(':')).collect()
}

fn listed<'o>(observed: &'o Observed, workspace: &str) -> Result<&'o [Object], Act> {
    observed.bindings.get(workspace).map(Vec::as_slice).ok_or_else(|| Act::List(workspace.to_owned()))
}

fn delete(observed: &Observed, workspace: &str, found: &Object) -> Result<(), Act> {
    let is_deleted = observed.deleted.contains(&(workspace.to_owned(), found.name().to_owned()));
    if is_deleted { Ok(()) } else { Err(Act::Delete(workspace.to_owned(), Box::new(found.clone()))) }
}

fn same(left: &Object, right: &Object, field: &str) -> bool {
    left.value()[field] == right.value()[field]
}

/// The ClusterRoleBinding of a role, as kcp-operator names it.
fn binding(known: &Known, role: &str) -> (String, Object) {
    let name = format!("{}:{role}", known.uid);
    let value = json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "ClusterRoleBinding",
        "metadata": { "name": name, "labels": { LABEL: known.uid } },
        "roleRef": { "apiGroup": GROUP, "kind": "ClusterRole", "name": role },
        "subjects": [{ "apiGroup": GROUP, "kind": "Group", "name": known.group }],
    });
    (name, Object::new(value).expect("it has a kind and a name"))
}

/// What a user has to provide in the workspace.
fn missing(observed: &Observed, workspace: &str, roles: &BTreeSet<String>) -> Result<Vec<String>, Act> {
    let is_built_in = |role: &&String| BUILT_IN.contains(&role.as_str()) || role.starts_with(SYSTEM);
    let mut sentences = Vec::new();
    let mut may_enter = roles.iter().any(|role| ENTERING.contains(&role.as_str()));
    for role in roles.iter().filter(|role| !is_built_in(role)) {
        match observed.roles.get(role) {
            None => return Err(Act::ReadRole(workspace.to_owned(), role.clone())),
            Some(None) => {
                sentences.push(format!("ClusterRole {role} does not exist in workspace {workspace}: create it there"));
            }
            Some(Some(found)) => may_enter |= allows_to_enter(found.value()),
        }
    }
    if !may_enter && !roles.is_empty() && sentences.is_empty() {
        sentences.push(format!(
            "no ClusterRole of `spec.authorization` allows the verb `access` on the path `/`, without which kcp \
             refuses the user in workspace {workspace}: add such a rule, or the ClusterRole \
             `system:kcp:workspace:access`"
        ));
    }
    Ok(sentences)
}

fn allows_to_enter(role: &Value) -> bool {
    let has = |rule: &Value, field: &str, any: &[&str]| {
        rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).any(|value| any.contains(&value))
    };
    let rules = role["rules"].as_array().into_iter().flatten();
    rules
        .into_iter()
        .any(|rule| has(rule, "verbs", &["access", "*"]) && has(rule, "nonResourceURLs", &["/", "/*", "*"]))
}

#[cfg(test)]
mod tests;
