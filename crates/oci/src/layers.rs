//! A cache of layers and descriptors on disk: each is fetched once, and can be read while the registry is away.
//!
//! A layer is a file that is named by its digest and holds the blob as the registry sent it. Every read computes the
//! digest again: a file that a full disk or a crash left torn is removed and fetched again, so nothing is synced. A
//! descriptor is a file that begins with the digest of the rest, because a tag can be moved, and what was resolved once
//! is used until a caller asks for more.
//!
//! Files appear by a rename, so that other processes can read them. One process writes: it holds the lock of the state
//! folder. Under the quota, what was not used for the longest time is removed first; times of use outlive the process
//! as times of modification.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufReader, Read, Seek, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tidegate_core::component::{self, BlobDigest, Component, RegistryAddress, Source, repository_path};
use tidegate_process::{ambient, lock::Mutex};
use tokio::sync::Semaphore;

use super::{
    error::Error,
    exchange::Sink,
    limits::DOWNLOADS_MAX,
    registry::{Registry, RegistryDescriptor},
    unpack::{self, Packed},
    unpacker::{Blob, Unpacker},
};

/// The cache in one folder. Clones share it.
#[derive(Clone, Debug)]
pub struct Layers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    quota_bytes: u64,
    unpacker: Unpacker,
    index: Mutex<Index>,
    /// Who fetches what: others wait, and then read the file.
    fetches: Mutex<BTreeMap<String, Weak<tokio::sync::Mutex<()>>>>,
    downloads: Semaphore,
    names: AtomicU64,
}

/// The files, by name.
#[derive(Debug, Default)]
struct Index {
    files: BTreeMap<String, Entry>,
    total_bytes: u64,
    /// Counts uses: the lowest one is the longest ago.
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    bytes: u64,
    used: u64,
}

/// The rest of a descriptor's file, after the digest.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    manifest: BlobDigest,
    text: String,
}

/// The beginning of the names of files that are not complete.
const UNFINISHED: &str = "new-";
/// The end of the names of descriptors.
const DESCRIPTOR: &str = ".descriptor";

// === impl Layers ===

impl Layers {
    /// Opens the cache in a folder, which is created if it is missing. No other process may write there. Layers are
    /// unpacked by `unpacker`.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be created or read.
    pub fn open(folder: &Path, quota_bytes: u64, unpacker: Unpacker) -> Result<Layers, Error> {
        fs::create_dir_all(folder).map_err(cache_error("create", folder))?;
        let layers = Layers(Arc::new(Inner {
            folder: folder.to_owned(),
            quota_bytes,
            unpacker,
            index: Mutex::new(scan(folder)?),
            fetches: Mutex::default(),
            downloads: Semaphore::new(DOWNLOADS_MAX),
            names: AtomicU64::new(0),
        }));
        // The quota may be smaller than that of the last process.
        layers.0.evict(0);
        Ok(layers)
    }

    /// The YAML of a module's objects: from the cache, otherwise from the registry.
    ///
    /// # Errors
    ///
    /// Fails if the cache does not have the layer and the registry cannot be read, if the blob cannot be unpacked, or
    /// if the cache cannot be written.
    pub async fn layer(&self, registry: &Registry, source: &Source) -> Result<Bytes, Error> {
        let name = source.digest.hex();
        if let Some(text) = self.read_layer(source).await? {
            return Ok(text);
        }
        let fetch = self.fetch_of(&name);
        let _turn = fetch.lock().await;
        // Another caller may have fetched it meanwhile.
        if let Some(text) = self.read_layer(source).await? {
            return Ok(text);
        }
        self.fetch_layer(registry, source, &name).await?;
        let from = || format!("{}/{}@{}", registry.address(), source.repository_path(), source.digest);
        // It was just written and verified. If it is gone already, the quota is smaller than what is used at a time.
        self.read_layer(source).await?.ok_or_else(|| Error::Quota { from: from(), quota: self.0.quota_bytes })
    }

