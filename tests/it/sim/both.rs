//! The same requests to a real kube-apiserver and to the simulator: every answer must be the same, but for what a
//! server makes up (uids, versions, times, tokens).

use std::collections::BTreeMap;

use http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use kube_sim::{Options, Server};
use serde_json::{Value, json};

use crate::harness;

/// A request. In path and body `{ns}` is the test's namespace, and `{uid:2}` and `{rv:2}` are of the answer to its
/// third request.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: String,
    /// What is sent instead of the body's text.
    bytes: Option<Vec<u8>>,
    /// Only the code, the reason and where something is wrong are compared, since the words are known to differ.
    loose: bool,
}

/// An answer: its code, its content type, warnings, and what it says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) code: u16,
    content_type: String,
    warnings: Vec<String>,
    retry_after: String,
    pub(super) body: Value,
}

/// Both sides, with one namespace of the same name.
pub(super) struct Both {
    pub(super) real: Client,
    pub(super) simulated: Client,
    pub(super) server: Server,
    pub(super) namespace: String,
}

// === impl Ask ===

impl Ask {
    fn new(method: &'static str, path: &str, body: String) -> Ask {
        Ask { method, path: path.to_owned(), headers: Vec::new(), body, bytes: None, loose: false }
    }

    pub(super) fn get(path: &str) -> Ask {
        Ask::new("GET", path, String::new())
    }

    pub(super) fn post(path: &str, body: &Value) -> Ask {
        Ask::new("POST", path, body.to_string()).header("content-type", "application/json")
    }

    pub(super) fn put(path: &str, body: &Value) -> Ask {
        Ask::new("PUT", path, body.to_string()).header("content-type", "application/json")
    }

    pub(super) fn merge(path: &str, body: &Value) -> Ask {
        Ask::new("PATCH", path, body.to_string()).header("content-type", "application/merge-patch+json")
    }

    pub(super) fn json(path: &str, body: &Value) -> Ask {
        Ask::new("PATCH", path, body.to_string()).header("content-type", "application/json-patch+json")
    }

    pub(super) fn apply(path: &str, body: &Value) -> Ask {
        Ask::new("PATCH", path, body.to_string()).header("content-type", "application/apply-patch+yaml")
    }

    pub(super) fn delete(path: &str) -> Ask {
        Ask::new("DELETE", path, String::new())
    }

    pub(super) fn delete_with(path: &str, body: &Value) -> Ask {
        Ask::new("DELETE", path, body.to_string()).header("content-type", "application/json")
    }

    /// Any text as the body.
    pub(super) fn raw(method: &'static str, path: &str, content_type: &str, body: &str) -> Ask {
        Ask::new(method, path, body.to_owned()).header("content-type", content_type)
    }

    /// POST of bytes that are no text.
    pub(super) fn bytes(path: &str, content_type: &str, bytes: Vec<u8>) -> Ask {
        Ask { bytes: Some(bytes), ..Ask::raw("POST", path, content_type, "") }
    }

    pub(super) fn header(mut self, name: &'static str, value: &str) -> Ask {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(super) fn accept(self, value: &str) -> Ask {
        self.header("accept", value)
    }

    /// The words of the answer differ on purpose; its code, its reason, and where something is wrong must not.
    pub(super) fn loosely(self) -> Ask {
        Ask { loose: true, ..self }
    }

