//! A report as the comment of a pull request.
//!
//! It begins with a hidden marker by which a pipeline finds it again, so that it updates one
//! comment instead of adding new ones. It has a size limit, because platforms reject longer
//! comments. If the report is too long, differences are shortened to one line each, changes before
//! deletions and conflicts, and the comment says how much it omits. What leaves a runtime with its Kyma is always one
//! line each: which modules leave says more than their objects. Values are in code spans and
//! fences that they cannot leave, so they contain no HTML, images, links or mentions.
//!
//! A reviewer reads from the top: what is intended, what must be resolved, what a user has to do, and
//! what changes, in runtimes first. What repeats that, or is not known, is folded at the end.

mod page;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use self::page::Page;
use super::{
    escape::{code, cut, fence, html, line, sentence, short_ids},
    model::{Action, Count, Difference, Finding, Held, Line, Report, Side, Subject, Why},
    notable,
    policy::FailOn,
    summary::{self, Summary},
    text,
    words::{self, counted, thousands},
};
use tidegate_core::{
    diagnostic::{Diagnostic, FilePosition, Severity},
    intake::ConfirmBy,
    name::Key,
};

/// The size limit of a comment, and how it is found again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The marker.
    pub marker: Marker,
    /// Maximum number of characters; values below [`BUDGET_MIN`] are raised to it.
    pub budget: usize,
    /// The location of the whole report, for a comment that must be cut.
    pub elsewhere: Option<String>,
    /// What the comment says of rules that can be approved.
    pub approval: Approval,
}

/// How a violated rule of `--fail-on` is approved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Approval {
    /// A trailer of a commit, or the option `--approve`.
    #[default]
    Trailer,
    /// Only the option `--approve`.
    Option,
    /// Only the option, which the pipeline passes for a label: this text, followed by the name of the rule.
    Label(String),
}

/// The marker at the start of a comment, as `<!-- name -->`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker(String);

/// The text is not a valid marker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` cannot be a marker; use at most 64 letters, digits, `.`, `_` and single `-`")]
pub struct ParseMarkerError(String);

/// GitHub accepts 65,536 characters; the text that the pipeline adds must fit as well.
pub const BUDGET: usize = 60_000;
/// A smaller limit would not even fit the summary.
pub const BUDGET_MIN: usize = 6_000;

/// Maximum length of a line.
const LINE_MAX: usize = 500;
/// Maximum length of a text in a line: a message or a name. A line has at most two that are so long.
const TEXT_MAX: usize = 200;
/// Maximum length of what a user does next, which has a line of its own.
const STEP_MAX: usize = 480;
/// Maximum length of a short text in a line: the name of a rule, a module, a channel or a version.
const PART_MAX: usize = 60;
/// Maximum length of a file with its line, behind a text.
const PLACE_LEN_MAX: usize = 100;
/// Maximum length of what is held, before the reason.
const HELD_LEN_MAX: usize = 120;
/// Maximum length of the name of a side or of the source.
const SUBJECT_LEN_MAX: usize = 80;
/// Maximum length of a name that has characters that HTML escapes.
const TITLE_MAX: usize = 40;
/// Reserve in a line of names, for its marks.
const NAMES_RESERVE: usize = 40;
/// Maximum length of the first line.
const HEADLINE_MAX: usize = 400;
/// The folded end of the comment has at most one part in so many.
const TAIL_SHARE: usize = 6;
/// The blocks with severities have at most one part in so many of the rest, each.
const ALERTS_SHARE: usize = 4;
/// Reserve for the sentence about what is omitted.
const TAIL_LEN: usize = 1_600;
/// Reserve for the lines of differences that do not fit as a whole, as a fraction of the budget:
/// one part in so many.
const LINES_SHARE: usize = 8;
/// Maximum length of an object name in a code span.
const NAME_MAX: usize = 260;
/// Maximum number of kinds that are named when objects are only counted.
const KINDS_MAX: usize = 10;

/// The text of the comment.
pub fn markdown(report: &Report, options: &Options) -> String {
    let budget = options.budget.max(BUDGET_MIN) - TAIL_LEN;
    let tail = tail(report, budget / TAIL_SHARE);
    let mut page = Page::new(budget - tail.chars().count());
    page.push(&head(report, &options.marker));
    alerts(&mut page, report, &options.approval);
    page.push(&subject(report));
    lists(&mut page, report);
    let left = Left { elsewhere: options.elsewhere.clone(), ..differences(&mut page, report) };
    page.finish(&left) + &tail
}

