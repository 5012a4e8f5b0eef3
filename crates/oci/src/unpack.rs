//! Inflates blobs and reads tar archives, as streams with limits. Nothing is written, and no path is used.
//!
//! gzip and zstd are recognized by their first bytes, whatever the media type says. The memory of a decoder is the
//! window of the compression, which is limited as well. An [`Unpacker`](super::Unpacker) says in which process this
//! runs.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use tidegate_core::component::LayerKind;

use super::{
    error::{Flaw, Format},
    limits::{DESCRIPTOR_BLOB_BYTES_MAX, DESCRIPTOR_BYTES_MAX, LAYER_INFLATED_BYTES_MAX, TAR_ENTRIES_MAX},
};

/// Limit of zstd's window, so of a decoder's memory. The format recommends that decoders support 8 MiB; a frame of one
/// segment has a window as large as its content.
const ZSTD_WINDOW_BYTES_MAX: u64 = LAYER_INFLATED_BYTES_MAX;
/// The file in the archive of a component descriptor.
const DESCRIPTOR_FILE: &[u8] = b"component-descriptor.yaml";

/// What a blob contains, and in which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packed {
    /// The YAML of a module's objects: the blob itself, or the first regular file of the archive that it is.
    Layer(LayerKind),
    /// The text of a component descriptor: the blob itself, or a file of the archive that it is.
    Descriptor {
        /// Whether it is an archive.
        is_tar: bool,
    },
}

/// The content of a blob.
pub(super) fn unpack(packed: Packed, blob: impl Read) -> Result<Vec<u8>, Flaw> {
    let inflated = inflated(blob, packed.limit())?;
    // Memory that is not written to costs nothing, and a buffer that grows needs three times its size at its end.
    let mut text = Vec::with_capacity(usize::try_from(packed.limit()).unwrap_or_default());
    match packed {
        Packed::Layer(LayerKind::Yaml) | Packed::Descriptor { is_tar: false } => read(inflated, &mut text)?,
        Packed::Layer(LayerKind::Tar) => file(inflated, &mut text, is_first_file, Flaw::NoFile)?,
        Packed::Descriptor { is_tar: true } => file(inflated, &mut text, is_descriptor, Flaw::NoDescriptor)?,
    }
    text.shrink_to_fit();
    if text.is_empty() { Err(Flaw::Empty) } else { Ok(text) }
}

/// A stream that ends with [`Flaw::TooLarge`] after its limit.
struct Limited<R> {
    inner: R,
    remaining: u64,
    limit: u64,
}

/// A decoder whose errors are [`Flaw::Compressed`].
struct Named<R> {
    inner: R,
    format: Format,
}

/// All frames of zstd data; the decoder of the crate stops after the first.
struct Frames<R: Read> {
    /// `None` after an error or the end.
    frame: Option<StreamingDecoder<BufReader<R>, FrameDecoder>>,
}

/// The content of a blob, compressed or not.
fn inflated<'r>(blob: impl Read + 'r, limit: u64) -> Result<Limited<Box<dyn Read + 'r>>, Flaw> {
    let mut blob = BufReader::new(blob);
    let mut start = Vec::new();
    blob.by_ref().take(4).read_to_end(&mut start).map_err(|_| Flaw::Compressed(Format::Blob))?;
    let format = start.clone();
    let whole = BufReader::new(io::Cursor::new(start).chain(blob));
    let inner: Box<dyn Read + 'r> = match format.as_slice() {
        [0x1f, 0x8b, ..] => Box::new(Named { inner: MultiGzDecoder::new(whole), format: Format::Gzip }),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(Named { inner: Frames::new(whole)?, format: Format::Zstd }),
        _ => Box::new(whole),
    };
    Ok(Limited { inner, remaining: limit, limit })
}

fn read(mut stream: impl Read, text: &mut Vec<u8>) -> Result<(), Flaw> {
    stream.read_to_end(text).map(drop).map_err(|error| flaw_of(&error, Flaw::Compressed(Format::Blob)))
}

