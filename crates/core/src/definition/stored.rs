//! Serializes a cache for a later process. Contains only checked files without problems.
//!
//! A file with a diagnostic is parsed again. A file that may contain a Secret is never stored, so
//! no secret leaves the process in clear text. Bytes that are damaged, of another version or made
//! with other options are rejected. The reader then parses everything, with the same result.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, LazyLock},
};

use serde_json::Value;

use super::{
    Cache, Definition, Kind, ModuleObjects, Options, SourceObject,
    file::{Basis, Candidate, FileRead, ModuleRead},
    module::object::Kinds,
};
use crate::{
    diagnostic::{Diagnostics, FilePosition},
    name::Key,
    object::{Digest, Object},
    revision::Oid,
    secret,
    yaml::Positions,
};

/// The header of every stored cache. It changes with the format.
const MAGIC: &[u8; 8] = b"tgdefs02";
/// Words that a text contains if it may belong to a Secret, however deeply nested.
const SECRET: &str = "Secret";

impl Cache {
    /// Bytes for [`Cache::from_bytes`]. Equal caches give equal bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer(Vec::new());
        let mut files: Vec<_> = self.files.iter().filter(|(_, read)| may_store(read)).collect();
        files.sort_by_key(|(key, _)| *key);
        writer.number(files.len());
        for ((path, id), read) in files {
            writer.text(path);
            writer.0.extend_from_slice(id.as_bytes());
            writer.number(read.candidates.len());
            read.candidates.iter().for_each(|candidate| writer.candidate(candidate));
        }
        let mut modules: Vec<_> = self.modules.iter().filter(|(_, read)| may_store_module(read)).collect();
        modules.sort_by_key(|(key, _)| *key);
        writer.number(modules.len());
        for ((path, tree), read) in modules {
            writer.text(path);
            writer.0.extend_from_slice(tree.as_bytes());
            let objects = stored_objects(read);
            writer.number(objects.len());
            for source in objects {
                writer.place(&source.place);
                writer.json(source.object().value());
            }
        }
        let basis = self.basis.as_ref().map(version).unwrap_or_default();
        let header = [MAGIC.as_slice(), &basis.to_le_bytes(), &checksum(&writer.0).to_le_bytes()].concat();
        [header, writer.0].concat()
    }

    /// Reads bytes that the same version stored with the same options. Returns `None` for any
    /// others.
    pub fn from_bytes(bytes: &[u8], options: &Options) -> Option<Cache> {
        let basis = Basis::from_options(options);
        let mut reader = Reader(bytes);
        let header = (reader.take(MAGIC.len())?, reader.long()?, reader.long()?);
        if header != (MAGIC.as_slice(), version(&basis), checksum(reader.0)) {
            return None;
        }
        let mut cache = Cache::default();
        cache.basis = Some(basis);
        for _ in 0..reader.number()? {
            let path: Arc<str> = reader.text()?.into();
            let id = reader.id()?;
            let candidates = (0..reader.number()?).map(|_| reader.candidate(&path)).collect::<Option<_>>()?;
            let read = FileRead { diagnostics: Diagnostics::default(), candidates, values: 0 };
            cache.files.insert((path, id), Arc::new(read));
        }
        for _ in 0..reader.number()? {
            let (path, tree) = (reader.text()?.to_owned(), reader.id()?);
            let mut last: Arc<str> = "".into();
            let objects = (0..reader.number()?).map(|_| reader.source(&mut last)).collect::<Option<_>>()?;
            let objects = ModuleObjects::stored(tree, objects);
            let read =
                ModuleRead { diagnostics: Vec::new(), objects: Some(Arc::new(objects)), kinds: Kinds::default() };
            cache.modules.insert((path, tree), Arc::new(read));
        }
        reader.0.is_empty().then_some(cache)
    }
}

/// A digest of the schemas of the kinds that are stored. Those of kcp landscapes are large and their definitions are
/// few, so they are checked again.
static SCHEMAS: LazyLock<u64> = LazyLock::new(|| {
    let mut hasher = DefaultHasher::new();
    let crds = Kind::OF_KYMA.into_iter().map(Kind::crd);
    crds.for_each(|crd| serde_json::to_string(&*crd).unwrap_or_default().hash(&mut hasher));
    hasher.finish()
});

/// What the contents depend on besides the files: our version, the schemas and the options.
fn version(basis: &Basis) -> u64 {
    let mut hasher = DefaultHasher::new();
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    SCHEMAS.hash(&mut hasher);
    format!("{basis:?}").hash(&mut hasher);
    hasher.finish()
}