fn head(report: &Report, marker: &Marker) -> String {
    let headline = short_ids(&Summary::from_report(report).headline);
    let title = sentence(&cut(&headline, HEADLINE_MAX));
    // Escapes may make it several times as long.
    let title = if LINE_MAX < title.chars().count() + 4 { sentence(&cut(&headline, TITLE_MAX)) } else { title };
    format!("{marker}\n### {title}\n")
}

/// What was compared, and the affected runtimes by their labels.
fn subject(report: &Report) -> String {
    let Subject { from, to, source, landscape_written, .. } = &report.subject;
    let brief = |text: &str| code(&cut(&short_ids(&line(text)), SUBJECT_LEN_MAX));
    let mut text = format!("\n{}: {} → {}", brief(source), brief(from), brief(to));
    if let Some(written) = landscape_written {
        text.push_str(&format!(", landscape of {}", brief(written)));
    }
    text.push_str(&format!("; {}\n", Summary::from_report(report).runtimes));
    let bookkeeping = report.bookkeeping();
    let real = report.differences.iter().enumerate().filter(|(index, _)| !bookkeeping.contains(index));
    let touched: BTreeSet<&Key> = real.flat_map(|(_, one)| one.runtimes.iter()).collect();
    let touched: Vec<Key> = touched.into_iter().cloned().collect();
    if words::NAMES_SHOWN < touched.len() {
        for (label, runtimes) in report.groups.of(&touched) {
            text.push_str(&format!("- by {}: {}\n", short(&label), short(&runtimes)));
        }
    }
    text
}

/// What must be resolved, and what a user has to do, as blocks that hosts show with their severity.
fn alerts(page: &mut Page, report: &Report, approval: &Approval) {
    let end = page.left() - page.left() / ALERTS_SHARE;
    let unreached =
        report.unreached.iter().map(|one| format!("not compared {}: {}", short(&one.target), short(&one.message)));
    let of = |wanted: Severity| report.findings.iter().filter(move |one| one.severity == wanted).map(finding);
    let errors = report.diagnostics.iter().filter(|one| one.severity == Severity::Error).map(diagnostic);
    let names = FailOn::NAMES.into_iter().filter(|name| {
        let is_of =
            |finding: &&Finding| finding.rule.strip_prefix("fail-on: ").is_some_and(|rule| rule.starts_with(name));
        report.findings.iter().filter(|finding| finding.severity == Severity::Error).any(|finding| is_of(&finding))
    });
    let approve = names.map(|name| approval.step(name));
    let all: Vec<String> = unreached.chain(errors).chain(of(Severity::Error)).chain(approve).collect();
    page.alert("CAUTION", "To be resolved", &all, end);
    let blocked = report.held.iter().filter(|one| is_blocked(one.why)).map(held);
    let all: Vec<String> = confirmation(report).into_iter().chain(blocked).chain(of(Severity::Warning)).collect();
    page.alert("WARNING", "Needs attention", &all, end);
}

// === impl Approval ===

impl Approval {
    /// What a reader does to approve the rule of this name.
    fn step(&self, name: &str) -> String {
        match self {
            Approval::Trailer => format!("to approve `{name}`, add the trailer `Tidegate-Approve: {name}` to a commit"),
            Approval::Option => format!("to approve `{name}`, run the comparison with `--approve {name}`"),
            Approval::Label(label) => {
                let label = cut_code(&format!("{label}{name}"), PART_MAX);
                format!("to approve `{name}`, set the label {label} and run the comparison again")
            }
        }
    }
}

/// Whether something prevents a change that the commit asks for.
fn is_blocked(why: Why) -> bool {
    match why {
        Why::Downgrade | Why::Refused | Why::Unconfirmed | Why::Withheld | Why::Waiting | Why::Conflict => true,
        Why::DecidedByRuntime
        | Why::Window
        | Why::Rollout
        | Why::Kept
        | Why::KeptBefore
        | Why::Suspended
        | Why::Adopted => false,
    }
}

