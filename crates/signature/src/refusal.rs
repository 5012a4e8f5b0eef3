//! Why a signature proves nothing.

use tidegate_core::evidence::OBJECT_BYTES_MAX;

/// Why a revision is not verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no signature.
    #[error("it is not signed")]
    Unsigned,
    /// The key is not among the trusted ones.
    #[error("it is signed with key {key}, which is not among the trusted keys")]
    UnknownKey {
        /// The key, as the signature names it.
        key: String,
    },
    /// The signature does not match the object.
    #[error("its signature by {key} is over other content")]
    BadSignature {
        /// The key.
        key: String,
    },
    /// An algorithm is too weak.
    #[error("its signature depends on {algorithm}, which is too weak; sign it again, for example with SHA-256")]
    WeakAlgorithm {
        /// The algorithm.
        algorithm: String,
    },
    /// The key is expired.
    #[error("it is signed with key {key}, which has expired")]
    KeyExpired {
        /// The key.
        key: String,
    },
    /// The key was not valid yet.
    #[error("it is signed with key {key}, before that key is valid")]
    KeyNotYetValid {
        /// The key.
        key: String,
    },
    /// The key is revoked.
    #[error("it is signed with key {key}, which is revoked")]
    KeyRevoked {
        /// The key.
        key: String,
    },
    /// The key is valid, but not for this use.
    #[error("it is signed with key {key}, which {why}")]
    KeyNotForSigning {
        /// The key.
        key: String,
        /// What speaks against it.
        why: &'static str,
    },
    /// The signature itself is expired.
    #[error("its signature by {key} has expired")]
    SignatureExpired {
        /// The key.
        key: String,
    },
    /// The signature claims to be made in the future.
    #[error("its signature by {key} claims to be made in the future")]
    SignatureFromFuture {
        /// The key.
        key: String,
    },
    /// The signature is for another purpose than git.
    #[error("its signature is for the namespace {namespace:?} instead of git")]
    OtherNamespace {
        /// The namespace.
        namespace: String,
    },
    /// The signature cannot be read.
    #[error("its signature cannot be read: {0}")]
    NotUnderstood(&'static str),
    /// The object is not as git writes it.
    #[error("it is not as git writes it: {0}")]
    Strange(&'static str),
    /// The object is too large.
    #[error("it is larger than {} KiB", OBJECT_BYTES_MAX >> 10)]
    TooLarge,
    /// A tag is required, and there is none.
    #[error("spec.verify.mode requires a signed tag, and {reference} is none; follow an annotated tag with spec.ref")]
    NoTag {
        /// The reference.
        reference: String,
    },
    /// The tag was signed under another name.
    #[error("the tag {reference} was signed as {signed:?}")]
    OtherTag {
        /// The name of the reference.
        reference: String,
        /// The name in the tag.
        signed: String,
    },
    /// The signer may not change a path.
    #[error(
        "{object} {does} and {signed_by}, but only {allowed} may sign changes of {rule} (spec.verify.paths): \
         remove that commit from the branch, and let one of them commit the change"
    )]
    NotAllowed {
        /// The commit.
        object: String,
        /// What it does with which path.
        does: String,
        /// The pattern of the rule.
        rule: String,
        /// Who signed, or why that is unknown.
        signed_by: String,
        /// Who may.
        allowed: String,
    },
    /// The signer is named by what other keys claim as well.
    #[error(
        "{object} {does} and is signed by {signer}, but the key {rival} claims the name {name} as well: name the right \
         one by its fingerprint in the rule {rule} (spec.verify.paths)"
    )]
    NameContested {
        /// The commit.
        object: Box<str>,
        /// What it does with which path.
        does: Box<str>,
        /// The pattern of the rule.
        rule: Box<str>,
        /// Who signed.
        signer: Box<str>,
        /// The name in the rule.
        name: Box<str>,
        /// The fingerprint of another key with this name.
        rival: Box<str>,
    },
    /// An object is refused.
    #[error("{object} is not verified: {refusal}")]
    Of {
        /// The commit or tag.
        object: String,
        /// The reason.
        refusal: Box<Refusal>,
    },
    /// The history cannot be judged.
    #[error("the changes since the active revision cannot be judged: {0}")]
    History(String),
}

// === impl Refusal ===

impl Refusal {
    /// The reason, in one word for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Refusal::Unsigned => "Unsigned",
            Refusal::UnknownKey { .. } => "UnknownKey",
            Refusal::BadSignature { .. } => "BadSignature",
            Refusal::WeakAlgorithm { .. } => "WeakAlgorithm",
            Refusal::KeyExpired { .. } => "KeyExpired",
            Refusal::KeyNotYetValid { .. } => "KeyNotYetValid",
            Refusal::KeyRevoked { .. } => "KeyRevoked",
            Refusal::KeyNotForSigning { .. } => "KeyNotForSigning",
            Refusal::SignatureExpired { .. } => "SignatureExpired",
            Refusal::SignatureFromFuture { .. } => "SignatureFromFuture",
            Refusal::OtherNamespace { .. } => "OtherNamespace",
            Refusal::NotUnderstood(_) => "SignatureNotUnderstood",
            Refusal::Strange(_) | Refusal::TooLarge => "ObjectNotUnderstood",
            Refusal::NoTag { .. } => "TagRequired",
            Refusal::OtherTag { .. } => "OtherTag",
            Refusal::NotAllowed { .. } | Refusal::NameContested { .. } => "SignerNotAllowed",
            Refusal::Of { refusal, .. } => refusal.reason(),
            Refusal::History(_) => "HistoryNotJudged",
        }
    }

    /// The same, of this object.
    pub(crate) fn of(self, object: &str) -> Refusal {
        Refusal::Of { object: object.to_owned(), refusal: Box::new(self) }
    }
}
