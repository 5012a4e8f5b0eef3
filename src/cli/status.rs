//! `tidegate status`: shows all problems and their causes on one screen.
//!
//! Problems come first, each with its cause; then what is in progress or suspended. Healthy objects are counted. The
//! command reads custom resources only.

mod leader;
mod whole;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::{self, Write},
    str::FromStr,
    time::Duration,
};

use anyhow::Context as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, api::ListParams, core::DynamicObject};
use owo_colors::OwoColorize as _;

use super::{
    Exit,
    control_plane::{self, Access, Lacks},
};
use crate::{
    setup::operator,
    stores::{self, definitions},
};
use tidegate_core::{
    api::{
        GitSource, Kyma, Manifest, ModuleReleaseMeta, ModuleTemplate, Watcher, git_source::DiagnosticEntry, names,
        setup,
    },
    intake, landscape,
    overview::{
        self, Leader, ModuleLine, Overview, RolloutLine, RuntimeLine, SetupLine, SourceLine, SubjectState,
        UnreadableLine,
    },
    plan,
    words::{agreeing, counted},
};
use tidegate_process::ambient;

/// Shows the problems of sources, runtimes, modules and Watchers, with their causes.
///
/// With KIND/NAME, shows one source, runtime, module or Watcher completely: `gitsource/landscape`, `kyma/dev`,
/// `module/cache`, `watcher/kyma-dev`.
///
/// Exit code 0: nothing is wrong; 1: something is wrong; 2: the command cannot run; 5: the control plane does not serve
/// a kind of Tidegate's, or cannot be reached.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Show only this object, as KIND/NAME: gitsource, kyma, module or watcher [default: all]
    #[arg(value_name = "KIND/NAME")]
    subject: Option<Subject>,
    /// Show the objects in this namespace; repeat the option for more [default: kcp-system]
    #[arg(short, long = "namespace", value_name = "NAME")]
    namespaces: Vec<String>,
    /// Print in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Print again whenever something changes, until the command is interrupted or the control plane fails [default:
    /// off]
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    access: Access,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// Text for people
    Text,
    /// The same without omissions
    Wide,
    /// JSON with all objects, for programs
    Json,
}

/// One object to show.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Subject {
    kind: SubjectKind,
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubjectKind {
    Source,
    Kyma,
    Module,
    Watcher,
}

/// Most diagnostics shown per source, so that the output fits on a screen.
const DIAGNOSTICS_MAX: usize = 5;
/// The line of `tidegate status` if there is no Lease.
const NO_LEASE: &str =
    "There is no Lease, as of a daemon with --leader-elect=false, so it is not known whether one runs";
/// Most lines shown per section.
const LINES_MAX: usize = 20;
/// Pause between two reads with `--watch`.
const WATCH_PAUSE: Duration = Duration::from_secs(2);

/// Runs the command. Fails if the kubeconfig cannot be used, if a namespace or the object does not exist, or if the
/// output cannot be written.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let client = arguments.access.client().await?;
    let namespaces = control_plane::namespaces(&arguments.namespaces);
    control_plane::check_namespaces(&client, &namespaces).await?;
    let mut shown = None;
    loop {
        let overview = read(&client, &namespaces).await?;
        let overview = match &arguments.subject {
            None => overview,
            Some(subject) => subject.of(overview).with_context(|| {
                format!("there is no {subject} in {}: select another namespace with -n", namespaces.join(", "))
            })?,
        };
        let exit = exit(&overview);
        let text = text(&arguments, &overview)?;
        if shown.as_ref() != Some(&text) {
            let mut out = anstream::stdout().lock();
            match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
                // The reader closed the pipe.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(exit),
                result => result.context("cannot write to standard output")?,
            }
        }
        if !arguments.watch {
            return Ok(exit);
        }
        shown = Some(text);
        tokio::time::sleep(WATCH_PAUSE).await;
    }
}