/// How to confirm what goes only then.
fn confirmation(report: &Report) -> Option<String> {
    let objects = summary::unconfirmed(report);
    let source: Key = report.subject.source.parse().ok()?;
    let command = ConfirmBy::Annotation.command(&source, "$(git rev-parse HEAD)");
    let goes = if objects == 1 { "goes" } else { "go" };
    (objects > 0).then(|| {
        let what = format!("{} {goes} only after a confirmation", counted(objects, "object"));
        let modules: Vec<String> = summary::leaving(report).iter().map(|one| format!("\n  - {}", short(one))).collect();
        let modules = modules.concat();
        format!("{what}; after the merge, run in the repository\n  {}{modules}", code(&command))
    })
}

fn finding(one: &Finding) -> String {
    format!("{}: {}{}", cut_code(&one.rule, PART_MAX), short(&one.message), at(one.place.as_ref()))
}

fn diagnostic(one: &Diagnostic) -> String {
    let (code, message) = (cut_code(one.code, PART_MAX), short(&one.message));
    let said = format!("{} {code}: {message}{}", severity(one.severity), at(one.place.as_ref()));
    with_hint(said, &one.message, one.hint.as_deref())
}

fn held(one: &Held) -> String {
    let (label, what) = (summary::label(one.why), cut_code(&summary::held(one), HELD_LEN_MAX));
    let said = format!("{label} {what}: {}{}", short(&one.message), at(one.place.as_ref()));
    with_hint(said, &one.message, one.hint.as_deref())
}

/// What to do next, on a line of its own: first what the message says of it where it is cut.
fn with_hint(said: String, message: &str, hint: Option<&str>) -> String {
    let steps = instruction_beyond(message).into_iter().chain(hint);
    steps.fold(said, |said, step| format!("{said}\n  - {}", next_step(step)))
}

/// The last clause of a message with a command or a field to copy, if [`short`] cuts it.
fn instruction_beyond(message: &str) -> Option<&str> {
    let (kept, _) = message.char_indices().nth(TEXT_MAX)?;
    let end = message.rfind('`').filter(|end| kept <= *end)?;
    let start = message[..end].rfind("; ").map_or(0, |start| start + 2);
    Some(&message[start..])
}

/// A sentence that a user acts upon: it is longer than other texts, because a command must be whole.
fn next_step(text: &str) -> String {
    let whole = cut_code(text, STEP_MAX);
    // Escapes may make it several times as long.
    if STEP_MAX < whole.chars().count() { short(text) } else { whole }
}

/// Everything besides the differences; at most half of the remaining space, the most severe first.
fn lists(page: &mut Page, report: &Report) {
    let share = page.left() / 2;
    let end = page.left() - share;
    let warnings: Vec<_> = report.diagnostics.iter().filter(|one| one.severity == Severity::Warning).collect();
    page.list("Definitions and templates", warnings.into_iter().map(diagnostic), end);
    let is_news = |one: &&Held| !is_blocked(one.why) && one.why != Why::KeptBefore;
    let waiting: Vec<_> = report.held.iter().filter(is_news).collect();
    page.list("Held", waiting.into_iter().map(held), end);
    let items = report.moves.iter().map(|one| {
        let part = |text: &str| cut_code(text, PART_MAX);
        let version = |version: Option<&String>| version.map_or("none".to_owned(), |version| part(version));
        let (from, to) = (version(one.from.as_ref()), version(one.to.as_ref()));
        let (module, channel) = (part(&one.module.to_string()), part(&one.channel));
        let runtimes = counted(one.runtimes, "runtime");
        format!("{module} {channel}: {from} → {to} in {runtimes}{}", at(one.place.as_ref()))
    });
    page.list("Module versions", items, end);
    page.list("Images", notable::images(report).iter().map(|one| short(one)), end);
    page.list("Rights", notable::rights(report).iter().map(|one| short(one)), end);
}

