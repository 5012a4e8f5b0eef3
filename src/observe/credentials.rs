//! What the daemon would write that holds credentials: the certificates of runtimes and their CA, the agent's Secret
//! and the image pull Secret of a runtime. The data of Secrets are compared as masks, and never shown.
//!
//! The decisions are the daemon's own ([`certificates::foresee`], [`gateway::foresee`]). What cannot be found out is
//! named, so that it counts as not compared.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use serde_json::json;
use tidegate_cluster::{Cluster, Error, Kind};
use tidegate_core::{
    api::{
        Kyma,
        names::{KCP_NAMESPACE, SKR_NAMESPACE, SKR_WEBHOOK_SECRET},
    },
    landscape,
    name::Key,
    object::{Digest, Object, ObjectId},
    plan::certificate,
    render::{self, Mark, SharedObjects},
    template::Templates,
};
use tidegate_diff::{
    mask::Masker,
    model::{Effect, Side},
};
use tidegate_process::ambient;

use super::{
    Observation,
    difference::{ComparedCluster, Difference, Reason},
    state::SeenGateway,
};
use crate::{
    controller::{Context, Pass},
    gateway::{
        self,
        certificates::{self, Foreseen},
    },
    live::{
        Method,
        compare::{Comparer, Shared, Wish},
    },
    queue::{Finish, Trigger},
    stores::secret::key,
};

/// What differs, and what cannot be found out: one line each.
#[derive(Debug, Default)]
pub(super) struct Compared {
    pub(super) differences: Vec<Difference>,
    pub(super) unknown: Vec<String>,
    /// Requests to the control plane.
    pub(super) reads: u64,
}

/// Compares the Secrets of the gateway and of the CA.
pub(super) async fn gateway(context: &Context, observation: &Observation, key: &Key) -> Pass {
    let seen = match gateway::foresee(context.gateway(), key, ambient::now()).await {
        Ok(written) => {
            let of_one = |(key, exists): &(Key, bool)| {
                let reason = if *exists { Reason::Changed } else { Reason::Missing };
                Difference::new(ComparedCluster::ControlPlane, reason, secret_id(key), &[])
            };
            SeenGateway { differences: written.iter().map(of_one).collect(), unknown: None }
        }
        Err(why) => SeenGateway { differences: Vec::new(), unknown: Some(format!("certificates: {why}")) },
    };
    observation.seen.lock().gateway = seen;
    Ok(Finish::After(observation.interval, Trigger::Resync))
}

/// Digest of what decides about the credentials of a runtime.
pub(super) fn fingerprint(context: &Context, kyma: &Key) -> Digest {
    let (stores, certificates) = (&context.stores, &context.certificates);
    let own = certificate::key_of(kyma, &certificates.rules);
    Digest::from_value(&json!([
        certificates.signs_with().map(|der| Digest::of_bytes(&der).to_string()),
        stores.ca_bundle().map(|bundle| Digest::of_bytes(&bundle).to_string()),
        stores.certificate(own.name()).map(|live| live.resource_version.clone()),
        stores.certificate_secret(own.name()).map(|secret| secret.resource_version.clone()),
        stores.pull_secret().map(|secret| secret.version.clone()),
    ]))
}

/// Compares the certificate of a runtime, and the Secrets in it. Fails if the runtime does not answer.
pub(super) async fn compare(
    context: &Context,
    observation: &Observation,
    kyma: &Kyma,
    cluster: &Cluster,
) -> Result<Compared, Error> {
    let shared = Shared::new(Masker::new(observation.mask.clone()), Method::Reads, false);
    let pass = Credentials { context, shared: &shared, kyma, cluster };
    let mut compared = Compared::default();
    if context.agent.is_some() {
        pass.certificate(&mut compared).await?;
    }
    if context.settings.pull_secret.is_some() {
        pass.pull_secret(&mut compared).await?;
    }
    Ok(compared)
}

/// The credentials of one runtime.
struct Credentials<'a> {
    context: &'a Context,
    shared: &'a Shared,
    kyma: &'a Kyma,
    cluster: &'a Cluster,
}

// === impl Credentials ===

