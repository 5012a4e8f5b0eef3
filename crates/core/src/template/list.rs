//! The list of templates: the kind of object each produces, its text, and its context with an
//! example.

/// One kind of generated object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Template {
    /// The certificate of a runtime, if cert-manager issues it.
    Certificate,
    /// The certificate of a runtime, if Gardener's cert-management issues it.
    GardenerCertificate,
    /// One module in one runtime.
    Manifest,
    /// The route of a Watcher's events in the control plane.
    VirtualService,
    /// A certificate of a kcp landscape, if cert-manager issues it.
    SetupCertificate,
    /// A Deployment of a kcp landscape.
    SetupDeployment,
    /// The issuer of a CA of a kcp landscape.
    SetupIssuer,
    /// The paths of a proxy of a kcp landscape.
    SetupPathMapping,
    /// The limit for evictions of the pods of a Deployment of a kcp landscape.
    SetupPodDisruptionBudget,
    /// A kubeconfig or CA certificates of a kcp landscape, without their data.
    SetupSecret,
    /// The Service of a Deployment of a kcp landscape.
    SetupService,
    /// The agent in a runtime.
    AgentDeployment,
    /// The endpoint of the agent's metrics.
    AgentMetricsService,
    /// Lets the API server of a runtime reach the agent.
    AgentPolicyFromApiServer,
    /// Lets the agent reach the control plane.
    AgentPolicyToControlPlane,
    /// Lets the agent resolve names.
    AgentPolicyToDns,
    /// Lets monitoring reach the agent.
    AgentPolicyToMetrics,
    /// The agent's priority.
    AgentPriorityClass,
    /// The image pull credentials of the agent, without their data.
    AgentPullSecret,
    /// The agent's certificate, without its data.
    AgentSecret,
    /// The service through which the API server of a runtime calls the agent.
    AgentService,
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

/// The object that a template produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Produces {
    /// The allowed API versions. The embedded template uses the first.
    pub api_versions: &'static [&'static str],
    /// The kind.
    pub kind: &'static str,
    /// The cluster, in words.
    pub cluster: &'static str,
}

const KYMA: &[&str] = &["operator.kyma-project.io/v1beta2"];

// === impl Template ===

impl Template {
    /// All of them, by name.
    pub const ALL: [Template; 26] = [
        Template::Certificate,
        Template::GardenerCertificate,
        Template::Manifest,
        Template::VirtualService,
        Template::SetupCertificate,
        Template::SetupDeployment,
        Template::SetupIssuer,
        Template::SetupPathMapping,
        Template::SetupPodDisruptionBudget,
        Template::SetupSecret,
        Template::SetupService,
        Template::AgentDeployment,
        Template::AgentMetricsService,
        Template::AgentPolicyFromApiServer,
        Template::AgentPolicyToControlPlane,
        Template::AgentPolicyToDns,
        Template::AgentPolicyToMetrics,
        Template::AgentPriorityClass,
        Template::AgentPullSecret,
        Template::AgentSecret,
        Template::AgentService,
        Template::Kyma,
        Template::ModuleReleaseMeta,
        Template::ModuleTemplate,
        Template::Namespace,
        Template::Webhook,
    ];

    /// The template with this name.
    pub fn named(name: &str) -> Option<Template> {
        Template::ALL.into_iter().find(|template| template.name() == name)
    }