/// What is not known, and the number of objects, folded. At most `chars_max` characters.
fn tail(report: &Report, chars_max: usize) -> String {
    let mut page = Page::new(chars_max);
    let summary = Summary::from_report(report);
    let mut numbers = "\n<details><summary><b>Numbers</b></summary>\n\n\
                       | | create | change | delete | recreate | refuse | conflict |\n\
                       | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    for (name, side) in [("control plane", Side::ControlPlane), ("runtimes", Side::Runtime)] {
        let Count { create, change, delete, refuse, recreate, conflict } = report.count(side);
        let cells = [create, change, delete, recreate, refuse, conflict].map(thousands).join(" | ");
        numbers.push_str(&format!("| {name} | {cells} |\n"));
    }
    numbers.push('\n');
    for (label, amount) in &summary.effects {
        numbers.push_str(&format!("- {label}: {amount}\n"));
    }
    numbers.push_str("\n</details>\n");
    if report.differences.is_empty() || !page.try_push(&numbers, 0) {
        numbers.clear();
    }
    let items = report.unknown.iter().map(|one| {
        let hides = if one.may_hide { "**may hide a change**" } else { "hides no change" };
        let place = short(&format!("{} {} {}", one.first.target, one.first.object, one.first.path));
        format!("{} in {place}, {}; {hides}", short(&one.value), counted(one.occurrences, "place"))
    });
    page.folded(summary::not_known(report), items);
    let before: Vec<&Held> = report.held.iter().filter(|one| one.why == Why::KeptBefore).collect();
    page.folded("Kept since earlier revisions", before.into_iter().map(held));
    page.into_text()
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "**error**",
        Severity::Warning => "warning",
    }
}

fn at(place: Option<&FilePosition>) -> String {
    place.map(|place| format!(", {}", cut_code(&place.to_string(), PLACE_LEN_MAX))).unwrap_or_default()
}

fn short(text: &str) -> String {
    cut_code(text, TEXT_MAX)
}

/// The text as code in a line, of at most so many characters.
fn cut_code(text: &str, chars_max: usize) -> String {
    code(&cut(&short_ids(&line(text)), chars_max))
}

/// What does not fit into the budget.
#[derive(Default)]
struct Left {
    /// Differences that are shown as one line.
    shortened: usize,
    /// Differences that are only counted: by action and kind.
    counted: BTreeMap<(u8, &'static str, String), usize>,
    /// The location of the whole report.
    elsewhere: Option<String>,
}

fn differences<'a>(page: &mut Page, report: &'a Report) -> Left {
    let bookkeeping = &report.bookkeeping();
    let of = |is_repeated: bool| {
        let all = report.differences.iter().enumerate();
        all.filter(move |(index, _)| bookkeeping.contains(index) == is_repeated).map(|(_, one)| one)
    };
    let mut real: Vec<&Difference> = of(false).collect();
    // What changes in runtimes says more than the definitions behind it.
    real.sort_by_key(|one| one.target == Side::ControlPlane);
    let kymas = leaving_kymas(report);
    let goes_along = |one: &&Difference| {
        (one.target, one.action) == (Side::Runtime, Action::Delete)
            && one.runtimes.iter().all(|key| kymas.contains(key))
    };
    let (along, real): (Vec<&Difference>, Vec<&Difference>) = real.into_iter().partition(goes_along);
    let (must, may): (Vec<&Difference>, Vec<&Difference>) =
        real.into_iter().partition(|one| one.action.is_never_truncated());
    if !report.differences.is_empty() {
        page.push("\n#### Differences\n");
    }
    let mut left = Left::default();
    let blocks: Vec<String> = must.iter().map(|one| block(report, one)).collect();
    let needed: usize = blocks.iter().map(|block| block.chars().count()).sum();
    let rows: usize = must.iter().map(|one| line_of(one).chars().count()).sum();
    if needed <= page.left() {
        blocks.iter().for_each(|block| page.push(block));
    } else if rows < page.left() {
        one_line_each(page, &mut left, &must);
    } else {
        names_only(page, &mut left, &must);
    }
    if !along.is_empty() {
        page.push(&format!(
            "\n**Goes with {}: {}**\n\n",
            counted(kymas.len(), "Kyma"),
            counted(along.len(), "difference")
        ));
        for one in along {
            if !page.try_push(&line_of(one), 0) {
                left.count(one);
            }
        }
    }
    // The others, as long as a line for each of the following ones is likely to fit.
    let reserve = page.left() / LINES_SHARE;
    let mut over: Vec<&'a Difference> = Vec::new();
    for one in may {
        let fits = page.try_push(&block(report, one), reserve);
        if !fits {
            over.push(one);
        }
    }
    if !over.is_empty() {
        one_line_each(page, &mut left, &over);
    }
    let repeats: Vec<&Difference> = of(true).collect();
    if !repeats.is_empty() {
        let repeat = if repeats.len() == 1 { "repeats" } else { "repeat" };
        let title = format!("Bookkeeping: {} that {repeat} the above", counted(repeats.len(), "difference"));
        if page.try_push(&format!("\n<details><summary><b>{title}</b></summary>\n"), NAME_MAX) {
            page.push("\n");
            for one in repeats {
                if !page.try_push(&repeated_line(one), 0) {
                    left.count(one);
                }
            }
            page.push("\n</details>\n");
        } else {
            repeats.into_iter().for_each(|one| left.count(one));
        }
    }
    left
}

