//! Rules with functions of the libraries that Kubernetes adds to CEL: taken as the real server takes them, and computed
//! the same, or never said to fail.

use serde_json::{Value, json};

use super::both::{Ask, Both};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Rules on an object with `a: string`, `many: [string]`, `numbers: [integer]` and `texts: {string}`.
const TAKEN: &[&str] = &[
    "isURL(self.a)",
    "isURL(self.a) && url(self.a).getHost() == 'a.b'",
    "isQuantity(self.a) && quantity(self.a).isGreaterThan(quantity('1Gi'))",
    "isIP(self.a) && ip(self.a).family() == 4",
    "isCIDR(self.a) && cidr(self.a).containsIP('10.0.0.1')",
    "ip.isCanonical(self.a)",
    "self.numbers.isSorted()",
    "self.numbers.sum() > 1 && self.numbers.min() == 1 && self.numbers.max() < 9",
    "self.many.indexOf('a') == 0 && self.many.lastIndexOf('a') == 0",
    "self.a.find('[0-9]+') == '1'",
    "self.a.findAll('[0-9]+').size() == 2 && self.a.findAll('[0-9]+', 1).size() == 1",
    "optional.of(self.a).orValue('x') == 'x'",
    "self.?a.orValue('x') == 'x'",
    "self.?a.optMap(one, one.size()).orValue(0) > 0",
    "!format.named('dns1123Label').value().validate(self.a).hasValue()",
    "!format.dns1123Label().validate(self.a).hasValue()",
    "sets.contains(self.many, ['a', 'b']) || sets.equivalent(self.many, ['a']) || sets.intersects(self.many, ['c'])",
    "isSemver(self.a) && semver(self.a).major() == 1 && semver(self.a).isLessThan(semver('2.0.0'))",
    "timestamp('2020-01-01T00:00:00Z') < timestamp(self.a)",
    "duration(self.a) < duration('1h')",
    "self.many.all(i, one, one.size() > i)",
    "self.texts.exists(key, one, key == one)",
    "self.many.existsOne(i, one, i == 1 && one == 'a')",
    "self.texts.transformMap(key, one, one + key).size() == 1",
    "self.many.transformList(i, one, one + 'a').size() == 1",
    "self.texts.transformList(key, one, one != '', key).size() == 1",
    "self.many.transformMapEntry(i, one, {one: i}).size() == 1",
    "type(self.a) == string && type(self.numbers[0]) == int",
    "strings.quote(self.a) == '\"a\"'",
    "self.a.charAt(0) == 'a' && self.a.lowerAscii() == self.a.upperAscii().lowerAscii()",
    "self.a.split(',').size() == 1 && self.many.join('-') == '' || self.a.replace('a', 'b') == ''",
    "self.a.substring(0, 1).trim() == 'a'",
    "self.many.first().hasValue() && self.many.sort() == self.many.sortBy(one, one).distinct().reverse()",
    "ip('1.2.3.4').isLoopback() || cidr('1.2.3.4/8').masked() == cidr('1.0.0.0/8')",
    "url('http://a').getEscapedPath() == '' && url('http://a').getQuery() == {}",
    "timestamp('2020-01-01T00:00:00Z').getFullYear() == 1 && duration('1h').getHours() == 1",
    "type(timestamp('2020-01-01T00:00:00Z')) == google.protobuf.Timestamp",
    "optional.unwrap([optional.of(1)]) == [1] && [optional.of(1)].unwrapOpt() == [1]",
    "lists.range(2) == [0, 1] && self.many.slice(0, 1) == ['a']",
];

fn definition(index: usize, rule: &str) -> Value {
    let texts = json!({"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 20}});
    let schema = json!({
        "type": "object",
        "properties": {"spec": {
            "type": "object",
            "required": ["a", "many", "numbers", "texts"],
            "properties": {
                "a": {"type": "string", "maxLength": 20},
                "many": texts,
                "numbers": {"type": "array", "maxItems": 3, "items": {"type": "integer"}},
                "texts": {
                    "type": "object", "maxProperties": 3, "additionalProperties": {"type": "string", "maxLength": 20},
                },
            },
            "x-kubernetes-validations": [{"rule": rule}],
        }},
    });
    let plural = format!("ruled{index}s");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.library.example.com")},
        "spec": {
            "group": "library.example.com", "scope": "Namespaced",
            "names": {"kind": format!("Ruled{index}"), "plural": plural},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_may_use_the_libraries_of_the_server() {
    let both = Both::new().await;
    let path = format!("{DEFINITIONS}?dryRun=All");
    let taken = TAKEN.iter().enumerate();
    let mut asks: Vec<Ask> = taken.map(|(index, rule)| Ask::post(&path, &definition(index, rule))).collect();
    for rule in ["isUrl(self.a)", "sets.none(self.many, ['a'])", "self.many.sums() == 1", "math.abs(1) == 1"] {
        asks.push(Ask::post(&path, &definition(100, rule)).loosely());
    }
    let answers = both.check(&asks).await;
    let codes: Vec<u16> = answers.iter().map(|answer| answer.code).collect();
    assert_eq!(codes, [vec![201; TAKEN.len()], vec![422; 4]].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_computed_is_what_the_server_computes() {
    let both = Both::new().await;
    for (index, (rule, objects)) in COMPUTED.iter().enumerate() {
        both.install(&definition(200 + index, rule)).await;
        let plural = format!("/apis/library.example.com/v1/namespaces/{{ns}}/ruled{}s?dryRun=All", 200 + index);
        let asks: Vec<Ask> = objects
            .iter()
            .map(|(a, many, numbers)| {
                Ask::post(
                    &plural,
                    &json!({
                        "apiVersion": "library.example.com/v1", "kind": format!("Ruled{}", 200 + index),
                        "metadata": {"name": "a"},
                        "spec": {"a": a, "many": many, "numbers": numbers, "texts": {}},
                    }),
                )
            })
            .collect();
        both.check(&asks).await;
    }
}

type Sent = (&'static str, &'static [&'static str], &'static [i64]);

/// Rules, and objects of which some keep them.
const COMPUTED: &[(&str, &[Sent])] = &[
    ("type(self.a) == string", &[("a", &[], &[])]),
    ("strings.quote(self.a) == '\"a\"'", &[("a", &[], &[]), ("b", &[], &[])]),
    (
        "self.many.indexOf('b') == 1 && self.many.lastIndexOf('b') == 2",
        &[("", &["a", "b", "b"], &[]), ("", &["b"], &[])],
    ),
    ("self.many.sort() == ['a', 'b']", &[("", &["b", "a"], &[]), ("", &["c"], &[])]),
    ("self.?a.orValue('') == 'a'", &[("a", &[], &[]), ("b", &[], &[])]),
];
