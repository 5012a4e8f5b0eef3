//! Bounds what one evaluation builds.
//!
//! The evaluator has no such limit, and it copies values: `[s].map(x, x + x).map(x, x + x)…` doubles a text with every
//! macro, and three nested loops copy an object a thousand million times. So [`super::guard`] makes every part of an
//! expression that builds or copies a string, bytes, a list, a mapping or an optional charge its size here.
//!
//! * What grows at most by half or twice is charged when it is built, and what is copied into a list or a mapping
//!   before it is copied.
//! * `replace`, `join`, `split` and `lists.range` may grow much more, and charge their result before it exists.
//!
//! Nothing is given back. So the result does not depend on when the evaluator drops a value, nor on a clock. The API
//! server counts in the same way: its cost limit for one expression allows less than 10 MB of concatenated text.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use cel::{
    Context, ExecutionError, FunctionContext,
    common::{
        types::{CelBytes, CelInt, CelList, CelMap, CelOptional, CelString},
        value::{CowVal, Val},
    },
};

/// Charges a value if it is not borrowed from a variable.
pub(super) const BUILT: &str = "@built";
/// Charges a value that is copied into a list or a mapping.
pub(super) const KEPT: &str = "@kept";
/// Charges the room for the results of a loop over this value.
pub(super) const RANGE: &str = "@range";
/// Charges a list of so many numbers.
pub(super) const COUNT: &str = "@count";
/// Members that charge their result before they build it, with the functions that stand in for them.
pub(super) const MEMBERS: &[(&str, &str)] = &[("join", "@join"), ("replace", "@replace"), ("split", "@split")];

/// What one evaluation may build, in bytes.
const BUILT_BYTES_MAX: usize = 16 << 20;
/// Memory of a value without its content, as the item of a list.
const ITEM_BYTES: usize = 64;

/// What an evaluation has built so far.
#[derive(Default)]
pub(super) struct Meter(AtomicUsize);

type Operation = for<'b, 'v> fn(&Meter, &[CowVal<'b, 'v>]) -> Result<Option<CowVal<'b, 'v>>, ExecutionError>;

type Function =
    Box<dyn for<'b, 'v> Fn(&mut FunctionContext<'b, 'v>) -> Result<CowVal<'b, 'v>, ExecutionError> + Send + Sync>;

const OPERATIONS: &[(&str, Operation)] = &[
    (BUILT, built),
    (KEPT, kept),
    (RANGE, range),
    (COUNT, count),
    ("@join", join),
    ("@replace", replace),
    ("@split", split),
];

// === impl Meter ===

impl Meter {
    /// Forgets what was built: an evaluation begins.
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Whether the evaluation has built too much. Its result is then meaningless.
    pub(super) fn is_over(&self) -> bool {
        BUILT_BYTES_MAX < self.0.load(Ordering::Relaxed)
    }

    /// Fails from the first charge on that exceeds the limit.
    fn charge(&self, bytes: usize) -> Result<(), ExecutionError> {
        self.0.store(self.0.load(Ordering::Relaxed).saturating_add(bytes), Ordering::Relaxed);
        if self.is_over() { Err(exceeded()) } else { Ok(()) }
    }

    fn charge_value(&self, value: &dyn Val) -> Result<(), ExecutionError> {
        if self.is_over() { Err(exceeded()) } else { self.charge(size(value)) }
    }

