//! Who signs the commits: the key is rotated meanwhile, and sometimes an intruder pushes a commit without a signature.
//!
//! They have dice of their own, so that their draws change nothing else in a world.

use std::{path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use ssh_key::{PrivateKey, private::Ed25519Keypair};

use super::dice::Dice;
use crate::git::repository::sign_last;

/// The signers.
pub(super) struct Signers {
    dice: Dice,
    /// Numbers the keys.
    key: u8,
    /// Whether the Secret has the former key as well.
    rotating: bool,
}

/// A step of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rotation {
    /// A new key is trusted beside the former one.
    Begins,
    /// The former key is no longer used. It must not be trusted any more once the last commit has the new one.
    Ends,
}

/// When each commit was made, in seconds since 1970: a day before every world begins. The clock of a world may be set
/// back, and a signature from the future is refused.
const COMMITTED_AT: i64 = 1_767_139_200;
/// The name of the Secret with the trusted keys.
pub(super) const SECRET: &str = "signers";

// === impl Signers ===

impl Signers {
    pub(super) fn new(seed: u64) -> Signers {
        Signers { dice: Dice::new(seed), key: 1, rotating: false }
    }

    /// The data of the Secret as they are now.
    pub(super) fn data(&self) -> Value {
        let former = if self.rotating { line(self.key - 1) } else { String::new() };
        json!({"allowed_signers": STANDARD.encode(format!("{former}{}", line(self.key)))})
    }

    /// Sometimes a step of a rotation.
    pub(super) fn rotates(&mut self) -> Option<Rotation> {
        if self.dice.below(6) != 0 {
            return None;
        }
        self.rotating = !self.rotating;
        if self.rotating {
            self.key += 1;
        }
        Some(if self.rotating { Rotation::Begins } else { Rotation::Ends })
    }

    /// Signs the last commit, with a key that is trusted. Returns its id.
    pub(super) fn sign(&mut self, repository: &Path) -> String {
        let former = self.rotating && self.dice.below(2) == 0;
        sign_last(repository, &key(self.key - u8::from(former)), Some(git2::Time::new(COMMITTED_AT, 0)))
    }

    /// Whether an intruder pushes after this commit, and how long it takes until that is noticed.
    pub(super) fn meet_intruder(&mut self) -> Option<Duration> {
        (self.dice.below(10) == 0).then(|| Duration::from_millis(self.dice.below(180_000)))
    }
}

/// Puts a commit without a signature on top of the branch: it declares one more Kyma.
pub(super) fn intrude(repository: &Path) {
    const KYMA: &str = "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\nmetadata: {name: intruder, namespace: \
                        kcp-system}\nspec: {channel: regular}\n";
    let repository = git2::Repository::open(repository).expect("a repository");
    let head = repository.head().and_then(|head| head.peel_to_commit()).expect("a commit");
    let blob = repository.blob(KYMA.as_bytes()).expect("a blob");
    let mut update = git2::build::TreeUpdateBuilder::new();
    update.upsert("kymas/intruder.yaml", blob, git2::FileMode::Blob);
    let tree = update.create_updated(&repository, &head.tree().expect("a tree")).expect("a tree");
    let tree = repository.find_tree(tree).expect("a tree");
    let author = head.author().to_owned();
    repository.commit(Some("HEAD"), &author, &author, "intruder", &tree, &[&head]).expect("a commit");
}

/// Takes the branch back to a commit.
pub(super) fn take_back(repository: &Path, commit: &str) {
    let repository = git2::Repository::open(repository).expect("a repository");
    let commit = git2::Oid::from_str(commit).expect("an id");
    repository.find_reference("refs/heads/main").expect("a branch").set_target(commit, "back").expect("a branch");
}

fn key(number: u8) -> PrivateKey {
    Ed25519Keypair::from_seed(&[number; 32]).into()
}

/// The line of a key in `allowed_signers`.
fn line(number: u8) -> String {
    let public = key(number).public_key().to_openssh().expect("a key can be written");
    format!("platform@example.org namespaces=\"git\" {public}\n")
}