/// A checksum. It detects damage, not tampering.
fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn may_store(read: &FileRead) -> bool {
    let good = |candidate: &Candidate| {
        candidate.problem.is_none()
            && Kind::OF_KYMA.contains(&candidate.kind)
            && candidate.definition.as_ref().is_some_and(|definition| !mentions_secret(definition.object.value()))
    };
    read.diagnostics.is_empty() && read.candidates.iter().all(good)
}

fn may_store_module(read: &ModuleRead) -> bool {
    read.diagnostics.is_empty() && !stored_objects(read).iter().any(|source| mentions_secret(source.object().value()))
}

fn stored_objects(read: &ModuleRead) -> &[SourceObject] {
    read.objects.as_ref().map_or(&[], |module| module.objects())
}

fn mentions_secret(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(SECRET),
        Value::Array(items) => items.iter().any(mentions_secret),
        Value::Object(map) => {
            let is_called = |kind: &str| kind.trim().eq_ignore_ascii_case(SECRET);
            map.get("kind").and_then(Value::as_str).is_some_and(is_called)
                || secret::has_string_data(map)
                || secret::is_disguised(map, false)
                || map.iter().any(|(key, value)| key.contains(SECRET) || mentions_secret(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

struct Writer(Vec<u8>);

/// Reads from the front. Returns `None` at the first unexpected byte.
struct Reader<'a>(&'a [u8]);

// === impl Writer ===

impl Writer {
    fn number(&mut self, number: usize) {
        self.0.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn key(&mut self, key: &Key) {
        self.text(key.namespace());
        self.text(key.name());
    }

    fn place(&mut self, place: &FilePosition) {
        self.text(&place.path);
        self.number(place.line as usize);
        self.number(place.column as usize);
    }

    fn json(&mut self, value: &Value) {
        self.text(&value.to_string());
    }

    fn candidate(&mut self, candidate: &Candidate) {
        let Some(definition) = &candidate.definition else { return };
        self.text(candidate.kind.as_str());
        self.key(&candidate.key);
        self.number(candidate.place.line as usize);
        self.number(candidate.place.column as usize);
        self.number(usize::from(candidate.needs_descriptor));
        self.number(usize::from(candidate.module_path.is_some()));
        if let Some((path, place)) = &candidate.module_path {
            self.text(path);
            self.number(place.line as usize);
            self.number(place.column as usize);
        }
        self.0.extend_from_slice(definition.digest.as_bytes());
        self.bytes(&definition.fields.to_bytes());
        self.json(definition.object.value());
    }
}

// === impl Reader ===

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn short(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn number(&mut self) -> Option<usize> {
        self.short()?.try_into().ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.take(length)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    fn id(&mut self) -> Option<Oid> {
        Some(Oid::new(self.take(20)?.try_into().ok()?))
    }

    fn key(&mut self) -> Option<Key> {
        Some(Key::new(self.text()?, self.text()?))
    }

    fn at(&mut self, path: &Arc<str>) -> Option<FilePosition> {
        Some(FilePosition::at(path, self.short()?, self.short()?))
    }

    fn object(&mut self) -> Option<Object> {
        Object::new(serde_json::from_slice(self.bytes()?).ok()?).ok()
    }

    fn candidate(&mut self, path: &Arc<str>) -> Option<Candidate> {
        let kind: Kind = self.text()?.parse().ok()?;
        let key = self.key()?;
        let place = self.at(path)?;
        let needs_descriptor = self.number()? != 0;
        let module_path = match self.number()? {
            0 => None,
            _ => Some((self.text()?.to_owned(), self.at(path)?)),
        };
        let digest = Digest::from_bytes(self.take(32)?.try_into().ok()?);
        let fields = Arc::new(Positions::from_bytes(self.bytes()?)?);
        let object = self.object()?;
        let component = Candidate::component_of(kind, object.value());
        let definition =
            Definition { kind, key: key.clone(), place: place.clone(), object, digest, module: None, fields };
        Some(Candidate {
            kind,
            key,
            meant: None,
            place,
            problem: None,
            definition: Some(Arc::new(definition)),
            module_path,
            needs_descriptor,
            component,
        })
    }

    /// An object of a module. `last` is the file of the previous object, which most likely is the
    /// same.
    fn source(&mut self, last: &mut Arc<str>) -> Option<SourceObject> {
        let path = self.text()?;
        if **last != *path {
            *last = path.into();
        }
        let place = self.at(last)?;
        Some(SourceObject::new(&self.object()?, place))
    }
}

#[cfg(test)]
mod tests;