/// The first file of an archive that `is_it` accepts. What follows is not read.
fn file<R: Read>(
    stream: R,
    text: &mut Vec<u8>,
    is_it: fn(&[u8], &tar::Entry<'_, R>) -> Result<bool, Flaw>,
    missing: Flaw,
) -> Result<(), Flaw> {
    let mut archive = tar::Archive::new(stream);
    for (index, entry) in archive.entries().map_err(|error| flaw_of(&error, Flaw::Tar))?.enumerate() {
        if TAR_ENTRIES_MAX <= index {
            return Err(Flaw::Entries(TAR_ENTRIES_MAX));
        }
        let mut entry = entry.map_err(|error| flaw_of(&error, Flaw::Tar))?;
        let path = entry.path_bytes().into_owned();
        if is_it(&path, &entry)? {
            entry.read_to_end(text).map_err(|error| flaw_of(&error, Flaw::Tar))?;
            // A truncated archive ends a file early without an error.
            return if text.len() as u64 == entry.size() { Ok(()) } else { Err(Flaw::Tar) };
        }
    }
    Err(missing)
}

/// A regular file whose name does not begin with `._`, which is how macOS marks its own.
fn is_first_file<R: Read>(path: &[u8], entry: &tar::Entry<'_, R>) -> Result<bool, Flaw> {
    // Nothing is written, so such a path does no harm here. But who packs it means harm.
    if path.starts_with(b"/") || path.split(|byte| *byte == b'/').any(|part| part == b"..") {
        return Err(Flaw::Path);
    }
    let kind = entry.header().entry_type();
    if kind.is_dir() || kind.is_pax_global_extensions() {
        return Ok(false);
    }
    if !kind.is_file() {
        return Err(Flaw::Link);
    }
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    Ok(!name.starts_with(b"._"))
}

fn is_descriptor<R: Read>(path: &[u8], entry: &tar::Entry<'_, R>) -> Result<bool, Flaw> {
    // OCM's own readers accept a slash in front.
    let name = path.strip_prefix(b"./").or_else(|| path.strip_prefix(b"/")).unwrap_or(path);
    if name != DESCRIPTOR_FILE {
        return Ok(false);
    }
    if !entry.header().entry_type().is_file() {
        return Err(Flaw::Link);
    }
    if DESCRIPTOR_BYTES_MAX as u64 <= entry.size().saturating_sub(1) {
        return Err(Flaw::DescriptorTooLarge(DESCRIPTOR_BYTES_MAX as u64));
    }
    Ok(true)
}

/// The flaw inside an error that came through other readers.
fn flaw_of(error: &io::Error, otherwise: Flaw) -> Flaw {
    // An error inside an `io::Error` is not its `source()`.
    let mut cause: Option<&(dyn std::error::Error + 'static)> = error.get_ref().map(|inner| inner as _);
    while let Some(error) = cause {
        if let Some(flaw) = error.downcast_ref::<Flaw>() {
            return *flaw;
        }
        cause = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    otherwise
}

// === impl Packed ===

impl Packed {
    const ALL: [Packed; 4] = [
        Packed::Layer(LayerKind::Yaml),
        Packed::Layer(LayerKind::Tar),
        Packed::Descriptor { is_tar: false },
        Packed::Descriptor { is_tar: true },
    ];

    /// Its name as an argument of a process.
    pub(super) fn name(self) -> &'static str {
        match self {
            Packed::Layer(LayerKind::Yaml) => "layer",
            Packed::Layer(LayerKind::Tar) => "layer-in-tar",
            Packed::Descriptor { is_tar: false } => "descriptor",
            Packed::Descriptor { is_tar: true } => "descriptor-in-tar",
        }
    }

    /// What has this name.
    pub(super) fn named(name: &str) -> Option<Packed> {
        Packed::ALL.into_iter().find(|packed| packed.name() == name)
    }

    /// Limit of what is inflated, in bytes.
    pub(super) fn limit(self) -> u64 {
        match self {
            Packed::Layer(_) => LAYER_INFLATED_BYTES_MAX,
            Packed::Descriptor { .. } => DESCRIPTOR_BLOB_BYTES_MAX,
        }
    }
}

// === impl Limited ===

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // One byte more than allowed, to tell the limit from the end.
        let most = usize::try_from(self.remaining.saturating_add(1)).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.inner.read(&mut buffer[..most])?;
        let Some(remaining) = self.remaining.checked_sub(count as u64) else {
            return Err(io::Error::other(Flaw::TooLarge(self.limit)));
        };
        self.remaining = remaining;
        Ok(count)
    }
}

// === impl Named ===

impl<R: Read> Read for Named<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer).map_err(|_| io::Error::other(Flaw::Compressed(self.format)))
    }
}

// === impl Frames ===

impl<R: Read> Frames<BufReader<R>> {
    fn new(source: BufReader<R>) -> Result<Frames<BufReader<R>>, Flaw> {
        let frame = frame(BufReader::new(source)).map_err(|_| Flaw::Compressed(Format::Zstd))?;
        Ok(Frames { frame: Some(frame) })
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(mut current) = self.frame.take() {
            let count = current.read(buffer)?;
            if 0 < count || buffer.is_empty() {
                self.frame = Some(current);
                return Ok(count);
            }
            let mut source = current.into_inner();
            if !source.fill_buf()?.is_empty() {
                self.frame = Some(frame(source)?);
            }
        }
        Ok(0)
    }
}

fn frame<R: Read>(source: BufReader<R>) -> io::Result<StreamingDecoder<BufReader<R>, FrameDecoder>> {
    StreamingDecoder::new_with_max_window_size(source, ZSTD_WINDOW_BYTES_MAX).map_err(io::Error::other)
}

#[cfg(test)]
mod tests;