    pub(super) async fn send(&self, client: &Client, namespace: &str, former: &[Answer]) -> Answer {
        let fill = |text: &str| {
            let mut text = text.replace("{ns}", namespace);
            for (index, answer) in former.iter().enumerate() {
                for (word, field) in [("uid", "uid"), ("rv", "resourceVersion"), ("continue", "continue")] {
                    let value = answer.body["metadata"][field].as_str().unwrap_or_default();
                    text = text.replace(&format!("{{{word}:{index}}}"), value);
                }
            }
            text
        };
        let mut request =
            Request::builder().method(self.method).uri(fill(&self.path)).header("user-agent", "suite/1.0");
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let body = self.bytes.clone().unwrap_or_else(|| fill(&self.body).into_bytes());
        let request = request.body(Body::from(body)).expect("a request");
        let response = client.send(request).await.expect("an answer");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let header = |headers: &HeaderMap, name: &str| -> Vec<String> {
            headers.get_all(name).iter().map(|value| value.to_str().expect("text").to_owned()).collect()
        };
        Answer {
            code: parts.status.as_u16(),
            content_type: header(&parts.headers, "content-type").join(""),
            warnings: header(&parts.headers, "warning"),
            retry_after: header(&parts.headers, "retry-after").join(""),
            body: parse(&bytes),
        }
    }
}

/// JSON, lines of JSON, or text.
fn parse(bytes: &[u8]) -> Value {
    if let Ok(value) = serde_json::from_slice(bytes) {
        return value;
    }
    let text = String::from_utf8_lossy(bytes).into_owned();
    let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    let Ok(mut lines) = lines else { return json!(text) };
    // How often a watch says how far it is depends on when it began.
    lines.dedup_by(|later, former| [later, former].iter().all(|event| event["type"] == "BOOKMARK"));
    Value::from(lines)
}

// === impl Both ===

impl Both {
    pub(super) async fn new() -> Both {
        Both::create(harness::api_server().await.client().expect("a client")).await
    }

    /// With a real server that has controllers.
    pub(super) async fn with_controllers() -> Both {
        Both::create(harness::skr().await.client().expect("a client")).await
    }

    pub(super) async fn create(real: Client) -> Both {
        let namespace = harness::namespace(&real, "sim").await;
        let server = Server::new(&Options::default());
        let simulated = server.client();
        harness::apply(&simulated, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
            .await;
        Both { real, simulated, server, namespace }
    }

    /// Installs a CRD on both sides.
    pub(super) async fn install(&self, crd: &Value) {
        harness::install_crds(&self.real, std::slice::from_ref(crd)).await;
        harness::install_crds(&self.simulated, std::slice::from_ref(crd)).await;
    }

    /// Asks both sides one request after the other, and returns the real server's answers.
    pub(super) async fn check(&self, asks: &[Ask]) -> Vec<Answer> {
        let (mut expected, mut found) = (Vec::new(), Vec::new());
        let mut problems = Vec::new();
        for (index, ask) in asks.iter().enumerate() {
            let real = ask.send(&self.real, &self.namespace, &expected).await;
            let simulated = ask.send(&self.simulated, &self.namespace, &found).await;
            let (left, right) = (normal(&real, ask.loose), normal(&simulated, ask.loose));
            if left != right {
                let body: String = ask.body.chars().take(300).collect();
                problems.push(format!(
                    "request {index}: {} {} {:?} {body}\n{}",
                    ask.method,
                    ask.path,
                    ask.headers,
                    difference(&left, &right)
                ));
            }
            expected.push(real);
            found.push(simulated);
        }
        assert!(problems.is_empty(), "{} of {} differ\n{}", problems.len(), asks.len(), problems.join("\n"));
        expected
    }
}

impl Both {
    /// Waits until both sides answer each of these alike, which is what the simulator answers now.
    pub(super) async fn settle(&self, asks: &[Ask]) {
        for ask in asks {
            let simulated = normal(&ask.send(&self.simulated, &self.namespace, &[]).await, false);
            harness::eventually("the real server comes to the same", harness::SOON, async || {
                let real = normal(&ask.send(&self.real, &self.namespace, &[]).await, false);
                if real == simulated { Ok(()) } else { Err(difference(&real, &simulated)) }
            })
            .await;
        }
    }