    /// The YAML of a module's objects, if it is in the cache.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or unpacked.
    pub async fn read_layer(&self, source: &Source) -> Result<Option<Bytes>, Error> {
        let (inner, digest) = (Arc::clone(&self.0), source.digest);
        let name = source.digest.hex();
        let known = self.0.index.lock().touch(&name);
        if !known {
            return Ok(None);
        }
        let verified = ambient::blocking(move || {
            let path = inner.folder.join(&name);
            let file = verified(&path, digest)?;
            if file.is_some() {
                touch(&path);
            } else {
                tracing::warn!(path = %path.display(), "a cached layer was missing or damaged");
                inner.forget(&name);
            }
            Ok(file)
        });
        let Some(file) = verified.await.ok_or(Error::Thread)?? else { return Ok(None) };
        let (packed, from) = (Packed::Layer(source.kind), name_of(source));
        self.0.unpacker.unpack(packed, Blob::File(file), &from, &from).await.map(|text| Some(text.into()))
    }

    /// The descriptor of a component as it was when it was first fetched: from the cache, otherwise from the registry.
    /// A tag that was moved since changes nothing; see [`Layers::fetch_descriptor`].
    ///
    /// # Errors
    ///
    /// Fails if the cache does not have it and the registry cannot be read, or if the descriptor is invalid.
    pub async fn descriptor(&self, registry: &Registry, component: &Component) -> Result<RegistryDescriptor, Error> {
        if let Some(found) = self.read_descriptor(registry.address(), component).await? {
            return Ok(found);
        }
        let fetch = self.fetch_of(&descriptor_name(registry.address(), component));
        let _turn = fetch.lock().await;
        match self.read_descriptor(registry.address(), component).await? {
            Some(found) => Ok(found),
            None => self.fetch_descriptor(registry, component).await,
        }
    }

    /// The descriptor of a component as it is in the registry now, which replaces the one in the cache. If the tag was
    /// not moved, no blob is read.
    ///
    /// # Errors
    ///
    /// Fails, and keeps the one in the cache, if the registry cannot be read or the descriptor is invalid.
    pub async fn fetch_descriptor(
        &self,
        registry: &Registry,
        component: &Component,
    ) -> Result<RegistryDescriptor, Error> {
        let found = match self.read_descriptor(registry.address(), component).await? {
            Some(earlier) => registry.descriptor_again(component, earlier).await?,
            None => registry.descriptor(component).await?,
        };
        let (inner, name) = (Arc::clone(&self.0), descriptor_name(registry.address(), component));
        let record = Record { manifest: found.manifest, text: String::from_utf8_lossy(&found.text).into_owned() };
        ambient::blocking(move || inner.store_descriptor(&name, &record)).await.ok_or(Error::Thread)??;
        Ok(found)
    }

    /// The descriptor of a component, if it is in the cache.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub async fn read_descriptor(
        &self,
        registry: &RegistryAddress,
        component: &Component,
    ) -> Result<Option<RegistryDescriptor>, Error> {
        let (inner, component) = (Arc::clone(&self.0), component.clone());
        let name = descriptor_name(registry, &component);
        let known = self.0.index.lock().touch(&name);
        if !known {
            return Ok(None);
        }
        ambient::blocking(move || {
            let path = inner.folder.join(&name);
            let found = stored_descriptor_at(&path, &component)?;
            match found {
                Some(_) => touch(&path),
                None => inner.forget(&name),
            }
            Ok(found)
        })
        .await
        .ok_or(Error::Thread)?
    }

    /// Bytes on disk.
    pub fn total_bytes(&self) -> u64 {
        self.0.index.lock().total_bytes
    }

    async fn fetch_layer(&self, registry: &Registry, source: &Source, name: &str) -> Result<(), Error> {
        let inner = &self.0;
        let _permit = inner.downloads.acquire().await.map_err(|_| Error::Thread)?;
        let unfinished = Unfinished(inner.unfinished());
        let path = unfinished.0.clone();
        let file = tokio::fs::File::create(&path).await.map_err(cache_error("create", &path))?;
        let mut sink = Sink::File(file, path.clone());
        registry.layer_into(source, &mut sink).await?;
        drop(sink);
        let bytes = tokio::fs::metadata(&path).await.map_err(cache_error("read", &path))?.len();
        if inner.quota_bytes < bytes {
            let from = format!("{}/{}@{}", registry.address(), source.repository_path(), source.digest);
            return Err(Error::Quota { from, quota: inner.quota_bytes });
        }
        let (inner, name) = (Arc::clone(inner), name.to_owned());
        ambient::blocking(move || inner.put(&path, &name, bytes)).await.ok_or(Error::Thread)?
    }

    /// The turn to fetch something.
    fn fetch_of(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut fetches = self.0.fetches.lock();
        fetches.retain(|_, fetch| 0 < fetch.strong_count());
        if let Some(fetch) = fetches.get(name).and_then(Weak::upgrade) {
            return fetch;
        }
        let fetch = Arc::default();
        fetches.insert(name.to_owned(), Arc::downgrade(&fetch));
        fetch
    }
}

