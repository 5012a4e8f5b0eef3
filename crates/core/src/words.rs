//! Numbers and lists in sentences.

/// How many names a sentence shows before it counts the others.
const NAMED_MAX: usize = 3;

/// `1 object`, `2 objects`.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The form of a verb, or of another word, that agrees with a number.
pub fn agreeing<'a>(count: usize, one: &'a str, several: &'a str) -> &'a str {
    if count == 1 { one } else { several }
}

/// `a, b, c and 2 more`.
pub fn few<S: AsRef<str>>(names: &[S]) -> String {
    first(names, NAMED_MAX)
}

/// The same, with this number of names.
pub fn first<S: AsRef<str>>(names: &[S], most: usize) -> String {
    let first = names.iter().take(most).map(AsRef::as_ref).collect::<Vec<&str>>().join(", ");
    match names.len().saturating_sub(most) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_several() {
        assert_eq!([counted(0, "Kyma"), counted(1, "Kyma"), counted(2, "Kyma")], ["0 Kymas", "1 Kyma", "2 Kymas"]);
        assert_eq!([agreeing(1, "is", "are"), agreeing(0, "is", "are")], ["is", "are"]);
    }

    #[test]
    fn a_long_list_is_cut() {
        assert_eq!(few(&["a", "b", "c"]), "a, b, c");
        assert_eq!(few(&["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
        assert_eq!(few::<&str>(&[]), "");
        assert_eq!(first(&["a", "b", "c", "d", "e"], 4), "a, b, c, d and 1 more");
    }
}
