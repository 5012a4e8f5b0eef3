//! How many objects use a template, according to the definitions of a source.

use super::Template;
use crate::definition::{Definitions, Kind};

/// The numbers of definitions on which the objects of templates depend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    kymas: usize,
    /// Modules that Kymas request.
    modules: usize,
    watchers: usize,
    templates: usize,
    releases: usize,
    /// Resources of kcp landscapes. Each has at least one object of most templates.
    setup: usize,
}

// === impl Uses ===

impl Uses {
    /// Counts the definitions, valid or held back.
    pub fn from_definitions(definitions: &Definitions) -> Uses {
        let mut uses = Uses::default();
        for (kind, _) in definitions.declared() {
            match kind {
                Kind::Kyma => uses.kymas += 1,
                Kind::Watcher => uses.watchers += 1,
                Kind::ModuleTemplate => uses.templates += 1,
                Kind::ModuleReleaseMeta => uses.releases += 1,
                Kind::Setup(_) => uses.setup += 1,
            }
        }
        let kymas = definitions.good.iter().filter(|((kind, _), _)| *kind == Kind::Kyma);
        let modules = kymas.filter_map(|(_, kyma)| kyma.object.value().pointer("/spec/modules")?.as_array());
        uses.modules = modules.map(Vec::len).sum();
        uses
    }

    /// How many objects a template renders.
    pub fn of(&self, template: Template) -> usize {
        match template {
            Template::Manifest => self.modules,
            Template::VirtualService => self.watchers,
            Template::ModuleTemplate => self.templates,
            Template::ModuleReleaseMeta => self.releases,
            Template::SetupCertificate
            | Template::SetupDeployment
            | Template::SetupIssuer
            | Template::SetupPathMapping
            | Template::SetupPodDisruptionBudget
            | Template::SetupSecret
            | Template::SetupService => self.setup,
            // Each runtime has one.
            Template::Certificate
            | Template::GardenerCertificate
            | Template::AgentDeployment
            | Template::AgentMetricsService
            | Template::AgentPolicyFromApiServer
            | Template::AgentPolicyToControlPlane
            | Template::AgentPolicyToDns
            | Template::AgentPolicyToMetrics
            | Template::AgentPriorityClass
            | Template::AgentPullSecret
            | Template::AgentSecret
            | Template::AgentService
            | Template::Kyma
            | Template::Namespace
            | Template::Webhook => self.kymas,
        }
    }
}
