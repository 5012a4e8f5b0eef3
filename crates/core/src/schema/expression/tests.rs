use std::sync::atomic::{AtomicUsize, Ordering};

use cel::objects::OptionalValue;

use super::*;

/// Test threads have stacks of 2 MiB, as tokio's workers have.
#[test]
fn a_long_chain_is_refused_before_it_overflows_the_stack() {
    let chain = |first: &str, next: &str, count: usize| format!("{first}{}", next.repeat(count));
    for (first, next) in [
        ("1", "+1"),
        ("a", "+a"),
        ("a", ".b"),
        ("a", ".?b"),
        ("a", ".trim()"),
        ("a", ".replace(a,a)"),
        ("a", "[0]"),
        ("true", "&&a"),
        ("a", "||a"),
        ("a", " in a"),
        ("-a", "*-a"),
    ] {
        // As long as a text may be.
        let longest = chain(first, next, (TEXT_LEN_MAX - first.len()) / next.len());
        let outcome = Expression::compile(&longest);
        let evaluated = outcome.map(|expression| expression.evaluate(&Variables::default()).is_ok());
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
    assert_eq!(sum.decide(&Variables::default()), Ok(true));
}

/// Evaluates with a list of ten numbers. Returns the result, and how many times the time was asked for.
fn asked(text: &str, asks_max: usize) -> (Result<CelValue, String>, usize) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let budget = Budget::new(move || counter.fetch_add(1, Ordering::Relaxed) < asks_max);
    let mut variables = Variables::within(&budget);
    variables.set("l", bind(&serde_json::json!([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])));
    let result = Expression::compile(text).unwrap().evaluate(&variables);
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

/// Variables with a text of a MiB, a list of a thousand numbers, and an object, also as an optional.
fn large() -> Variables {
    let text = "\\\"".repeat(1 << 19);
    let numbers: Vec<usize> = (0..1000).collect();
    let object = bind(&serde_json::json!({"text": text, "numbers": numbers, "short": "a,b"}));
    let mut variables = Variables::default();
    variables.set("oldSelf", CelValue::Opaque(Arc::new(OptionalValue::of(object.clone()))));
    variables.set("self", object);
    variables
}

#[test]
fn what_an_evaluation_builds_is_bounded() {
    let doubled = format!("['ab']{} == []", ".map(x, x + x)".repeat(30));
    let quoted = format!("{}self.text{} == ''", "strings.quote(".repeat(30), ")".repeat(30));
    let held = |part: &str| format!("{}''{}", format!("({part} == ").repeat(40), ")".repeat(40));
    let list = |part: &str, count: usize| format!("[{}] == []", vec![part; count].join(", "));
    for text in [
        "self.numbers.map(x, self.text + self.text) == []",
        "self.numbers.map(x, self.text) == []",
        "self.numbers.map(x, self) == []",
        "self.numbers.map(x, x > 1, {'a': self.text}) == []",
        "self.numbers.map(x, {self.text: x}) == []",
        "self.numbers.map(x, [[self.text]]) == []",
        "self.numbers.map(x, optional.of(self.text)) == []",
        "self.numbers.map(x, self.?text) == []",
        "self.numbers.map(x, self[?'text']) == []",
        "self.numbers.map(x, x > 1 ? self.text : '') == []",
        "self.numbers.map(x, 'a long text') == self.numbers.map(x, self.numbers.map(y, self.numbers.map(z, 'a')))",
        "self.numbers.map(x, self.numbers.map(y, [1, 2, 3, 4, 5, 6, 7, 8])) == []",
        // The room for what a filter drops.
        "self.numbers.map(x, self.numbers.map(y, self.numbers.filter(z, false))) == []",
        "self.numbers.map(x, self.numbers + self.numbers) == []",
        "self.numbers.map(x, bytes(self.text)) == []",
        "self.numbers.map(x, dyn(self.text)) == []",
        "lists.range(1000000) == []",
        "lists.range(1000000000) == []",
        "self.numbers.map(x, lists.range(1000)).flatten() == []",
        "[self.numbers.map(x, self.numbers)].flatten(3) == []",
        "self.text.split('') == []",
        "self.text.split('\"', 1000000) == []",
        "self.text.replace('\"', self.text) == ''",
        "self.text.replace('', self.text, 100) == ''",
        "self.numbers.map(x, string(x)).join(self.text) == ''",
        "'%s%s'.format([self.text, self.text]).format([self.text]) + self.text.reverse() == self.text.split('').join()",
        "self.numbers.all(x, '%s%s'.format([self.text, self.text]) != '')",
        "self.numbers.sortBy(x, self.text) == []",
        // The loop goes on after an error, and the error is dropped.
        "self.numbers.exists(x, (self.text + self.text) == 'a') || true",
        "self.numbers.exists(x, x > 900 || self.text.trim() == '')",
        "[oldSelf].all(x, self.numbers.all(y, x.text != ''))",
        &doubled,
        &quoted,
        &held("self.text.upperAscii()"),
        &held("oldSelf.text"),
        "self.numbers.map(x, oldSelf.value()) == []",
        "self.numbers.map(x, oldSelf.optMap(y, y.text)) == []",
        &held("oldSelf['text']"),
        &list("self.text", 500),
        &list("[self.text]", 500),
        &list("{'a': self}", 500),
    ] {
        let variables = large();
        let result = Expression::compile(text).unwrap().evaluate(&variables);
        let charged = variables.meter.charged();
        let problem = result.expect_err(text);
        assert!(problem.starts_with("it builds more than 16 MiB of strings and lists"), "{text}: {problem}");
        assert!(variables.meter.is_over(), "{text}: {charged}");
    }
}

#[test]
fn an_evaluation_charges_what_it_builds_and_each_begins_anew() {
    let variables = large();
    for (text, charged) in [
        // Reading and comparing is free.
        ("self.text == self.text && self.text.contains('a') == false && self.numbers.all(x, x + 1 > 0)", 0),
        ("self.short in ['a,b', 'c'] && has(self.short) && self.numbers[0] == 0 && size(self.text) > 1000", 0),
        ("self.numbers.exists_one(x, x == 5) && self.short.startsWith('a') && !self.short.matches('^b')", 0),
        ("self.short + 'c' == 'a,bc'", 64 + 4),
        ("[self.short, 'c'] == ['a,b', 'c']", 64 + 3 + 64 + 1),
        ("{'a': self.short}.a == 'a,b'", 64 + 1 + 64 + 3 + 64 + 3),
        ("lists.range(3) == [0, 1, 2]", 3 * 64),
        // The room for the items, and the items.
        ("[1, 2].map(x, x) == [1, 2]", 2 * 16 + 2 * 64),
        ("self.short.split(',') == ['a', 'b']", 64 + 3 + 2 * 64),
        ("['a', 'b'].join(', ') == 'a, b'", 64 + 2 + 2 * 2),
        ("self.short.replace(',', ' and ') == 'a and b'", 64 + 3 + 5),
    ] {
        let expression = Expression::compile(text).unwrap();
        for _ in 0..2 {
            assert_eq!(expression.decide(&variables), Ok(true), "{text}");
            assert_eq!(variables.meter.charged(), charged, "{text}");
        }
    }
}

/// Compared with the functions of the `cel` crate, which these replace.
#[test]
fn what_charges_its_result_first_has_the_same_result() {
    for text in [
        "''.split('')",
        "'aöb'.split('')",
        "'aöb'.split('', 0)",
        "'aöb'.split('', 2)",
        "'aöb'.split('', 7)",
        "'aöb'.split('', -1)",
        "''.split(',')",
        "'a,b,,c'.split(',')",
        "'a,b,,c'.split(',', 0)",
        "'a,b,,c'.split(',', 1)",
        "'a,b,,c'.split(',', 3)",
        "'a,b,,c'.split(',', 9)",
        "'a,b,,c'.split(',', -1)",
        "'a,b'.split(1)",
        "'a,b'.split(',', 'a')",
        "['a', 'b'].join()",
        "['a', 'b'].join(', ')",
        "[].join(', ')",
        "['a', 1].join(', ')",
        "'a'.join(', ')",
        "['a'].join(1)",
        "'aab'.replace('a', 'cc')",
        "'aab'.replace('', '-')",
        "'aab'.replace('a', 'cc', 1)",
        "'aab'.replace('a', 'cc', 0)",
        "'aab'.replace('a', 'cc', -1)",
        "'aab'.replace('a', 1)",
        "'aab'.replace('a', 'b', 'c')",
        "lists.range(3)",
        "lists.range(-1)",
        "lists.range('a')",
    ] {
        let context = Context::with_env(Arc::clone(&ENVIRONMENT));
        let expected = ENVIRONMENT.compile(text).unwrap().execute(&context).map_err(|problem| explain(&problem));
        let found = Expression::compile(text).unwrap().evaluate(&Variables::default());
        match (&found, &expected) {
            (Err(found), Err(expected)) if text.contains("'a', 1].join") => {
                assert_eq!((found.contains("join"), expected.contains("string")), (true, true));
            }
            _ => assert_eq!(found, expected, "{text}"),
        }
    }
}
