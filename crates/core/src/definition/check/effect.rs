//! What each field of a definition does. Nothing is accepted in silence: a field without an effect that has a value is
//! a warning at its line.

use serde_json::Value;

use super::Check;
use crate::{
    api::setup,
    definition::{Kind, code},
    object::{DisplayPath, PathPart},
    yaml::short,
};

/// What a field does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// It decides what Tidegate does.
    Decides,
    /// Runtimes get it with the catalog, for their users and tools.
    Shown,
    /// Neither Tidegate nor Lifecycle Manager reads it. Contains what to do instead.
    None(&'static str),
}

/// A field, and what it does. `[]` stands for all items of a list. What is below a field without a row does what the
/// field does.
type Row = (&'static str, Effect);

const KYMA: [Row; 8] = [
    ("channel", Effect::Decides),
    ("skipMaintenanceWindows", Effect::Decides),
    ("modules[].name", Effect::Decides),
    ("modules[].channel", Effect::Decides),
    ("modules[].controller", Effect::Decides),
    ("modules[].customResourcePolicy", Effect::Decides),
    ("modules[].managed", Effect::Decides),
    ("modules[].remoteModuleTemplateRef", Effect::None("remove it; the ModuleReleaseMeta says which version is used")),
];

const MODULE_TEMPLATE: [Row; 12] = [
    ("channel", Effect::None("remove it, and name the version in a channel of the ModuleReleaseMeta")),
    ("version", Effect::Decides),
    ("moduleName", Effect::Decides),
    ("mandatory", Effect::Decides),
    ("data", Effect::Decides),
    ("descriptor", Effect::Shown),
    ("customStateCheck", Effect::None("remove it; the workloads decide whether a module is ready")),
    ("resources", Effect::Shown),
    ("info", Effect::Shown),
    ("associatedResources", Effect::Shown),
    ("manager", Effect::Decides),
    ("requiresDowntime", Effect::Decides),
];

/// Why the fields of a ModuleReleaseMeta about beta and internal modules do nothing.
const LABELS_DECIDE: &str = "remove it, and set the label on the ModuleTemplates: theirs decide";

const MODULE_RELEASE_META: [Row; 7] = [
    ("moduleName", Effect::Decides),
    ("ocmComponentName", Effect::Decides),
    ("channels", Effect::Decides),
    ("mandatory", Effect::Decides),
    ("beta", Effect::None(LABELS_DECIDE)),
    ("internal", Effect::None(LABELS_DECIDE)),
    ("kymaSelector", Effect::Decides),
];

const WATCHER: [Row; 6] = [
    ("serviceInfo", Effect::Decides),
    ("manager", Effect::Decides),
    ("labelsToWatch", Effect::Decides),
    ("resourceToWatch", Effect::Decides),
    ("field", Effect::Decides),
    ("gateway", Effect::Decides),
];

/// Why the client secret of an OIDC provider does nothing.
const NO_CLIENT_SECRET: Effect = Effect::None("remove it; kcp only checks tokens, and needs no secret for that");
/// Why the groups of a shard do nothing.
const PROXIES_DECIDE: Effect = Effect::None("remove it, and set it on the FrontProxies: theirs decide");

const ROOT_SHARD: [Row; 4] = [
    ("cache.embedded", Effect::None("remove it; without `ref` the root shard has a cache of its own")),
    ("auth.oidc.clientSecret", NO_CLIENT_SECRET),
    ("auth.dropGroups", PROXIES_DECIDE),
    ("auth.passOnGroups", PROXIES_DECIDE),
];

const SHARD: [Row; 3] = [
    ("auth.oidc.clientSecret", NO_CLIENT_SECRET),
    ("auth.dropGroups", PROXIES_DECIDE),
    ("auth.passOnGroups", PROXIES_DECIDE),
];

const FRONT_PROXY: [Row; 1] = [("auth.oidc.clientSecret", NO_CLIENT_SECRET)];

fn rows(kind: Kind) -> &'static [Row] {
    match kind {
        Kind::Kyma => &KYMA,
        Kind::ModuleTemplate => &MODULE_TEMPLATE,
        Kind::ModuleReleaseMeta => &MODULE_RELEASE_META,
        Kind::Watcher => &WATCHER,
        Kind::Setup(setup::Kind::RootShard) => &ROOT_SHARD,
        Kind::Setup(setup::Kind::Shard) => &SHARD,
        Kind::Setup(setup::Kind::FrontProxy) => &FRONT_PROXY,
        Kind::Setup(setup::Kind::CacheServer | setup::Kind::VirtualWorkspace | setup::Kind::Kubeconfig) => &[],
    }
}

impl Check<'_> {
    /// Warns of values in fields that do nothing.
    pub(super) fn effects(&mut self, kind: Kind, value: &Value) {
        for (field, effect) in rows(kind) {
            let Effect::None(instead) = effect else { continue };
            for path in asked(value, field) {
                let message = format!("`{}` has no effect", DisplayPath(&path));
                self.warning(self.at_key(&path), code::NO_EFFECT, message, *instead);
            }
        }
        if kind == Kind::ModuleTemplate {
            self.descriptor(value);
        }
    }

    /// Warns of a descriptor that is about another version: only `spec.version` decides.
    fn descriptor(&mut self, value: &Value) {
        let version = value.pointer("/spec/version").and_then(Value::as_str).unwrap_or_default();
        // The two schemas of OCM.
        for schema in ["component", "metadata"] {
            let found = value.pointer(&format!("/spec/descriptor/{schema}/version")).and_then(Value::as_str);
            let Some(found) = found.filter(|found| *found != version) else { continue };
            let (message, hint) = beside(found, version);
            let path = ["spec".into(), "descriptor".into(), schema.into(), "version".into()];
            self.warning(self.at(&path), code::NO_EFFECT, message, hint);
        }
    }
}

/// What to say of the version in a descriptor, and what to do, beside the one that decides; that may be empty.
fn beside(found: &str, version: &str) -> (String, &'static str) {
    let message = format!("`spec.descriptor` is about version {}, and has no effect", short(found));
    match version.is_empty() {
        true => (format!("{message}: only `spec.version` decides"), "write `descriptor: {}`, and set `spec.version`"),
        false => (
            format!("{message}: `spec.version` is {}", short(version)),
            "write `descriptor: {}`, or correct `spec.version`",
        ),
    }
}

/// The places in a definition where a field has a value. `false` and what is empty ask for nothing.
fn asked(value: &Value, field: &str) -> Vec<Vec<PathPart>> {
    let mut found = vec![(vec![PathPart::from("spec")], &value["spec"])];
    for part in field.split('.') {
        let (key, is_list) = part.strip_suffix("[]").map_or((part, false), |key| (key, true));
        found = found
            .into_iter()
            .flat_map(|(path, value)| {
                let path: Vec<PathPart> = path.into_iter().chain([key.into()]).collect();
                let items = value[key].as_array().filter(|_| is_list).into_iter().flatten().enumerate();
                let items = items
                    .map(|(index, item)| (path.iter().cloned().chain([index.into()]).collect::<Vec<PathPart>>(), item));
                let items: Vec<_> = items.collect();
                if is_list { items } else { vec![(path, &value[key])] }
            })
            .collect();
    }
    let asks = |value: &Value| match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(_) => true,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    };
    found.into_iter().filter(|(_, value)| asks(value)).map(|(path, _)| path).collect()
}

#[cfg(test)]
mod tests;