/// The YAML of a module's objects from the cache of another process, which is not changed. It is unpacked in this
/// process. `None` if it is not there or damaged.
///
/// # Errors
///
/// Fails if the file cannot be read or unpacked.
pub fn stored_layer(folder: &Path, source: &Source) -> Result<Option<Bytes>, Error> {
    let Some(file) = verified(&folder.join(source.digest.hex()), source.digest)? else { return Ok(None) };
    let text = unpack::unpack(Packed::Layer(source.kind), file);
    text.map(|text| Some(text.into())).map_err(|flaw| Error::Unpack { from: name_of(source), flaw })
}

/// A file at its beginning, if it is there and has this digest.
fn verified(path: &Path, digest: BlobDigest) -> Result<Option<File>, Error> {
    let Some(mut file) = opened(path)? else { return Ok(None) };
    if digest_of(&mut file).map_err(cache_error("read", path))? != digest {
        return Ok(None);
    }
    file.rewind().map_err(cache_error("read", path))?;
    Ok(Some(file))
}

fn name_of(source: &Source) -> String {
    format!("{}/{}@{}", source.repo, source.repository_path(), source.digest)
}

/// The descriptor of a component from the cache of another process, which is not changed. `None` if it is not there or
/// damaged.
///
/// # Errors
///
/// Fails if the file cannot be read.
pub fn stored_descriptor(
    folder: &Path,
    registry: &RegistryAddress,
    component: &Component,
) -> Result<Option<RegistryDescriptor>, Error> {
    stored_descriptor_at(&folder.join(descriptor_name(registry, component)), component)
}

