//! Logs: JSON with Lifecycle Manager's keys, or text for people on a terminal.
//!
//! A record is `{"level","date","caller","msg","context"}`. `context` contains the fields of the record and of its
//! spans; an inner span overrides an outer one. Messages contain no values, so that equal records have equal messages.
//! This module cannot recognise secrets: callers must not log any.

use std::{
    fmt::{self, Write as _},
    io::{self, IsTerminal as _},
};

use jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::{Event, Subscriber, field};
use tracing_subscriber::{
    EnvFilter,
    fmt::{
        FmtContext, FormatEvent, FormattedFields, MakeWriter,
        format::{Format as TextFormat, JsonFields, Writer},
    },
    layer::SubscriberExt as _,
    registry::LookupSpan,
    util::SubscriberInitExt as _,
};

/// The format of logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// [`Format::Text`] on a terminal, [`Format::Json`] elsewhere.
    #[default]
    Auto,
    /// One JSON object per line.
    Json,
    /// Text for people.
    Text,
}

/// Why logs cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter is invalid.
    #[error("invalid log filter `{filter}`: use for example `info` or `warn,tidegate=debug`")]
    Filter {
        /// The filter.
        filter: String,
    },
    /// Another subscriber is set up.
    #[error("logs are set up already")]
    Twice,
}

/// The default filter: our own changes of state, and warnings of other crates.
pub const FILTER: &str = "warn,tidegate=info";

/// Checks a log filter.
///
/// # Errors
///
/// Fails if the filter is invalid.
pub fn check(filter: &str) -> Result<(), Error> {
    EnvFilter::try_new(filter).map(|_| ()).map_err(|_| Error::Filter { filter: filter.to_owned() })
}

/// Writes logs to standard error. `main` calls it once.
///
/// A record that cannot be written, for example to a full disk, is lost: reporting that on standard error would panic.
///
/// # Errors
///
/// Fails if the filter is invalid or logs are set up already.
pub fn init(filter: &str, format: Format) -> Result<(), Error> {
    let filter = EnvFilter::try_new(filter).map_err(|_| Error::Filter { filter: filter.to_owned() })?;
    let json = match format {
        Format::Auto => !io::stderr().is_terminal(),
        Format::Json => true,
        Format::Text => false,
    };
    let registry = tracing_subscriber::registry().with(filter);
    if json {
        registry.with(json_layer(io::stderr)).try_init()
    } else {
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && io::stderr().is_terminal();
        let layer = tracing_subscriber::fmt::layer()
            .event_format(TextFormat::default().compact().with_target(false))
            .with_ansi(colours)
            .log_internal_errors(false)
            .with_writer(io::stderr);
        registry.with(layer).try_init()
    }
    .map_err(|_| Error::Twice)
}

/// The same JSON logs for a program within another program. They go to `writer` while the caller makes the result the
/// default of a thread.
///
/// # Errors
///
/// Fails if the filter is invalid.
pub fn json<W>(filter: &str, writer: W) -> Result<tracing::Dispatch, Error>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(filter).map_err(|_| Error::Filter { filter: filter.to_owned() })?;
    Ok(tracing_subscriber::registry().with(filter).with(json_layer(writer)).into())
}

/// The layer that writes JSON.
fn json_layer<S, W>(writer: W) -> impl tracing_subscriber::Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + 'static,
{
    tracing_subscriber::fmt::layer()
        .fmt_fields(JsonFields::new())
        .event_format(Json)
        .with_ansi(false)
        .log_internal_errors(false)
        .with_writer(writer)
}

/// Records as JSON.
struct Json;

impl<S> FormatEvent<S, JsonFields> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Map::new();
        for span in context.event_scope().into_iter().flat_map(tracing_subscriber::registry::Scope::from_root) {
            let extensions = span.extensions();
            if let Some(formatted) = extensions.get::<FormattedFields<JsonFields>>()
                && let Ok(Value::Object(of_span)) = serde_json::from_str(&formatted.fields)
            {
                fields.extend(of_span);
            }
        }
        fields.extend(fields_of(event));
        let message = fields.remove("message").unwrap_or_else(|| Value::from(""));
        let mut record = Map::new();
        record.insert("level".to_owned(), event.metadata().level().as_str().into());
        record.insert("date".to_owned(), Timestamp::now().to_string().into());
        record.insert("caller".to_owned(), event.metadata().target().into());
        record.insert("msg".to_owned(), message);
        if !fields.is_empty() {
            record.insert("context".to_owned(), Value::Object(fields));
        }
        writeln!(writer, "{}", Value::Object(record))
    }
}

/// The fields of the record itself.
fn fields_of(event: &Event<'_>) -> Map<String, Value> {
    let mut fields = Fields(Map::new());
    event.record(&mut fields);
    fields.0
}

struct Fields(Map<String, Value>);

impl Fields {
    fn set(&mut self, field: &field::Field, value: impl Into<Value>) {
        // Code writes a field `type` as `r#type`.
        let name = field.name().strip_prefix("r#").unwrap_or(field.name());
        self.0.insert(name.to_owned(), value.into());
    }
}

impl field::Visit for Fields {
    fn record_debug(&mut self, field: &field::Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // Writing to a String fails only if formatting the value fails; then there is no text.
        let _ = write!(text, "{value:?}");
        self.set(field, text);
    }

    fn record_str(&mut self, field: &field::Field, value: &str) {
        self.set(field, value);
    }

    fn record_bool(&mut self, field: &field::Field, value: bool) {
        self.set(field, value);
    }

    fn record_i64(&mut self, field: &field::Field, value: i64) {
        self.set(field, value);
    }

    fn record_u64(&mut self, field: &field::Field, value: u64) {
        self.set(field, value);
    }

    fn record_f64(&mut self, field: &field::Field, value: f64) {
        self.set(field, value);
    }
}

#[cfg(test)]
mod tests;
