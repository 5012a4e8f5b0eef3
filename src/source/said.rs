//! What the log says of definitions that are held back and of prunes that wait: one warning for each cause, once. Pure.
//!
//! The status of a GitSource has the same, but users see it only if they look, and a source of the command line has no
//! status in the control plane.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::{
    definition::code,
    diagnostic::{Diagnostics, Severity},
    intake::{ConfirmBy, Decision, Held, HeldFor, Wait, status::Withheld, text},
    name::Key,
};

/// Most warnings about one source at once. The status has the number of all definitions.
const WARNINGS_MAX: usize = 20;

/// Most further places of a problem that its warning names.
const PLACES_MAX: usize = 5;

/// What a prune waits for if something of the revision is held back.
const FOR_ERRORS: &str = "the revision has errors";

/// Why something of a revision does not happen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// A definition or a template is invalid, or refers to an invalid definition.
    Error {
        /// Its first file.
        path: String,
        /// The line of the problem in it, from 1.
        line: u32,
        /// The problem.
        message: String,
        /// The number of files that have it.
        files: usize,
        /// Where else it is: the first few places, and how many more there are.
        also: Option<String>,
        /// The number of definitions that are held back for it.
        held_back: usize,
    },
    /// Objects were removed from git, and their prune waits.
    Waits {
        /// Why the source no longer has them.
        because: &'static str,
        /// For what.
        reason: &'static str,
        /// The first of them.
        object: String,
        /// Their number.
        count: usize,
    },
    /// Definitions are of kinds that the daemon does not reconcile.
    NotReconciled {
        /// The file of the first.
        path: String,
        /// Its line, from 1.
        line: u32,
        /// How many there are, in a sentence.
        message: String,
    },
    /// What a commit takes from runtimes waits for a confirmation.
    Removal {
        /// The file of the first definition that takes it.
        path: String,
        /// Its line, from 1.
        line: u32,
        /// The number of runtimes.
        runtimes: usize,
        /// What leaves, and from which runtimes.
        message: String,
    },
}

/// A file, and a line in it.
type Position<'p> = (&'p str, u32);

/// The causes that the log has already.
#[derive(Debug, Default)]
pub(super) struct Said(BTreeSet<Cause>);

// === impl Said ===

impl Said {
    /// The causes that are new. They are then said.
    pub(super) fn news(&mut self, causes: BTreeSet<Cause>) -> Vec<Cause> {
        let news = causes.difference(&self.0).take(WARNINGS_MAX).cloned().collect();
        self.0 = causes;
        news
    }
}

// === impl Cause ===

impl Cause {
    /// Whether prunes wait because something of the revision is held back.
    pub(super) fn is_for_errors(&self) -> bool {
        matches!(self, Cause::Waits { reason, .. } if *reason == FOR_ERRORS)
    }

    /// Writes it into the log. `confirm` is the command that confirms what waits.
    pub(super) fn warn(&self, source: &Key, confirm: &str) {
        match self {
            Cause::Error { path, line, message, files, also, held_back } => {
                tracing::warn!(
                    %source, path, line, problem = message, held_back, files, also,
                    "the revision has an error"
                );
            }
            Cause::Waits { because, reason, object, count } => {
                let confirm = reason.contains("confirm").then_some(confirm);
                tracing::warn!(
                    %source, because, reason, object, count, confirm,
                    "objects that git no longer has are not pruned"
                );
            }
            Cause::NotReconciled { path, line, message } => {
                tracing::warn!(%source, path, line, message, "kcp landscapes are not reconciled yet");
            }
            Cause::Removal { path, line, runtimes, message } => {
                tracing::warn!(
                    %source, path, line, runtimes, removal = message, confirm,
                    "a removal waits for a confirmation"
                );
            }
        }
    }
}

