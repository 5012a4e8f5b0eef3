//! An operator that reacts to changes in runtimes: Tidegate's listener together with a kube-rs controller.
//!
//! ```sh
//! cargo run -p tidegate-events --example listener -- bundle.pem
//! ```
//!
//! It reconciles the ConfigMaps of the kubeconfig's cluster. It reconciles a ConfigMap again when the runtime with the
//! same name sends an event. A gateway on this machine forwards the events to port 8082. Agents send them for a Watcher
//! with the manager `my-operator`. `bundle.pem` contains the CAs of the runtimes' certificates.
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

/// How many events can wait while the controller is busy. The listener answers 503 to further events.
const WAITING_MAX: usize = 1024;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tidegate_process::tls::install();
    let bundle = std::env::args().nth(1).context("usage: listener BUNDLE")?;
    let bundle = std::fs::read(&bundle).with_context(|| format!("cannot read {bundle}"))?;

    // The listener answers 403 to a certificate without the expected name.
    let (listener, events) =
        Listener::builder("my-operator").forwarded(Xfcc::default()).verify(pin).events(WAITING_MAX);
    listener.set_authorities(Some(Authorities::parse(&bundle, listener::now())?));
    let socket = listener::bind("127.0.0.1:8082".parse()?)?;
    println!("events for {} on {}", listener.path(), socket.local_addr()?);
    let served = tokio::spawn(async move { listener.serve_forwarded(socket, std::future::pending()).await });

    // The operator maps each event to an object: here the ConfigMap with the name of the runtime.
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