/// Reads the overview. Fails if the control plane does not answer.
async fn read(client: &Client, namespaces: &[String]) -> anyhow::Result<Overview> {
    let (mut sources, mut kymas, mut watchers, mut manifests) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut releases, mut resources, mut lacks) = (Vec::new(), Vec::new(), Lacks::default());
    let mut has_resources = false;
    for namespace in namespaces {
        for kind in setup::Kind::ALL {
            // A user who may not list them sees none.
            let found = control_plane::setup(client, kind, namespace).await?.unwrap_or_default();
            has_resources |= !found.is_empty();
            let line = |one: &DynamicObject| SetupLine::new(kind, &one.metadata, &one.data["status"]);
            resources.extend(found.iter().filter_map(line));
        }
        sources.extend(control_plane::list::<GitSource>(client, namespace, &mut lacks).await?);
        kymas.extend(control_plane::list::<Kyma>(client, namespace, &mut lacks).await?);
        watchers.extend(control_plane::list::<Watcher>(client, namespace, &mut lacks).await?);
        // Others are read only to find those that cannot be, and kinds that are not served.
        control_plane::each::<ModuleTemplate>(client, namespace, &mut lacks, drop).await?;
        let take = |one: ModuleReleaseMeta| releases.extend(one.metadata.annotations.is_some().then_some(one));
        control_plane::each(client, namespace, &mut lacks, take).await?;
        let take = |manifest: Manifest| manifests.extend(plan::is_mandatory(&manifest.metadata).then_some(manifest));
        control_plane::each(client, namespace, &mut lacks, take).await?;
    }
    let Lacks { unreadable, not_served } = lacks;
    let overview =
        Overview::from_objects(&sources, &kymas, &watchers).with_mandatory(&manifests).with_rollouts(&releases);
    let operator = if has_resources { kcp_operator(client).await } else { None };
    let overview = overview.with_setup(resources).with_kcp_operator(operator);
    let leases = leases(client, namespaces).await;
    let waits = overview.sources.iter().any(|source| source.standing == SubjectState::Waiting);
    let leader = leases.as_deref().map(|leases| match sources.is_empty() {
        false => leader::find(leases, waits, ambient::now()),
        // Between two controllers, nothing else shows that none works.
        true if !kymas.is_empty() => leader::find_any(leases, ambient::now()),
        true => Leader::Present,
    });
    let mut overview = overview.with_leader(leader.unwrap_or(Leader::Present));
    overview.is_foreign = leases.as_deref().is_some_and(|leases| !leases.iter().any(leader::is_of_daemon));
    let overview = overview.with_local_sources(local_sources(leases.unwrap_or_default(), namespaces));
    Ok(overview.with_unreadable(unreadable).with_not_served(not_served))
}

/// The Leases of daemons that may reconcile these namespaces; `None` if the user may not read them.
pub(super) async fn leases(client: &Client, namespaces: &[String]) -> Option<Vec<Lease>> {
    let places: BTreeSet<&str> = namespaces.iter().map(String::as_str).chain([names::KCP_NAMESPACE]).collect();
    let mut found = Vec::new();
    for place in places {
        let leases: Api<Lease> = Api::namespaced(client.clone(), place);
        found.extend(leases.get_opt(names::LEASE).await.ok()?);
    }
    Some(found)
}

/// Who holds the Lease of kcp-operator, in whichever namespace; `None` also if the user may not list Leases.
async fn kcp_operator(client: &Client) -> Option<String> {
    let leases: Api<Lease> = Api::all(client.clone());
    let named = ListParams::default().fields(&format!("metadata.name={}", names::KCP_OPERATOR_LEASE));
    let found = leases.list(&named).await.ok()?.items;
    found.iter().find_map(|lease| operator::holder(lease, ambient::now()))
}

/// The sources of the daemon's command line in these namespaces, as its Lease shows them. None if another program
/// leads.
pub(super) fn local_sources(leases: Vec<Lease>, namespaces: &[String]) -> Vec<SourceLine> {
    let in_lease = |lease: Lease| {
        let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        let text = landscape::annotation(&lease.metadata, names::annotation::LOCAL_SOURCES)?;
        holder.starts_with(leader::HOLDER).then(|| overview::local_sources(text))
    };
    let mut found: Vec<SourceLine> = leases.into_iter().filter_map(in_lease).flatten().collect();
    let is_asked_for = |line: &SourceLine| {
        line.name.split_once('/').is_some_and(|(namespace, _)| namespaces.iter().any(|asked| asked == namespace))
    };
    found.retain(is_asked_for);
    found
}

