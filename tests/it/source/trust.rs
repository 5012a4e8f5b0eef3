//! Signatures: a revision that is not signed as the GitSource asks for changes nothing.

use ssh_key::{HashAlg, LineEnding, PrivateKey, private::Ed25519Keypair};

use super::*;
use crate::git::repository::sign_last;

scenarios! {
    an_unverified_revision_is_refused_whole_and_the_active_one_stays_also_across_a_restart,
    a_path_is_changed_only_by_its_signers,
    tags_of_a_range_and_of_a_full_name_are_verified_in_each_mode,
}

/// A signer with a key of SSH.
struct Hand {
    name: &'static str,
    key: PrivateKey,
}

impl Hand {
    fn new(name: &'static str, seed: u8) -> Hand {
        Hand { name, key: Ed25519Keypair::from_seed(&[seed; 32]).into() }
    }

    /// The line of `allowed_signers`.
    fn line(&self) -> String {
        format!("{} namespaces=\"git\" {}\n", self.name, self.key.public_key().to_openssh().unwrap())
    }

    /// Commits the work tree, signed.
    fn commit(&self, world: &World) -> String {
        world.commit();
        self.sign(world)
    }

    /// Replaces the last commit by the same one, signed.
    fn sign(&self, world: &World) -> String {
        self.sign_last(&world.repository)
    }

    /// Tags the last commit, signed, and returns the tag.
    fn tag(&self, world: &World, name: &str) -> git2::Oid {
        let repository = git2::Repository::open(world.repository.path()).unwrap();
        let commit = repository.head().unwrap().target().unwrap();
        let content = format!("object {commit}\ntype commit\ntag {name}\ntagger a <a@example.com> 1 +0000\n\nx\n");
        let signature = self.key.sign("git", HashAlg::Sha512, content.as_bytes()).unwrap();
        let signed = content + &signature.to_pem(LineEnding::LF).unwrap();
        let id = repository.odb().unwrap().write(git2::ObjectType::Tag, signed.as_bytes()).unwrap();
        repository.reference(&format!("refs/tags/{name}"), id, true, "tag").unwrap();
        id
    }

    fn sign_last(&self, repository: &Repository) -> String {
        sign_last(repository.path(), &self.key, None)
    }
}

/// Who may sign.
async fn trust(world: &World, hands: &[&Hand]) {
    let lines: String = hands.iter().map(|hand| hand.line()).collect();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "signers", "namespace": world.namespace},
        "stringData": {"allowed_signers": lines},
    });
    harness::apply(&world.client, &secret).await;
}

async fn an_unverified_revision_is_refused_whole_and_the_active_one_stays_also_across_a_restart() {
    let anna = Hand::new("anna@example.com", 1);
    let mut world = World::new("trust").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    world.kyma("a", "mail");
    let first = anna.commit(&world);
    world.declare("landscape", json!({"verify": {"secretRef": {"name": "signers"}}})).await;
    world.start().await;
    world.ready_is("landscape", "False KeysInvalid").await;
    trust(&world, &[&anna]).await;
    world.settled("landscape", &first).await;
    let source = world.source("landscape").await;
    let verified = condition(&source, "Verified");
    let key = anna.key.public_key().fingerprint(HashAlg::Sha256);
    let expected = format!("main@sha1:{first}: the commit is signed by anna@example.com with key {key}");
    assert_eq!((verified.status.as_str(), verified.message.as_str()), ("True", expected.as_str()));
    assert_eq!(source.status.unwrap().verified_revision, Some(format!("main@sha1:{first}")));

    // Neither without a signature, nor with that of a stranger.
    world.kyma("b", "mail");
    let unsigned = world.commit();
    world.attempted("landscape", &unsigned).await;
    world.ready_is("landscape", "False Unsigned").await;
    let source = world.source("landscape").await;
    let message = format!(
        "main@sha1:{unsigned} is not used: commit {unsigned} is not verified: it is not signed; main@sha1:{first} stays \
         active"
    );
    assert_eq!(condition(&source, "Verified").message, message);
    assert_eq!(condition(&source, "Fetched").status, "True");
    let stranger = Hand::new("anna@example.com", 2).sign(&world);
    world.attempted("landscape", &stranger).await;
    world.ready_is("landscape", "False UnknownKey").await;
    world.mark();
    world.restart().await;
    world.daemon().quiet().await;
    assert_eq!(ready(&world.source("landscape").await), "False UnknownKey", "a restart accepts nothing");
    assert_eq!(world.writes(), [""; 0]);
    assert!(world.api::<Kyma>().get_opt("b").await.unwrap().is_none());
    assert!(world.api::<Kyma>().get("a").await.is_ok());

    let second = anna.sign(&world);
    world.settled("landscape", &second).await;
    assert!(world.api::<Kyma>().get("b").await.is_ok());
    // A new process has no state and no keys: what was verified stays so.
    trust(&world, &[&Hand::new("eve@example.com", 9)]).await;
    world.stop().await;
    world.lose_state();
    world.mark();
    world.start().await;
    world.daemon().quiet().await;
    assert_eq!(ready(&world.source("landscape").await), "True Applied");
    assert_eq!((world.writes(), world.status_writes()), (Vec::new(), 0));
    // Without `verify`, the condition goes.
    world.declare("landscape", json!({})).await;
    eventually("the condition goes", SOON, async || {
        let source = world.source("landscape").await;
        let found = source.status.unwrap().conditions.into_iter().find(|condition| condition.type_ == "Verified");
        found.map_or(Ok(()), |found| Err(found.message))
    })
    .await;
}

