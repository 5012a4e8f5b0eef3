//! Our agent with our listener, with certificates as upstream's control planes make them: RSA keys of 4096 bits in
//! PKCS#1, a CA whose own certificate the gateway serves, and a bundle of several CAs with one subject.

use std::time::Duration;

use futures::StreamExt as _;
use tidegate_events::{
    identity::Authorities,
    listener::{self, Listener, Tls},
};
use tokio::sync::watch;

use super::{
    certificates::{Authority, Identity, Mount, RUNTIME, SERVICE},
    http,
    stage::{QUIET, Running, created, settings},
};
use crate::listener::{
    Bench,
    client::{self, BODY},
};

/// A listener with its own TLS that receives events.
async fn hears_agent(server: &Identity, bundle: &str, runtime: &Identity, trusted: &str) -> String {
    let (listener, mut events) = Listener::builder("lifecycle-manager").events(16);
    let socket = listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let tls = Tls::from_pem(server.certificate.as_bytes(), server.key.as_bytes(), bundle.as_bytes(), listener::now());
    let (_tls, receiver) = watch::channel(Some(tls.unwrap()));
    tokio::spawn(async move { listener.serve_tls(socket, receiver, std::future::pending()).await });

    let mount = Mount::new(runtime, bundle);
    let agent = Running::start(QUIET, settings(&mount, address)).await;
    let stream = tokio::net::TcpStream::connect(agent.admission).await.unwrap();
    let mut stream = http::secured(http::trusting(trusted), SERVICE, stream).await.unwrap();
    let review = serde_json::to_vec(&created("default")).unwrap();
    let answer = http::ask(&mut stream, &http::post("/validate/lifecycle-manager", &review)).await.unwrap();
    assert_eq!(answer.status(), 200);
    let received = tokio::time::timeout(Duration::from_secs(60), events.next()).await.expect("an event").expect("open");
    received.runtime_id().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_33_and_34_rsa_everywhere_and_the_authority_as_the_gateways_certificate() {
    let authority = Authority::rsa();
    let heard = hears_agent(&authority.itself(), &authority.pem, &authority.runtime_rsa(), &authority.pem).await;
    assert_eq!(heard, RUNTIME);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_34_and_71_in_a_rotation_old_and_new_work_in_every_combination() {
    let (old, new) = (Authority::rsa(), Authority::new());
    let bundle = format!("{}{}", new.pem, old.pem);
    for (server, leaf) in [(&old, &old), (&old, &new), (&new, &old), (&new, &new)] {
        let heard = hears_agent(&server.itself(), &bundle, &leaf.runtime(), &bundle).await;
        assert_eq!(heard, RUNTIME);
    }
}

#[tokio::test]
async fn row_55_behind_a_gateway_certificates_of_rsa_and_ecdsa_lead_to_an_authority_of_rsa() {
    let (rsa, other) = (Authority::rsa(), Authority::new());
    let mut bench = Bench::new().await;
    let bundle = format!("{}{}", other.pem, rsa.pem);
    bench.listener.set_authorities(Some(Authorities::parse(bundle.as_bytes(), listener::now()).unwrap()));
    for identity in [rsa.runtime(), rsa.runtime_rsa(), other.runtime()] {
        let reply = client::post(bench.address, &client::xfcc(&identity.certificate), BODY).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(bench.event().await.runtime_id(), RUNTIME);
    }
}