/// The output. Fails if it cannot be written as JSON.
fn text(arguments: &Arguments, overview: &Overview) -> anyhow::Result<String> {
    if arguments.output == Output::Json {
        let text = serde_json::to_string_pretty(overview).context("cannot write JSON")?;
        return Ok(format!("{text}\n"));
    }
    let lines_max = if arguments.output == Output::Wide { usize::MAX } else { LINES_MAX };
    let mut out = Vec::new();
    match &arguments.subject {
        Some(subject) => whole::write(&mut out, subject, overview),
        None => write_text(&mut out, overview, lines_max),
    }
    .context("cannot write text")?;
    String::from_utf8(out).context("cannot write text")
}

/// The exit code: what a kind that is not served holds back is left to be done.
fn exit(overview: &Overview) -> Exit {
    match () {
        () if !overview.not_served.is_empty() => Exit::Incomplete,
        () if overview.is_wrong() => Exit::Changes,
        () => Exit::Ok,
    }
}

/// One entry of a section: its object, the sentence about it, and the lines below.
struct Entry {
    standing: SubjectState,
    /// `runtime kcp-system/dev`; empty if the text names it.
    subject: String,
    text: String,
    below: Vec<String>,
}

/// Entries that say the same: the first one, and how many there are.
struct Alike<'e> {
    first: &'e Entry,
    count: usize,
}

fn write_text(out: &mut dyn Write, overview: &Overview, lines_max: usize) -> io::Result<()> {
    let not_served = overview.not_served.iter().map(|kind| Entry {
        standing: SubjectState::Wrong,
        subject: String::new(),
        text: if overview.is_foreign { definitions::lacks(kind) } else { definitions::not_served(kind) },
        below: Vec::new(),
    });
    let no_leader = overview.no_leader.iter().map(|why| Entry {
        standing: SubjectState::Wrong,
        subject: String::new(),
        text: format!("no daemon reconciles this landscape: {why}"),
        below: Vec::new(),
    });
    let beside = overview.beside_kcp_operator();
    let kcp_operator = beside.iter().filter(|_| !overview.setup.is_empty()).map(|sentence| Entry {
        standing: SubjectState::Wrong,
        subject: String::new(),
        text: sentence.clone(),
        below: Vec::new(),
    });
    let entries: Vec<Entry> = no_leader
        .chain(kcp_operator)
        .chain(not_served)
        .chain(
            overview
                .sources
                .iter()
                .map(|line| source(line, if lines_max == usize::MAX { usize::MAX } else { DIAGNOSTICS_MAX })),
        )
        .chain(overview.runtimes.iter().map(runtime))
        .chain(overview.watchers.iter().map(|watcher| Entry {
            standing: watcher.standing,
            subject: format!("watcher {}", watcher.name),
            text: watcher.message.clone(),
            below: Vec::new(),
        }))
        .chain(overview.setup.iter().map(|resource| Entry {
            standing: resource.standing,
            subject: format!("{} {}", resource.kind, resource.name),
            text: resource.message.clone(),
            below: Vec::new(),
        }))
        .chain(overview.rollouts.iter().map(|rollout| Entry {
            standing: SubjectState::Stopped,
            subject: format!("rollout {}", rollout.name),
            text: resumable(rollout),
            below: Vec::new(),
        }))
        .chain(overview.runtimes.iter().flat_map(paused_modules))
        .chain(overview.unreadable.iter().map(unreadable))
        .collect();
    let sections = [
        (SubjectState::Wrong, "Problems"),
        (SubjectState::Waiting, "In progress"),
        (SubjectState::Stopped, "Suspended"),
    ];
    for (standing, title) in sections {
        let members: Vec<&Entry> = entries.iter().filter(|entry| entry.standing == standing).collect();
        write_section(out, (title, standing), &members, lines_max)?;
    }
    write_warnings(out, overview, lines_max)?;
    let (window, turn) = ("Waiting for a maintenance window", "Waiting for their turn in a rollout");
    write_waiting(out, overview, lines_max, window, |runtime| runtime.maintenance.as_deref())?;
    write_waiting(out, overview, lines_max, turn, |runtime| runtime.rollout.as_deref())?;
    if overview.no_lease {
        writeln!(out, "{NO_LEASE}\n")?;
    }
    // Without resources of Tidegate's, kcp-operator may be right where it is.
    if let Some(sentence) = beside.filter(|_| overview.setup.is_empty()) {
        writeln!(out, "{sentence}\n")?;
    }
    let adopted = overview.runtimes.iter().filter(|runtime| runtime.adopted).count();
    if 0 < adopted {
        let (runtimes, are) = (counted(adopted, "runtime"), agreeing(adopted, "is", "are"));
        let them = agreeing(adopted, "it", "them");
        writeln!(out, "{runtimes} {are} as Lifecycle Manager left {them}, until `tidegate adopt take --finish`\n")?;
    }
    let waits = |runtime: &RuntimeLine| runtime.maintenance.is_some() || runtime.rollout.is_some();
    let is_all_well = entries.iter().all(|entry| entry.standing == SubjectState::Well);
    if lines_max == usize::MAX || (is_all_well && !overview.runtimes.iter().any(waits)) {
        whole::write_table(out, &overview.runtimes, lines_max)?;
    }
    writeln!(out, "{}", well(overview))
}

