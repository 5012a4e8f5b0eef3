//! `tidegate render`: prints every object that a repository produces. Needs no cluster.

use std::{
    collections::BTreeSet,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde::Serialize;

use super::{
    Exit,
    modules::Modules,
    report::{self, Excerpts},
    repository::{Repository, check_templates},
};
use tidegate_core::{
    definition::{self, Definitions, Kind},
    diagnostic::Diagnostics,
    name::Key,
    render::{
        live::Unknown,
        offline::{self, Assumptions, Target, TargetName},
    },
    yaml,
};

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

/// One JSON object, written while its targets are rendered.
#[derive(Default)]
struct Json {
    targets: usize,
    unknown: Vec<Unknown>,
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
    let target = arguments.target.as_deref().map(|text| find_target(&[&definitions], &[], text)).transpose()?;
    let wanted = |name: &TargetName| target.as_ref().is_none_or(|target| target == name);
    let components = arguments.modules.read(&loaded.source, None, &mut [&mut definitions]);
    let (source, mut out) = (&loaded.source, io::BufWriter::new(io::stdout().lock()));
    let mut json = Json::default();
    // Targets are written one by one: all of them may not fit into memory.
    let mut write = |target: Target| match arguments.output {
        Output::Yaml => write_yaml(&mut out, &target),
        Output::Json => json.write(&mut out, &target),
    };
    let given = offline::Given {
        definitions: &definitions,
        components: &components,
        source,
        library: &library,
        assumptions: &assumptions,
    };
    let written = offline::render_each(&mut diagnostics, given, &wanted, &mut write);
    let written = match arguments.output {
        Output::Yaml => written,
        Output::Json => written.and_then(|()| json.end(&mut out)),
    };
    match written.and_then(|()| out.flush()) {
        // The reader closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        result => result.context("cannot write to standard output")?,
    }
    let exit = if diagnostics.has_errors() { Exit::Invalid } else { Exit::Ok };
    if !diagnostics.is_empty() {
        let mut excerpts = Excerpts::new(&loaded.snapshot);
        let sorted = diagnostics.sorted();
        report::write_text(&mut anstream::stderr().lock(), &sorted, &mut excerpts, definitions.files)
            .context("cannot write to standard error")?;
    }
    Ok(exit)
}

fn write_yaml(out: &mut dyn io::Write, target: &Target) -> io::Result<()> {
    for rendered in &target.objects {
        writeln!(out, "---\n# target: {}\n# from: {}", target.name, rendered.from())?;
        out.write_all(yaml::to_string(rendered.object.value()).as_bytes())?;
    }
    Ok(())
}

// === impl Json ===

impl Json {
    fn write(&mut self, out: &mut dyn io::Write, target: &Target) -> io::Result<()> {
        let before: &[u8] = if self.targets == 0 { b"{\n  \"targets\": [\n    " } else { b",\n    " };
        out.write_all(before)?;
        write_indented(out, &target.to_value(), "    ")?;
        self.targets += 1;
        self.unknown.extend(target.unknown());
        Ok(())
    }

    fn end(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let before: &[u8] = if self.targets == 0 { b"{\n  \"targets\": []" } else { b"\n  ]" };
        out.write_all(before)?;
        out.write_all(b",\n  \"unknown\": ")?;
        write_indented(out, &self.unknown, "  ")?;
        out.write_all(b"\n}\n")
    }
}

/// Writes a value on several lines. All but the first begin with `indent`.
fn write_indented(out: &mut dyn io::Write, value: &impl Serialize, indent: &str) -> io::Result<()> {
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
        Err(error) => bail!("{shown}:{}: {}", error.line, error.message),
    };
    match assumptions.unknown_key() {
        Some(key) => bail!("{shown}: unknown placeholder `{key}`: `tidegate render -o json` lists all under `unknown`"),
        None => Ok(assumptions),
    }
}
