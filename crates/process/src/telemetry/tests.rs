use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use super::*;

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The JSON records that `log` writes, without their dates.
fn records(log: impl FnOnce()) -> Vec<Value> {
    let sink = Sink::default();
    let writer = sink.clone();
    let subscriber = tracing_subscriber::registry().with(json_layer(move || writer.clone()));
    tracing::subscriber::with_default(subscriber, log);
    let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
    text.lines()
        .map(|line| {
            let mut record: Value = serde_json::from_str(line).unwrap();
            let date = record.as_object_mut().unwrap().shift_remove("date").unwrap();
            date.as_str().unwrap().parse::<Timestamp>().unwrap();
            record
        })
        .collect()
}

#[test]
fn a_record_has_lifecycle_managers_keys() {
    let found = records(|| tracing::info!(count = 3, name = "a \"quoted\" name", ok = true, "applied"));
    let expected = serde_json::json!({
        "level": "INFO",
        "caller": "tidegate_process::telemetry::tests",
        "msg": "applied",
        "context": {"count": 3, "name": "a \"quoted\" name", "ok": true},
    });
    assert_eq!(found, [expected]);
}

#[test]
fn fields_of_spans_are_in_the_context_and_the_innermost_wins() {
    let found = records(|| {
        let _outer = tracing::info_span!("pass", subject = "outer", trigger = "git").entered();
        let _inner = tracing::info_span!("step", subject = "inner").entered();
        tracing::warn!(error = %"line one\nline two", "not applied");
    });
    let context = serde_json::json!({"subject": "inner", "trigger": "git", "error": "line one\nline two"});
    assert_eq!(found[0]["context"], context);
}

#[test]
fn a_record_without_fields_has_no_context() {
    assert_eq!(records(|| tracing::info!("started"))[0].get("context"), None);
}

#[test]
fn a_bad_filter_is_one_sentence() {
    let error = init("tidegate=loud", Format::Json).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid log filter `tidegate=loud`: use for example `info` or `warn,tidegate=debug`"
    );
}