/// A title with the number of entries, and these.
fn write_section(
    out: &mut dyn Write,
    (title, standing): (&str, SubjectState),
    members: &[&Entry],
    lines_max: usize,
) -> io::Result<()> {
    if members.is_empty() {
        return Ok(());
    }
    let heading = format!("{title} ({})", members.len());
    match standing {
        SubjectState::Wrong => writeln!(out, "{}", heading.red().bold())?,
        SubjectState::Waiting => writeln!(out, "{}", heading.yellow().bold())?,
        SubjectState::Stopped | SubjectState::Well => writeln!(out, "{}", heading.bold())?,
    }
    let alike = alike(members, lines_max);
    for Alike { first, count } in alike.iter().take(lines_max) {
        writeln!(out, "  {}", line(&first.subject, *count, &first.text))?;
        for line in &first.below {
            writeln!(out, "      {line}")?;
        }
    }
    let shown: usize = alike.iter().take(lines_max).map(|alike| alike.count).sum();
    write_rest(out, members.len() - shown, alike.len() < members.len())?;
    writeln!(out)
}

/// Entries that say the same, as one. With all lines, each is one.
fn alike<'e>(entries: &[&'e Entry], lines_max: usize) -> Vec<Alike<'e>> {
    let mut found: Vec<Alike<'e>> = Vec::new();
    let mut known: BTreeMap<(&str, &str, &[String]), usize> = BTreeMap::new();
    for entry in entries {
        let kind = entry.subject.split(' ').next().unwrap_or_default();
        let cause = (kind, entry.text.as_str(), entry.below.as_slice());
        match known.get(&cause).filter(|_| lines_max != usize::MAX && !kind.is_empty()) {
            Some(index) => found[*index].count += 1,
            None => {
                known.insert(cause, found.len());
                found.push(Alike { first: entry, count: 1 });
            }
        }
    }
    found
}

/// A line about a subject, and about others of which the same is true.
fn line(subject: &str, count: usize, text: &str) -> String {
    match (subject, count) {
        ("", _) => text.to_owned(),
        (_, 1) => format!("{subject}  {text}"),
        (_, count) => format!("{subject} and {} more  {text}", count - 1),
    }
}

/// How many entries are not shown, or where the names are of those that are only counted.
fn write_rest(out: &mut dyn Write, left_out: usize, has_alike: bool) -> io::Result<()> {
    match (left_out, has_alike) {
        (0, false) => Ok(()),
        (0, true) => writeln!(out, "  `tidegate status -o wide` names all"),
        (more, _) => writeln!(out, "  and {more} more: `tidegate status -o wide` lists all"),
    }
}

