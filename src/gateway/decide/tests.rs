use k8s_openapi::{ByteString, api::core::v1::Secret};
use tidegate_core::plan::certificate::Rules;

use super::{super::pki::Issue, *};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The two Secrets, with their content after a pass.
#[derive(Clone, Default)]
struct World {
    authority: Option<AuthoritySecret>,
    gateway: Option<GatewaySecret>,
    signs_with: Option<Arc<[u8]>>,
    behind: usize,
}

#[test]
fn from_nothing_an_authority_is_made_and_the_gateway_serves_with_a_certificate_of_it() {
    let mut world = World::default();
    let script = [
        "read authority",
        "make authority",
        "read authority",
        "read gateway",
        "count behind nothing",
        "sign with nothing",
        "create gateway: 1 trusted, serves anew",
        "sign",
        "end Now",
    ];
    assert_eq!(play(&mut world, Backend::Builtin, now()), Ok(script.map(str::to_owned).to_vec()));
    let again = ["read authority", "read gateway", "count behind", "sign", "end Stays"];
    assert_eq!(play(&mut world, Backend::Builtin, now()), Ok(again.map(str::to_owned).to_vec()));
}

#[test]
fn who_does_not_issue_makes_no_authority() {
    for backend in [Backend::CertManager, Backend::Gardener] {
        let problem = play(&mut World::default(), backend, now()).unwrap_err();
        assert_eq!(problem.reason, "NoAuthority");
        assert!(problem.message.contains(&format!("{} must issue it", backend.name())), "{}", problem.message);
    }
}

#[test]
fn an_authority_that_is_deleted_while_it_is_made_is_a_problem() {
    let (key, rules) = (Key::new("istio-system", "gateway"), Rules::default());
    let known = Known { key: &key, rules: &rules, backend: Backend::Builtin, hosts: Vec::new(), signs_with: None };
    let absent = Observed::default().found_authority(None);
    let acts = |next| match next {
        Next::Do(acts) => acts,
        Next::End(..) => panic!("nothing is served yet"),
    };
    assert!(matches!(acts(decide(&known, &absent, now()).unwrap())[..], [Act::MakeAuthority { .. }]));
    let made = absent.made_authority();
    assert!(matches!(acts(decide(&known, &made, now()).unwrap())[..], [Act::ReadAuthority(_)]));
    let problem = decide(&known, &made.found_authority(None), now()).unwrap_err();
    assert!(problem.message.contains("was deleted while Tidegate created it"), "{}", problem.message);
}

#[test]
fn where_others_issue_the_gateway_serves_with_the_authority_itself() {
    let mut world = World { authority: Some(authority(DAY * 300)), ..World::default() };
    let script = play(&mut world, Backend::CertManager, now()).unwrap();
    assert_eq!(script[script.len() - 2..], ["sign with nothing", "end Now"]);
    let (served, authority) = (world.gateway.unwrap().certificate, world.authority.unwrap().certificate);
    assert_eq!(*served, *authority);
}

#[test]
fn a_successor_is_made_once_the_authority_nears_its_end_and_is_in_the_bundle() {
    let mut world = World::default();
    play(&mut world, Backend::Builtin, now()).unwrap();
    let before = world.authority.clone().unwrap().certificate;
    // The CA was created for six lifetimes of sixty days. Its successor is due one lifetime and the grace period before
    // its end.
    let early = certificate::later(now(), DAY * 295);
    play(&mut world, Backend::Builtin, early).unwrap();
    assert_eq!(world.authority.clone().unwrap().certificate, before);

    let due = certificate::later(now(), DAY * 297);
    world.behind = 3;
    let script = play(&mut world, Backend::Builtin, due).unwrap();
    let expected = [
        "read authority",
        "read gateway",
        "make authority",
        "read authority",
        "read gateway",
        "count behind nothing",
        "sign with nothing",
        "change gateway: 2 trusted",
        "sign",
    ];
    assert_eq!(script[..expected.len()], expected);
    assert!(script.last().unwrap().starts_with("end At("), "{script:?}");

    // The gateway keeps its certificate until runtimes trust the new CA.
    let later = certificate::later(due, DAY * 5);
    assert_eq!(play(&mut world, Backend::Builtin, later).unwrap().last().unwrap(), "end Behind(3)");
    world.behind = 0;
    let script = play(&mut world, Backend::Builtin, later).unwrap();
    assert_eq!(script[3..], ["change gateway: 2 trusted, serves anew", "sign", "end Now"]);
}

#[test]
fn an_authority_that_is_not_in_the_bundle_has_no_successor_before_its_end() {
    let near = authority(HOUR);
    let mut world = World { authority: Some(near.clone()), ..World::default() };
    play(&mut world, Backend::Builtin, now()).unwrap();
    assert_eq!(world.authority.unwrap().certificate, near.certificate);
    let mut world = World { authority: Some(near.clone()), ..World::default() };
    play(&mut world, Backend::Builtin, certificate::later(now(), HOUR * 2)).unwrap();
    assert_ne!(world.authority.unwrap().certificate, near.certificate);
}

