//! `tidegate render`: prints every object that a repository produces. Needs no cluster.
//!
//! Values of Secrets, and copies of them in other objects, are masked unless the user asks for them.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Seek as _, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde_json::Value;

use super::{
    Exit,
    modules::Modules,
    report::{self, Excerpts},
    repository::{Repository, check_templates},
};
use tidegate_core::{
    definition::{self, Definitions, Kind},
    diagnostic::{Diagnostic, Diagnostics},
    name::Key,
    render::offline::{self, Assumptions, Piece, Rendered, TargetName},
    yaml,
};
use tidegate_diff::{
    clean,
    mask::{MaskKey, Masker, Numbers},
};
use tidegate_process::tls;

/// Prints every object that definitions produce, for the control plane and for each runtime.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    repository: Repository,
    /// Render only this target: `kcp`, or a Kyma as NAME or NAMESPACE/NAME, for example `kcp-system/dev` [default: all]
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,
    /// Print in this format
    #[arg(short, long, value_enum, default_value_t = Output::Yaml)]
    output: Output,
    /// Read values that only a cluster knows from this YAML file, which maps the text of a placeholder `((live: …))` to
    /// its value [default: none]
    #[arg(long, value_name = "FILE")]
    assume: Option<PathBuf>,
    /// Use the templates in this folder instead of the embedded ones; those of the repository take precedence [default:
    /// none]
    #[arg(long, value_name = "DIR")]
    templates: Option<PathBuf>,
    /// Print values of Secrets in clear, for example to apply the objects by hand [default: masked, as `(masked: Secret
    /// 1)`; equal values have equal numbers]
    #[arg(long)]
    show_secrets: bool,
    #[command(flatten)]
    modules: Modules,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Output {
    /// One YAML document per object, with its target and its origin as comments
    Yaml,
    /// One JSON object
    Json,
}

/// Writes a rendering piece by piece: all of it may not fit into memory.
trait Writer {
    fn begin(&mut self, target: &TargetName) -> io::Result<()>;
    fn write(&mut self, target: &TargetName, rendered: &Rendered, value: &Value) -> io::Result<()>;
    fn end(&mut self) -> io::Result<()>;
}

/// YAML documents with comments.
struct Yaml<W>(W);

/// One JSON object.
struct Json<W> {
    out: W,
    targets: usize,
    /// Objects of this target.
    objects: usize,
    unknown: Later,
    gates: Later,
}

/// A list of the JSON object that comes after the targets. A fleet makes a long one, which waits in a temporary file.
#[derive(Default)]
struct Later {
    /// The end of its text that is not in the file yet.
    text: Vec<u8>,
    /// How many items it has.
    items: usize,
    file: Option<File>,
}

/// An object that waits for others.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Waiting {
    target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    object: String,
    waits_for: Vec<Value>,
}

/// Length of an unknown name in a file for `--assume` that an error shows.
const PLACEHOLDER_SHOWN_MAX: usize = 100;
/// More text than this is not kept in memory.
const LATER_BYTES_MAX: usize = 512 * 1024;

/// Masks values of Secrets and their copies.
struct Mask {
    masker: Masker,
    /// Digests differ in every run, numbers do not.
    numbers: Numbers,
}

/// Runs the command. Fails if the repository cannot be read, or if the output cannot be written.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let assumptions = arguments.assume.as_deref().map(read_assumptions).transpose()?.unwrap_or_default();
    let mut loaded = arguments.repository.load()?;
    let mut diagnostics = Diagnostics::default();
    let library = loaded.library(&mut diagnostics, arguments.templates.as_deref())?;
    let mut definitions =
        definition::read(&mut diagnostics, &loaded.snapshot, &loaded.options, &mut definition::Cache::default());
    loaded.complete()?;
    let mut diagnostics = check_templates(diagnostics, &library, &loaded.source, &definitions);
    loaded.hint(&mut diagnostics);
    let only = arguments.target.as_deref().map(|text| find_target(&[&definitions], &[], text)).transpose()?;
    let wanted = |name: &TargetName| only.as_ref().is_none_or(|only| only == name);
    let components = arguments.modules.read(&loaded.source, None, &mut [&mut definitions]);
    let (source, out) = (&loaded.source, io::BufWriter::new(io::stdout().lock()));
    let mut mask = match arguments.show_secrets {
        true => None,
        false => Some(Mask::new(&definitions)?),
    };
    let mut writer: Box<dyn Writer> = match arguments.output {
        Output::Yaml => Box::new(Yaml(out)),
        Output::Json => {
            Box::new(Json { out, targets: 0, objects: 0, unknown: Later::default(), gates: Later::default() })
        }
    };
    let mut target = TargetName::Kcp;
    let mut write = |piece: Piece| match piece {
        Piece::Target(next) => {
            target = next;
            writer.begin(&target)
        }
        Piece::Object(rendered) => {
            let masked = mask.as_mut().and_then(|mask| mask.object(rendered.object.value()));
            writer.write(&target, &rendered, masked.as_ref().unwrap_or(rendered.object.value()))
        }
    };
    let given = offline::Given {
        definitions: &definitions,
        components: &components,
        source,
        library: &library,
        assumptions: &assumptions,
    };
    let written = offline::render_each(&mut diagnostics, given, &wanted, &mut write);
    match written.and_then(|()| writer.end()) {
        // The reader closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        result => result.context("cannot write to standard output")?,
    }
    let exit = if diagnostics.has_errors() { Exit::Invalid } else { Exit::Ok };
    if !diagnostics.is_empty() {
        let mut excerpts = Excerpts::new(&loaded.snapshot);
        let mut sorted = diagnostics.sorted();
        if let Some(mask) = &mut mask {
            sorted.iter_mut().for_each(|diagnostic| mask.diagnostic(diagnostic));
        }
        report::write_text(&mut anstream::stderr().lock(), &sorted, &mut excerpts, definitions.files)
            .context("cannot write to standard error")?;
    }
    Ok(exit)
}