/// What to know of sources that are healthy.
fn write_warnings(out: &mut dyn Write, overview: &Overview, lines_max: usize) -> io::Result<()> {
    let well = overview.sources.iter().filter(|source| source.standing == SubjectState::Well);
    let lines: Vec<String> = well
        .flat_map(|source| {
            let of_source = source.diagnostics.iter().map(diagnostic);
            let all = source.deliveries.clone().into_iter().chain(of_source);
            all.map(|warning| format!("source {}  {warning}", source.name))
        })
        .collect();
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "{}", format!("Warnings ({})", lines.len()).bold())?;
    for line in lines.iter().take(lines_max) {
        writeln!(out, "  {line}")?;
    }
    if lines_max < lines.len() {
        writeln!(out, "  and {} more: `tidegate status -o wide` lists all", lines.len() - lines_max)?;
    }
    writeln!(out)
}

/// The runtimes with upgrades that wait. They may be healthy otherwise.
fn write_waiting(
    out: &mut dyn Write,
    overview: &Overview,
    lines_max: usize,
    title: &str,
    message: impl Fn(&RuntimeLine) -> Option<&str>,
) -> io::Result<()> {
    let waiting = |runtime: &RuntimeLine| {
        let text = message(runtime).filter(|_| runtime.standing != SubjectState::Stopped)?.to_owned();
        let subject = format!("runtime {}", runtime.name);
        Some(Entry { standing: runtime.standing, subject, text, below: Vec::new() })
    };
    let entries: Vec<Entry> = overview.runtimes.iter().filter_map(waiting).collect();
    let members: Vec<&Entry> = entries.iter().collect();
    write_section(out, (title, SubjectState::Well), &members, lines_max)
}

fn unreadable(found: &UnreadableLine) -> Entry {
    let mut below = vec![format!("{}; upgrade Tidegate, or correct the field", stores::unreadable::MAY_STAY)];
    if found.has_templates {
        below.push(format!(
            "if Tidegate has read nothing of it since its start, {}",
            intake::status::WAIT_FOR_TEMPLATES
        ));
    }
    Entry { standing: SubjectState::Wrong, subject: String::new(), text: found.sentence(), below }
}

fn source(source: &SourceLine, diagnostics_max: usize) -> Entry {
    let mut below: Vec<String> = source.diagnostics.iter().take(diagnostics_max).map(diagnostic).collect();
    match source.diagnostics.len().checked_sub(diagnostics_max) {
        Some(more) if 0 < more => below.push(format!("and {more} more: `tidegate status -o wide` lists them")),
        Some(_) | None => below.extend(not_all(source)),
    }
    if source.standing != SubjectState::Well {
        let counts = &source.counts;
        below.push(format!(
            "active revision: {}; {} applied, {} skipped, {} to prune",
            source.applied_revision.as_deref().unwrap_or("none completely"),
            counts.applied,
            counts.withheld,
            counts.to_prune
        ));
    }
    Entry { standing: source.standing, subject: format!("source {}", source.name), text: source.message.clone(), below }
}

/// That there may be more problems than the status of a source lists, and where they are.
fn not_all(source: &SourceLine) -> Option<String> {
    let is_full = intake::status::ENTRIES_MAX <= source.diagnostics.len();
    is_full.then(|| {
        let max = intake::status::ENTRIES_MAX;
        format!("the status lists at most {max} problems: run `tidegate validate` in the repository for all")
    })
}

fn diagnostic(diagnostic: &DiagnosticEntry) -> String {
    let place = match (&diagnostic.path, diagnostic.line) {
        (Some(path), Some(line)) => format!("{path}:{line}: "),
        (Some(path), None) => format!("{path}: "),
        (None, _) => String::new(),
    };
    format!("{place}{}: {}", diagnostic.severity, diagnostic.message)
}

fn runtime(runtime: &RuntimeLine) -> Entry {
    let below: Vec<String> = runtime
        .modules
        .iter()
        .map(|module| (module, "module"))
        .chain(runtime.mandatory.iter().map(|module| (module, "mandatory module")))
        .filter(|(module, _)| matches!(module.standing, SubjectState::Wrong | SubjectState::Waiting))
        .map(|(line, what)| module(line, what))
        .chain(runtime.hint.iter().map(|hint| format!("next: {hint}")))
        .collect();
    let state = if runtime.state.to_string().is_empty() { String::new() } else { format!("{}: ", runtime.state) };
    let (subject, text) = (format!("runtime {}", runtime.name), format!("{state}{}", runtime.message));
    Entry { standing: runtime.standing, subject, text, below }
}