#[test]
fn what_cannot_be_read_is_a_problem_that_names_its_secret() {
    let check = |world: World, backend: Backend, reason: &str, message: &str| {
        let problem = play(&mut world.clone(), backend, now()).unwrap_err();
        assert_eq!(problem.reason, reason);
        assert!(problem.message.contains(message), "{}", problem.message);
    };
    let broken = AuthoritySecret { authority: Err(Arc::new(pki::Error::Empty)), ..authority(DAY * 300) };
    check(
        World { authority: Some(broken), ..World::default() },
        Backend::CertManager,
        "BadAuthority",
        "cannot use the CA in Secret istio-system/klm-watcher: it contains no certificate",
    );
    let mut world = World { authority: Some(authority(DAY * 300)), ..World::default() };
    play(&mut world, Backend::Builtin, now()).unwrap();
    let other_key = AuthoritySecret { key: authority(DAY).key, ..authority(DAY * 300) };
    check(World { authority: Some(other_key), ..world.clone() }, Backend::Builtin, "BadAuthority", "does not belong");
    let gateway = world.gateway.clone().unwrap();
    let bundle = Some(Arc::from(&b"-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n"[..]));
    let unreadable = Some(GatewaySecret { bundle, ..gateway.clone() });
    check(World { gateway: unreadable, ..world.clone() }, Backend::Builtin, "BadBundle", "`ca.crt` of Secret");
    let undated = Some(GatewaySecret { bundled_at: None, ..gateway });
    check(World { gateway: undated, ..world }, Backend::Builtin, "BadGatewaySecret", "istio-system/gateway");
}

#[test]
fn the_next_look_is_a_second_after_the_switch_and_never_later_than_the_interval() {
    let at = |seconds| Switch::At(certificate::later(now(), Duration::from_secs(seconds)));
    assert_eq!(next_look(at(10), now()), Duration::from_secs(11));
    assert_eq!(next_look(at(4000), now()), LOOK);
    assert_eq!(next_look(Switch::Behind(2), now()), LOOK);
}

/// Runs a pass; returns its acts, one line each.
fn play(world: &mut World, backend: Backend, now: Timestamp) -> Result<Vec<String>, Problem> {
    let (key, rules) = (Key::new("istio-system", "gateway"), Rules::default());
    let (mut observed, mut script) = (Observed::default(), Vec::new());
    loop {
        assert!(script.len() < 20, "a question is asked twice: {script:?}");
        let hosts = vec!["listener.example.org".to_owned()];
        let known = Known { key: &key, rules: &rules, backend, hosts, signs_with: world.signs_with.clone() };
        let (acts, end) = match decide(&known, &observed, now)? {
            Next::Do(acts) => (acts, None),
            Next::End(acts, switch) => (acts, Some(switch)),
        };
        for act in acts {
            script.push(enact(world, &mut observed, act, now));
        }
        if let Some(switch) = end {
            script.push(format!("end {switch:?}"));
            return Ok(script);
        }
    }
}

fn enact(world: &mut World, observed: &mut Observed, act: Act, now: Timestamp) -> String {
    match act {
        Act::ReadAuthority(_) => {
            *observed = std::mem::take(observed).found_authority(world.authority.clone());
            "read authority".to_owned()
        }
        Act::MakeAuthority { validity, replaces, .. } => {
            assert_eq!(replaces, world.authority.as_ref().map(|authority| authority.resource_version.clone()));
            world.authority = Some(authority_with(validity));
            *observed = std::mem::take(observed).made_authority();
            "make authority".to_owned()
        }
        Act::ReadGateway => {
            *observed = std::mem::take(observed).found_gateway(world.gateway.clone());
            "read gateway".to_owned()
        }
        Act::CountBehind(bundle) => {
            *observed = std::mem::take(observed).counted(world.behind);
            if bundle.is_some() { "count behind".to_owned() } else { "count behind nothing".to_owned() }
        }
        Act::Sign(root) => {
            let line = if root.is_some() { "sign" } else { "sign with nothing" };
            world.signs_with = root.map(|root| Arc::clone(&root.certificate().der));
            line.to_owned()
        }
        Act::Write(content) => {
            let verb = if content.replaces.is_some() { "change" } else { "create" };
            let anew = if content.credentials.is_some() { ", serves anew" } else { "" };
            let line = format!("{verb} gateway: {} trusted{anew}", content.bundle.authorities().len());
            world.gateway = Some(written(world.gateway.take(), content, now));
            line
        }
    }
}

fn written(before: Option<GatewaySecret>, content: GatewayContent, now: Timestamp) -> GatewaySecret {
    let (certificate, key) = match content.credentials {
        None => before.map(|before| (before.certificate.to_vec(), before.key.to_vec())).unwrap(),
        Some(Credentials::Authority(certificate, key)) => (certificate, key),
        Some(Credentials::Issued { root, names, validity }) => {
            assert!(validity.not_before < now);
            let leaf = root.issue(Issue { common_name: &names[0], names: &names, validity, is_server: true }).unwrap();
            (leaf.certificate.into_bytes(), leaf.key.into_bytes())
        }
    };
    GatewaySecret {
        resource_version: "1".to_owned(),
        bundled_at: Some(content.bundled_at.to_string()),
        bundle: Some(pki::write_bundle(&content.bundle).into_bytes().into()),
        certificate: certificate.into(),
        key: key.into(),
    }
}

fn authority(lasts: Duration) -> AuthoritySecret {
    authority_with(Validity { not_before: now(), not_after: certificate::later(now(), lasts) })
}

fn authority_with(validity: Validity) -> AuthoritySecret {
    let made = Root::generate("ca", validity).unwrap();
    let data = [(key::CERTIFICATE, made.certificate), (key::KEY, made.key)];
    let data = data.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())));
    AuthoritySecret::from_secret(Secret { data: Some(data.collect()), ..Secret::default() })
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}
