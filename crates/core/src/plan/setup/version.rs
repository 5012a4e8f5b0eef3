//! The versions of kcp, and what each of them understands, as data.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use semver::Version;

use super::name;
use crate::{
    api::setup::{CacheServer, FrontProxy, Image, Kubeconfig, RootShard, RootShardSpec, Shard, VirtualWorkspace},
    landscape::setup::Resources,
    name::Key,
    yaml,
};

/// The tag of images that name none. A release of Tidegate changes it on purpose only.
pub const DEFAULT_TAG: &str = "v0.32.3";
/// The repository of images that name none.
const DEFAULT_REPOSITORY: &str = "ghcr.io/kcp-dev/kcp";

/// The image of containers whose resource names none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultImage {
    repository: String,
    tag: String,
}

/// Why a text is no image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid image `{0}`: use REPOSITORY:TAG, for example {DEFAULT_REPOSITORY}:{DEFAULT_TAG}")]
pub struct ParseImageError(String);

/// A resource with containers.
pub trait Containers {
    /// Their images.
    fn images(&mut self) -> Vec<&mut Option<Image>>;
}

/// The version of kcp in an image; `None` for a tag that is no version, which counts as the newest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KcpVersion(Option<Version>);

/// What only some versions of kcp understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Workspaces that are mounted from other shards.
    MountProxy,
    /// A cache that authenticates its clients.
    AuthenticatedCache,
    /// Proxies that read the workspaces of all shards.
    ShardPeers,
}

/// Versions from one on: of its minor version only, or all later ones.
struct Range {
    from: (u64, u64, u64),
    is_minor_only: bool,
    /// Whether pre-releases count, those of `from` included.
    has_previews: bool,
}

const fn minor(minor: u64, patch: u64) -> Range {
    Range { from: (0, minor, patch), is_minor_only: true, has_previews: false }
}

const fn since(minor: u64, patch: u64) -> Range {
    Range { from: (0, minor, patch), is_minor_only: false, has_previews: false }
}

/// The versions with a feature. As upstream, a pre-release has none of the first two.
fn ranges(feature: Feature) -> &'static [Range] {
    match feature {
        Feature::MountProxy => const { &[minor(31, 6), since(32, 3)] },
        Feature::AuthenticatedCache => const { &[minor(29, 2), minor(30, 2), since(31, 0)] },
        Feature::ShardPeers => const { &[Range { from: (0, 34, 0), is_minor_only: false, has_previews: true }] },
    }
}

// === impl DefaultImage ===

impl DefaultImage {
    /// Names this image where a resource names none. A repository or a tag alone is completed as well.
    pub fn complete(&self, resource: &mut impl Containers) {
        // The plan has the same default.
        if *self == DefaultImage::default() {
            return;
        }
        for image in resource.images() {
            let image = image.get_or_insert_default();
            for (field, default) in [(&mut image.repository, &self.repository), (&mut image.tag, &self.tag)] {
                if field.is_empty() {
                    field.clone_from(default);
                }
            }
        }
    }

    /// As [`DefaultImage::complete`], for all of these resources.
    pub fn complete_all(&self, resources: &mut Resources) {
        fn each<T: Containers + Clone>(image: &DefaultImage, all: &mut BTreeMap<Key, Arc<T>>) {
            all.values_mut().for_each(|resource| image.complete(Arc::make_mut(resource)));
        }
        let Resources { root_shards, shards, front_proxies, cache_servers, virtual_workspaces, kubeconfigs } =
            resources;
        each(self, root_shards);
        each(self, shards);
        each(self, front_proxies);
        each(self, cache_servers);
        each(self, virtual_workspaces);
        each(self, kubeconfigs);
    }
}

impl Default for DefaultImage {
    fn default() -> DefaultImage {
        DefaultImage { repository: DEFAULT_REPOSITORY.to_owned(), tag: DEFAULT_TAG.to_owned() }
    }
}

impl FromStr for DefaultImage {
    type Err = ParseImageError;

    fn from_str(text: &str) -> Result<DefaultImage, ParseImageError> {
        let invalid = || ParseImageError(yaml::short(text).clone());
        // A port of the registry has a colon as well.
        let at = text.find('@').unwrap_or(text.len());
        let (repository, tag) = text[..at].rsplit_once(':').ok_or_else(invalid)?;
        let is_one = |part: &str| !part.is_empty() && !part.chars().any(|c| c.is_whitespace() || c.is_control());
        if !is_one(repository) || !is_one(text) || tag.is_empty() || tag.contains('/') || repository.contains("://") {
            return Err(invalid());
        }
        Ok(DefaultImage { repository: repository.to_owned(), tag: format!("{tag}{}", &text[at..]) })
    }
}

impl fmt::Display for DefaultImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.repository, self.tag)
    }
}

impl Containers for RootShard {
    fn images(&mut self) -> Vec<&mut Option<Image>> {
        let RootShardSpec { common, proxy, .. } = &mut self.spec;
        vec![&mut common.image, &mut proxy.get_or_insert_default().image]
    }
}

impl Containers for Shard {
    fn images(&mut self) -> Vec<&mut Option<Image>> {
        vec![&mut self.spec.common.image]
    }
}

impl Containers for FrontProxy {
    fn images(&mut self) -> Vec<&mut Option<Image>> {
        vec![&mut self.spec.image]
    }
}

impl Containers for CacheServer {
    fn images(&mut self) -> Vec<&mut Option<Image>> {
        vec![&mut self.spec.image]
    }
}

impl Containers for VirtualWorkspace {
    fn images(&mut self) -> Vec<&mut Option<Image>> {
        vec![&mut self.spec.image]
    }
}

impl Containers for Kubeconfig {
    fn images(&mut self) -> Vec<&mut Option<Image>> {
        Vec::new()
    }
}

// === impl KcpVersion ===

impl KcpVersion {
    /// The version that a tag names: an optional `v`, one to three numbers, a pre-release, and a digest.
    pub fn of_tag(tag: &str) -> KcpVersion {
        let text = tag.split_once('@').map_or(tag, |(tag, _)| tag);
        let text = text.strip_prefix('v').unwrap_or(text);
        let at = text.find(['-', '+']).unwrap_or(text.len());
        let (numbers, rest) = text.split_at(at);
        let missing = 3_usize.saturating_sub(numbers.split('.').count());
        KcpVersion(Version::parse(&format!("{numbers}{}{rest}", ".0".repeat(missing))).ok())
    }

    /// The version of an image.
    pub fn of_image(image: Option<&Image>) -> KcpVersion {
        KcpVersion::of_tag(tag(image))
    }

    /// Whether this version understands a feature.
    pub fn has(&self, feature: Feature) -> bool {
        let Some(version) = &self.0 else { return true };
        ranges(feature).iter().any(|range| range.contains(version))
    }
}

impl Range {
    fn contains(&self, version: &Version) -> bool {
        let found = (version.major, version.minor, version.patch);
        let is_in = self.from <= found && (!self.is_minor_only || (found.0, found.1) == (self.from.0, self.from.1));
        is_in && (version.pre.is_empty() || self.has_previews)
    }
}

/// The name of an image.
pub(super) fn image(image: Option<&Image>) -> String {
    let repository = image.map_or("", |image| image.repository.as_str());
    format!("{}:{}", name::or(repository, DEFAULT_REPOSITORY), tag(image))
}

fn tag(image: Option<&Image>) -> &str {
    name::or(image.map_or("", |image| image.tag.as_str()), DEFAULT_TAG)
}