    /// Its name: the path in a folder of templates.
    pub fn name(self) -> &'static str {
        match self {
            Template::Certificate => "kcp/certificate.yaml",
            Template::GardenerCertificate => "kcp/gardener-certificate.yaml",
            Template::Manifest => "kcp/manifest.yaml",
            Template::VirtualService => "kcp/virtual-service.yaml",
            Template::SetupCertificate => "setup/certificate.yaml",
            Template::SetupDeployment => "setup/deployment.yaml",
            Template::SetupIssuer => "setup/issuer.yaml",
            Template::SetupPathMapping => "setup/path-mapping.yaml",
            Template::SetupPodDisruptionBudget => "setup/pod-disruption-budget.yaml",
            Template::SetupSecret => "setup/secret.yaml",
            Template::SetupService => "setup/service.yaml",
            Template::AgentDeployment => "skr/agent/deployment.yaml",
            Template::AgentMetricsService => "skr/agent/metrics-service.yaml",
            Template::AgentPolicyFromApiServer => "skr/agent/policy-from-api-server.yaml",
            Template::AgentPolicyToControlPlane => "skr/agent/policy-to-control-plane.yaml",
            Template::AgentPolicyToDns => "skr/agent/policy-to-dns.yaml",
            Template::AgentPolicyToMetrics => "skr/agent/policy-to-metrics.yaml",
            Template::AgentPriorityClass => "skr/agent/priority-class.yaml",
            Template::AgentPullSecret => "skr/agent/pull-secret.yaml",
            Template::AgentSecret => "skr/agent/secret.yaml",
            Template::AgentService => "skr/agent/service.yaml",
            Template::Kyma => "skr/kyma.yaml",
            Template::ModuleReleaseMeta => "skr/module-release-meta.yaml",
            Template::ModuleTemplate => "skr/module-template.yaml",
            Template::Namespace => "skr/namespace.yaml",
            Template::Webhook => "skr/webhook.yaml",
        }
    }

    /// The object that it produces.
    pub fn produces(self) -> Produces {
        let (api_versions, kind, cluster) = match self {
            Template::Certificate => (&["cert-manager.io/v1"][..], "Certificate", "control plane"),
            Template::GardenerCertificate => (&["cert.gardener.cloud/v1alpha1"][..], "Certificate", "control plane"),
            Template::Manifest => (KYMA, "Manifest", "control plane"),
            Template::VirtualService => (
                &["networking.istio.io/v1beta1", "networking.istio.io/v1", "networking.istio.io/v1alpha3"][..],
                "VirtualService",
                "control plane",
            ),
            Template::SetupCertificate => (&["cert-manager.io/v1"][..], "Certificate", "control plane"),
            Template::SetupDeployment => (&["apps/v1"][..], "Deployment", "control plane"),
            Template::SetupIssuer => (&["cert-manager.io/v1"][..], "Issuer", "control plane"),
            Template::SetupPathMapping => (&["v1"][..], "ConfigMap", "control plane"),
            Template::SetupPodDisruptionBudget => (&["policy/v1"][..], "PodDisruptionBudget", "control plane"),
            Template::SetupSecret => (&["v1"][..], "Secret", "control plane"),
            Template::SetupService => (&["v1"][..], "Service", "control plane"),
            Template::AgentDeployment => (&["apps/v1"][..], "Deployment", "runtime"),
            Template::AgentMetricsService | Template::AgentService => (&["v1"][..], "Service", "runtime"),
            Template::AgentPolicyFromApiServer
            | Template::AgentPolicyToControlPlane
            | Template::AgentPolicyToDns
            | Template::AgentPolicyToMetrics => (&["networking.k8s.io/v1"][..], "NetworkPolicy", "runtime"),
            Template::AgentPriorityClass => (&["scheduling.k8s.io/v1"][..], "PriorityClass", "runtime"),
            Template::AgentPullSecret | Template::AgentSecret => (&["v1"][..], "Secret", "runtime"),
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
            Template::Certificate => include_str!("../../../../templates/kcp/certificate.yaml"),
            Template::GardenerCertificate => include_str!("../../../../templates/kcp/gardener-certificate.yaml"),
            Template::Manifest => include_str!("../../../../templates/kcp/manifest.yaml"),
            Template::VirtualService => include_str!("../../../../templates/kcp/virtual-service.yaml"),
            Template::SetupCertificate => include_str!("../../../../templates/setup/certificate.yaml"),
            Template::SetupDeployment => include_str!("../../../../templates/setup/deployment.yaml"),
            Template::SetupIssuer => include_str!("../../../../templates/setup/issuer.yaml"),
            Template::SetupPathMapping => include_str!("../../../../templates/setup/path-mapping.yaml"),
            Template::SetupPodDisruptionBudget => {
                include_str!("../../../../templates/setup/pod-disruption-budget.yaml")
            }
            Template::SetupSecret => include_str!("../../../../templates/setup/secret.yaml"),
            Template::SetupService => include_str!("../../../../templates/setup/service.yaml"),
            Template::AgentDeployment => include_str!("../../../../templates/skr/agent/deployment.yaml"),
            Template::AgentMetricsService => include_str!("../../../../templates/skr/agent/metrics-service.yaml"),
            Template::AgentPolicyFromApiServer => {
                include_str!("../../../../templates/skr/agent/policy-from-api-server.yaml")
            }
            Template::AgentPolicyToControlPlane => {
                include_str!("../../../../templates/skr/agent/policy-to-control-plane.yaml")
            }
            Template::AgentPolicyToDns => include_str!("../../../../templates/skr/agent/policy-to-dns.yaml"),
            Template::AgentPolicyToMetrics => include_str!("../../../../templates/skr/agent/policy-to-metrics.yaml"),
            Template::AgentPriorityClass => include_str!("../../../../templates/skr/agent/priority-class.yaml"),
            Template::AgentPullSecret => include_str!("../../../../templates/skr/agent/pull-secret.yaml"),
            Template::AgentSecret => include_str!("../../../../templates/skr/agent/secret.yaml"),
            Template::AgentService => include_str!("../../../../templates/skr/agent/service.yaml"),
            Template::Kyma => include_str!("../../../../templates/skr/kyma.yaml"),
            Template::ModuleReleaseMeta => include_str!("../../../../templates/skr/module-release-meta.yaml"),
            Template::ModuleTemplate => include_str!("../../../../templates/skr/module-template.yaml"),
            Template::Namespace => include_str!("../../../../templates/skr/namespace.yaml"),
            Template::Webhook => include_str!("../../../../templates/skr/webhook.yaml"),
        }
    }

    /// Its context: an example in YAML, with comments that document each field.
    pub fn context(self) -> &'static str {
        match self {
            Template::Certificate => include_str!("../../../../templates/kcp/certificate.context.yaml"),
            Template::GardenerCertificate => {
                include_str!("../../../../templates/kcp/gardener-certificate.context.yaml")
            }
            Template::Manifest => include_str!("../../../../templates/kcp/manifest.context.yaml"),
            Template::VirtualService => include_str!("../../../../templates/kcp/virtual-service.context.yaml"),
            Template::SetupCertificate => include_str!("../../../../templates/setup/certificate.context.yaml"),
            Template::SetupDeployment => include_str!("../../../../templates/setup/deployment.context.yaml"),
            Template::SetupIssuer => include_str!("../../../../templates/setup/issuer.context.yaml"),
            Template::SetupPathMapping => include_str!("../../../../templates/setup/path-mapping.context.yaml"),
            Template::SetupPodDisruptionBudget => {
                include_str!("../../../../templates/setup/pod-disruption-budget.context.yaml")
            }
            Template::SetupSecret => include_str!("../../../../templates/setup/secret.context.yaml"),
            Template::SetupService => include_str!("../../../../templates/setup/service.context.yaml"),
            Template::AgentDeployment => include_str!("../../../../templates/skr/agent/deployment.context.yaml"),
            Template::AgentMetricsService => {
                include_str!("../../../../templates/skr/agent/metrics-service.context.yaml")
            }
            Template::AgentPolicyFromApiServer => {
                include_str!("../../../../templates/skr/agent/policy-from-api-server.context.yaml")
            }
            Template::AgentPolicyToControlPlane => {
                include_str!("../../../../templates/skr/agent/policy-to-control-plane.context.yaml")
            }
            Template::AgentPolicyToDns => include_str!("../../../../templates/skr/agent/policy-to-dns.context.yaml"),
            Template::AgentPolicyToMetrics => {
                include_str!("../../../../templates/skr/agent/policy-to-metrics.context.yaml")
            }
            Template::AgentPriorityClass => include_str!("../../../../templates/skr/agent/priority-class.context.yaml"),
            Template::AgentPullSecret => include_str!("../../../../templates/skr/agent/pull-secret.context.yaml"),
            Template::AgentSecret => include_str!("../../../../templates/skr/agent/secret.context.yaml"),
            Template::AgentService => include_str!("../../../../templates/skr/agent/service.context.yaml"),
            Template::Kyma => include_str!("../../../../templates/skr/kyma.context.yaml"),
            Template::ModuleReleaseMeta => include_str!("../../../../templates/skr/module-release-meta.context.yaml"),
            Template::ModuleTemplate => include_str!("../../../../templates/skr/module-template.context.yaml"),
            Template::Namespace => include_str!("../../../../templates/skr/namespace.context.yaml"),
            Template::Webhook => include_str!("../../../../templates/skr/webhook.context.yaml"),
        }
    }
}
