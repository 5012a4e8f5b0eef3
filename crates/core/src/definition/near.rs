//! Suggestions for misspelt words.

/// The longest word for which there is a suggestion.
const WORD_BYTES_MAX: usize = 256;

/// The candidate that differs from `word` in at most a third of its letters. Of several, the
/// nearest; of equally near ones, the first.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words are not typing errors, and the cost grows with their length.
    if WORD_BYTES_MAX < word.len() {
        return None;
    }
    let allowed = (word.chars().count() / 3).max(1);
    candidates
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// "did you mean …?", if there is a similar candidate.
pub fn did_you_mean<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    nearest(word, candidates).map(|meant| format!("did you mean `{meant}`?"))
}

/// The number of insertions, deletions, replacements and swaps of neighbours between the two words.
/// A difference in case costs at most half a replacement, so `kyma` is nearer to `Kyma` than
/// `Kymb`.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.to_lowercase().chars().collect(), b.to_lowercase().chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}