async fn a_path_is_changed_only_by_its_signers() {
    let (anna, bert) = (Hand::new("anna@example.com", 1), Hand::new("bert@example.com", 2));
    let mut world = World::new("signers").await;
    world.module("mail", &["1.0.0"], "1.0.0");
    let before = kyma(&world.namespace, "prod", "mail", "regular");
    let after = before.replace("channel: regular", "channel: regular\n  skipMaintenanceWindows: true");
    world.repository.write("prod/kyma.yaml", &before).unwrap();
    let first = anna.commit(&world);
    trust(&world, &[&anna, &bert]).await;
    let rule = json!({"path": "prod/**", "signers": ["anna@example.com"]});
    world.declare("landscape", json!({"verify": {"secretRef": {"name": "signers"}, "paths": [rule]}})).await;
    world.start().await;
    world.settled("landscape", &first).await;

    world.kyma("dev", "mail");
    let dev = bert.commit(&world);
    world.settled("landscape", &dev).await;
    // Hidden below a commit that is signed well.
    world.repository.write("prod/kyma.yaml", &after).unwrap();
    let hidden = bert.commit(&world);
    world.kyma("other", "mail");
    let above = anna.commit(&world);
    world.attempted("landscape", &above).await;
    world.ready_is("landscape", "False SignerNotAllowed").await;
    let source = world.source("landscape").await;
    let message = &condition(&source, "Verified").message;
    assert!(message.contains(&format!("commit {hidden} changes prod/kyma.yaml and is signed by bert")), "{message}");
    assert!(world.api::<Kyma>().get_opt("other").await.unwrap().is_none());
    assert!(!world.api::<Kyma>().get("prod").await.unwrap().spec.skip_maintenance_windows);

    // Both commits go, and the same content comes with the right signature.
    world.drop_last_commit();
    world.drop_last_commit();
    let signed = anna.commit(&world);
    world.settled("landscape", &signed).await;
    assert!(world.api::<Kyma>().get("prod").await.unwrap().spec.skip_maintenance_windows);
    assert_eq!(condition(&world.source("landscape").await, "Verified").status, "True");
}