fn stored_descriptor_at(path: &Path, component: &Component) -> Result<Option<RegistryDescriptor>, Error> {
    let Some(mut file) = opened(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(cache_error("read", path))?;
    let valid = || {
        let (digest, rest) = bytes.split_at_checked(64)?;
        let digest = BlobDigest::from_hex(std::str::from_utf8(digest).ok()?).ok()?;
        if BlobDigest::of(rest) != digest {
            return None;
        }
        let record: Record = serde_json::from_slice(rest).ok()?;
        let module = component::read(record.text.as_bytes(), component).ok()?;
        Some(RegistryDescriptor { manifest: record.manifest, text: record.text.into(), module })
    };
    Ok(valid())
}

// === impl Inner ===

impl Inner {
    fn unfinished(&self) -> PathBuf {
        self.folder.join(format!("{UNFINISHED}{}", self.names.fetch_add(1, Ordering::Relaxed)))
    }

    fn store_descriptor(&self, name: &str, record: &Record) -> Result<(), Error> {
        let rest = serde_json::to_vec(record).map_err(io::Error::other);
        let unfinished = Unfinished(self.unfinished());
        let path = &unfinished.0;
        let rest = rest.map_err(cache_error("write", path))?;
        let bytes = 64 + rest.len() as u64;
        if self.quota_bytes < bytes {
            return Ok(());
        }
        let head = BlobDigest::of(&rest).hex();
        File::create(path)
            .and_then(|mut file| file.write_all(head.as_bytes()).and_then(|()| file.write_all(&rest)))
            .map_err(cache_error("write", path))?;
        self.put(path, name, bytes)
    }

    /// Makes a complete file visible, after others made room for it. Files that came at the same time may have taken
    /// the same room, so the quota is applied once more.
    fn put(&self, from: &Path, name: &str, bytes: u64) -> Result<(), Error> {
        self.evict(bytes);
        let path = self.folder.join(name);
        fs::rename(from, &path).map_err(cache_error("rename to", &path))?;
        self.index.lock().insert(name, bytes);
        self.evict(0);
        Ok(())
    }

    /// Removes files until `bytes` more fit. A reader that has a file open keeps its content.
    fn evict(&self, bytes: u64) {
        let evicted = self.index.lock().evict(self.quota_bytes.saturating_sub(bytes));
        for name in evicted {
            remove(&self.folder.join(name));
        }
    }

    fn forget(&self, name: &str) {
        self.index.lock().remove(name);
        remove(&self.folder.join(name));
    }
}

// === impl Index ===

impl Index {
    /// Whether a file is there, which is now the last that was used.
    fn touch(&mut self, name: &str) -> bool {
        self.clock += 1;
        let used = self.clock;
        self.files.get_mut(name).map(|entry| entry.used = used).is_some()
    }

    fn insert(&mut self, name: &str, bytes: u64) {
        self.remove(name);
        self.clock += 1;
        self.files.insert(name.to_owned(), Entry { bytes, used: self.clock });
        self.total_bytes += bytes;
    }

    fn remove(&mut self, name: &str) {
        if let Some(entry) = self.files.remove(name) {
            self.total_bytes -= entry.bytes;
        }
    }

    /// Removes what was not used for the longest time, until no more than `quota` bytes remain.
    fn evict(&mut self, quota: u64) -> Vec<String> {
        let mut evicted = Vec::new();
        while quota < self.total_bytes {
            let oldest = self.files.iter().min_by_key(|(_, entry)| entry.used).map(|(name, _)| name.clone());
            let Some(oldest) = oldest else { break };
            self.remove(&oldest);
            evicted.push(oldest);
        }
        evicted
    }
}

/// A file that is removed unless it was renamed.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// The files of earlier processes, in the order of their use. Files that are not complete are removed.
fn scan(folder: &Path) -> Result<Index, Error> {
    let mut found: Vec<(SystemTime, String, u64)> = Vec::new();
    for entry in fs::read_dir(folder).map_err(cache_error("read", folder))? {
        let entry = entry.map_err(cache_error("read", folder))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.starts_with(UNFINISHED) {
            remove(&entry.path());
        } else if BlobDigest::from_hex(name.strip_suffix(DESCRIPTOR).unwrap_or(&name)).is_ok() {
            let metadata = entry.metadata().map_err(cache_error("read", &entry.path()))?;
            found.push((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), name, metadata.len()));
        }
    }
    found.sort();
    let mut index = Index::default();
    for (_, name, bytes) in found {
        index.insert(&name, bytes);
    }
    Ok(index)
}

/// The name of a descriptor's file: registry and component as a digest, because both have slashes.
fn descriptor_name(registry: &RegistryAddress, component: &Component) -> String {
    let what = format!("{registry}/{}:{}", repository_path(&component.name), component.version);
    format!("{}{DESCRIPTOR}", BlobDigest::of(what.as_bytes()).hex())
}

fn opened(path: &Path) -> Result<Option<File>, Error> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(cache_error("open", path)(error)),
    }
}

fn digest_of(file: &mut File) -> io::Result<BlobDigest> {
    let mut hasher = Sha256::new();
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(BlobDigest::from_bytes(hasher.finalize().into())),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// Keeps the time of use for the next process. Without it, another file may be removed first; nothing else.
fn touch(path: &Path) {
    let now = SystemTime::from(ambient::now());
    let touched = File::options().append(true).open(path).and_then(|file| file.set_modified(now));
    if let Err(error) = touched {
        tracing::debug!(path = %path.display(), %error, "cannot set the time of use of a cached file");
    }
}

/// Removes a file of the cache. One that remains is found by the next process.
fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "cannot remove a cached file");
    }
}

/// Adds the operation and the path to an error.
fn cache_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Cache { operation, path, source }
}

#[cfg(test)]
mod tests;
