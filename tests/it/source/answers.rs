//! `docs/gitsource.md` shows conditions as users see them. Scenarios compare them with those that the daemon writes.

use serde::Deserialize;

use super::*;

/// The conditions that the page shows: heading, type, reason, and the scenario that compares it.
const ANSWERS: &[(&str, &str, &str, &str)] = &[
    ("onError", "Applied", "Withheld", "a_broken_definition_is_withheld_the_rest_goes_on_and_nothing_is_pruned"),
    ("onError", "Applied", "RevisionRefused", "a_refused_revision_changes_nothing_at_all"),
    (
        "allowRewrite",
        "Fetched",
        "Rewritten",
        "a_rewritten_branch_is_refused_and_where_it_is_allowed_its_losses_are_confirmed",
    ),
    (
        "tidegate.dev/confirm-prune",
        "Applied",
        "PruneUnconfirmed",
        "a_prune_waits_for_its_confirmation_and_then_happens",
    ),
    ("tidegate.dev/confirm-prune", "Applied", "PruneLimit", "too_many_prunes_at_once_stop_and_go_on_when_confirmed"),
    ("deletionPolicy", "Applied", "PruneUnconfirmed", "a_deleted_source_takes_its_objects_along_where_it_says_so"),
    ("deletionPolicy", "Ready", "PruneWaits", "a_deleted_source_deletes_nothing_before_all_others_have_been_read"),
];

/// A condition as the page shows it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
struct Shown {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: String,
    message: String,
}

impl World {
    /// Compares a condition of a source with the one that the page shows below a heading. `names` are the commits and
    /// names of this run, each with what stands for it on the page.
    pub(super) async fn answers_as_documented(&self, source: &str, heading: &str, type_: &str, names: &[(&str, &str)]) {
        let source = self.source(source).await;
        let found = condition(&source, type_);
        let namespace = [(self.namespace.as_str(), "kcp-system")];
        let message = names
            .iter()
            .chain(&namespace)
            .fold(found.message.clone(), |text, (of_run, shown)| text.replace(of_run, shown));
        let found =
            Shown { type_: type_.to_owned(), status: found.status.clone(), reason: found.reason.clone(), message };
        let all = documented();
        let shown = all.iter().filter(|(of, _)| of == heading).map(|(_, shown)| shown);
        let shown = shown.into_iter().find(|shown| (&shown.type_, &shown.reason) == (&found.type_, &found.reason));
        assert_eq!(shown, Some(&found), "docs/gitsource.md shows another condition below `{heading}`");
    }
}

/// The conditions on the page, each with the heading above it.
fn documented() -> Vec<(String, Shown)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/gitsource.md");
    let page = fs::read_to_string(path).unwrap();
    let (_, answers) = page.split_once("\n## What the status answers\n").expect("the page has this heading");
    let mut found = Vec::new();
    for section in answers.split("\n### ").skip(1) {
        let (heading, text) = section.split_once('\n').unwrap();
        for block in text.split("```yaml\n").skip(1) {
            let (block, _) = block.split_once("```").expect("a block ends");
            let conditions: Vec<Shown> =
                serde_yaml::from_str(block).unwrap_or_else(|error| panic!("{heading}: {error}\n{block}"));
            found.extend(conditions.into_iter().map(|shown| (heading.trim_matches('`').to_owned(), shown)));
        }
    }
    found
}

#[test]
fn each_condition_in_the_documentation_is_compared_by_a_scenario() {
    let all = documented();
    let shown: BTreeSet<(&str, &str, &str)> =
        all.iter().map(|(heading, shown)| (heading.as_str(), shown.type_.as_str(), shown.reason.as_str())).collect();
    let compared: BTreeSet<(&str, &str, &str)> =
        ANSWERS.iter().map(|(heading, type_, reason, _)| (*heading, *type_, *reason)).collect();
    assert_eq!(shown, compared, "one row in ANSWERS for each condition on the page");
    assert_eq!(all.len(), ANSWERS.len(), "the page shows no condition twice below one heading");

    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/source");
    let texts = [folder.with_extension("rs"), folder.join("remote.rs")].map(|path| fs::read_to_string(path).unwrap());
    for (heading, type_, _, scenario) in ANSWERS {
        let body = texts.iter().find_map(|text| text.split_once(&format!("async fn {scenario}()")));
        let (_, body) = body.unwrap_or_else(|| panic!("there is no scenario {scenario}"));
        let (body, _) = body.split_once("\n}\n").unwrap();
        let compares = body.contains("answers_as_documented(")
            && body.contains(&format!("\"{heading}\""))
            && body.contains(&format!("\"{type_}\""));
        assert!(compares, "{scenario} does not compare {type_} with the page");
    }
}
