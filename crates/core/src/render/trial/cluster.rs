//! Samples of what only a cluster knows: Gateways, CA bundles, kinds of objects, the agent and its certificate.

use std::collections::BTreeMap;

use serde_json::json;

use super::{Run, shape_of};
use crate::{
    api::names,
    diagnostic::Diagnostics,
    name::Key,
    plan::{
        certificate::{self, Backend, Certificate, Rules},
        reporting::{Address, Agent, Drift, Gateways, ListenerSettings, PRIORITY_CLASS, Program, Watch},
    },
    render::{self, Reporting},
    template::{Error, Template},
};

/// The templates of the agent, which all runtimes of a source use together.
const AGENT: [Template; 10] = [
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
];
/// Base64 of a CA bundle.
const BUNDLE: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==";

// === impl Run ===

impl Run<'_> {
    /// Renders the routes of Watchers, and the webhook configurations that they lead to.
    pub(super) fn render_watchers(&mut self, diagnostics: &mut Diagnostics) {
        let (watches, _) = render::watches(self.landscape.watchers.values().map(|watcher| &**watcher));
        for watch in &watches {
            let Some(watcher) = self.landscape.watchers.get(&watch.watcher) else { continue };
            if let (true, Ok(port)) = (self.is_ours(&watcher.metadata), watch.port()) {
                self.render_routes(diagnostics, watch, port, &shape_of(&watcher.spec));
            }
        }
        // All runtimes have one webhook configuration. It is from a source that declares all Watchers.
        if !watches.is_empty() && self.landscape.watchers.values().all(|watcher| self.is_ours(&watcher.metadata)) {
            for agent in self.agents {
                self.render_webhooks(diagnostics, &watches, agent.as_ref());
            }
        }
    }

    fn render_routes(&mut self, diagnostics: &mut Diagnostics, watch: &Watch, port: u16, shape: &str) {
        for hosts in [&["events.example.com"][..], &["a.example.com", "b.example.com"]] {
            if self.is_new(Template::VirtualService, format!("{shape}{}", hosts.len())) {
                let gateways = Gateways {
                    names: vec!["kcp-system/gateway".to_owned()],
                    hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
                };
                let result = render::virtual_service(self.templates, watch, port, &gateways, "0");
                self.note(diagnostics, Template::VirtualService, result);
            }
        }
    }

    fn render_webhooks(&mut self, diagnostics: &mut Diagnostics, watches: &[Watch], agent: Option<&Agent>) {
        let plain = drift([("", "configmaps")]);
        let scaled = drift([("", "configmaps"), ("apps", "deployments")]);
        // An agent is installed once there is a CA bundle.
        let samples = match agent {
            Some(_) => [(Some(&plain), Some(BUNDLE)), (Some(&scaled), Some(BUNDLE))],
            None => [(None, None), (None, Some(BUNDLE))],
        };
        for (drift, ca_bundle) in samples {
            if self.is_new(Template::Webhook, json!([ca_bundle, drift.map(Drift::scaled)]).to_string()) {
                let of_watchers = Reporting::of_watchers(watches, ca_bundle);
                let timeout_seconds =
                    agent.map_or(of_watchers.timeout_seconds, |agent| agent.program.timeout_seconds());
                let reporting = Reporting { drift, timeout_seconds, ..of_watchers };
                self.note(diagnostics, Template::Webhook, render::webhook(self.templates, &reporting));
            }
        }
    }

    /// Renders what each runtime of the source has: the agent, its certificate and the namespace.
    pub(super) fn render_shared(&mut self, diagnostics: &mut Diagnostics) {
        for key in self.landscape.kymas.keys() {
            self.render_certificates(diagnostics, key);
        }
        if self.landscape.kymas.is_empty() {
            return;
        }
        if self.is_new(Template::Namespace, String::new()) {
            self.note(diagnostics, Template::Namespace, render::runtime_namespace(self.templates));
        }
        if AGENT.iter().any(|template| self.templates.overridden_by(*template).is_some()) {
            for agent in self.agents.iter().flatten() {
                self.render_agent(diagnostics, agent);
            }
        }
    }

    fn render_certificates(&mut self, diagnostics: &mut Diagnostics, kyma: &Key) {
        let rules = Rules::default();
        let key = certificate::key_of(kyma, &rules);
        let is_default = kyma.namespace() == names::KCP_NAMESPACE;
        let templates =
            [(Template::Certificate, Backend::CertManager), (Template::GardenerCertificate, Backend::Gardener)];
        for (template, backend) in templates {
            if self.is_new(template, is_default.to_string()) {
                let wanted = Certificate {
                    kyma: kyma.clone(),
                    key: key.clone(),
                    common_name: "00000000-0000-0000-0000-000000000000".to_owned(),
                    dns_names: vec!["runtime.example.com".to_owned()],
                };
                let result = render::certificate(self.templates, backend, &wanted, &rules);
                self.note(diagnostics, template, result.transpose());
            }
        }
    }

    fn render_agent(&mut self, diagnostics: &mut Diagnostics, agent: &Agent) {
        let address: Address = "events.example.com:443".parse().expect("a host and a port");
        let mut results = render::agent(self.templates, agent, &address);
        if agent.program.restarts_for_certificates() {
            results.push(render::agent_deployment(self.templates, agent, &address, Some("0")));
        }
        results.push(render::agent_secret(self.templates, []));
        if let Some(name) = &agent.pull_secret {
            let labels = BTreeMap::new();
            let type_ = "kubernetes.io/dockerconfigjson";
            results.push(render::agent_pull_secret(self.templates, name, type_, &labels, []));
        }
        for error in results.into_iter().filter_map(Result::err) {
            // A partial template belongs to several: the first of them represents all.
            let template = Template::named(&error.template).unwrap_or(Template::AgentDeployment);
            self.note(diagnostics, template, Err::<(), Error>(error));
        }
    }
}

/// The agents that a daemon with unknown options may install: none, or one with every setting.
pub fn sample_agents() -> [Option<Agent>; 2] {
    let listener = ListenerSettings { gateway: Key::new("kcp-system", "gateway"), port_overwrite: None, address: None };
    let agent = Agent {
        program: Program::Tidegate,
        image: "registry.example.com/agent:1.0.0".to_owned(),
        pull_secret: Some("pull-secret".to_owned()),
        priority_class: PRIORITY_CLASS.to_owned(),
        memory_limit: "200Mi".to_owned(),
        cpu_limit: "100m".to_owned(),
        godebug: Some("fips140=only".to_owned()),
        listener,
    };
    [None, Some(agent)]
}

fn drift<const COUNT: usize>(kinds: [(&str, &str); COUNT]) -> Drift {
    let mut drift = Drift::default();
    kinds.iter().for_each(|(group, resource)| drift.insert(group, Some(resource)));
    drift
}