/// The Kymas that go.
fn leaving_kymas(report: &Report) -> BTreeSet<&Key> {
    let is_kyma =
        |one: &&Difference| (one.target, one.action, &*one.id.kind) == (Side::ControlPlane, Action::Delete, "Kyma");
    report.differences.iter().filter(is_kyma).flat_map(|one| one.runtimes.iter()).collect()
}

fn one_line_each(page: &mut Page, left: &mut Left, differences: &[&Difference]) {
    page.push("\n");
    for one in differences {
        if page.try_push(&line_of(one), 0) {
            left.shortened += 1;
        } else {
            left.count(one);
        }
    }
}

fn line_of(one: &Difference) -> String {
    format!("- {}{}\n", row(one), at(one.places.first()))
}

/// The line of a difference that repeats others, or of a Manifest that changes nothing in its runtimes.
fn repeated_line(one: &Difference) -> String {
    match one.changes_no_object() {
        true => format!("- {}: no object in a runtime changes{}\n", row(one), at(one.places.first())),
        false => line_of(one),
    }
}

/// Thousands of differences that must be named: those that differ only in their names are grouped.
fn names_only(page: &mut Page, left: &mut Left, differences: &[&Difference]) {
    let mut groups: BTreeMap<(u8, String, String), Vec<&Difference>> = BTreeMap::new();
    for one in differences {
        let what = format!("**{}** {}", one.action, short(&one.id.kind));
        let namespace = match &*one.id.namespace {
            "" => String::new(),
            namespace => format!(" of namespace {}", short(namespace)),
        };
        let key = (one.action.weight(), what, format!("{namespace} {}", whereabouts(one)));
        groups.entry(key).or_default().push(one);
    }
    page.push("\n");
    for ((_, what, whereabouts), all) in groups {
        let title = format!("- {what}{whereabouts}, {}:", counted(all.len(), "difference"));
        if !page.try_push(&title, NAME_MAX) {
            all.into_iter().for_each(|one| left.count(one));
            continue;
        }
        // Many in one code span: names contain no spaces.
        let mut names = String::new();
        for one in all {
            let name = cut(&line(&one.id.name), NAME_MAX);
            if LINE_MAX < names.chars().count() + name.chars().count() + NAMES_RESERVE {
                page.push(&format!("\n  {}", code(&std::mem::take(&mut names))));
            }
            // Each line of names adds its line break and its marks.
            if page.left() < names.chars().count() + name.chars().count() + NAME_MAX {
                left.count(one);
                continue;
            }
            left.shortened += 1;
            if !names.is_empty() {
                names.push(' ');
            }
            names.push_str(&name);
        }
        page.push(&format!("\n  {}\n", code(&names)));
    }
}

/// `**delete** ConfigMap a/b in 3 runtimes`, as Markdown.
fn row(one: &Difference) -> String {
    format!("**{}** {} {}", one.action, short(&words::objects(one)), whereabouts(one))
}

/// The same in HTML: Markdown is not interpreted in a `<summary>`.
fn title(one: &Difference) -> String {
    let name = html(&cut(&short_ids(&line(&words::objects(one))), TEXT_MAX));
    // Each of its characters may need several in HTML.
    let name = if TEXT_MAX < name.chars().count() { html(&cut(&line(&words::objects(one)), TITLE_MAX)) } else { name };
    format!("<b>{}</b> <code>{name}</code> {}", one.action, whereabouts(one))
}

fn whereabouts(one: &Difference) -> String {
    let waits = words::waits(one.effect).map(|waits| format!(", {waits}")).unwrap_or_default();
    format!("{}{waits}", words::whereabouts(one))
}

