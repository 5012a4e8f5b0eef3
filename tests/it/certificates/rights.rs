//! The RBAC rules of the overlays: they are sufficient for the whole life of certificates, and none is superfluous.

use tidegate_testbed::Record;

use super::*;

/// The ServiceAccount of an overlay with all its rules, with the overlay's namespaces replaced by this world's.
async fn grant(world: &mut World, overlay: &str, secrets: &str) -> String {
    let kinds = ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
    for mut object in deploy::objects(overlay) {
        if !kinds.iter().any(|kind| object["kind"] == *kind) {
            continue;
        }
        // Cluster-scoped objects are shared by all tests, so they get a unique name.
        let own = |name: &str| format!("{name}-{}", world.namespace);
        if let Some(namespace) = object["metadata"]["namespace"].as_str() {
            assert!([secrets, "kcp-system"].contains(&namespace), "{object}");
            object["metadata"]["namespace"] = world.namespace.clone().into();
        } else {
            object["metadata"]["name"] = own(object["metadata"]["name"].as_str().unwrap()).into();
        }
        if object["roleRef"]["kind"] == "ClusterRole" {
            object["roleRef"]["name"] = own(object["roleRef"]["name"].as_str().unwrap()).into();
        }
        if object["subjects"].is_array() {
            object["subjects"][0]["namespace"] = world.namespace.clone().into();
        }
        harness::apply(&world.client, &object).await;
    }
    world.access = Some(world.server.real().kubeconfig_of_service_account(&world.namespace, "tidegate").await.unwrap());
    world.user = format!("system:serviceaccount:{}:tidegate", world.namespace);
    world.user.clone()
}

/// Compares the requests with the rules of the overlay's Role.
fn check(world: &World, overlay: &str, user: &str) {
    let records = world.server.records();
    let ours: Vec<&Record> = records.iter().filter(|record| record.user == user).collect();
    let refused: Vec<&&Record> = ours.iter().filter(|record| record.code == 403).collect();
    assert!(refused.is_empty(), "refused: {refused:?}");
    let needs: BTreeSet<deploy::Need> = ours.iter().flat_map(|record| deploy::needs(record)).collect();
    let rules = deploy::rules_of(&deploy::objects(overlay), "tidegate-certificates", &world.namespace);
    let idle = deploy::idle(&rules, &needs);
    assert!(idle.is_empty(), "rights that certificates do not need: {idle:#?}");
}

async fn gone(world: &World, kyma: &str) {
    world.api::<Kyma>().delete(kyma, &DeleteParams::default()).await.unwrap();
    let secret = format!("{kyma}-webhook-tls");
    eventually("the certificate goes with its Kyma", SOON, async || {
        world.secret(&secret).await.map_or(Ok(()), |_| Err("still there".to_owned()))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_cert_manager_each_right_of_the_overlay_is_needed_and_no_other() {
    const OVERLAY: &str = "overlays/istio-cert-manager";
    let mut world = World::new("rights", Some(Backend::CertManager)).await;
    let user = grant(&mut world, OVERLAY, "istio-system").await;
    world.install_issuers().await;
    world.start_cert_manager().await;
    world.kyma("one", Some("one.example.org")).await;
    world.start().await;
    let before = world.issued("one").await;
    world.replace_authority().await;
    eventually("the new authority is trusted, and the certificate is renewed", SOON, async || {
        let trusted = tidegate::internals::gateway::pki::read_bundle(&world.gateway("ca.crt").await)
            .map_err(|error| error.to_string())?;
        let renewed = world.daemon().runtime("one").leaf.filter(|_| 1 < trusted.authorities().len());
        if renewed.is_some() && renewed != before.leaf {
            return Ok(());
        }
        Err(format!("{} authorities, {:?}", trusted.authorities().len(), world.daemon().runtime("one").standing))
    })
    .await;
    gone(&world, "one").await;
    check(&world, OVERLAY, &user);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_our_own_authority_each_right_of_the_overlay_is_needed_and_no_other() {
    const OVERLAY: &str = "overlays/direct-mtls";
    let mut world = World::new("rights", Some(Backend::Builtin)).await;
    let user = grant(&mut world, OVERLAY, "tidegate-certificates").await;
    world.kyma("one", Some("one.example.org")).await;
    world.start().await;
    let before = world.issued("one").await;
    world.api::<Secret>().delete(names::AUTHORITY_SECRET, &DeleteParams::default()).await.unwrap();
    eventually("the certificate is of the new authority", SOON, async || {
        let leaf = world.daemon().runtime("one").leaf;
        if leaf.is_some() && leaf != before.leaf { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    gone(&world, "one").await;
    check(&world, OVERLAY, &user);
}
