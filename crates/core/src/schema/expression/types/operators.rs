//! The argument and result types of operators, and of functions with a single signature.

use std::sync::Arc;

use super::Type;

/// The result type of a call.
pub(super) enum CallType {
    Type(Type),
    /// These arguments must be boolean.
    Operands(Vec<usize>),
    /// No overload accepts these types.
    NoOverload,
}

/// Resolves a call whose name is known here; `None` for others. The target of a method is its first
/// argument.
pub(super) fn known(name: &str, arguments: &[Type], has_target: bool) -> Option<CallType> {
    let found = match (name, arguments) {
        ("_&&_" | "_||_", arguments) => {
            let wrong = |index: &usize| !fits(&arguments[*index], &Type::Bool);
            let wrong: Vec<usize> = (0..arguments.len()).filter(wrong).collect();
            return Some(if wrong.is_empty() { CallType::Type(Type::Bool) } else { CallType::Operands(wrong) });
        }
        ("_==_" | "_!=_", [left, right]) => fits(left, right).then_some(Type::Bool),
        ("_<_" | "_<=_" | "_>_" | "_>=_", [left, right]) => are_ordered(left, right).then_some(Type::Bool),
        ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", [left, right]) => sum(name, left, right),
        ("!_", [of]) => fits(of, &Type::Bool).then_some(Type::Bool),
        ("-_", [of]) => match of {
            Type::Int | Type::Double => Some(of.clone()),
            of => is_open(of).then_some(Type::Unknown),
        },
        ("_?_:_", [condition, left, right]) => {
            let fits = fits(condition, &Type::Bool) && fits(left, right);
            fits.then(|| if *left == *right { left.clone() } else { wider(left, right) })
        }
        ("_[_]", [of, key]) => item(of, key),
        ("@in", [key, of]) => {
            let fits = match of {
                Type::List(item) => fits(key, item),
                Type::Map(keys, _) => fits(key, keys),
                of => is_open(of),
            };
            fits.then_some(Type::Bool)
        }
        ("@not_strictly_false", [_]) => Some(Type::Bool),
        ("startsWith" | "endsWith", [of, with]) if has_target => are_texts(of, with),
        ("matches", [of, with]) => are_texts(of, with),
        ("size", [of]) => {
            let has_size = matches!(of, Type::Text | Type::Bytes | Type::List(_) | Type::Map(_, _));
            (has_size || is_open(of)).then_some(Type::Int)
        }
        ("dyn", [_]) => Some(Type::Dyn),
        _ => return None,
    };
    Some(found.map_or(CallType::NoOverload, CallType::Type))
}

/// Both branches of a conditional have one type: if one is known, so is the other.
pub(super) fn settle(name: &str, arguments: &mut [Type]) {
    if let ("_?_:_", [_, left, right]) = (name, arguments)
        && fits(left, right)
    {
        let is_vague = |of: &Type| matches!(of, Type::List(of) if **of == Type::Unknown);
        match (is_vague(left), is_vague(right)) {
            (true, false) => *left = right.clone(),
            (false, true) => *right = left.clone(),
            _ => {}
        }
    }
}

/// Whether a value may have any type, as far as is known.
fn is_open(of: &Type) -> bool {
    matches!(of, Type::Unknown | Type::Dyn | Type::Error)
}

/// Whether a value of one type is acceptable where another is expected.
pub(super) fn fits(left: &Type, right: &Type) -> bool {
    match (left, right) {
        (left, right) if is_open(left) || is_open(right) => true,
        (Type::Null, other) | (other, Type::Null) => {
            matches!(other, Type::Null | Type::Object(_) | Type::Time | Type::Duration | Type::Optional(_))
        }
        (Type::List(left), Type::List(right)) | (Type::Optional(left), Type::Optional(right)) => fits(left, right),
        (Type::Map(keys, values), Type::Map(other_keys, other_values)) => {
            fits(keys, other_keys) && fits(values, other_values)
        }
        (left, right) => left == right,
    }
}

/// The common type of two compatible types.
fn wider(left: &Type, right: &Type) -> Type {
    match (left, right) {
        (Type::Dyn, _) | (_, Type::Dyn) => Type::Dyn,
        _ => Type::Unknown,
    }
}

fn are_texts(of: &Type, with: &Type) -> Option<Type> {
    (fits(of, &Type::Text) && fits(with, &Type::Text)).then_some(Type::Bool)
}

fn is_number(of: &Type) -> bool {
    matches!(of, Type::Int | Type::Uint | Type::Double)
}

fn are_ordered(left: &Type, right: &Type) -> bool {
    if is_open(left) || is_open(right) {
        return true;
    }
    let has_order = |of: &Type| matches!(of, Type::Bool | Type::Text | Type::Bytes | Type::Time | Type::Duration);
    is_number(left) && is_number(right) || left == right && has_order(left)
}

fn sum(name: &str, left: &Type, right: &Type) -> Option<Type> {
    if is_open(left) || is_open(right) {
        return Some(Type::Unknown);
    }
    match (name, left, right) {
        ("_%_", Type::Int | Type::Uint, right) if left == right => Some(left.clone()),
        ("_+_" | "_-_" | "_*_" | "_/_", left, right) if is_number(left) && left == right => Some(left.clone()),
        ("_+_", Type::Text, Type::Text) => Some(Type::Text),
        ("_+_", Type::Bytes, Type::Bytes) => Some(Type::Bytes),
        ("_+_", Type::List(of), Type::List(with)) if fits(of, with) => {
            let of = if **of == Type::Unknown { with } else { of };
            Some(Type::List(Arc::clone(of)))
        }
        ("_+_", Type::Time, Type::Duration) | ("_+_", Type::Duration, Type::Time) => Some(Type::Time),
        ("_-_", Type::Time, Type::Duration) => Some(Type::Time),
        ("_-_", Type::Time, Type::Time) => Some(Type::Duration),
        ("_+_" | "_-_", Type::Duration, Type::Duration) => Some(Type::Duration),
        _ => None,
    }
}

fn item(of: &Type, key: &Type) -> Option<Type> {
    match of {
        Type::List(item) => fits(key, &Type::Int).then(|| Type::clone(item)),
        Type::Map(keys, value) => fits(key, keys).then(|| Type::clone(value)),
        Type::Optional(of) => item(of, key).map(|of| Type::Optional(Arc::new(of))),
        Type::Dyn | Type::Error => Some(Type::Dyn),
        Type::Unknown => Some(Type::Unknown),
        _ => None,
    }
}
