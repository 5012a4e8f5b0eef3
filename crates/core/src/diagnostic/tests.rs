use super::*;

fn error(path: &str, line: u32) -> Diagnostic {
    Diagnostic::error("a-code", format!("problem {line}")).at(FilePosition::at(&path.into(), line, 1))
}

fn messages(diagnostics: Diagnostics) -> Vec<String> {
    diagnostics.sorted().iter().map(ToString::to_string).collect()
}

#[test]
fn a_file_lists_fifty_problems_and_counts_the_others() {
    let mut diagnostics = Diagnostics::default();
    diagnostics.extend((1..=10_000).map(|line| error("a.yaml", line)));
    diagnostics.push(error("b.yaml", 1));
    assert_eq!(diagnostics.len(), 10_001);
    let messages = messages(diagnostics);
    assert_eq!(messages.len(), 52);
    assert_eq!(messages[0], "a.yaml: and 9,950 more errors in this file, which are not listed");
    assert_eq!(messages[50..], ["a.yaml:50:1: problem 50", "b.yaml:1:1: problem 1"]);
}

#[test]
fn an_error_behind_many_warnings_is_listed_and_one_behind_many_errors_is_still_an_error() {
    let mut diagnostics = Diagnostics::default();
    let warning = |line| Diagnostic { severity: Severity::Warning, ..error("a.yaml", line) };
    diagnostics.extend((1..=100).map(warning));
    diagnostics.push(error("a.yaml", 101));
    assert!(diagnostics.iter().any(|found| found.severity == Severity::Error));
    let counted = diagnostics.counted(Severity::Error);
    assert!(counted.has_errors() && counted.iter().all(|found| found.severity == Severity::Warning));
    assert!(counted.has_code(|code| code == "a-code"));
    assert!(counted.sorted().iter().any(|found| found.severity == Severity::Error));
}

#[test]
fn all_files_together_have_a_limit_and_no_number_is_lost() {
    let mut diagnostics = Diagnostics::default();
    for file in 0..3_000 {
        let mut one = Diagnostics::default();
        one.extend((1..=60).map(|line| error(&format!("{file:04}.yaml"), line)));
        diagnostics.append(one);
    }
    assert_eq!((diagnostics.len(), diagnostics.iter().count()), (180_000, LISTED_MAX));
    let messages = messages(diagnostics);
    assert_eq!(messages.len(), LISTED_MAX + MORE_FILES_MAX + 1);
    // 20 files are listed with 50 of 60 errors each, and 50 files have a number of their own.
    let rest = 180_000 - 1_000 - 20 * 10 - 30 * 60;
    assert_eq!(messages[0], format!("and {} more errors in 2,950 other files, which are not listed", grouped(rest)));
}

#[test]
fn the_same_problem_of_many_objects_is_listed_once_with_their_number() {
    let mut diagnostics = Diagnostics::default();
    let about = |kyma: usize| error("a.yaml", 7).about(&format!("Kyma {kyma}"));
    let mut other = Diagnostics::default();
    diagnostics.extend((0..2_000).map(about));
    other.extend((2_000..5_000).map(about));
    diagnostics.append(other);
    diagnostics.push(error("a.yaml", 8).about("Kyma 0"));
    assert_eq!(
        messages(diagnostics),
        ["a.yaml:7:1: problem 7 (rendering Kyma 0, and 4,999 more)", "a.yaml:8:1: problem 8 (rendering Kyma 0)"]
    );
}

#[test]
fn numbers_have_groups_of_three_digits() {
    let texts = [0, 999, 1_000, 12_345, 1_234_567].map(grouped);
    assert_eq!(texts, ["0", "999", "1,000", "12,345", "1,234,567"]);
}

#[test]
fn a_form_to_keep_has_a_limit_and_the_same_numbers() {
    let mut diagnostics = Diagnostics::default();
    for file in 0..200 {
        let place = FilePosition::at(&format!("{file:03}.yaml").into(), 1, 1);
        diagnostics.push(Diagnostic::warning("w", "worth knowing").at(place.clone()));
        for line in 0..10 {
            diagnostics.push(Diagnostic::error("e", "wrong").at(FilePosition { line, ..place.clone() }));
        }
    }
    diagnostics.push(Diagnostic::error("t", "no such field").about("Kyma a"));
    diagnostics.push(Diagnostic::error("t", "no such field").about("Kyma b"));
    let (errors, all) = (diagnostics.errors(), diagnostics.len());
    let kept = diagnostics.clone().at_most(30);
    assert_eq!((kept.errors(), kept.len(), kept.iter().count()), (errors, all, 30));
    assert!(kept.iter().all(|found| found.severity == Severity::Error), "errors are listed first");
    assert!(kept.has_code(|code| code == "w") && kept.tallies.len() < 120, "{}", kept.tallies.len());
    let number = |text: &str| -> usize {
        let digits = text.strip_prefix("and ").unwrap().split(' ').next().unwrap();
        digits.replace(',', "").parse().unwrap()
    };
    let counted = kept.clone().sorted();
    let more =
        counted.iter().filter(|found| found.code == CODE_MORE).map(|found| number(&found.message)).sum::<usize>();
    assert_eq!(more + 30, all, "what is not listed is counted");
    assert!(counted.len() < 30 + 2 * MORE_FILES_MAX, "{}", counted.len());
    let mut again = Diagnostics::default();
    again.append(kept.clone());
    assert_eq!((again.errors(), again.len()), (errors, all));
    let none = diagnostics.at_most(0);
    assert!(none.has_errors() && none.iter().next().is_none() && none.len() == all);
}
