//! Reads the body of an authentic delivery. Only the fields that name a repository and its refs are read.

use std::collections::BTreeSet;

use serde::{Deserialize, de::DeserializeOwned};

use super::{Headers, Host, RepositoryAddress, address::decode};
use crate::{intake::Follow, revision::Oid, version_range::VersionTag};

/// What a delivery says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// Refs of a repository were changed.
    Push(Push),
    /// Something else, for example the test that a host sends when the webhook is created.
    Other,
}

/// A change of refs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Push {
    /// The repository, by all of its URLs.
    pub repository: BTreeSet<RepositoryAddress>,
    /// Its default branch in full, such as `refs/heads/main`; `None` if the delivery does not say.
    pub default_branch: Option<String>,
    /// The refs.
    pub updates: Vec<Update>,
}

/// The change of one ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// In full, such as `refs/heads/main`.
    pub reference: String,
    /// The commit, or the tag object, that it points to now; `None` if the delivery does not say.
    pub target: Option<Oid>,
}

/// Why a body cannot be read. No message contains any of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseDeliveryError {
    /// It is not JSON, or lacks a field.
    #[error("the body is not a push of {}: use content type application/json and the events of pushes", host.name())]
    Invalid {
        /// The host, by its headers.
        host: Host,
    },
    /// It names no repository.
    #[error("the push names no URL of a repository")]
    Repository,
}

/// What precedes the name of a branch in a ref.
const BRANCHES: &str = "refs/heads/";
/// What precedes the name of a tag.
const TAGS: &str = "refs/tags/";
/// Maximum number of refs of one push that are considered. A push of more is a migration, and polling finds it.
pub const UPDATES_MAX: usize = 1_000;

/// Reads a delivery, and its id if it has one.
///
/// # Errors
///
/// Fails if the body is not what the host sends for a push.
pub fn parse(host: Host, headers: &Headers, body: &[u8]) -> Result<(Delivered, Option<String>), ParseDeliveryError> {
    let event = host.event_header().and_then(|header| headers.get(header)).unwrap_or_default();
    let id = host.id_header().and_then(|header| headers.get(header)).map(str::to_owned);
    let invalid = ParseDeliveryError::Invalid { host };
    // Others send JSON, whatever they call it: `curl -d` calls it a form.
    let sends_forms = matches!(host, Host::GitHub | Host::Gitea | Host::Forgejo);
    let is_form = |text: &str| text.starts_with("application/x-www-form-urlencoded");
    let form = sends_forms && headers.get("content-type").is_some_and(is_form);
    let decoded = if form { Some(field(body, "payload").ok_or(invalid)?.into_bytes()) } else { None };
    let body = decoded.as_deref().unwrap_or(body);
    let push = match host {
        Host::GitHub | Host::Gitea | Host::Forgejo if event == "push" => read::<GitHub>(body).map(Push::from),
        Host::GitLab if ["Push Hook", "Tag Push Hook", "System Hook"].contains(&event) => {
            match read::<GitLab>(body).ok_or(invalid)?.into_push() {
                Some(push) => Some(push),
                None => return Ok((Delivered::Other, id)),
            }
        }
        Host::BitbucketCloud if event == "repo:push" => read::<BitbucketCloud>(body).map(Push::from),
        Host::BitbucketServer if event == "repo:refs_changed" => read::<BitbucketServer>(body).map(Push::from),
        Host::AzureDevOps => {
            let azure = read::<Azure>(body).ok_or(invalid)?;
            let id = azure.id.clone();
            return match azure.into_push() {
                Some(push) => checked(push).map(|push| (Delivered::Push(push), id)),
                None => Ok((Delivered::Other, id)),
            };
        }
        Host::Generic => read::<Generic>(body).map(Push::from),
        Host::GitHub | Host::Gitea | Host::Forgejo | Host::GitLab | Host::BitbucketCloud | Host::BitbucketServer => {
            return Ok((Delivered::Other, id));
        }
    };
    checked(push.ok_or(invalid)?).map(|push| (Delivered::Push(push), id))
}

fn checked(push: Push) -> Result<Push, ParseDeliveryError> {
    if push.repository.is_empty() { Err(ParseDeliveryError::Repository) } else { Ok(push) }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    serde_json::from_slice(body).ok()
}

