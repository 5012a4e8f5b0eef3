//! The templates that there are: what each produces, its text, and its context with an example.

/// One generated kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Template {
    /// One module in one runtime.
    Manifest,
    /// The way of a Watcher's events in the control plane.
    VirtualService,
    /// The Kyma in a runtime.
    Kyma,
    /// A ModuleReleaseMeta in a runtime.
    ModuleReleaseMeta,
    /// A ModuleTemplate in a runtime.
    ModuleTemplate,
    /// The system namespace of a runtime.
    Namespace,
    /// The webhook configuration of a runtime.
    Webhook,
}

/// What a template may produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Produces {
    /// The API versions that it may use; the first is the one of the embedded template.
    pub api_versions: &'static [&'static str],
    /// The kind.
    pub kind: &'static str,
    /// In which cluster, in words.
    pub cluster: &'static str,
}

const KYMA: &[&str] = &["operator.kyma-project.io/v1beta2"];

// === impl Template ===

impl Template {
    /// All of them, by name.
    pub const ALL: [Template; 7] = [
        Template::Manifest,
        Template::VirtualService,
        Template::Kyma,
        Template::ModuleReleaseMeta,
        Template::ModuleTemplate,
        Template::Namespace,
        Template::Webhook,
    ];

    /// The template of this name.
    pub fn named(name: &str) -> Option<Template> {
        Template::ALL.into_iter().find(|template| template.name() == name)
    }

    /// Its name: the path below a folder of templates.
    pub fn name(self) -> &'static str {
        match self {
            Template::Manifest => "kcp/manifest.yaml",
            Template::VirtualService => "kcp/virtual-service.yaml",
            Template::Kyma => "skr/kyma.yaml",
            Template::ModuleReleaseMeta => "skr/module-release-meta.yaml",
            Template::ModuleTemplate => "skr/module-template.yaml",
            Template::Namespace => "skr/namespace.yaml",
            Template::Webhook => "skr/webhook.yaml",
        }
    }

    /// What it may produce.
    pub fn produces(self) -> Produces {
        let (api_versions, kind, cluster) = match self {
            Template::Manifest => (KYMA, "Manifest", "control plane"),
            Template::VirtualService => (
                &["networking.istio.io/v1beta1", "networking.istio.io/v1", "networking.istio.io/v1alpha3"][..],
                "VirtualService",
                "control plane",
            ),
            Template::Kyma => (KYMA, "Kyma", "runtime"),
            Template::ModuleReleaseMeta => (KYMA, "ModuleReleaseMeta", "runtime"),
            Template::ModuleTemplate => (KYMA, "ModuleTemplate", "runtime"),
            Template::Namespace => (&["v1"][..], "Namespace", "runtime"),
            Template::Webhook => {
                (&["admissionregistration.k8s.io/v1"][..], "ValidatingWebhookConfiguration", "runtime")
            }
        };
        Produces { api_versions, kind, cluster }
    }

    /// The embedded text.
    pub fn text(self) -> &'static str {
        match self {
            Template::Manifest => include_str!("../../templates/kcp/manifest.yaml"),
            Template::VirtualService => include_str!("../../templates/kcp/virtual-service.yaml"),
            Template::Kyma => include_str!("../../templates/skr/kyma.yaml"),
            Template::ModuleReleaseMeta => include_str!("../../templates/skr/module-release-meta.yaml"),
            Template::ModuleTemplate => include_str!("../../templates/skr/module-template.yaml"),
            Template::Namespace => include_str!("../../templates/skr/namespace.yaml"),
            Template::Webhook => include_str!("../../templates/skr/webhook.yaml"),
        }
    }

    /// Its context: YAML that is an example, with comments that say what each field is.
    pub fn context(self) -> &'static str {
        match self {
            Template::Manifest => include_str!("../../templates/kcp/manifest.context.yaml"),
            Template::VirtualService => include_str!("../../templates/kcp/virtual-service.context.yaml"),
            Template::Kyma => include_str!("../../templates/skr/kyma.context.yaml"),
            Template::ModuleReleaseMeta => include_str!("../../templates/skr/module-release-meta.context.yaml"),
            Template::ModuleTemplate => include_str!("../../templates/skr/module-template.context.yaml"),
            Template::Namespace => include_str!("../../templates/skr/namespace.context.yaml"),
            Template::Webhook => include_str!("../../templates/skr/webhook.context.yaml"),
        }
    }
}
