use std::sync::atomic::{AtomicUsize, Ordering};

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

/// Evaluates with a list of ten numbers. Returns the result, and how many times the time was asked for.
fn asked(text: &str, asks_max: usize) -> (Result<CelValue, String>, usize) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let budget = Budget::new(move || counter.fetch_add(1, Ordering::Relaxed) < asks_max);
    let mut context = context_within(&budget);
    context.add_variable_from_value("l", bind(&serde_json::json!([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])));
    let result = Expression::compile(text).unwrap().evaluate(&context);
    (result, asked.load(Ordering::Relaxed))
}

#[test]
fn each_loop_asks_for_time_before_each_item_and_ends_without() {
    for (text, holds, items) in [
        ("l.all(a, a >= 0)", true, 10),
        ("l.exists(a, a == 9)", true, 10),
        ("l.exists(a, l.exists(b, l.exists(c, c > 9)))", false, 10 + 100 + 1000),
        ("l.all(a, l.all(b, l.all(c, a + b + c >= 0)))", true, 10 + 100 + 1000),
        ("l.exists_one(a, l.exists_one(b, b == a) && a == 1)", true, 10 + 100),
        ("l.map(a, l.map(b, a + b)).size() == 10", true, 10 + 100),
        // What passes the filter is asked for twice.
        ("l.map(a, l.filter(b, a < b)).size() == 10", true, 10 + 100 + 45),
        ("l.map(a, a > 4, l.size() + a).size() == 5", true, 10 + 5),
    ] {
        let (result, asked_for_all) = asked(text, usize::MAX);
        assert_eq!((result, asked_for_all), (Ok(CelValue::Bool(holds)), items), "{text}");
        for limit in [0, 1, 7, asked_for_all / 2] {
            assert_eq!(asked(text, limit).1, limit + 1, "{text}: the time is over after {limit}");
        }
    }
}