/// A field of a form.
fn field(body: &[u8], name: &str) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let fields = text.split('&').filter_map(|field| field.split_once('='));
    decode(fields.into_iter().find(|(found, _)| *found == name)?.1, true)
}

// === impl Push ===

impl Push {
    fn new<'a>(
        urls: impl IntoIterator<Item = Option<&'a String>>,
        updates: impl IntoIterator<Item = (String, Option<String>)>,
    ) -> Push {
        let update = |(reference, target): (String, Option<String>)| Update {
            reference,
            target: target.and_then(|id| id.parse().ok()),
        };
        Push {
            repository: urls.into_iter().flatten().filter_map(|url| RepositoryAddress::parse(url)).collect(),
            default_branch: None,
            updates: updates.into_iter().take(UPDATES_MAX).map(update).collect(),
        }
    }

    /// With the name of the default branch, which may be in full.
    fn with_default_branch(self, name: Option<String>) -> Push {
        let full = |name: String| if name.starts_with("refs/") { name } else { format!("{BRANCHES}{name}") };
        Push { default_branch: name.map(full), ..self }
    }

    /// Whether the push is to the repository at this URL.
    pub fn is_to(&self, url: &str) -> bool {
        RepositoryAddress::parse(url).is_some_and(|address| self.repository.contains(&address))
    }

    /// Whether the push changes what a source follows. A source of a commit is named by a ref that points to it now,
    /// and one of the default branch by any branch if the host does not say which is the default.
    pub fn names(&self, follow: &Follow) -> bool {
        self.updates.iter().any(|update| match follow {
            Follow::Default => match &self.default_branch {
                Some(name) => update.reference == *name,
                None => update.reference.starts_with(BRANCHES),
            },
            Follow::Branch(name) => update.reference.strip_prefix(BRANCHES) == Some(name),
            Follow::Tag(name) => update.reference.strip_prefix(TAGS) == Some(name),
            Follow::Versions(range) => {
                let tag = update.reference.strip_prefix(TAGS).and_then(VersionTag::parse);
                tag.is_some_and(|tag| range.contains(&tag))
            }
            Follow::Name(name) => update.reference == *name,
            Follow::Commit(commit) => update.target == Some(*commit),
        })
    }
}

// === the hosts ===

/// GitHub, Gitea and Forgejo.
#[derive(Deserialize)]
struct GitHub {
    #[serde(rename = "ref")]
    reference: String,
    after: Option<String>,
    repository: GitHubRepository,
}

#[derive(Deserialize)]
struct GitHubRepository {
    clone_url: Option<String>,
    ssh_url: Option<String>,
    html_url: Option<String>,
    default_branch: Option<String>,
}

impl From<GitHub> for Push {
    fn from(GitHub { reference, after, repository }: GitHub) -> Push {
        let urls = [&repository.clone_url, &repository.ssh_url, &repository.html_url];
        Push::new(urls.map(Option::as_ref), [(reference, after)]).with_default_branch(repository.default_branch)
    }
}

#[derive(Deserialize)]
struct GitLab {
    object_kind: Option<String>,
    event_name: Option<String>,
    #[serde(rename = "ref")]
    reference: Option<String>,
    after: Option<String>,
    project: Option<GitLabProject>,
}

#[derive(Deserialize)]
struct GitLabProject {
    git_http_url: Option<String>,
    git_ssh_url: Option<String>,
    web_url: Option<String>,
    default_branch: Option<String>,
}

impl GitLab {
    /// The push; `None` if it is another event, as a system hook may be.
    fn into_push(self) -> Option<Push> {
        let kind = self.object_kind.or(self.event_name)?;
        let (reference, project) = (self.reference?, self.project?);
        let urls = [&project.git_http_url, &project.git_ssh_url, &project.web_url];
        let push = Push::new(urls.map(Option::as_ref), [(reference, self.after)]);
        let push = push.with_default_branch(project.default_branch);
        ["push", "tag_push"].contains(&kind.as_str()).then_some(push)
    }
}