async fn tags_of_a_range_and_of_a_full_name_are_verified_in_each_mode() {
    let anna = Hand::new("anna@example.com", 1);
    let mut world = World::new("tags").await;
    trust(&world, &[&anna]).await;
    let verify = |mode: &str| json!({"mode": mode, "secretRef": {"name": "signers"}});
    let follow = |reference: Value, mode: &str| json!({"ref": reference, "verify": verify(mode)});
    let point = |world: &World, name: &str, id: git2::Oid| {
        let repository = git2::Repository::open(world.repository.path()).unwrap();
        repository.reference(&format!("refs/tags/{name}"), id, true, "tag").unwrap();
    };
    let poll = |world: &World| world.daemon().push("landscape", queue::Trigger::Git);
    let message = async |world: &World| condition(&world.source("landscape").await, "Verified").message.clone();

    // The commit of a range's highest tag needs no signature of its own.
    world.module("mail", &["1.0.0"], "1.0.0");
    let first = world.commit();
    let first_tag = anna.tag(&world, "v1.0.0");
    world.declare("landscape", follow(json!({"semver": ">=1.0.0"}), "Tag")).await;
    world.start().await;
    world.settled_as("landscape", &format!("v1.0.0@sha1:{first}"), SOON).await;
    let found = message(&world).await;
    assert!(found.starts_with(&format!("v1.0.0@sha1:{first}: the tag is signed by anna@example.com")), "{found}");

    // Neither a tag without an object, nor a signed tag under a higher version.
    world.module("note", &["1.0.0"], "1.0.0");
    let second = world.commit();
    point(&world, "v1.1.0", second.parse().unwrap());
    poll(&world);
    world.ready_is("landscape", "False TagRequired").await;
    point(&world, "v1.2.0", first_tag);
    poll(&world);
    world.ready_is("landscape", "False OtherTag").await;
    let found = message(&world).await;
    assert!(found.contains("the tag v1.2.0 was signed as \"v1.0.0\""), "{found}");
    anna.tag(&world, "v1.3.0");
    poll(&world);
    world.settled_as("landscape", &format!("v1.3.0@sha1:{second}"), SOON).await;

    // Both signatures.
    world.declare("landscape", follow(json!({"semver": ">=1.0.0"}), "TagAndHead")).await;
    world.ready_is("landscape", "False Unsigned").await;
    world.module("tasks", &["1.0.0"], "1.0.0");
    let third = anna.commit(&world);
    anna.tag(&world, "v1.4.0");
    poll(&world);
    world.settled_as("landscape", &format!("v1.4.0@sha1:{third}"), SOON).await;
    let found = message(&world).await;
    assert!(found.contains("the commit is signed by anna@example.com"), "{found}");
    assert!(found.contains("the tag by anna@example.com"), "{found}");

    // A full name is that of a tag, or there is none to verify.
    world.kyma("a", "mail");
    let fourth = anna.commit(&world);
    anna.tag(&world, "release/4");
    for mode in ["Tag", "TagAndHead"] {
        world.declare("landscape", follow(json!({"name": "refs/tags/release/4"}), mode)).await;
        world.settled_as("landscape", &format!("refs/tags/release/4@sha1:{fourth}"), SOON).await;
        let expected = if mode == "Tag" { "the tag is signed by anna" } else { "the tag by anna@example.com" };
        eventually("the condition names the tag", SOON, async || {
            let found = message(&world).await;
            let holds = found.starts_with(&format!("refs/tags/release/4@sha1:{fourth}")) && found.contains(expected);
            if holds { Ok(()) } else { Err(found) }
        })
        .await;
    }
    point(&world, "release/4", first_tag);
    poll(&world);
    world.ready_is("landscape", "False OtherTag").await;
    world.declare("landscape", follow(json!({"name": "refs/heads/main"}), "Tag")).await;
    world.ready_is("landscape", "False InvalidSpec").await;
    assert!(world.api::<Kyma>().get("a").await.is_ok(), "the active revision stays");
}

