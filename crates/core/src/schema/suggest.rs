//! Finds the known word that an unknown one most likely misspells.

/// The longest word for which there is a suggestion.
const WORD_BYTES_MAX: usize = 256;

/// The candidate that differs least from `word`, if the difference is small enough for a typing
/// error.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words are not typing errors, and the cost grows with their length.
    if WORD_BYTES_MAX < word.len() {
        return None;
    }
    let lower = word.to_lowercase();
    // One error in a short word, two in a word of six letters, at most three: beyond that a guess misleads.
    let distance_max = (word.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= distance_max)
        .min()
        .map(|(_, candidate)| candidate)
}

/// The number of insertions, deletions, replacements and swaps of neighbours between two words.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    // Longer words are not typing errors, and the cost grows with the square of the length.
    const LEN_MAX: usize = 64;
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(LEN_MAX).collect(), b.chars().take(LEN_MAX).collect());
    let mut before = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &to) in b.iter().enumerate() {
            let mut cost = (last[j] + usize::from(from != to)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && from == b[j - 1] && a[i - 1] == to {
                let swapped: &Vec<usize> = &before;
                cost = cost.min(swapped[j - 1] + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}
