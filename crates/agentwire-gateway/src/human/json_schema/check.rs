//! Checks a value against a schema.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{
    Node, Schema,
    dialect::{self, Draft},
    equal::{self, compare, equal},
    failure::{Cause, Failure, Token},
    format,
};

/// The most schemas that are applied in a check.
const MAX_STEPS: u64 = 1_000_000;

/// The deepest chain of schemas: the check calls itself as deep.
const MAX_DEPTH: usize = 200;

type Checked<'v> = Result<(), Box<Failure<'v>>>;

impl<'v> Schema<'v> {
    /// Checks a value; the error is the first mismatch.
    pub(in crate::human) fn check(&self, value: &'v Value) -> Checked<'v> {
        let open = vec![(std::ptr::from_ref(self.root), std::ptr::from_ref(value))];
        let mut check = Check { schema: self, steps: 0, depth: 0, scope: vec![0], open };
        check.apply(self.root, value, None)
    }
}

struct Check<'s, 'v> {
    schema: &'s Schema<'v>,
    steps: u64,
    depth: usize,
    /// The resources on the way to the schema that is applied.
    scope: Vec<usize>,
    /// The root and the targets of references that are being applied, with their values, by address.
    open: Vec<(*const Value, *const Value)>,
}

/// The members and elements of a value that keywords have looked at.
#[derive(Default)]
struct Seen<'v> {
    all_members: bool,
    members: HashSet<&'v str>,
    all_elements: bool,
    /// The number of elements from the first.
    first: usize,
    elements: HashSet<usize>,
}

impl<'v> Seen<'v> {
    fn add(&mut self, other: Self) {
        self.all_members |= other.all_members;
        self.members.extend(other.members);
        self.all_elements |= other.all_elements;
        self.first = self.first.max(other.first);
        self.elements.extend(other.elements);
    }
}

