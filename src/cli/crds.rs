//! `tidegate crds`: the CustomResourceDefinitions, ready for `kubectl apply --server-side -f -`.

use anyhow::Context as _;
use serde_json::{Number, Value, json};

use tidegate_core::{
    api::{self, setup},
    yaml,
};
use tidegate_process::Exit;

use super::output;

/// Prints the CustomResourceDefinitions that Tidegate needs.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Print those of kcp landscapes instead: RootShard, Shard, FrontProxy, CacheServer, VirtualWorkspace, Kubeconfig
    /// [default: those of Kyma landscapes]
    #[arg(long)]
    kcp: bool,
    /// Print in this format
    #[arg(short, long, value_enum, default_value_t = Output::Yaml)]
    output: Output,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Output {
    /// One YAML document per definition
    Yaml,
    /// One JSON list
    Json,
}

/// Runs the command. Fails if standard output cannot be written.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let crds = crds(arguments.kcp)?;
    let text = match arguments.output {
        Output::Yaml => crds.iter().map(|crd| format!("---\n{}", yaml::to_string(crd))).collect(),
        Output::Json => {
            let list = json!({"apiVersion": "v1", "kind": "List", "items": crds});
            format!("{}\n", serde_json::to_string_pretty(&list).context("cannot write JSON")?)
        }
    };
    output::print(text.as_bytes())
}

/// The definitions by name: those of kcp landscapes, or all others.
pub(super) fn crds(kcp: bool) -> anyhow::Result<Vec<Value>> {
    let mut found = if kcp { setup::Kind::ALL.map(setup::Kind::crd).to_vec() } else { api::crds().to_vec() };
    found.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    let mut crds = Vec::new();
    for crd in found {
        let mut crd = serde_json::to_value(crd).context("cannot write a CustomResourceDefinition")?;
        write_whole_numbers_whole(&mut crd);
        crds.push(crd);
    }
    Ok(crds)
}

/// Writes whole numbers without a fraction. The bounds of schemas are floats: `minimum: 0.0` would puzzle a reader.
fn write_whole_numbers_whole(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(write_whole_numbers_whole),
        Value::Array(items) => items.iter_mut().for_each(write_whole_numbers_whole),
        Value::Number(number) => {
            let whole = number.as_f64().filter(|_| number.is_f64()).filter(|float| float.fract() == 0.0);
            // A number that does not fit stays as it is.
            if let Some(whole) = whole.and_then(|float| format!("{float:.0}").parse::<i64>().ok()) {
                *number = Number::from(whole);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