/// A complete difference.
fn block(report: &Report, one: &Difference) -> String {
    // Deletions and conflicts are expanded: a reviewer must see them.
    let open = if one.action.is_never_truncated() { " open" } else { "" };
    let mut block = format!("\n<details{open}><summary>{}</summary>\n\n", title(one));
    for place in &one.places {
        let made = one.maker.map(|maker| format!(" through {}", short(maker))).unwrap_or_default();
        block.push_str(&format!("- from {}{made}\n", short(&place.to_string())));
    }
    let groups = if one.runtimes.len() <= words::NAMES_SHOWN { Vec::new() } else { report.groups.of(&one.runtimes) };
    if !one.runtimes.is_empty() && groups.is_empty() {
        block.push_str(&format!("- in {}\n", short(&words::names(&one.runtimes, words::NAMES_SHOWN))));
    }
    for (label, runtimes) in groups {
        block.push_str(&format!("- by {}: {}\n", short(&label), short(&runtimes)));
    }
    for clause in one.refusal.iter().chain(one.overdue.as_ref().map(|overdue| &overdue.sentence)) {
        block.push_str(&format!("- {}\n", short(clause)));
    }
    for conflict in &one.conflicts {
        let field = if conflict.field.is_empty() { "the object".to_owned() } else { short(&conflict.field) };
        block.push_str(&format!("- {field} is owned by {}\n", short(&conflict.manager)));
    }
    block.push_str(&hunks(one));
    block.push_str("\n</details>\n");
    block
}

fn hunks(one: &Difference) -> String {
    let mut lines: Vec<String> = Vec::new();
    let shown = |text: &str| cut(&short_ids(&line(text)), LINE_MAX - 2);
    for hunk in &one.hunks {
        lines.push(shown(&text::header(hunk)));
        lines.extend(hunk.lines.iter().map(|one| match one {
            Line::Same(text) => format!(" {}", shown(text)),
            Line::Old(text) => format!("-{}", shown(text)),
            Line::New(text) => format!("+{}", shown(text)),
        }));
    }
    if lines.is_empty() {
        return String::new();
    }
    let fence = fence(lines.iter().map(String::as_str));
    format!("\n{fence}diff\n{}\n{fence}\n", lines.join("\n"))
}

// === impl Left ===

impl Left {
    fn count(&mut self, one: &Difference) {
        *self.counted.entry((one.action.weight(), one.action.as_str(), one.id.kind.to_string())).or_default() += 1;
    }

    /// What is omitted, and how to see it.
    fn say(&self) -> String {
        let mut said = Vec::new();
        if self.shortened > 0 {
            said.push(format!("{} without their lines", counted(self.shortened, "difference")));
        }
        let all: usize = self.counted.values().sum();
        let mut lines = String::new();
        if all > 0 {
            let mut kinds: Vec<String> = self
                .counted
                .iter()
                .take(KINDS_MAX)
                .map(|((_, action, kind), count)| {
                    format!("{action} {}: {}", code(&cut(&line(kind), 63)), thousands(*count))
                })
                .collect();
            if self.counted.len() > KINDS_MAX {
                kinds.push("and other kinds".to_owned());
            }
            said.push(format!("{} not shown at all", counted(all, "difference")));
            lines = kinds.iter().map(|kind| format!("> - {kind}\n")).collect();
        }
        if said.is_empty() {
            return String::new();
        }
        let whole = match &self.elsewhere {
            Some(elsewhere) => format!("All of it is in {}", short(elsewhere)),
            None => "The output of `tidegate diff` as `text` or `json` has all of it".to_owned(),
        };
        let lines = if lines.is_empty() { lines } else { format!(">\n{lines}") };
        format!("\n> [!NOTE]\n> **This comment is cut**: {}. {whole}.\n{lines}", said.join("; "))
    }
}

// === impl Marker ===

impl Default for Marker {
    fn default() -> Marker {
        Marker("tidegate-diff".to_owned())
    }
}

impl FromStr for Marker {
    type Err = ParseMarkerError;

    fn from_str(text: &str) -> Result<Marker, ParseMarkerError> {
        const LEN_MAX: usize = 64;
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        // `--` would end the HTML comment, and so would a trailing `-`.
        let ends = text.contains("--") || text.starts_with('-') || text.ends_with('-');
        if text.is_empty() || text.len() > LEN_MAX || !text.chars().all(allowed) || ends {
            return Err(ParseMarkerError(text.to_owned()));
        }
        Ok(Marker(text.to_owned()))
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<!-- {} -->", self.0)
    }
}

impl Default for Options {
    fn default() -> Options {
        let approval = Approval::default();
        Options { marker: Marker::default(), budget: BUDGET, elsewhere: None, approval }
    }
}

#[cfg(test)]
mod tests;