/// Why something of a revision does not happen. `diagnostics` are those of the revision, and `withheld` its definitions
/// that are invalid or refer to invalid ones.
pub(super) fn causes(
    diagnostics: &Diagnostics,
    withheld: &[Withheld],
    decision: &Decision,
    confirm_by: ConfirmBy,
) -> BTreeSet<Cause> {
    let mut errors: BTreeMap<Position<'_>, (&str, usize)> = BTreeMap::new();
    for found in diagnostics.iter().filter(|found| found.severity == Severity::Error) {
        let place = found.place.as_ref().map_or(("", 0), |place| (&*place.path, place.line));
        errors.entry(place).or_insert((&found.message, 0));
    }
    for found in withheld {
        errors.entry((&found.path, found.line)).or_insert((&found.message, 0)).1 += 1;
    }
    // What is only being deleted comes by itself, and what a commit takes from runtimes is a cause of its own.
    let is_error = |found: &&Held| matches!(found.why, HeldFor::Problem | HeldFor::Dependency);
    for found in decision.held.values().filter(is_error) {
        let place = found.cause.as_ref().unwrap_or(&found.place);
        errors.entry((&place.path, place.line)).or_insert((&found.message, 0)).1 += 1;
    }
    // One problem of several files, such as a reference to the same broken definition, is one cause.
    let mut by_message: BTreeMap<&str, (Vec<Position<'_>>, usize)> = BTreeMap::new();
    for (place, (message, held_back)) in errors {
        let (places, sum) = by_message.entry(message).or_default();
        places.push(place);
        *sum += held_back;
    }
    let mut waits: BTreeMap<&'static str, (String, usize)> = BTreeMap::new();
    for (id, wait) in &decision.waiting {
        if let Some(reason) = reason(wait, confirm_by) {
            waits.entry(reason).or_insert_with(|| (text(id), 0)).1 += 1;
        }
    }
    let errors = by_message.into_iter().map(|(message, (places, held_back))| error(message, &places, held_back));
    let because = decision.moved.gone();
    let waits = waits.into_iter().map(|(reason, (object, count))| Cause::Waits { because, reason, object, count });
    let removals = decision.removals.iter().map(|removal| Cause::Removal {
        path: removal.place.path.to_string(),
        line: removal.place.line,
        runtimes: removal.runtimes.len(),
        message: removal.to_string(),
    });
    let ignored = diagnostics.iter().filter(|found| found.code == code::NOT_RECONCILED);
    let ignored = ignored.filter_map(|found| Some((found.place.as_ref()?, &found.message)));
    let ignored = ignored.map(|(place, message)| Cause::NotReconciled {
        path: place.path.to_string(),
        line: place.line,
        message: message.clone(),
    });
    errors.chain(waits).chain(removals).chain(ignored).collect()
}

/// The cause of a problem at some places, in order. No place is one without a file.
fn error(message: &str, places: &[Position<'_>], held_back: usize) -> Cause {
    let files = places.iter().map(|(path, _)| path).filter(|path| !path.is_empty()).collect::<BTreeSet<_>>().len();
    let (path, line) = places.first().copied().unwrap_or_default();
    let others = places.get(1..).unwrap_or_default();
    let named: Vec<String> = others.iter().take(PLACES_MAX).map(|(path, line)| format!("{path}:{line}")).collect();
    let also = match others.len().saturating_sub(PLACES_MAX) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    };
    Cause::Error {
        path: path.to_owned(),
        line,
        message: message.to_owned(),
        files,
        also: (!also.is_empty()).then_some(also),
        held_back,
    }
}

/// What an observer has to say: it compares no kcp landscapes, and its daemon may reconcile them.
pub(super) fn of_observer(causes: BTreeSet<Cause>) -> BTreeSet<Cause> {
    let is_kept = |cause: &Cause| match cause {
        Cause::NotReconciled { .. } => false,
        Cause::Error { .. } | Cause::Waits { .. } | Cause::Removal { .. } => true,
    };
    causes.into_iter().filter(is_kept).collect()
}

/// What a prune waits for, if a user should know: one sentence fragment.
fn reason(wait: &Wait, confirm_by: ConfirmBy) -> Option<&'static str> {
    match wait {
        Wait::Errors => Some(FOR_ERRORS),
        Wait::Unread(_) => Some("other sources have not been read and may declare them"),
        Wait::Unreadable => Some("they do not match their types"),
        Wait::Tool(_) => Some("another tool manages them"),
        Wait::Unconfirmed(_) => Some(match confirm_by {
            ConfirmBy::Annotation => "a user must confirm it with tidegate.dev/confirm-prune",
            ConfirmBy::Option => "a user must confirm it: restart `tidegate run` with --confirm-prune=<commit>",
        }),
        Wait::Limit { .. } => Some(match confirm_by {
            ConfirmBy::Annotation => "they exceed spec.pruneLimit; confirm it with tidegate.dev/confirm-prune",
            ConfirmBy::Option => "they exceed spec.pruneLimit: restart `tidegate run` with --confirm-prune=<commit>",
        }),
        // A user wants it so, or it is under way.
        Wait::Off | Wait::Kept | Wait::InUse(_) | Wait::Terminating => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_core::{
        definition::Kind,
        diagnostic::{Diagnostic, FilePosition},
        intake::Id,
    };

    use super::*;

    fn id(kind: Kind, name: &str) -> Id {
        (kind, Key::new("kcp-system", name))
    }

    fn withheld(name: &str, path: &str, line: u32, message: &str) -> Withheld {
        Withheld { id: id(Kind::Kyma, name), path: path.to_owned(), line, message: message.to_owned() }
    }

    #[test]
    fn definitions_with_one_cause_are_one_warning_with_their_number() {
        let broken = [
            withheld("a", "kymas.yaml", 3, "no channel"),
            withheld("b", "kymas.yaml", 3, "no channel"),
            withheld("c", "other.yaml", 1, "no channel"),
        ];
        let place = |path: &str, line| FilePosition { path: Arc::from(path), line, column: 1 };
        let mut decision = Decision::default();
        let held =
            |why| Held { place: place("d.yaml", 7), message: "it depends on another".to_owned(), why, cause: None };
        decision.held.insert(id(Kind::Kyma, "d"), held(HeldFor::Problem));
        decision.held.insert(id(Kind::Kyma, "e"), held(HeldFor::Terminating));
        let of_broken = Held { cause: Some(place("other.yaml", 1)), ..held(HeldFor::Dependency) };
        decision.held.insert(id(Kind::Kyma, "f"), of_broken);
        let mut diagnostics = Diagnostics::default();
        diagnostics.push(Diagnostic::error("template", "no such variable").at(place("t.yaml", 9)));
        diagnostics.push(Diagnostic::error("template", "`channel` is missing").at(place("other.yaml", 1)));
        diagnostics.push(Diagnostic::warning("no-effect", "nothing uses it").at(place("w.yaml", 1)));
        let cause = |path: &str, line, message: &str, held_back| error(message, &[(path, line)], held_back);
        let expected = [
            cause("d.yaml", 7, "it depends on another", 1),
            cause("kymas.yaml", 3, "no channel", 2),
            cause("other.yaml", 1, "`channel` is missing", 2),
            cause("t.yaml", 9, "no such variable", 0),
        ];
        assert_eq!(causes(&diagnostics, &broken, &decision, ConfirmBy::Annotation), expected.into());
    }

    #[test]
    fn one_problem_of_many_files_is_one_warning_that_counts_them_and_names_the_first() {
        let problem = "module cache is not in any catalog";
        let of_file = |number| withheld("k", &format!("k{number:02}.yaml"), 5, problem);
        let several = "k01.yaml:5, k02.yaml:5, k03.yaml:5, k04.yaml:5, k05.yaml:5 and 6 more";
        for (count, also) in [(1, None), (2, Some("k01.yaml:5")), (12, Some(several))] {
            let broken: Vec<Withheld> = (0..count).map(of_file).collect();
            let expected = Cause::Error {
                path: "k00.yaml".to_owned(),
                line: 5,
                message: problem.to_owned(),
                files: count,
                also: also.map(str::to_owned),
                held_back: count,
            };
            let found = causes(&Diagnostics::default(), &broken, &Decision::default(), ConfirmBy::Annotation);
            assert_eq!(found, [expected].into());
        }
        // Two places of one file.
        let broken = [withheld("a", "k.yaml", 5, problem), withheld("b", "k.yaml", 9, problem)];
        let found = causes(&Diagnostics::default(), &broken, &Decision::default(), ConfirmBy::Annotation);
        assert_eq!(found, [error(problem, &[("k.yaml", 5), ("k.yaml", 9)], 2)].into());
        let Some(Cause::Error { files, also, .. }) = found.first() else { unreachable!("it is an error") };
        assert_eq!((*files, also.as_deref()), (1, Some("k.yaml:9")));
    }

    #[test]
    fn prunes_that_wait_for_one_reason_are_one_warning_and_those_that_are_kept_on_purpose_none() {
        let mut decision = Decision::default();
        for (name, wait) in [
            ("a", Wait::Unconfirmed(Vec::new())),
            ("b", Wait::Unconfirmed(Vec::new())),
            ("c", Wait::Kept),
            ("d", Wait::Off),
            ("e", Wait::Limit { found: 9, limit: 5 }),
        ] {
            decision.waiting.insert(id(Kind::Kyma, name), wait);
        }
        let found: Vec<(String, usize)> = causes(&Diagnostics::default(), &[], &decision, ConfirmBy::Annotation)
            .into_iter()
            .map(|cause| match cause {
                Cause::Waits { object, count, .. } => (object, count),
                Cause::Error { .. } | Cause::Removal { .. } | Cause::NotReconciled { .. } => {
                    unreachable!("prunes alone wait")
                }
            })
            .collect();
        assert_eq!(found, [("Kyma kcp-system/a".to_owned(), 2), ("Kyma kcp-system/e".to_owned(), 1)]);
    }

    #[test]
    fn kcp_landscapes_that_are_not_reconciled_are_one_warning() {
        let mut diagnostics = Diagnostics::default();
        let place = FilePosition { path: Arc::from("kcp.yaml"), line: 3, column: 1 };
        diagnostics.push(Diagnostic::warning(code::NOT_RECONCILED, "not applied").at(place));
        let (path, message) = ("kcp.yaml".to_owned(), "not applied".to_owned());
        let expected = [Cause::NotReconciled { path, line: 3, message }];
        let found = causes(&diagnostics, &[], &Decision::default(), ConfirmBy::Annotation);
        assert_eq!(found, expected.into());
        assert_eq!(of_observer(found), [].into(), "an observer is not asked for them");
        let broken = causes(&diagnostics, &[withheld("a", "a.yaml", 1, "b")], &Decision::default(), ConfirmBy::Option);
        assert_eq!(of_observer(broken).len(), 1);
    }

    #[test]
    fn a_cause_is_said_once_and_again_after_it_was_gone() {
        let broken = [withheld("a", "a.yaml", 1, "broken")];
        let one = || causes(&Diagnostics::default(), &broken, &Decision::default(), ConfirmBy::Annotation);
        let mut said = Said::default();
        assert_eq!(said.news(one()).len(), 1);
        assert_eq!(said.news(one()), []);
        assert_eq!(said.news(BTreeSet::new()), []);
        assert_eq!(said.news(one()).len(), 1);
    }
}