/// The paused modules of a runtime that are ready: nothing of them changes or is repaired.
fn paused_modules(runtime: &RuntimeLine) -> impl Iterator<Item = Entry> {
    let all = runtime.modules.iter().chain(&runtime.mandatory);
    let is_shown = runtime.standing != SubjectState::Stopped;
    let ready = all.filter(move |one| is_shown && one.standing == SubjectState::Well && one.is_paused());
    ready.map(|module| Entry {
        standing: SubjectState::Stopped,
        subject: format!("module {} of runtime {}", module.name, runtime.name),
        text: module.message.clone().unwrap_or_default(),
        below: Vec::new(),
    })
}

fn module(module: &ModuleLine, what: &str) -> String {
    let version = module.version.as_deref().unwrap_or("no version");
    let channel = module.channel.as_deref().map(|channel| format!(" ({channel})")).unwrap_or_default();
    let message = module.message.as_deref().map(|message| format!(": {message}")).unwrap_or_default();
    format!("{what} {} {version}{channel}  {}{message}", module.name, module.state)
}

/// The healthy objects, counted.
fn well(overview: &Overview) -> String {
    let is_well = |standing: SubjectState| standing == SubjectState::Well;
    let sources: Vec<&SourceLine> = overview.sources.iter().filter(|source| is_well(source.standing)).collect();
    let runtimes = overview.runtimes.iter().filter(|runtime| is_well(runtime.standing)).count();
    let modules = overview.runtimes.iter().flat_map(|runtime| runtime.modules.iter().chain(&runtime.mandatory));
    let modules = modules.filter(|module| is_well(module.standing)).count();
    let watchers = overview.watchers.iter().filter(|watcher| is_well(watcher.standing)).count();
    let all = overview.runtimes.iter().map(|one| one.modules.len() + one.mandatory.len()).sum();
    let resources = overview.setup.iter().filter(|resource| is_well(resource.standing)).count();
    let counts = [
        (sources.len(), overview.sources.len(), "source"),
        (runtimes, overview.runtimes.len(), "runtime"),
        (modules, all, "module"),
        (watchers, overview.watchers.len(), "watcher"),
        (resources, overview.setup.len(), "kcp resource"),
    ];
    // Of what there is none, none is healthy either.
    let there = counts.into_iter().filter(|(_, all, _)| 0 < *all);
    let there: Vec<String> = there.map(|(count, _, noun)| counted(count, noun)).collect();
    let mut text = match there.as_slice() {
        [] => "There is nothing in this namespace".to_owned(),
        there => format!("Healthy: {}", there.join(", ")),
    };
    for source in sources {
        let revision = source.applied_revision.as_deref().unwrap_or("no revision");
        text.push_str(&format!("\n  source {} at {revision}, {} applied", source.name, source.counts.applied));
    }
    text
}

// === impl Subject ===

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Subject, String> {
        let Some((kind, name)) = text.split_once('/').filter(|(_, name)| !name.is_empty()) else {
            return Err(format!("`{text}` is not KIND/NAME, for example kyma/dev"));
        };
        let kind = match kind.to_ascii_lowercase().as_str() {
            "gitsource" | "gitsources" | "gs" | "source" => SubjectKind::Source,
            "kyma" | "kymas" | "runtime" => SubjectKind::Kyma,
            "module" | "modules" => SubjectKind::Module,
            "watcher" | "watchers" => SubjectKind::Watcher,
            _ => return Err(format!("unknown kind `{kind}`: use gitsource, kyma, module or watcher")),
        };
        Ok(Subject { kind, name: name.to_owned() })
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            SubjectKind::Source => "GitSource",
            SubjectKind::Kyma => "Kyma",
            SubjectKind::Module => "module",
            SubjectKind::Watcher => "Watcher",
        };
        write!(f, "{kind} `{}`", self.name)
    }
}