#[test]
fn a_commit_is_judged_by_the_rules_before_it() {
    let (anna, bert) = (Hand::new("anna@example.com", 1), Hand::new("bert@example.com", 2));
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init(&folder.path().join("repository")).unwrap();
    harness::copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/landscape"), repository.path());
    let own = |signer: &str| {
        let rule = json!({"path": "landscapes/prod/**", "signers": [signer]});
        let spec = json!({
            "url": "https://git.example.com/a.git",
            "verify": {"secretRef": {"name": "signers"}, "paths": [rule]},
        });
        let source = json!({
            "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
            "metadata": {"name": "landscape", "namespace": "kcp-system"}, "spec": spec,
        });
        fs::remove_dir_all(repository.path().join(".tidegate")).ok();
        repository.write(".tidegate/prod.yaml", &source.to_string()).unwrap();
    };
    own("anna@example.com");
    repository.commit("the example").unwrap();
    let first = anna.sign_last(&repository);
    let keys = folder.path().join("allowed_signers");
    fs::write(&keys, format!("{}{}", anna.line(), bert.line())).unwrap();
    let run = |command: &str, arguments: &[&str]| {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
        program.arg(command).arg(repository.path()).args(arguments).arg("--trusted-keys").arg(&keys);
        let output = program.output().unwrap();
        (output.status.code().unwrap(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    // Bert gives himself the right to change the file, in the same commit.
    own("bert@example.com");
    repository.replace("landscapes/prod/kyma.yaml", "channel: regular", "channel: fast").unwrap();
    repository.commit("a right for bert").unwrap();
    let second = bert.sign_last(&repository);
    let (exit, text) = run("diff", &["--from", &first, "--to", "main"]);
    let expected = format!("commit {second} changes landscapes/prod/kyma.yaml and is signed by bert@example.com");
    assert!(exit == 3 && text.contains(&expected), "{exit} {text}");
    // Once that is active, it is his right.
    repository.replace("landscapes/prod/kyma.yaml", "channel: fast", "channel: regular").unwrap();
    repository.commit("back").unwrap();
    bert.sign_last(&repository);
    let (exit, text) = run("diff", &["--from", &second, "--to", "main"]);
    assert_eq!(exit, 1, "{text}");

    // With a second GitSource it is not known whose rules apply.
    repository
        .write(".tidegate/source.yaml", r#"{"kind": "GitSource", "apiVersion": "tidegate.dev/v1alpha1"}"#)
        .unwrap();
    repository.commit("two").unwrap();
    let two = bert.sign_last(&repository);
    repository.replace("landscapes/prod/kyma.yaml", "channel: regular", "channel: fast").unwrap();
    repository.commit("after two").unwrap();
    bert.sign_last(&repository);
    let unknown = "is not used, because `.tidegate` has more than one GitSource: set `--source-file` to the one whose \
                   rules apply";
    for (command, arguments) in [("validate", &["--rev", "main"][..]), ("diff", &["--from", &two, "--to", "main"])] {
        let (exit, text) = run(command, arguments);
        let expected = exit == 2 && text.contains("`verify` in .tidegate/prod.yaml of ") && text.contains(unknown);
        assert!(expected, "{command}: {exit} {text}");
    }
    fs::remove_file(repository.path().join(".tidegate/source.yaml")).unwrap();
    repository.commit("one again").unwrap();
    bert.sign_last(&repository);

    // Without a revision before, its own rules are not used, and that is an error.
    let refused = "`verify` of the GitSource in `.tidegate` of main is not used, because a commit could weaken the rules \
                   by which it is judged: set `--source-file`, or use `tidegate diff --from REV`, which takes the rules \
                   of REV";
    for (command, arguments) in [("validate", &["--rev", "main"][..]), ("diff", &["--from", "main", "--to", "main"])] {
        let (exit, text) = run(command, arguments);
        assert!(exit == 2 && text.contains(refused), "{command}: {exit} {text}");
    }
    let given = repository.path().join(".tidegate/prod.yaml");
    let (exit, text) = run("validate", &["--rev", "main", "--source-file", given.to_str().unwrap()]);
    assert_eq!(exit, 0, "{text}");
}

#[test]
fn validate_and_diff_verify_with_trusted_keys() {
    let (anna, bert) = (Hand::new("anna@example.com", 1), Hand::new("bert@example.com", 2));
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init(&folder.path().join("repository")).unwrap();
    harness::copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/landscape"), repository.path());
    repository.commit("the example").unwrap();
    let first = anna.sign_last(&repository);
    let keys = folder.path().join("keys");
    fs::create_dir(&keys).unwrap();
    fs::write(keys.join("allowed_signers"), format!("{}{}", anna.line(), bert.line())).unwrap();
    let source = folder.path().join("source.yaml");
    let spec = json!({
        "url": "https://git.example.com/landscape.git",
        "verify": {
            "secretRef": {"name": "signers"},
            "paths": [{"path": "landscapes/prod/**", "signers": ["anna@example.com"]}],
        },
    });
    let declared = json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
        "metadata": {"name": "landscape", "namespace": "kcp-system"}, "spec": spec,
    });
    fs::write(&source, declared.to_string()).unwrap();
    let run = |command: &str, arguments: &[&str]| {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
        program.arg(command).arg(repository.path()).args(arguments).arg("--trusted-keys").arg(&keys);
        let output = program.output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code().unwrap(), text)
    };
    let source = source.to_str().unwrap();
    assert_eq!(run("validate", &["--rev", "main"]).0, 0);
    assert_eq!(run("validate", &["--rev", "main", "--source-file", source]).0, 0);
    let (exit, text) = run("validate", &[]);
    assert!(exit == 2 && text.contains("a work tree is not signed: set a revision with `--rev`"), "{exit} {text}");

    repository.replace("landscapes/prod/kyma.yaml", "channel: regular", "channel: fast").unwrap();
    repository.commit("not signed").unwrap();
    let (exit, text) = run("validate", &["--rev", "main"]);
    assert!(exit == 3 && text.contains("error[unverified]: main: commit"), "{exit} {text}");
    assert!(text.contains("it is not signed"), "{text}");
    let second = bert.sign_last(&repository);
    let (exit, text) = run("validate", &["--rev", "main"]);
    assert_eq!(exit, 0, "{text}");
    let revisions = ["--from", &first, "--to", "main", "--source-file", source];
    let (exit, text) = run("diff", &revisions);
    let expected = format!("commit {second} changes landscapes/prod/kyma.yaml and is signed by bert@example.com");
    assert!(exit == 3 && text.contains(&expected), "{exit} {text}");
    anna.sign_last(&repository);
    let (exit, text) = run("diff", &revisions);
    assert_eq!(exit, 1, "{text}");
}
