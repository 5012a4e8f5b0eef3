//! An operator that hears of changes in runtimes: the listener of Tidegate beside a controller of kube-rs.
//!
//! ```sh
//! cargo run -p tidegate-events --example listener -- bundle.pem
//! ```
//!
//! reconciles the ConfigMaps of the cluster that the kubeconfig names, and each again when the runtime with its name
//! sends an event. Events come from a gateway on this machine, on port 8082, for manager `my-operator`; a Watcher with
//! that manager makes agents send them. `bundle.pem` holds the authorities of the runtimes' certificates.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    runtime::{Controller, controller::Action, reflector::ObjectRef, watcher},
};
use tidegate_events::{
    identity::{Authorities, Xfcc},
    listener::{self, Listener, Received, Refusal},
};

/// Events that may wait while the controller is busy; beyond them, senders are told to try again.
const WAITING_MAX: usize = 1024;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tidegate_process::tls::install();
    let bundle = std::env::args().nth(1).context("usage: listener BUNDLE")?;
    let bundle = std::fs::read(&bundle).with_context(|| format!("cannot read {bundle}"))?;

    // What comes from a certificate without the expected name is refused with 403.
    let (listener, events) =
        Listener::builder("my-operator").forwarded(Xfcc::default()).verify(pin).events(WAITING_MAX);
    listener.set_authorities(Some(Authorities::parse(&bundle, listener::now())?));
    let socket = listener::bind("127.0.0.1:8082".parse()?)?;
    println!("events for {} on {}", listener.path(), socket.local_addr()?);
    let served = tokio::spawn(async move { listener.serve_forwarded(socket, std::future::pending()).await });

    // Which object an event concerns is for the operator to say: here the one that is called as the runtime.
    let concerned = events.map(|received| ObjectRef::new(received.runtime_id()).within("default"));
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_default().await?);
    Controller::new(maps, watcher::Config::default())
        .reconcile_on(concerned)
        .run(reconcile, failed, Arc::new(()))
        .for_each(|_| std::future::ready(()))
        .await;
    served.abort();
    Ok(())
}

fn pin(received: &Received) -> Result<(), Refusal> {
    let domain = format!("{}.runtimes.example.org", received.runtime_id());
    if received.identity.is_named(&domain) {
        Ok(())
    } else {
        Err(Refusal { reason: "other-domain", message: "the certificate does not name the domain of this runtime" })
    }
}

async fn reconcile(map: Arc<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
    println!("reconcile {}", map.metadata.name.as_deref().unwrap_or_default());
    Ok(Action::requeue(Duration::from_secs(3600)))
}

fn failed(_: Arc<ConfigMap>, _: &kube::Error, _: Arc<()>) -> Action {
    Action::requeue(Duration::from_secs(5))
}
