//! The CA is replaced under a running daemon, which is killed half-way.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tidegate::internals::gateway::pki;
use tidegate_testbed::Extent;

use super::world::{AGENT, delete, gateway, stage};
use crate::{
    certificates::shake,
    harness::{self, SOON, eventually},
    stage::{Stage, read, scenarios},
};

scenarios! {
    change_of_the_authority_reaches_runtime_and_gateway_through_a_kill,
}

fn bytes(secret: &Value, key: &str) -> Vec<u8> {
    STANDARD.decode(secret["data"][key].as_str().unwrap_or_default()).expect("base64")
}

/// The Secrets of the runtime, the gateway and the CA.
pub(super) struct Held {
    runtime: Value,
    gateway: Value,
    authority: Value,
}

/// Reads the Secrets.
pub(super) async fn held(stage: &Stage) -> Result<Held, String> {
    let runtime = read(&stage.skrs[0], "Secret", "kyma-system", "skr-webhook-tls").await;
    let gateway = read(&stage.kcp, "Secret", "istio-system", "klm-istio-gateway").await;
    let authority = read(&stage.kcp, "Secret", "istio-system", "klm-watcher").await;
    match (runtime, gateway, authority) {
        (Some(runtime), Some(gateway), Some(authority)) => Ok(Held { runtime, gateway, authority }),
        (runtime, gateway, authority) => Err(format!(
            "runtime {}, gateway {}, authority {}",
            runtime.is_some(),
            gateway.is_some(),
            authority.is_some()
        )),
    }
}

/// The Secret of the CA. If it is deleted, the daemon creates a new CA.
pub(super) fn authority() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "klm-watcher", "namespace": "istio-system"}})
}

// === impl Held ===

impl Held {
    /// Whether the CA has changed.
    pub(super) fn authority_differs(&self, former: &Held) -> bool {
        bytes(&self.authority, "tls.crt") != bytes(&former.authority, "tls.crt")
    }

    /// Whether the CA has issued the certificates of the runtime and the gateway.
    pub(super) fn are_of_authority(&self) -> Result<(bool, bool), String> {
        let root = pki::read_first(&bytes(&self.authority, "tls.crt")).map_err(|error| error.to_string())?;
        let is_of =
            |secret: &Value| pki::read_first(&bytes(secret, "tls.crt")).is_ok_and(|found| pki::is_of(&found, &root));
        Ok((is_of(&self.runtime), is_of(&self.gateway)))
    }

    /// How many CAs the runtime trusts.
    fn trusted(&self) -> usize {
        pki::read_bundle(&bytes(&self.runtime, "ca.crt")).map_or(0, |bundle| bundle.authorities().len())
    }

    /// Whether the runtime can connect to the gateway with the present certificates.
    fn gets_through(&self) -> Result<(), String> {
        let Held { runtime, gateway, .. } = self;
        let client = (bytes(runtime, "tls.crt"), bytes(runtime, "tls.key"));
        let server = (bytes(gateway, "tls.crt"), bytes(gateway, "tls.key"));
        let (by_server, by_client) = (bytes(gateway, "ca.crt"), bytes(runtime, "ca.crt"));
        shake(super::world::GATEWAY_HOST, (&server.0, &server.1), &by_server, (&client.0, &client.1), &by_client)
    }
}

async fn change_of_the_authority_reaches_runtime_and_gateway_through_a_kill() {
    let quick = ["--pki=builtin", "--istio-gateway-server-cert-switch-grace-period=3s", "--resync=10s"];
    let arguments: Vec<&str> = AGENT.into_iter().chain(quick).collect();
    let stage = stage(1, Extent::Node, &[], &arguments).await;
    harness::apply(&stage.kcp, &gateway(443)).await;
    stage.start();
    let former = eventually("the runtime has its certificate", SOON * 2, async || held(&stage).await).await;
    former.gets_through().unwrap();

    delete(&stage.kcp, &authority()).await;
    eventually("there is another authority", SOON, async || {
        if held(&stage).await?.authority_differs(&former) { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    stage.kill().await;
    held(&stage).await.unwrap().gets_through().unwrap();
    stage.start();

    eventually("all is of the new authority", SOON * 3, async || {
        let held = held(&stage).await?;
        // The Secrets are read one after the other. The certificate that was read first must still be accepted.
        if let Err(error) = held.gets_through() {
            panic!("the runtime does not get through: {error}");
        }
        let state = (held.are_of_authority()?, held.trusted());
        if state == ((true, true), 2) { Ok(()) } else { Err(format!("of it, trusted: {state:?}")) }
    })
    .await;
}