impl Credentials<'_> {
    /// The certificate in the control plane, and the agent's Secret, which has a copy of it.
    async fn certificate(&self, compared: &mut Compared) -> Result<(), Error> {
        let certificates = self.context.runtime().certificates;
        match certificates::foresee(certificates, self.kyma, ambient::now()).await {
            Foreseen::Current(issued) => {
                compared.reads += 1;
                match certificates::load(certificates, &issued).await {
                    Ok(Some(leaf)) => return self.agent_secret(compared, &leaf).await,
                    Ok(None) => compared.unknown.push(format!("Secret {} has no certificate", issued.secret)),
                    Err(error) => compared.unknown.push(format!("certificate: {error}")),
                }
            }
            Foreseen::Applies(kind, desired) => {
                compared.reads += 1;
                match self.context.kcp.get(&kind, &Key::new(desired.namespace(), desired.name())).await {
                    Ok(live) => {
                        let comparer = self.comparer(&self.context.kcp, Side::ControlPlane);
                        compared.differences.extend(differs(&comparer, *desired, live.as_ref()).await?);
                    }
                    Err(error) => compared.unknown.push(format!("certificate: {error}")),
                }
                self.follows(compared);
            }
            Foreseen::Changes(id, exists) => {
                let reason = if exists { Reason::Changed } else { Reason::Missing };
                compared.differences.push(Difference::new(ComparedCluster::ControlPlane, reason, id, &[]));
                self.follows(compared);
            }
            Foreseen::Unknown(why) => compared.unknown.push(format!("certificate: {why}")),
        }
        Ok(())
    }

    /// The agent's Secret gets what is issued then.
    fn follows(&self, compared: &mut Compared) {
        let id = secret_id(&Key::new(SKR_NAMESPACE, SKR_WEBHOOK_SECRET));
        let detail = "it gets the certificate that is issued then".to_owned();
        let difference = Difference::new(ComparedCluster::Runtime, Reason::Waiting, id, &[]);
        compared.differences.push(difference.with_detail(Some(detail)));
    }

    async fn agent_secret(&self, compared: &mut Compared, leaf: &certificates::Leaf) -> Result<(), Error> {
        let Some(bundle) = self.context.stores.ca_bundle() else {
            compared.unknown.push("certificate: the CA bundle is not known".to_owned());
            return Ok(());
        };
        let data = [(key::CERTIFICATE, &*leaf.certificate), (key::KEY, &*leaf.key), (key::BUNDLE, &*bundle)];
        let data: Vec<(&str, Vec<u8>)> = data.iter().map(|(name, bytes)| (*name, bytes.to_vec())).collect();
        let rendered = self.render(move |templates| {
            render::agent_secret(templates, data.iter().map(|(name, bytes)| (*name, bytes.as_slice())))
        });
        self.in_runtime(compared, rendered.await).await
    }

    /// The image pull Secret, a copy of the one in the control plane. Without that one, what the runtime has stays.
    async fn pull_secret(&self, compared: &mut Compared) -> Result<(), Error> {
        let Some((name, found)) = self.context.settings.pull_secret.clone().zip(self.context.stores.pull_secret())
        else {
            return Ok(());
        };
        compared.reads += 1;
        let source = Key::new(KCP_NAMESPACE, &name);
        let secret: Result<Option<Secret>, Error> =
            self.context.kcp.get_as(&Kind::namespaced::<Secret>(), &source).await;
        let data = match secret {
            Ok(secret) => secret.and_then(|secret| secret.data).unwrap_or_default(),
            Err(error) => {
                compared.unknown.push(format!("the image pull Secret: {error}"));
                return Ok(());
            }
        };
        let rendered = self.render(move |templates| {
            let data = data.iter().map(|(key, bytes)| (key.as_str(), bytes.0.as_slice()));
            render::agent_pull_secret(templates, &name, &found.type_, &found.labels, data)
        });
        self.in_runtime(compared, rendered.await).await
    }

    async fn render(
        &self,
        work: impl FnOnce(&Templates) -> Result<Object, tidegate_core::template::Error> + Send + 'static,
    ) -> Result<Object, String> {
        let context = self.context.runtime().templates;
        context.for_object(&self.kyma.metadata, work).await.map_err(|error| error.to_string())
    }

    /// Compares a rendered Secret with that in the runtime.
    async fn in_runtime(&self, compared: &mut Compared, rendered: Result<Object, String>) -> Result<(), Error> {
        let desired = match rendered {
            Ok(object) => object,
            Err(why) => {
                compared.unknown.push(why);
                return Ok(());
            }
        };
        let shared = SharedObjects::new(&[desired], Mark::Runtime, &|_| None);
        let Some(desired) = shared.objects.first() else { return Ok(()) };
        let desired = desired.object(&landscape::key(&self.kyma.metadata));
        let key = Key::new(desired.namespace(), desired.name());
        let live = self.cluster.get(&Kind::namespaced::<Secret>(), &key).await?;
        let comparer = self.comparer(self.cluster, Side::Runtime);
        compared.differences.extend(differs(&comparer, desired, live.as_ref()).await?);
        Ok(())
    }

    fn comparer<'a>(&'a self, cluster: &'a Cluster, side: Side) -> Comparer<'a> {
        Comparer::new(self.shared, cluster, side, Arc::default(), Vec::new())
    }
}

/// How a desired object differs from the live one. Fails if an API server does not answer.
async fn differs(comparer: &Comparer<'_>, desired: Object, live: Option<&Object>) -> Result<Option<Difference>, Error> {
    let wish = Wish { gvk: desired.gvk(), object: desired, places: Vec::new(), maker: None };
    let found = match live {
        None => Some(comparer.found(&wish, &comparer.created(&wish), Effect::Applies)),
        Some(live) => {
            let differs = comparer.existing(&wish, live).await?;
            differs.map(|differs| comparer.found(&wish, &differs, Effect::Applies))
        }
    };
    Ok(found.map(|found| Difference::from_found(&found, None)))
}

fn secret_id(key: &Key) -> ObjectId {
    Kind::namespaced::<Secret>().id(key)
}