    /// Waits until what `holds` asks is so on the real side; on the simulated one it must be so now.
    pub(super) async fn settle_to(&self, ask: &Ask, holds: impl Fn(&Value) -> bool) {
        let simulated = ask.send(&self.simulated, &self.namespace, &[]).await;
        assert!(holds(&simulated.body), "{simulated:?}");
        harness::eventually("the real server comes to the same", harness::SOON, async || {
            let real = ask.send(&self.real, &self.namespace, &[]).await;
            if holds(&real.body) { Ok(()) } else { Err(format!("{real:?}")) }
        })
        .await;
    }
}

/// The lines in which two answers differ, those of the real server with a minus.
fn difference(real: &Value, simulated: &Value) -> String {
    let text = |value: &Value| format!("{value:#}\n");
    similar::TextDiff::from_lines(text(real), text(simulated)).unified_diff().context_radius(4).to_string()
}

/// An answer without what a server makes up, its fields sorted.
fn normal(answer: &Answer, loose: bool) -> Value {
    let body = if loose {
        let details = &answer.body["details"];
        let causes = details["causes"].as_array().into_iter().flatten();
        let mut causes: Vec<Value> = causes.map(|of| json!([of["field"], of["reason"]])).collect();
        causes.sort_by_key(Value::to_string);
        let of = json!([details["group"], details["kind"], details["name"]]);
        json!({"reason": answer.body["reason"], "kind": answer.body["kind"], "of": of, "causes": causes})
    } else {
        sorted(&answer.body)
    };
    let (warnings, retry_after) = (&answer.warnings, &answer.retry_after);
    json!({
        "code": answer.code, "type": answer.content_type, "warnings": warnings, "retry": retry_after, "body": body,
    })
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<String, Value> = fields
                .iter()
                .map(|(name, value)| {
                    let made_up = matches!(
                        (name.as_str(), value),
                        ("uid" | "resourceVersion" | "creationTimestamp" | "deletionTimestamp", Value::String(_))
                            | ("time" | "lastTransitionTime" | "continue", Value::String(_))
                    );
                    let empty = value.as_str() == Some("");
                    let value = match value {
                        _ if made_up && !empty => json!("MADE UP"),
                        Value::Array(entries) if name == "managedFields" => in_order_of_owners(entries),
                        other => sorted(other),
                    };
                    (without_numbers(name), value)
                })
                .collect();
            json!(fields)
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        // Versions and uids in messages.
        Value::String(text) => json!(without_numbers(text)),
        other => other.clone(),
    }
}

/// Entries of managed fields in an order that does not depend on their times, and whether they came in the order of
/// servers, by time: two writes may be in one second on one side and in two on the other.
fn in_order_of_owners(entries: &[Value]) -> Value {
    let by_time = |entry: &Value| {
        ["operation", "time", "manager", "apiVersion", "subresource"]
            .map(|field| entry[field].as_str().map(str::to_owned))
    };
    let is_ordered = entries.is_sorted_by_key(by_time);
    let mut entries: Vec<Value> = entries.iter().map(sorted).collect();
    entries.sort_by_cached_key(|entry| {
        ["operation", "manager", "subresource", "apiVersion"].map(|field| entry[field].to_string())
    });
    json!({"by time": is_ordered, "entries": entries})
}

/// A message without versions and uids, which are the only long numbers in it.
fn without_numbers(text: &str) -> String {
    static UID: std::sync::LazyLock<regex::Regex> = std::sync::LazyLock::new(|| {
        regex::Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").expect("a pattern")
    });
    static VERSION: std::sync::LazyLock<regex::Regex> = std::sync::LazyLock::new(|| {
        regex::Regex::new(r"(current: |in record \(|resource version: [0-9]+ \()[0-9]+").expect("a pattern")
    });
    static SELF: std::sync::LazyLock<regex::Regex> =
        std::sync::LazyLock::new(|| regex::Regex::new("selfType[0-9]+").expect("a pattern"));
    let text = UID.replace_all(text, "UID");
    // The type of what a rule speaks of bears the time of its making.
    let text = SELF.replace_all(&text, "selfTypeN");
    // Real servers that share an etcd have prefixes there.
    let text = text.replace("Key: /api-server/", "Key: /registry/");
    VERSION.replace_all(&text, "${1}N").into_owned()
}