    #[cfg(test)]
    pub(super) fn charged(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Adds the functions that charge a meter.
pub(super) fn add(context: &mut Context<'_, '_>, meter: &Arc<Meter>) {
    for (name, operation) in OPERATIONS {
        let meter = Arc::clone(meter);
        let function: Function = Box::new(move |call| {
            let mut arguments = std::mem::take(&mut call.args);
            if let Some(this) = call.this.take() {
                arguments.insert(0, this);
            }
            match operation(&meter, &arguments)? {
                Some(result) => Ok(result),
                None => arguments.into_iter().next().ok_or_else(ExecutionError::missing_argument_or_target),
            }
        });
        context.add_function::<Function, _>(name, function).expect("no name of CEL begins with `@`");
    }
}

/// The error of an evaluation that builds too much.
pub(super) fn exceeded() -> ExecutionError {
    ExecutionError::function_error(BUILT, "")
}

/// Explains [`exceeded`].
pub(super) fn explain() -> String {
    let limit = BUILT_BYTES_MAX >> 20;
    format!("it builds more than {limit} MiB of strings and lists; let it loop over less, or build less in each loop")
}

/// The memory of a value, about. Recursive as copying it is.
fn size(value: &dyn Val) -> usize {
    let content = if let Some(text) = value.downcast_ref::<CelString>() {
        text.inner().len()
    } else if let Some(list) = value.downcast_ref::<CelList>() {
        list.inner().iter().map(|item| size(item.as_ref())).sum()
    } else if let Some(map) = value.downcast_ref::<CelMap>() {
        map.inner().iter().map(|(key, value)| size(key.inner()) + size(value.as_ref())).sum()
    } else if let Some(bytes) = value.downcast_ref::<CelBytes>() {
        bytes.inner().len()
    } else if let Some(optional) = value.downcast_ref::<CelOptional>() {
        optional.option().map_or(0, size)
    } else {
        0
    };
    ITEM_BYTES + content
}

// === operations ===

// Each returns its result; `None` is its first argument, unchanged.

fn built<'b, 'v>(meter: &Meter, arguments: &[CowVal<'b, 'v>]) -> Result<Option<CowVal<'b, 'v>>, ExecutionError> {
    match arguments {
        // A sum of numbers takes no memory beyond its place.
        [CowVal::Owned(value)] if ITEM_BYTES < size(value.as_ref()) => {
            meter.charge_value(value.as_ref()).map(|()| None)
        }
        _ => Ok(None),
    }
}

fn kept<'b, 'v>(meter: &Meter, arguments: &[CowVal<'b, 'v>]) -> Result<Option<CowVal<'b, 'v>>, ExecutionError> {
    arguments.iter().try_for_each(|value| meter.charge_value(value.as_ref()))?;
    Ok(None)
}

/// The evaluator makes room for as many results as there are items, also if a filter keeps none.
fn range<'b, 'v>(meter: &Meter, arguments: &[CowVal<'b, 'v>]) -> Result<Option<CowVal<'b, 'v>>, ExecutionError> {
    let items = arguments.first().and_then(|range| Some(*range.as_sizer()?.size().inner()));
    meter.charge(usize::try_from(items.unwrap_or_default()).unwrap_or(usize::MAX).saturating_mul(ITEM_BYTES / 4))?;
    Ok(None)
}

fn count<'b, 'v>(meter: &Meter, arguments: &[CowVal<'b, 'v>]) -> Result<Option<CowVal<'b, 'v>>, ExecutionError> {
    if let Some(count) = arguments.first().and_then(|count| count.downcast_ref::<CelInt>()) {
        meter.charge(usize::try_from(*count.inner()).unwrap_or_default().saturating_mul(ITEM_BYTES))?;
    }
    Ok(None)
}

fn join<'b, 'v>(meter: &Meter, arguments: &[CowVal<'b, 'v>]) -> Result<Option<CowVal<'b, 'v>>, ExecutionError> {
    let of = |list: &CowVal<'_, '_>, between: &str| {
        let list = list.downcast_ref::<CelList>().ok_or_else(|| mismatch("join", arguments))?;
        let parts: Option<Vec<&str>> = list.inner().iter().map(|item| text(item.as_ref())).collect();
        let parts = parts.ok_or_else(|| mismatch("join", arguments))?;
        let own: usize = parts.iter().map(|part| part.len()).sum();
        meter.charge(ITEM_BYTES + own + between.len().saturating_mul(parts.len()))?;
        Ok(Some(string(parts.join(between))))
    };
    match arguments {
        [list] => of(list, ""),
        [list, between] => of(list, text(between.as_ref()).ok_or_else(|| mismatch("join", arguments))?),
        _ => Err(mismatch("join", arguments)),
    }
}

fn replace<'b, 'v>(meter: &Meter, arguments: &[CowVal<'b, 'v>]) -> Result<Option<CowVal<'b, 'v>>, ExecutionError> {
    let (Some([whole, from, to]), Some(max)) = (texts(arguments), limit(arguments.get(3))) else {
        return Err(mismatch("replace", arguments));
    };
    let found = whole.matches(from).take(max).count();
    meter.charge(ITEM_BYTES + whole.len() + found.saturating_mul(to.len()))?;
    Ok(Some(string(whole.replacen(from, to, max))))
}

/// Without a separator, the text is split between its characters.
fn split<'b, 'v>(meter: &Meter, arguments: &[CowVal<'b, 'v>]) -> Result<Option<CowVal<'b, 'v>>, ExecutionError> {
    let (Some([whole, between]), Some(max)) = (texts(arguments), limit(arguments.get(2))) else {
        return Err(mismatch("split", arguments));
    };
    let found = if between.is_empty() { whole.chars().count() } else { whole.matches(between).count() + 1 };
    meter.charge(ITEM_BYTES + whole.len() + found.min(max).saturating_mul(ITEM_BYTES))?;
    let parts: Vec<&str> = if between.is_empty() {
        let begins: Vec<usize> = whole.char_indices().map(|(at, _)| at).take(max).collect();
        let ends = begins.iter().copied().skip(1).chain([whole.len()]);
        begins.iter().zip(ends).map(|(begin, end)| &whole[*begin..end]).collect()
    } else {
        whole.splitn(max, between).collect()
    };
    let items = parts.into_iter().map(|part| -> Box<dyn Val> { Box::new(CelString::from(part.to_owned())) });
    Ok(Some(CowVal::owned(CelList::from(items.collect::<Vec<_>>()))))
}

fn string<'b, 'v>(text: String) -> CowVal<'b, 'v> {
    CowVal::owned(CelString::from(text))
}

fn text<'a>(value: &'a (dyn Val + '_)) -> Option<&'a str> {
    value.downcast_ref::<CelString>().map(CelString::inner)
}

/// The first arguments, if they are texts.
fn texts<'a, const N: usize>(arguments: &'a [CowVal<'_, '_>]) -> Option<[&'a str; N]> {
    let texts: Vec<&str> = arguments.iter().take(N).map(|value| text(value.as_ref())).collect::<Option<_>>()?;
    texts.try_into().ok()
}

/// How often at most: without an argument, or if it is negative, without end.
fn limit(argument: Option<&CowVal<'_, '_>>) -> Option<usize> {
    match argument {
        None => Some(usize::MAX),
        Some(value) => Some(usize::try_from(*value.downcast_ref::<CelInt>()?.inner()).unwrap_or(usize::MAX)),
    }
}

/// The evaluator's own error for arguments of other types.
fn mismatch(function: &str, arguments: &[CowVal<'_, '_>]) -> ExecutionError {
    let types = arguments.iter().map(|value| value.get_type().name().to_owned()).collect();
    ExecutionError::no_such_member_overload(function, types)
}