#[derive(Deserialize)]
struct BitbucketCloud {
    push: BitbucketChanges,
    repository: BitbucketRepository,
}

#[derive(Deserialize)]
struct BitbucketChanges {
    changes: Vec<BitbucketChange>,
}

#[derive(Deserialize)]
struct BitbucketChange {
    /// Missing if the ref was deleted.
    new: Option<BitbucketRef>,
    old: Option<BitbucketRef>,
}

#[derive(Deserialize)]
struct BitbucketRef {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    target: Option<BitbucketTarget>,
}

#[derive(Deserialize)]
struct BitbucketTarget {
    hash: Option<String>,
}

#[derive(Deserialize)]
struct BitbucketRepository {
    links: BitbucketLinks,
}

#[derive(Deserialize)]
struct BitbucketLinks {
    html: Link,
}

#[derive(Deserialize)]
struct Link {
    href: Option<String>,
}

impl From<BitbucketCloud> for Push {
    fn from(BitbucketCloud { push, repository }: BitbucketCloud) -> Push {
        let updates = push.changes.into_iter().filter_map(|change| {
            let found = change.new.or(change.old.map(|old| BitbucketRef { target: None, ..old }))?;
            let folder = if found.kind == "tag" { "tags" } else { "heads" };
            Some((format!("refs/{folder}/{}", found.name), found.target.and_then(|target| target.hash)))
        });
        // Its web page has the path of its clone URLs.
        Push::new([repository.links.html.href.as_ref()], updates)
    }
}

#[derive(Deserialize)]
struct BitbucketServer {
    repository: ServerRepository,
    changes: Vec<ServerChange>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServerChange {
    ref_id: String,
    to_hash: Option<String>,
}

#[derive(Deserialize)]
struct ServerRepository {
    slug: String,
    project: ServerProject,
    #[serde(default)]
    links: ServerLinks,
}

#[derive(Deserialize)]
struct ServerProject {
    key: String,
}

#[derive(Default, Deserialize)]
struct ServerLinks {
    #[serde(default)]
    clone: Vec<Link>,
    #[serde(default, rename = "self")]
    own: Vec<Link>,
}

impl From<BitbucketServer> for Push {
    fn from(BitbucketServer { repository, changes }: BitbucketServer) -> Push {
        let updates = changes.into_iter().map(|change| (change.ref_id, change.to_hash));
        let ServerRepository { slug, project, links } = repository;
        // Some versions send no clone URLs. They follow from that of the page `…/projects/KEY/repos/slug/browse`.
        let derived = links.own.iter().filter_map(|link| {
            let (base, _) = link.href.as_ref()?.split_once("/projects/")?;
            Some(format!("{base}/scm/{}/{slug}", project.key))
        });
        let urls: Vec<String> = links.clone.iter().filter_map(|link| link.href.clone()).chain(derived).collect();
        Push::new(urls.iter().map(Some), updates)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Azure {
    id: Option<String>,
    event_type: String,
    resource: Option<AzureResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AzureResource {
    #[serde(default)]
    ref_updates: Vec<AzureUpdate>,
    repository: Option<AzureRepository>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AzureUpdate {
    name: String,
    new_object_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AzureRepository {
    remote_url: Option<String>,
    ssh_url: Option<String>,
    default_branch: Option<String>,
}

impl Azure {
    /// The push; `None` if it is another event.
    fn into_push(self) -> Option<Push> {
        let resource = self.resource.filter(|_| self.event_type == "git.push")?;
        let repository = resource.repository?;
        let updates = resource.ref_updates.into_iter().map(|update| (update.name, update.new_object_id));
        let push = Push::new([repository.remote_url.as_ref(), repository.ssh_url.as_ref()], updates);
        Some(push.with_default_branch(repository.default_branch))
    }
}

/// `{"url": "https://git.example.com/team/landscape.git", "ref": "refs/heads/main"}`.
#[derive(Deserialize)]
struct Generic {
    url: String,
    #[serde(rename = "ref")]
    reference: String,
    commit: Option<String>,
}

impl From<Generic> for Push {
    fn from(Generic { url, reference, commit }: Generic) -> Push {
        Push::new([Some(&url)], [(reference, commit)])
    }
}
