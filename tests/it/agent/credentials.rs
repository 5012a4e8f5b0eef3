//! The mounted Secret changes while the agent works.

use std::{fs, sync::Arc, time::Duration};

use tidegate_agent::settings::Timing;

use super::{
    certificates::{Authority, SERVICE},
    control_plane::{ControlPlane, config},
    http,
    stage::{QUIET, Running, Stage, event, settings},
};

#[tokio::test(flavor = "multi_thread")]
async fn row_32_a_rotation_of_everything_loses_no_event() {
    let mut stage = Stage::start(QUIET).await;
    let (old, new) = (Authority::new(), Authority::new());
    // From one CA to the next, in the order of the control plane: bundle, leaf, server.
    let first = std::mem::replace(&mut stage.authority, old);
    let bundle = format!("{}{}", new.pem, first.pem);
    stage.control_plane.secure(config(&first.itself(), &[&first, &new]));
    stage.change("before").await;

    stage.mount.replace(&stage.identity, &bundle);
    stage.wait_for_metric("tidegate_agent_credential_reloads_total{result=\"success\"}", 1.0).await;
    stage.change("with the new bundle").await;
    stage.control_plane.wait_for(2).await;

    let leaf = new.runtime();
    stage.mount.replace(&leaf, &bundle);
    stage.wait_for_metric("tidegate_agent_credential_reloads_total{result=\"success\"}", 2.0).await;
    // The API server has the new bundle by then.
    stage.client = http::trusting(&bundle);
    stage.change("with the new leaf").await;
    stage.control_plane.wait_for(3).await;

    stage.control_plane.secure(config(&new.itself(), &[&new]));
    stage.control_plane.stop().await;
    stage.control_plane.resume().await;
    stage.change("with the new server").await;
    let expected = ["before", "with the new bundle", "with the new leaf", "with the new server"].map(event);
    assert_eq!(stage.control_plane.wait_for(4).await, expected);

    let received = stage.control_plane.received();
    assert_eq!(received[0].certificate, received[1].certificate);
    assert_ne!(received[1].certificate, received[2].certificate);
    stage.wait_for_metric("tidegate_agent_pending_objects", 0.0).await;
    assert_eq!(stage.metric("watcher_failed_kcp_total{error_reason=\"failed-request\"}").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_32_rotations_under_load_lose_nothing() {
    let mut stage = Stage::start(Timing { settle: Duration::from_millis(5), ..QUIET }).await;
    let mut names = Vec::new();
    let mut bundle = stage.authority.pem.clone();
    for rotation in 0..5 {
        let next = Authority::new();
        bundle = format!("{}{bundle}", next.pem);
        // Bundle and leaf change in any order, while events are sent.
        stage.control_plane.secure(config(&next.itself(), &[&stage.authority, &next]));
        stage.mount.replace(&stage.identity, &bundle);
        for change in 0..10 {
            let name = format!("r{rotation}-{change}");
            stage.change(&name).await;
            names.push(event(&name));
            if change == 5 {
                stage.identity = next.runtime();
                stage.client = http::trusting(&bundle);
                stage.mount.replace(&stage.identity, &bundle);
                let count = f64::from(2 * rotation + 2);
                let reloads = "tidegate_agent_credential_reloads_total{result=\"success\"}";
                // The kubelet may swap the files twice between two reads.
                while stage.metric(reloads).await < count && !served(&stage).await {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
        stage.authority = next;
    }
    let mut events = stage.control_plane.wait_for(names.len()).await;
    events.sort();
    events.dedup();
    names.sort();
    assert_eq!(events, names);
    assert_eq!(stage.metric("tidegate_agent_credential_reloads_total{result=\"error\"}").await, 0.0);
}

/// Whether the admission server shows the newest certificate.
async fn served(stage: &Stage) -> bool {
    let stream = tokio::net::TcpStream::connect(stage.agent.admission).await.unwrap();
    let Ok(stream) = http::secured(Arc::clone(&stage.client), SERVICE, stream).await else { return false };
    let shown = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    shown == CertificateDer::from_pem_slice(stage.identity.certificate.as_bytes()).unwrap().to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn row_32_what_cannot_be_used_replaces_nothing() {
    let stage = Stage::start(QUIET).await;
    let errors = "tidegate_agent_credential_reloads_total{result=\"error\"}";
    // A key of another certificate, then an invalid bundle.
    let other = stage.authority.runtime();
    let mismatch = super::certificates::Identity { key: other.key.clone(), ..stage.identity.clone() };
    stage.mount.replace(&mismatch, &stage.authority.pem);
    stage.wait_for_metric(errors, 1.0).await;
    stage.change("a").await;
    assert_eq!(stage.control_plane.wait_for(1).await, [event("a")]);

    stage.mount.replace(&stage.identity, "nothing");
    stage.wait_for_metric(errors, 2.0).await;
    stage.change("b").await;
    stage.control_plane.wait_for(2).await;

    fs::remove_file(stage.mount.path().join("..data/tls.crt")).unwrap();
    stage.wait_for_metric(errors, 3.0).await;
    stage.change("c").await;
    stage.control_plane.wait_for(3).await;

    stage.mount.replace(&other, &stage.authority.pem);
    stage.wait_for_metric("tidegate_agent_credential_reloads_total{result=\"success\"}", 1.0).await;
    stage.change("d").await;
    stage.control_plane.wait_for(4).await;
    assert_eq!(stage.metric("watcher_failed_kcp_total{error_reason=\"failed-request\"}").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_33_an_rsa_key_of_4096_bits_serves_and_sends() {
    let authority = Authority::new();
    let control_plane = ControlPlane::start(config(&authority.itself(), &[&authority])).await;
    let identity = authority.runtime_rsa();
    assert!(identity.key.starts_with("-----BEGIN RSA PRIVATE KEY-----"));
    let mount = super::certificates::Mount::new(&identity, &authority.pem);
    let agent = Running::start(QUIET, settings(&mount, control_plane.address)).await;
    let client = http::trusting(&authority.pem);
    let stage = Stage { authority, identity, mount, control_plane, agent, client };
    stage.change("default").await;
    assert_eq!(stage.control_plane.wait_for(1).await, [event("default")]);
}