impl Subject {
    /// The part of an overview that is about it; `None` if that has nothing about it.
    fn of(&self, overview: Overview) -> Option<Overview> {
        // An overview has the names `<namespace>/<name>`.
        let is_named = |name: &str| name.rsplit_once('/').is_some_and(|(_, name)| name == self.name);
        let Overview {
            mut sources,
            mut runtimes,
            mut watchers,
            mut rollouts,
            mut unreadable,
            no_leader,
            no_lease,
            not_served,
            is_foreign,
            setup: _,
            kcp_operator: _,
        } = overview;
        rollouts.retain(|rollout| self.kind == SubjectKind::Module && is_named(&rollout.name));
        sources.retain(|source| self.kind == SubjectKind::Source && is_named(&source.name));
        watchers.retain(|watcher| self.kind == SubjectKind::Watcher && is_named(&watcher.name));
        unreadable.retain(|found| {
            let kind = match self.kind {
                SubjectKind::Source => "GitSource",
                SubjectKind::Kyma => "Kyma",
                SubjectKind::Module => "ModuleReleaseMeta",
                SubjectKind::Watcher => "Watcher",
            };
            found.kind == kind && is_named(&found.name)
        });
        runtimes.retain_mut(|runtime| match self.kind {
            SubjectKind::Kyma => is_named(&runtime.name),
            SubjectKind::Module => {
                runtime.modules.retain(|module| module.name == self.name);
                runtime.mandatory.retain(|module| module.name == self.name);
                let removal = runtime.removal.take().and_then(|removal| removal_of(&removal, &self.name));
                let of_module = |waits: String| {
                    let is_of_module = |part: &&str| part.starts_with(&format!("{} ", self.name));
                    let parts: Vec<&str> = waits.split("; ").filter(is_of_module).collect();
                    (!parts.is_empty()).then(|| parts.join("; "))
                };
                runtime.rollout = runtime.rollout.take().and_then(of_module);
                runtime.maintenance = runtime.maintenance.take().filter(|waits| waits.contains(&self.name));
                for module in runtime.modules.iter_mut().chain(&mut runtime.mandatory) {
                    if let (Some(removal), SubjectState::Well) = (&removal, module.standing) {
                        (module.standing, module.message) = (SubjectState::Wrong, Some(removal.clone()));
                    }
                }
                if let Some(module) = runtime.modules.iter().chain(&runtime.mandatory).min_by_key(|one| one.standing) {
                    // What else is wrong with the runtime says nothing about the module.
                    runtime.standing = module.standing;
                    runtime.hint = None;
                    true
                } else {
                    false
                }
            }
            SubjectKind::Source | SubjectKind::Watcher => false,
        });
        let setup = Vec::new();
        let found = Overview {
            sources,
            runtimes,
            watchers,
            rollouts,
            setup,
            kcp_operator: None,
            unreadable,
            no_leader,
            no_lease,
            not_served,
            is_foreign,
        };
        let is_empty = found.sources.is_empty()
            && found.runtimes.is_empty()
            && found.watchers.is_empty()
            && found.unreadable.is_empty()
            && found.not_served.is_empty();
        (!is_empty).then_some(found)
    }
}

/// What waits for a confirmation of one module. `removals` are the sentences of all removals of a runtime, each with
/// what allows it.
fn removal_of(removals: &str, module: &str) -> Option<String> {
    let mut sentences: Vec<String> = Vec::new();
    for part in removals.split("; ") {
        match sentences.last_mut() {
            Some(last) if part.starts_with("to allow it, ") => *last = format!("{last}; {part}"),
            Some(_) | None => sentences.push(part.to_owned()),
        }
    }
    sentences.retain(|sentence| sentence.contains(&format!("module {module} ")));
    (!sentences.is_empty()).then(|| sentences.join("; "))
}

/// Who suspended a rollout, and how it continues.
fn resumable(rollout: &RolloutLine) -> String {
    let module = rollout.name.rsplit('/').next().unwrap_or_default();
    format!("{}; `tidegate resume rollout/{module}` continues it", rollout.message)
}

#[cfg(test)]
mod tests;
