//! Signatures: a revision that is not signed as the GitSource asks for changes nothing.

use ssh_key::{HashAlg, LineEnding, PrivateKey, private::Ed25519Keypair};

use super::*;

scenarios! {
    an_unverified_revision_is_refused_whole_and_the_active_one_stays_also_across_a_restart,
    a_path_is_changed_only_by_its_signers,
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

    fn sign_last(&self, repository: &Repository) -> String {
        let repository = git2::Repository::open(repository.path()).unwrap();
        let commit = repository.head().unwrap().peel_to_commit().unwrap();
        let parents: Vec<git2::Commit<'_>> = commit.parents().collect();
        let parents: Vec<&git2::Commit<'_>> = parents.iter().collect();
        let author = git2::Signature::now("a", "a@example.com").unwrap();
        let tree = commit.tree().unwrap();
        let content = repository.commit_create_buffer(&author, &author, "signed\n", &tree, &parents).unwrap();
        let content = String::from_utf8(content.to_vec()).unwrap();
        let signature = self.key.sign("git", HashAlg::Sha512, content.as_bytes()).unwrap();
        let signature = signature.to_pem(LineEnding::LF).unwrap();
        let id = repository.commit_signed(&content, signature.trim_end(), None).unwrap();
        repository.find_reference("refs/heads/main").unwrap().set_target(id, "signed").unwrap();
        id.to_string()
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