impl<'v> Check<'_, 'v> {
    fn apply(&mut self, schema: &'v Value, value: &'v Value, seen: Option<&mut Seen<'v>>) -> Checked<'v> {
        if let Value::Bool(is_true) = schema {
            return if *is_true { Ok(()) } else { Failure::new(value, Cause::Never) };
        }
        let known = self.schema;
        let Some(node) = known.nodes.get(&std::ptr::from_ref(schema)) else { return Ok(()) };
        self.steps += 1;
        if self.steps > MAX_STEPS || self.depth >= MAX_DEPTH {
            return Failure::new(value, Cause::TooLong);
        }
        self.depth += 1;
        let is_other = self.scope.last() != Some(&node.resource);
        if is_other {
            self.scope.push(node.resource);
        }
        let mut own = (seen.is_some() || node.is_tracking).then(Seen::default);
        let checked = node
            .keywords
            .iter()
            .try_for_each(|(keyword, member)| self.keyword(node, schema, keyword, member, value, &mut own));
        if is_other {
            self.scope.pop();
        }
        self.depth -= 1;
        checked?;
        if let (Some(seen), Some(own)) = (seen, own) {
            seen.add(own);
        }
        Ok(())
    }

    fn keyword(
        &mut self,
        node: &Node<'v>,
        schema: &'v Value,
        keyword: &'v str,
        member: &'v Value,
        value: &'v Value,
        seen: &mut Option<Seen<'v>>,
    ) -> Checked<'v> {
        match keyword {
            "$ref" | "$dynamicRef" | "$recursiveRef" => {
                let target = node.targets.iter().find(|(name, _)| *name == keyword);
                let Some((_, target)) = target else { return Ok(()) };
                self.reference(keyword, member, target, value, seen.as_mut())
            }
            "allOf" => list(member).iter().try_for_each(|schema| self.apply(schema, value, seen.as_mut())),
            "anyOf" => self.any_of(list(member), value, seen),
            "oneOf" => self.one_of(list(member), value, seen),
            "not" => match self.apply(member, value, None) {
                Ok(()) => Failure::new(value, Cause::Not(member)),
                Err(failure) if failure.is_unknown() => Err(failure),
                Err(_) => Ok(()),
            },
            "if" if seen.is_none() && schema.get("then").is_none() && schema.get("else").is_none() => Ok(()),
            "if" => {
                let branch = match self.apply(member, value, seen.as_mut()) {
                    Ok(()) => "then",
                    Err(failure) if failure.is_unknown() => return Err(failure),
                    Err(_) => "else",
                };
                schema.get(branch).map_or(Ok(()), |schema| self.apply(schema, value, seen.as_mut()))
            }
            _ => match value {
                Value::Object(members) => self.of_object(schema, keyword, member, value, members, seen),
                Value::Array(elements) => self.of_array(schema, keyword, member, value, elements, seen),
                Value::String(text) => self.of_text(schema, keyword, member, value, text),
                _ => Ok(()),
            }
            .and_then(|()| self.of_any(schema, keyword, member, value)),
        }
    }

    fn reference(
        &mut self,
        keyword: &str,
        reference: &'v Value,
        target: &'v Value,
        value: &'v Value,
        seen: Option<&mut Seen<'v>>,
    ) -> Checked<'v> {
        let target = match keyword {
            "$dynamicRef" => self.dynamic_target(reference, target),
            "$recursiveRef" => self.recursive_target(target),
            _ => target,
        };
        let pair = (std::ptr::from_ref(target), std::ptr::from_ref(value));
        // A reference to itself says nothing more.
        if self.open.contains(&pair) {
            return Ok(());
        }
        self.open.push(pair);
        let checked = self.apply(target, value, seen);
        self.open.pop();
        checked
    }

    /// The outermost schema with the same anchor, if the reference leads to an anchor that can be replaced.
    fn dynamic_target(&self, reference: &Value, target: &'v Value) -> &'v Value {
        let anchor =
            reference.as_str().and_then(|text| text.split_once('#')).map_or("", |(_, anchor)| anchor);
        if target.get("$dynamicAnchor").and_then(Value::as_str) != Some(anchor) {
            return target;
        }
        let resources = &self.schema.resources;
        self.scope.iter().find_map(|place| resources.dynamic(*place, anchor)).unwrap_or(target)
    }

    fn recursive_target(&self, target: &'v Value) -> &'v Value {
        let is_open = |schema: &Value| schema.get("$recursiveAnchor") == Some(&Value::Bool(true));
        if !is_open(target) {
            return target;
        }
        let roots = self.scope.iter().rev().map(|place| self.schema.resources.root(*place));
        roots.take_while(|root| is_open(root)).last().unwrap_or(target)
    }

    fn any_of(&mut self, schemas: &'v [Value], value: &'v Value, seen: &mut Option<Seen<'v>>) -> Checked<'v> {
        let (mut is_met, mut unknown) = (false, None);
        for schema in schemas {
            match self.apply(schema, value, seen.as_mut()) {
                // The others may look at other members.
                Ok(()) if seen.is_some() => is_met = true,
                Ok(()) => return Ok(()),
                Err(failure) if failure.is_unknown() => unknown = Some(failure),
                Err(_) => {}
            }
        }
        match unknown {
            _ if is_met => Ok(()),
            Some(failure) => Err(failure),
            None => Failure::new(value, Cause::NoneOf("anyOf")),
        }
    }

    fn one_of(&mut self, schemas: &'v [Value], value: &'v Value, seen: &mut Option<Seen<'v>>) -> Checked<'v> {
        let (mut is_met, mut unknown) = (false, None);
        for schema in schemas {
            match self.apply(schema, value, seen.as_mut()) {
                Ok(()) if is_met => return Failure::new(value, Cause::Several),
                Ok(()) => is_met = true,
                Err(failure) if failure.is_unknown() => unknown = Some(failure),
                Err(_) => {}
            }
        }
        match unknown {
            Some(failure) => Err(failure),
            None if is_met => Ok(()),
            None => Failure::new(value, Cause::NoneOf("oneOf")),
        }
    }

    fn is_match(&self, pattern: &str, text: &str, value: &'v Value) -> Result<bool, Box<Failure<'v>>> {
        match self.schema.patterns.get(pattern).map(|pattern| pattern.is_match(text)) {
            Some(Some(is_match)) => Ok(is_match),
            Some(None) => Failure::new(value, Cause::Backtracks).map(|()| false),
            None => Ok(true),
        }
    }

    fn of_object(
        &mut self,
        schema: &'v Value,
        keyword: &'v str,
        member: &'v Value,
        value: &'v Value,
        members: &'v Map<String, Value>,
        seen: &mut Option<Seen<'v>>,
    ) -> Checked<'v> {
        let requires = |names: &'v Value| {
            let missing =
                list(names).iter().find(|it| it.as_str().is_some_and(|it| !members.contains_key(it)));
            missing.map_or(Ok(()), |name| Failure::new(value, Cause::Missing(name)))
        };
        match keyword {
            "required" => requires(member),
            "minProperties" => self.least(member, members.len(), value, Cause::TooFewMembers),
            "maxProperties" => self.most(member, members.len(), value, Cause::TooManyMembers),
            "properties" => map(member).iter().try_for_each(|(name, schema)| {
                let Some((name, value)) = members.get_key_value(name) else { return Ok(()) };
                if let Some(seen) = seen {
                    seen.members.insert(name);
                }
                self.apply(schema, value, None).map_err(|failure| failure.at(Token::Name(name)))
            }),
            "patternProperties" => {
                for (pattern, schema) in map(member) {
                    for (name, value_of_name) in members {
                        if !self.is_match(pattern, name, value)? {
                            continue;
                        }
                        if let Some(seen) = seen {
                            seen.members.insert(name);
                        }
                        self.apply(schema, value_of_name, None)
                            .map_err(|failure| failure.at(Token::Name(name)))?;
                    }
                }
                Ok(())
            }
            "additionalProperties" => {
                let named = schema.get("properties").map(map);
                let patterns = schema.get("patternProperties").map(map);
                let mut others = Vec::new();
                for name in members.keys() {
                    let mut is_known = named.is_some_and(|named| named.contains_key(name));
                    for pattern in patterns.into_iter().flat_map(Map::keys) {
                        is_known = is_known || self.is_match(pattern, name, value)?;
                    }
                    if !is_known {
                        others.push(name.as_str());
                    }
                }
                if let Some(seen) = seen {
                    seen.members.extend(&others);
                }
                self.others(member, value, members, others, Cause::Additional)
            }
            "unevaluatedProperties" => {
                let Some(seen) = seen.as_mut().filter(|seen| !seen.all_members) else { return Ok(()) };
                let others =
                    members.keys().map(String::as_str).filter(|it| !seen.members.contains(it)).collect();
                seen.all_members = true;
                self.others(member, value, members, others, Cause::Unevaluated)
            }
            "propertyNames" => members.keys().try_for_each(|name| self.name(member, name, value)),
            "dependentRequired" | "dependentSchemas" | "dependencies" => {
                for (name, needed) in map(member) {
                    match needed {
                        _ if !members.contains_key(name) => {}
                        Value::Array(_) => requires(needed)?,
                        _ => self.apply(needed, value, seen.as_mut())?,
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Applies a schema to the members that no other keyword has named.
    fn others(
        &mut self,
        schema: &'v Value,
        value: &'v Value,
        members: &'v Map<String, Value>,
        names: Vec<&'v str>,
        cause: impl FnOnce(Vec<&'v str>) -> Cause<'v>,
    ) -> Checked<'v> {
        match schema {
            Value::Bool(false) if !names.is_empty() => Failure::new(value, cause(names)),
            _ => names.into_iter().try_for_each(|name| {
                let Some(value) = members.get(name) else { return Ok(()) };
                self.apply(schema, value, None).map_err(|failure| failure.at(Token::Name(name)))
            }),
        }
    }

    /// Applies a schema to the name of a member. A name is no value, so its mismatch is one of the object.
    fn name(&mut self, schema: &Value, name: &str, value: &'v Value) -> Checked<'v> {
        let text = Value::from(name);
        let (steps, depth, scope) = (self.steps, self.depth, self.scope.clone());
        let mut check = Check { schema: self.schema, steps, depth, scope, open: Vec::new() };
        let checked = check.apply(schema, &text, None).map_err(|failure| failure.of_name());
        self.steps = check.steps;
        checked.or_else(|cause| Failure::new(value, cause))
    }

    fn of_array(
        &mut self,
        schema: &'v Value,
        keyword: &'v str,
        member: &'v Value,
        value: &'v Value,
        elements: &'v [Value],
        seen: &mut Option<Seen<'v>>,
    ) -> Checked<'v> {
        match keyword {
            "minItems" => self.least(member, elements.len(), value, Cause::TooFewElements),
            "maxItems" => self.most(member, elements.len(), value, Cause::TooManyElements),
            "uniqueItems" if *member == Value::Bool(true) && equal::has_duplicates(elements) => {
                Failure::new(value, Cause::Duplicates)
            }
            "prefixItems" | "items" if member.is_array() => {
                if let Some(seen) = seen {
                    seen.first = seen.first.max(list(member).len());
                }
                let mut pairs = list(member).iter().zip(elements).enumerate();
                pairs.try_for_each(|(at, (schema, element))| self.element(schema, element, at))
            }
            "items" | "additionalItems" => {
                let first = match schema.get(if keyword == "items" { "prefixItems" } else { "items" }) {
                    Some(Value::Array(first))
                        if keyword != "items" || self.schema.draft == Draft::Draft2020 =>
                    {
                        first.len()
                    }
                    _ if keyword == "items" => 0,
                    _ => return Ok(()),
                };
                if let Some(seen) = seen {
                    seen.all_elements = true;
                }
                if *member == Value::Bool(false) && elements.len() > first {
                    return Failure::new(value, Cause::AdditionalItems(first));
                }
                let mut rest = elements.iter().enumerate().skip(first);
                rest.try_for_each(|(at, element)| self.element(member, element, at))
            }
            "contains" => self.contains(schema, member, value, elements, seen),
            "unevaluatedItems" => {
                let Some(seen) = seen.as_mut().filter(|seen| !seen.all_elements) else { return Ok(()) };
                let is_seen = |at: &usize| *at < seen.first || seen.elements.contains(at);
                let others: Vec<usize> = (0..elements.len()).filter(|at| !is_seen(at)).collect();
                seen.all_elements = true;
                if *member == Value::Bool(false) && !others.is_empty() {
                    let others = others.into_iter().map(|at| &elements[at]).collect();
                    return Failure::new(value, Cause::UnevaluatedItems(others));
                }
                others.into_iter().try_for_each(|at| self.element(member, &elements[at], at))
            }
            _ => Ok(()),
        }
    }

    fn element(&mut self, schema: &'v Value, element: &'v Value, at: usize) -> Checked<'v> {
        self.apply(schema, element, None).map_err(|failure| failure.at(Token::Place(at)))
    }

    fn contains(
        &mut self,
        schema: &'v Value,
        member: &'v Value,
        value: &'v Value,
        elements: &'v [Value],
        seen: &mut Option<Seen<'v>>,
    ) -> Checked<'v> {
        let draft = self.schema.draft;
        let bound = |keyword| {
            let bound = schema.get(keyword).filter(|_| draft >= Draft::Draft2019)?;
            dialect::count(draft, bound)
        };
        let mut found: u64 = 0;
        for (at, element) in elements.iter().enumerate() {
            match self.apply(member, element, None) {
                Ok(()) => {
                    found += 1;
                    if let Some(seen) = seen.as_mut().filter(|_| draft == Draft::Draft2020) {
                        seen.elements.insert(at);
                    }
                }
                Err(failure) if failure.is_unknown() => return Err(failure),
                Err(_) => {}
            }
        }
        if found < bound("minContains").unwrap_or(1) {
            return Failure::new(value, Cause::Contains);
        }
        match bound("maxContains").filter(|most| found > *most) {
            Some(most) => Failure::new(value, Cause::ContainsMore(most)),
            None => Ok(()),
        }
    }

    fn of_text(
        &self,
        schema: &'v Value,
        keyword: &'v str,
        member: &'v Value,
        value: &'v Value,
        text: &'v str,
    ) -> Checked<'v> {
        match keyword {
            "minLength" => self.least(member, text.chars().count(), value, Cause::TooShort),
            "maxLength" => self.most(member, text.chars().count(), value, Cause::TooLongText),
            "pattern" => {
                let pattern = member.as_str().unwrap_or_default();
                match self.is_match(pattern, text, value)? {
                    true => Ok(()),
                    false => Failure::new(value, Cause::Pattern(pattern)),
                }
            }
            "format" => {
                let name = member.as_str().unwrap_or_default();
                match format::is_valid(self.schema.draft, name, text) {
                    true => Ok(()),
                    false => Failure::new(value, Cause::Format(name)),
                }
            }
            "contentMediaType" if member.as_str() == Some("application/json") => {
                let encoding = schema.get("contentEncoding").and_then(Value::as_str);
                match format::is_json(text, encoding) {
                    true => Ok(()),
                    false => Failure::new(value, Cause::Content(member, "media type")),
                }
            }
            "contentEncoding" if schema.get("contentMediaType").is_none() => {
                match member.as_str().is_none_or(|name| format::is_encoded(text, name)) {
                    true => Ok(()),
                    false => Failure::new(value, Cause::Content(member, "content encoding")),
                }
            }
            _ => Ok(()),
        }
    }

    /// Keywords of numbers, and those that apply to every type.
    fn of_any(
        &self,
        schema: &'v Value,
        keyword: &'v str,
        member: &'v Value,
        value: &'v Value,
    ) -> Checked<'v> {
        let fits = match keyword {
            "type" => match member {
                Value::Array(names) => names.iter().any(|name| self.is_type(value, name)),
                name => self.is_type(value, name),
            },
            "enum" => list(member).iter().any(|option| equal(option, value)),
            "const" => equal(member, value),
            _ => {
                let (Value::Number(number), Value::Number(bound)) = (value, member) else { return Ok(()) };
                let is_open = |keyword| {
                    self.schema.draft == Draft::Draft4 && schema.get(keyword) == Some(&Value::Bool(true))
                };
                let order = compare(number, bound);
                match keyword {
                    "minimum" if is_open("exclusiveMinimum") => order.is_gt(),
                    "maximum" if is_open("exclusiveMaximum") => order.is_lt(),
                    "minimum" => order.is_ge(),
                    "maximum" => order.is_le(),
                    "exclusiveMinimum" => order.is_gt(),
                    "exclusiveMaximum" => order.is_lt(),
                    "multipleOf" => equal::is_multiple(number, bound),
                    _ => true,
                }
            }
        };
        if fits {
            return Ok(());
        }
        let is_equal = || equal(member, value);
        let cause = match keyword {
            "type" => Cause::Type(member),
            "enum" => Cause::Enum(list(member)),
            "const" => Cause::Const(member),
            "minimum" | "exclusiveMinimum" => Cause::Below { bound: member, is_equal: is_equal() },
            "maximum" | "exclusiveMaximum" => Cause::Above { bound: member, is_equal: is_equal() },
            _ => Cause::MultipleOf(member),
        };
        Failure::new(value, cause)
    }

    fn is_type(&self, value: &Value, name: &Value) -> bool {
        match (name.as_str(), value) {
            (Some("null"), Value::Null)
            | (Some("boolean"), Value::Bool(_))
            | (Some("string"), Value::String(_))
            | (Some("array"), Value::Array(_))
            | (Some("object"), Value::Object(_))
            | (Some("number"), Value::Number(_)) => true,
            (Some("integer"), Value::Number(number)) if self.schema.draft == Draft::Draft4 => {
                equal::is_written_whole(number)
            }
            (Some("integer"), Value::Number(number)) => equal::is_whole(number),
            _ => false,
        }
    }

    fn least(
        &self,
        bound: &Value,
        size: usize,
        value: &'v Value,
        cause: impl FnOnce(u64) -> Cause<'v>,
    ) -> Checked<'v> {
        match dialect::count(self.schema.draft, bound).filter(|least| (size as u64) < *least) {
            Some(least) => Failure::new(value, cause(least)),
            None => Ok(()),
        }
    }

    fn most(
        &self,
        bound: &Value,
        size: usize,
        value: &'v Value,
        cause: impl FnOnce(u64) -> Cause<'v>,
    ) -> Checked<'v> {
        match dialect::count(self.schema.draft, bound).filter(|most| (size as u64) > *most) {
            Some(most) => Failure::new(value, cause(most)),
            None => Ok(()),
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn map(value: &Value) -> &Map<String, Value> {
    static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    value.as_object().unwrap_or(&EMPTY)
}
