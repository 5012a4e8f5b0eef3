use super::*;

/// Test threads have stacks of 2 MiB, as tokio's workers have.
#[test]
fn a_long_chain_is_refused_before_it_overflows_the_stack() {
    let chain = |first: &str, next: &str, count: usize| format!("{first}{}", next.repeat(count));
    for (first, next) in
        [("1", "+1"), ("a", ".b"), ("a", "[0]"), ("true", "&&a"), ("a", "||a"), ("a", " in a"), ("-a", "*-a")]
    {
        // As long as a text may be.
        let longest = chain(first, next, (TEXT_LEN_MAX - first.len()) / next.len());
        let outcome = Expression::compile(&longest);
        let evaluated = outcome.map(|expression| expression.evaluate(&context()).is_ok());
        assert!(
            evaluated
                .as_ref()
                .map_or_else(|problem| problem.contains("nested more than"), |_| next.starts_with(['&', '|'])),
            "{first}{next}…: {evaluated:?}"
        );
    }
    for (open, close) in [("(", ")"), ("[", "]"), ("!(", ")"), ("size(", ")"), ("a?b:", "")] {
        let count = TEXT_LEN_MAX / (open.len() + close.len()) - 1;
        let longest = format!("{}1{}", open.repeat(count), close.repeat(count));
        let problem = Expression::compile(&longest).map(|expression| expression.text).unwrap_err();
        assert!(problem.contains("Recursion limit"), "{open}1{close}: {problem}");
    }
    let sum = Expression::compile(&format!("{} == 401", chain("1", "+1", 400))).unwrap();
    assert_eq!(sum.decide(&context()), Ok(true));
}
