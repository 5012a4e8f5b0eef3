//! Random writes by several managers, from fixed seeds, for cases that the other tests do not cover.

use serde_json::{Map, Value, json};

use super::{
    sides::{Ask, check},
    widget,
};

/// A small generator, so that a seed means the same for ever (Steele, Lea, Flood: `SplitMix64`).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below the bound")
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn some<'a>(&mut self, of: &[&'a str]) -> Vec<&'a str> {
        let mut picked: Vec<&str> = of.iter().filter(|_| self.one_in(2)).copied().collect();
        for index in (1..picked.len()).rev() {
            picked.swap(index, self.below(index + 1));
        }
        picked
    }
}

const NAMES: &[&str] = &["a", "b", "c", "d"];
const TEXTS: &[&str] = &["x", "y"];

/// A spec with some of the fields.
fn spec(random: &mut Random) -> Value {
    let mut spec = Map::new();
    let fields = ["text", "number", "texts", "whole", "list", "set", "parts", "anything", "untyped", "either"];
    for name in fields {
        if random.one_in(2) {
            continue;
        }
        let value = match name {
            "text" => json!(random.pick(TEXTS)),
            "number" => json!(random.below(2)),
            "texts" => texts(random),
            "whole" => json!({"a": random.pick(TEXTS)}),
            "list" | "set" => json!(random.some(NAMES)),
            "parts" => parts(random),
            "anything" => anything(random, 3),
            "untyped" => match random.below(4) {
                0 => json!(random.some(NAMES)),
                1 => json!(random.below(3)),
                _ => anything(random, 2),
            },
            _ => {
                if random.one_in(2) {
                    json!(random.below(3))
                } else {
                    json!("1")
                }
            }
        };
        spec.insert(name.to_owned(), value);
    }
    Value::Object(spec)
}

fn texts(random: &mut Random) -> Value {
    random
        .some(NAMES)
        .into_iter()
        .map(|name| (name.to_owned(), json!(random.pick(TEXTS))))
        .collect::<Map<_, _>>()
        .into()
}

fn parts(random: &mut Random) -> Value {
    let mut parts = Vec::new();
    for name in random.some(NAMES) {
        let mut part = json!({"name": name});
        if random.one_in(2) {
            part["size"] = json!(random.below(2));
        }
        if random.one_in(2) {
            part["tags"] = json!(random.some(TEXTS));
        }
        if random.one_in(3) {
            part["inner"] = json!({random.pick(&["a", "b"]): random.pick(TEXTS)});
        }
        if random.one_in(4) {
            part["protocol"] = json!("UDP");
        }
        parts.push(part);
    }
    Value::Array(parts)
}

fn anything(random: &mut Random, depth: usize) -> Value {
    let mut fields = Map::new();
    for name in random.some(NAMES) {
        let value = match random.below(4) {
            0 if 0 < depth => anything(random, depth - 1),
            1 => json!(random.some(TEXTS)),
            2 => json!(random.below(2)),
            _ => json!(random.pick(TEXTS)),
        };
        fields.insert(name.to_owned(), value);
    }
    Value::Object(fields)
}

fn ask(random: &mut Random) -> Ask {
    let manager = random.pick(&["one", "two", "three"]);
    let mut object = widget::with("w", spec(random));
    if random.one_in(3) {
        object["metadata"]["labels"] = texts(random);
    }
    match random.below(8) {
        0..=2 => Ask::apply(manager, &object),
        3..=5 => Ask::force(manager, &object),
        6 => {
            let mut patch = json!({"spec": object["spec"]});
            if random.one_in(2) {
                patch["spec"][random.pick(&["text", "texts", "parts", "anything", "set"])] = Value::Null;
            }
            Ask::merge("w", manager, &patch)
        }
        _ => {
            let field = random.pick(&["texts", "parts", "anything", "untyped", "list"]);
            Ask::json(
                "w",
                manager,
                &json!([{"op": "replace", "path": "/spec", "value": {field: object["spec"][field]}}]),
            )
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_writes_are_answered_alike() {
    for seed in 0..6 {
        let mut random = Random(seed);
        let mut asks = vec![Ask::apply("one", &widget::with("w", spec(&mut random)))];
        asks.extend((0..60).map(|_| ask(&mut random)));
        check(&asks).await;
    }
}