// === impl Yaml ===

impl<W: io::Write> Writer for Yaml<W> {
    fn begin(&mut self, _: &TargetName) -> io::Result<()> {
        Ok(())
    }

    fn write(&mut self, target: &TargetName, rendered: &Rendered, value: &Value) -> io::Result<()> {
        writeln!(self.0, "---\n# target: {target}")?;
        if let Some(cluster) = &rendered.cluster {
            writeln!(self.0, "# cluster: {cluster}")?;
        }
        writeln!(self.0, "# from: {}", rendered.from())?;
        self.0.write_all(yaml::to_string(value).as_bytes())
    }

    fn end(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

// === impl Json ===

impl<W: io::Write> Json<W> {
    /// Ends the list of the target's objects.
    fn end_target(&mut self) -> io::Result<()> {
        match (self.targets, self.objects) {
            (0, _) => Ok(()),
            (_, 0) => self.out.write_all(b"]\n    }"),
            (_, _) => self.out.write_all(b"\n      ]\n    }"),
        }
    }
}

impl<W: io::Write> Writer for Json<W> {
    fn begin(&mut self, target: &TargetName) -> io::Result<()> {
        self.end_target()?;
        let before: &[u8] = if self.targets == 0 { b"{\n  \"targets\": [\n    " } else { b",\n    " };
        self.out.write_all(before)?;
        self.out.write_all(b"{\n      \"name\": ")?;
        write_indented(&mut self.out, &target.to_string(), "")?;
        self.out.write_all(b",\n      \"objects\": [")?;
        (self.targets, self.objects) = (self.targets + 1, 0);
        Ok(())
    }

    fn write(&mut self, target: &TargetName, rendered: &Rendered, value: &Value) -> io::Result<()> {
        self.out.write_all(if self.objects == 0 { b"\n        " } else { b",\n        " })?;
        write_indented(&mut self.out, value, "        ")?;
        self.objects += 1;
        for unknown in rendered.unknown(target) {
            self.unknown.push(&unknown)?;
        }
        if !rendered.waits_for.is_empty() {
            let (target, object) = (target.to_string(), rendered.object.id().to_string());
            let (cluster, waits_for) = (rendered.cluster.clone(), rendered.waits_for.clone());
            self.gates.push(&Waiting { target, cluster, object, waits_for })?;
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        self.end_target()?;
        let before: &[u8] = if self.targets == 0 { b"{\n  \"targets\": []" } else { b"\n  ]" };
        self.out.write_all(before)?;
        self.out.write_all(b",\n  \"unknown\": ")?;
        self.unknown.write_to(&mut self.out)?;
        self.out.write_all(b",\n  \"gates\": ")?;
        self.gates.write_to(&mut self.out)?;
        self.out.write_all(b"\n}\n")?;
        self.out.flush()
    }
}

// === impl Later ===

impl Later {
    fn push(&mut self, item: &impl Serialize) -> io::Result<()> {
        self.text.extend_from_slice(if self.items == 0 { b"\n    " } else { b",\n    " });
        write_indented(&mut self.text, item, "    ")?;
        self.items += 1;
        if LATER_BYTES_MAX < self.text.len() {
            // Where no temporary file can be created, it stays in memory.
            let new = || tempfile::tempfile().ok();
            if let Some(file) = self.file.take().or_else(new) {
                (&file).write_all(&self.text).map_err(|error| temporary(&error))?;
                self.file = Some(file);
                self.text.clear();
            }
        }
        Ok(())
    }

    /// Writes the list.
    fn write_to(&mut self, out: &mut impl io::Write) -> io::Result<()> {
        if self.items == 0 {
            return out.write_all(b"[]");
        }
        out.write_all(b"[")?;
        if let Some(file) = &mut self.file {
            file.rewind().map_err(|error| temporary(&error))?;
            io::copy(file, out)?;
        }
        out.write_all(&self.text)?;
        out.write_all(b"\n  ]")
    }
}

/// The error of a temporary file.
fn temporary(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot use a temporary file: {error}"))
}

// === impl Mask ===

impl Mask {
    /// Knows the values of all Secrets in the definitions. Fails if the operating system gives no random key.
    fn new(definitions: &Definitions) -> anyhow::Result<Mask> {
        let key = tls::random().context("the system has no random bytes")?;
        let mut masker = Masker::new(MaskKey::new(key));
        clean::meet(&mut masker, &[definitions]);
        Ok(Mask { masker, numbers: Numbers::default() })
    }

    /// The object as it may be printed; `None` if it may be printed as it is.
    fn object(&mut self, value: &Value) -> Option<Value> {
        let mut shown = self.masker.shown(value)?;
        self.numbers.put(&mut shown);
        Some(shown)
    }

    fn diagnostic(&mut self, diagnostic: &mut Diagnostic) {
        let is_foreign = clean::is_foreign(diagnostic.code);
        for text in std::iter::once(&mut diagnostic.message).chain(&mut diagnostic.hint) {
            let scrubbed = if is_foreign { Some(self.masker.scrub(text)) } else { self.masker.scrub_long(text) };
            *text = self.numbers.text(&scrubbed.unwrap_or_else(|| text.clone()));
        }
    }
}

/// Writes a value on several lines. All but the first begin with `indent`.
fn write_indented(out: &mut impl io::Write, value: &impl Serialize, indent: &str) -> io::Result<()> {
    // JSON escapes line breaks in texts.
    let text = serde_json::to_string_pretty(value)?;
    out.write_all(text.replace('\n', &format!("\n{indent}")).as_bytes())
}

/// The target that `text` names, among the Kymas of all `definitions` and `others`. Fails if there is none, or more
/// than one.
pub(super) fn find_target(definitions: &[&Definitions], others: &[Key], text: &str) -> anyhow::Result<TargetName> {
    if text == "kcp" {
        return Ok(TargetName::Kcp);
    }
    // The form that `# target:` prints is accepted as well.
    let text = text.strip_prefix("skr/").unwrap_or(text);
    let good = definitions.iter().flat_map(|definitions| definitions.good.keys());
    let declared = good.filter(|(kind, _)| *kind == Kind::Kyma).map(|(_, key)| key).chain(others);
    let found: BTreeSet<&Key> = match text.split_once('/') {
        Some((namespace, name)) => declared.filter(|key| key.namespace() == namespace && key.name() == name).collect(),
        None => declared.filter(|key| key.name() == text).collect(),
    };
    let found: Vec<&Key> = found.into_iter().collect();
    match found.as_slice() {
        [one] => Ok(TargetName::Runtime((*one).clone())),
        [] => {
            let withheld = definitions.iter().flat_map(|definitions| &definitions.withheld).find(|withheld| {
                withheld.kind == Kind::Kyma && (withheld.key.name() == text || withheld.key.to_string() == text)
            });
            if let Some(withheld) = withheld {
                bail!("Kyma {} is skipped because of a problem: {}", withheld.key, withheld.message);
            }
            bail!("unknown target `{text}`: use `kcp` or the name of a Kyma that the repository declares")
        }
        [first, ..] => bail!("target `{text}` is ambiguous: use NAMESPACE/NAME, for example `{first}`"),
    }
}

/// Reads the values of a file for `--assume`. Fails if the file is unreadable or names an unknown placeholder.
pub(super) fn read_assumptions(path: &Path) -> anyhow::Result<Assumptions> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let assumptions: Assumptions = match yaml::read_own(&text) {
        Ok(assumptions) => assumptions,
        // It may be another file, with secrets.
        Err(error) => bail!("{shown}:{}: {}", error.line, yaml::without_values(&error.message)),
    };
    match assumptions.unknown_key() {
        Some(key) => {
            let is_plain =
                key.len() <= PLACEHOLDER_SHOWN_MAX && key.chars().all(|c| c.is_alphanumeric() || " -_./".contains(c));
            let named = if is_plain { format!("`{key}`") } else { "in this file".to_owned() };
            bail!("{shown}: unknown placeholder {named}: `tidegate render -o json` lists all under `unknown`")
        }
        None => Ok(assumptions),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same text as a list that is in memory, with and without a file.
    #[test]
    fn a_list_that_comes_later_is_written_as_if_it_had_been_in_memory() {
        for count in [0, 1, 2, 20_000] {
            let item = |number: usize| serde_json::json!({"value": format!("uid of Kyma {number}"), "path": "a\nb"});
            let (mut list, mut out, mut expected) = (Later::default(), Vec::new(), Vec::new());
            let items: Vec<Value> = (0..count).map(item).collect();
            items.iter().for_each(|item| list.push(item).unwrap());
            assert_eq!(list.file.is_some(), count == 20_000);
            assert!(list.text.len() <= LATER_BYTES_MAX);
            list.write_to(&mut out).unwrap();
            write_indented(&mut expected, &items, "  ").unwrap();
            assert!(out == expected, "{count} items");
        }
    }
}
