//! The rules of each kind that its schema cannot express.

use serde_json::Value;

use super::Check;
use crate::{
    definition::{Kind, code, near},
    object::PathPart,
    yaml::short,
};

/// The channel name that means "no channel". Lifecycle Manager rejects it as well.
const RESERVED_CHANNEL: &str = "none";
/// The name of a Kyma is a label value on its Manifests and its access Secret.
const LABEL_LEN_MAX: usize = 63;
/// The operators of selectors, and whether they need values.
const OPERATORS: [(&str, bool); 4] = [("In", true), ("NotIn", true), ("Exists", false), ("DoesNotExist", false)];

impl Check<'_> {
    /// Checks a definition that its schema accepts.
    pub(super) fn rules(&mut self, kind: Kind, value: &Value) {
        match kind {
            Kind::ModuleTemplate => self.template(value),
            Kind::ModuleReleaseMeta => self.release(value),
            Kind::Watcher => self.watcher(value),
            Kind::Kyma => self.kyma(value),
            // Those of kcp landscapes are about what is planned: `refer` checks them.
            Kind::Setup(_) => {}
        }
    }

    fn template(&mut self, value: &Value) {
        let (name, module) = (text(value, "/metadata/name"), text(value, "/spec/moduleName"));
        let version = text(value, "/spec/version");
        for (field, found) in [("moduleName", module), ("version", version)] {
            // One of another type is an error already.
            let is_text = value["spec"].get(field).is_none_or(|found| found.is_null() || found.is_string());
            if found.is_empty() && is_text {
                let message = format!("`spec.{field}` is missing, so no ModuleReleaseMeta can refer to this version");
                let hint = format!("add `{field}`; ModuleTemplates with a channel instead are no longer used");
                self.warning(self.at_key(&["spec".into()]), code::REQUIRED, message, hint);
            }
        }
        if module.is_empty() || version.is_empty() {
            return;
        }
        let expected = format!("{module}-{version}");
        if name != expected {
            let message = format!(
                "a ModuleTemplate must have the name of its module and version: `{}`, not `{}`",
                short(&expected),
                short(name)
            );
            let hint = format!("write `name: {expected}`, or correct `spec.moduleName` and `spec.version`");
            self.error(self.at(&["metadata".into(), "name".into()]), code::NAME_RULE, message, hint);
        }
    }

    fn release(&mut self, value: &Value) {
        let (name, module) = (text(value, "/metadata/name"), text(value, "/spec/moduleName"));
        if name != module {
            let message = format!(
                "a ModuleReleaseMeta must have the name of its module: `{}`, not `{}`",
                short(module),
                short(name)
            );
            let hint = format!("write `name: {module}`, or correct `spec.moduleName`");
            self.error(self.at(&["metadata".into(), "name".into()]), code::NAME_RULE, message, hint);
        }
        for index in 0..list(value, "/spec/channels").len() {
            let path = ["spec".into(), "channels".into(), index.into(), "channel".into()];
            self.reserved_channel(text(value, &format!("/spec/channels/{index}/channel")), &path);
        }
        self.selector(value, &["spec".into(), "kymaSelector".into()]);
    }

    fn watcher(&mut self, value: &Value) {
        if let Some(port) = value.pointer("/spec/serviceInfo/port").and_then(Value::as_i64)
            && !(1..=65_535).contains(&port)
        {
            let place = self.at(&["spec".into(), "serviceInfo".into(), "port".into()]);
            let message = format!("`spec.serviceInfo.port`: {port} is not a port");
            self.error(place, code::PORT, message, "use a port from 1 to 65535");
        }
        self.selector(value, &["spec".into(), "gateway".into(), "selector".into()]);
    }

    fn kyma(&mut self, value: &Value) {
        let name = text(value, "/metadata/name");
        if LABEL_LEN_MAX < name.len() {
            let message =
                format!("the name of a Kyma has at most {LABEL_LEN_MAX} characters, this one has {}", name.len());
            let hint = "it is the value of a label on the Kyma's Manifests and access Secret";
            self.error(self.at(&["metadata".into(), "name".into()]), code::NAME_RULE, message, hint);
        }
        self.reserved_channel(text(value, "/spec/channel"), &["spec".into(), "channel".into()]);
        for index in 0..list(value, "/spec/modules").len() {
            let path = ["spec".into(), "modules".into(), index.into(), "channel".into()];
            self.reserved_channel(text(value, &format!("/spec/modules/{index}/channel")), &path);
        }
    }

    fn reserved_channel(&mut self, channel: &str, path: &[PathPart]) {
        if channel == RESERVED_CHANNEL {
            let message = "the channel `none` is reserved, and Kymas cannot use it";
            let hint = "name a channel such as `regular`, or remove the entry";
            self.error(self.at(path), code::RESERVED_CHANNEL, message, hint);
        }
    }

    /// Checks a label selector: known operators, with values where required.
    fn selector(&mut self, value: &Value, path: &[PathPart]) {
        let pointer: String = path
            .iter()
            .map(|part| match part {
                PathPart::Key(key) => format!("/{key}"),
                PathPart::Index(index) => format!("/{index}"),
            })
            .collect();
        for (index, expression) in list(value, &format!("{pointer}/matchExpressions")).iter().enumerate() {
            let at = |field: &str| -> Vec<PathPart> {
                path.iter().cloned().chain(["matchExpressions".into(), index.into(), field.into()]).collect()
            };
            let operator = text(expression, "/operator");
            let has_values = !list(expression, "/values").is_empty();
            match OPERATORS.iter().find(|(known, _)| *known == operator) {
                None => {
                    let message = format!("`{}` is not a selector operator", short(operator));
                    let hint = near::did_you_mean(operator, OPERATORS.iter().map(|(known, _)| *known))
                        .unwrap_or_else(|| "use In, NotIn, Exists or DoesNotExist".to_owned());
                    self.error(self.at(&at("operator")), code::SELECTOR, message, hint);
                }
                Some((_, true)) if !has_values => {
                    let message = format!("the operator `{operator}` needs `values`");
                    self.error(self.at(&at("operator")), code::SELECTOR, message, "list at least one value");
                }
                Some((_, false)) if has_values => {
                    let message = format!("the operator `{operator}` takes no `values`");
                    self.error(self.at_key(&at("values")), code::SELECTOR, message, "remove them, or use `In`");
                }
                Some(_) => {}
            }
        }
    }
}

/// The name that a definition must have according to its module fields.
pub(super) fn meant(kind: Kind, value: &Value) -> Option<String> {
    let (module, version) = (text(value, "/spec/moduleName"), text(value, "/spec/version"));
    match kind {
        Kind::ModuleTemplate if !module.is_empty() && !version.is_empty() => Some(format!("{module}-{version}")),
        Kind::ModuleReleaseMeta if !module.is_empty() => Some(module.to_owned()),
        Kind::ModuleTemplate | Kind::ModuleReleaseMeta | Kind::Watcher | Kind::Kyma | Kind::Setup(_) => None,
    }
}

/// The string at a pointer, or the empty string.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The list at a pointer, or an empty list.
fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
