//! The functions that Kubernetes adds to CEL: those that are evaluated here, and those whose names
//! are only known.
//!
//! An expression with a function that is only known compiles but is never evaluated: it is treated
//! as satisfied.

use cel::{
    DeclarationError, Env, ExecutionError,
    common::{
        ast::{CallExpr, Expr},
        types::{CelInt, DYN_TYPE, LIST_TYPE},
        value::CowVal,
    },
};

/// Functions that are evaluated here.
const COMPUTED: &[&str] = &[
    "bool",
    "bytes",
    "charAt",
    "contains",
    "distinct",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "flatten",
    "format",
    "hasValue",
    "indexOf",
    "int",
    "join",
    "lastIndexOf",
    "lists.range",
    "lowerAscii",
    "matches",
    "optional.none",
    "optional.of",
    "optional.ofNonZeroValue",
    "or",
    "orValue",
    "replace",
    "reverse",
    "size",
    "slice",
    "sort",
    "split",
    "startsWith",
    "string",
    "strings.quote",
    "substring",
    "trim",
    "type",
    "uint",
    "upperAscii",
    "value",
];

/// Functions of the API server that are not evaluated here.
const FOREIGN: &[&str] = &[
    "add",
    "allowed",
    "asApproximateFloat",
    "asInteger",
    "check",
    "cidr",
    "compareTo",
    "containsCIDR",
    "containsIP",
    "errored",
    "error",
    "family",
    "fieldSelector",
    "find",
    "findAll",
    "first",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getEscapedPath",
    "getFullYear",
    "getHost",
    "getHostname",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getPort",
    "getQuery",
    "getScheme",
    "getSeconds",
    "google.protobuf",
    "group",
    "ip",
    "ip.isCanonical",
    "isCIDR",
    "isGreaterThan",
    "isGlobalUnicast",
    "isIP",
    "isInteger",
    "isLessThan",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isLoopback",
    "isQuantity",
    "isSemver",
    "isSorted",
    "isURL",
    "isUnspecified",
    "labelSelector",
    "last",
    "major",
    "masked",
    "max",
    "min",
    "minor",
    "name",
    "namespace",
    "optional.unwrap",
    "patch",
    "path",
    "prefixLength",
    "quantity",
    "reason",
    "resource",
    "semver",
    "serviceAccount",
    "sets.contains",
    "sets.equivalent",
    "sets.intersects",
    "sign",
    "sub",
    "subresource",
    "sum",
    "timestamp",
    "unwrap",
    "unwrapOpt",
    "url",
    "validate",
];

/// Formats with a function of their own, besides `format.named`.
const FORMATS: &[&str] = &[
    "byte",
    "date",
    "datetime",
    "dns1035Label",
    "dns1035LabelPrefix",
    "dns1123Label",
    "dns1123LabelPrefix",
    "dns1123Subdomain",
    "dns1123SubdomainPrefix",
    "labelValue",
    "named",
    "qualifiedName",
    "uri",
    "uuid",
];

/// Macros that are not evaluated here, with the number of their variables and of their arguments.
const MACROS: &[(&str, usize, usize)] = &[
    ("all", 2, 3),
    ("exists", 2, 3),
    ("existsOne", 2, 3),
    ("exists_one", 2, 3),
    ("transformList", 2, 3),
    ("transformList", 2, 4),
    ("transformMap", 2, 3),
    ("transformMap", 2, 4),
    ("transformMapEntry", 2, 3),
    ("transformMapEntry", 2, 4),
];

/// Prefixes of function and type names.
const SPACES: &[&str] = &["format", "google", "ip", "lists", "optional", "sets", "strings"];

/// Types are also values.
const TYPES: &[&str] =
    &["bool", "bytes", "double", "dyn", "int", "list", "map", "null_type", "optional_type", "string", "type", "uint"];

/// The level of support for a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FunctionSupport {
    Computed,
    /// The API server has it, but it is not evaluated here.
    Foreign,
    Unknown,
}

/// Looks up a function by its full name, such as `sets.contains`. Operators, such as `_&&_`, are
/// evaluated.
pub(super) fn support(name: &str, arguments: usize) -> FunctionSupport {
    let is_operator = !name.starts_with(|c: char| c.is_alphabetic());
    if is_operator || COMPUTED.contains(&name) {
        return FunctionSupport::Computed;
    }
    let is_macro = MACROS.iter().any(|(of, _, count)| *of == name && *count == arguments);
    let is_format = name.strip_prefix("format.").is_some_and(|format| FORMATS.contains(&format));
    if is_macro || is_format || FOREIGN.contains(&name) { FunctionSupport::Foreign } else { FunctionSupport::Unknown }
}

/// Whether an undeclared name is a prefix of longer names.
pub(super) fn is_space(name: &str) -> bool {
    SPACES.contains(&name)
}

/// Whether an undeclared name is a type.
pub(super) fn is_type(name: &str) -> bool {
    TYPES.contains(&name)
}

/// The variables of a macro that is not evaluated here; none for functions.
pub(super) fn declared(call: &CallExpr) -> Vec<&str> {
    let of_call = |of: &&(&str, usize, usize)| of.0 == call.func_name && of.2 == call.args.len();
    let count = call.target.as_ref().and_then(|_| MACROS.iter().find(of_call)).map_or(0, |of| of.1);
    let names = call.args.iter().take(count).filter_map(|argument| match &argument.expr {
        Expr::Ident(name) => Some(name.as_str()),
        _ => None,
    });
    names.collect()
}

/// Adds the list functions that the extensions of the `cel` crate lack. Fails if a function is
/// already declared.
pub(super) fn lists(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_member_overload("indexOf", "list.indexOf(dyn)", LIST_TYPE, vec![DYN_TYPE], index_of)?;
    env.add_member_overload("lastIndexOf", "list.lastIndexOf(dyn)", LIST_TYPE, vec![DYN_TYPE], last_index_of)
}

#[expect(clippy::needless_pass_by_value, reason = "the `cel` crate requires this signature")]
fn index_of<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    Ok(CowVal::owned(CelInt::from(positions(&arguments).first().copied().unwrap_or(-1))))
}

#[expect(clippy::needless_pass_by_value, reason = "the `cel` crate requires this signature")]
fn last_index_of<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    Ok(CowVal::owned(CelInt::from(positions(&arguments).last().copied().unwrap_or(-1))))
}

/// The index of an item in a list.
fn positions(arguments: &[CowVal<'_, '_>]) -> Vec<i64> {
    let [list, wanted] = arguments else { return Vec::new() };
    let Some(list) = list.as_ref().as_iterable() else { return Vec::new() };
    let (mut items, mut found) = (list.iter(), Vec::new());
    for position in 0.. {
        let Some(item) = items.next() else { break };
        if item.equals(wanted.as_ref()) {
            found.push(position);
        }
    }
    found
}
