//! Manifests whose objects are in a registry that is not configured. What they have installed stays as it is, in KCP
//! and in the runtime, and nothing of it is checked. Pure.
//!
//! So a process that is started without its registries, as at the beginning of a take-over, takes no module from
//! `Ready` to `Error`. A module that is not installed yet is refused elsewhere.

use tidegate_core::{
    api::{Manifest, shared::State},
    component::ComponentName,
    conditions,
    plan::InstallSource,
};

use super::manifest;

/// Whether a Manifest stays as it is: no registry has its component, and either Lifecycle Manager has left it, or it is
/// as Tidegate applied it. `is_adopted` is whether its runtime stays as Lifecycle Manager left it.
pub(super) fn stays(manifest: &Manifest, is_adopted: bool, has_registry: &dyn Fn(&ComponentName) -> bool) -> bool {
    let Ok(InstallSource::Oci(source)) = InstallSource::try_from(&manifest.spec.install.source) else { return false };
    if manifest.metadata.deletion_timestamp.is_some() || has_registry(&source.name) {
        return false;
    }
    let Some(status) = &manifest.status else { return false };
    match conditions::find(&status.conditions, conditions::APPLIED) {
        Some(_) => manifest::is_as_recorded(manifest),
        // Its status is Lifecycle Manager's.
        None => !status.conditions.is_empty() && (is_adopted || status.state == State::Ready),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn manifest(change: &Value) -> Manifest {
        let source = json!({"type": "oci-dir", "repo": "r.example.com", "name": "example.org/a", "ref": DIGEST});
        let mut manifest = json!({
            "metadata": {"name": "one-a", "namespace": "kcp-system", "generation": 1},
            "spec": {"remote": true, "install": {"name": "raw-manifest", "source": source}},
            "status": {"state": "Ready", "conditions": [condition("Installation", "Ready")]},
        });
        for (pointer, value) in change.as_object().unwrap() {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            manifest.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        serde_json::from_value(manifest).unwrap()
    }

    fn condition(kind: &str, reason: &str) -> Value {
        json!({
            "type": kind, "reason": reason, "status": "True", "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    }

    #[test]
    fn what_is_installed_stays_while_its_registry_is_not_configured() {
        let applied = json!([condition(conditions::APPLIED, "Applied:sha256:abc")]);
        let git = json!({"type": "git", "source": "kcp-system/a", "path": "b", "tree": "a".repeat(40)});
        let error = "Error";
        for (change, is_adopted, expected) in [
            (json!({}), false, true),
            (json!({"/status/state": error}), true, true),
            (json!({"/status/state": error}), false, false),
            (json!({"/status/conditions": applied}), false, true),
            (json!({"/status/conditions": applied, "/metadata/generation": 2}), true, false),
            (json!({"/status/conditions": []}), true, false),
            (json!({"/status": null}), true, false),
            (json!({"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z"}), true, false),
            (json!({"/spec/install/source": git}), true, false),
        ] {
            assert_eq!(stays(&manifest(&change), is_adopted, &|_| false), expected, "{change} {is_adopted}");
            assert!(!stays(&manifest(&change), is_adopted, &|_| true), "{change}");
        }
    }
}
