//! The names of schemas in a document, and the schemas that references lead to.

use std::collections::HashMap;

use reqwest::Url;
use serde_json::Value;

use super::dialect::{self, Draft};

/// The address of a document without one.
const DEFAULT_BASE: &str = "json-schema:///";

/// A document has one resource, and one more for each schema with an address of its own.
pub(super) struct Resources<'v> {
    list: Vec<Resource<'v>>,
    /// The resource of each schema that is an object, by its address.
    places: HashMap<*const Value, usize>,
    /// Some schema asks what other keywords have looked at.
    pub(super) has_tracking: bool,
}

struct Resource<'v> {
    root: &'v Value,
    url: Url,
    anchors: HashMap<&'v str, &'v Value>,
    dynamic_anchors: HashMap<&'v str, &'v Value>,
}

impl<'v> Resources<'v> {
    /// `None` if an address is not one.
    pub(super) fn new(draft: Draft, root: &'v Value) -> Option<Self> {
        let url = Url::parse(DEFAULT_BASE).ok()?;
        let mut resources =
            Self { list: vec![Resource::new(root, url)], places: HashMap::new(), has_tracking: false };
        let mut references = Vec::new();
        resources.collect(draft, root, 0, true, &mut references)?;
        // References that are not used count too.
        references.into_iter().all(|(it, from)| resources.place(it, from).is_some()).then_some(resources)
    }

    fn collect(
        &mut self,
        draft: Draft,
        schema: &'v Value,
        outer: usize,
        is_root: bool,
        references: &mut Vec<(&'v str, usize)>,
    ) -> Option<()> {
        let Value::Object(members) = schema else { return Some(()) };
        let mut place = outer;
        let text = |keyword: &str| members.get(keyword).and_then(Value::as_str);
        let is_reference = draft.ignores_siblings() && members.contains_key("$ref");
        if let Some(id) = text(draft.id_keyword()) {
            match id.strip_prefix('#').filter(|_| draft.ignores_siblings()) {
                Some(anchor) => _ = self.list[place].anchors.insert(anchor, schema),
                None if is_reference => {}
                None => {
                    let mut url = self.list[outer].url.join(id).ok()?;
                    url.set_fragment(None);
                    if is_root {
                        self.list[0].url = url;
                    } else {
                        place = self.list.len();
                        self.list.push(Resource::new(schema, url));
                    }
                }
            }
        }
        self.places.insert(std::ptr::from_ref(schema), place);
        references.extend(text("$ref").map(|reference| (reference, place)));
        if draft >= Draft::Draft2019 {
            let resource = &mut self.list[place];
            if let Some(anchor) = text("$anchor") {
                resource.anchors.insert(anchor, schema);
            }
            if let Some(anchor) = text("$dynamicAnchor").filter(|_| draft == Draft::Draft2020) {
                resource.anchors.insert(anchor, schema);
                resource.dynamic_anchors.insert(anchor, schema);
            }
        }
        for (keyword, member) in members {
            self.has_tracking |= matches!(keyword.as_str(), "unevaluatedItems" | "unevaluatedProperties");
            for below in dialect::schemas_in(keyword, member) {
                self.collect(draft, below, place, false, references)?;
            }
        }
        Some(())
    }

    /// The resource that a schema belongs to. `None` for one that only a pointer leads to.
    pub(super) fn of(&self, schema: &Value) -> Option<usize> {
        self.places.get(&std::ptr::from_ref(schema)).copied()
    }

    /// The root of a resource.
    pub(super) fn root(&self, place: usize) -> &'v Value {
        self.list[place].root
    }

    /// The roots of all resources, with the places of these.
    pub(super) fn roots(&self) -> impl Iterator<Item = (&'v Value, usize)> {
        self.list.iter().enumerate().map(|(place, resource)| (resource.root, place))
    }

    /// The schema of a resource that a `$dynamicRef` may lead to.
    pub(super) fn dynamic(&self, place: usize, anchor: &str) -> Option<&'v Value> {
        self.list[place].dynamic_anchors.get(anchor).copied()
    }

    /// The resource that a reference leads to.
    fn place(&self, reference: &str, from: usize) -> Option<usize> {
        let address = reference.split_once('#').map_or(reference, |(address, _)| address);
        if address.is_empty() {
            return Some(from);
        }
        let url = self.list[from].url.join(address).ok()?;
        self.list.iter().position(|resource| resource.url == url)
    }

    /// The schema that a reference in a resource leads to, and its resource. `None` if there is none in this document.
    pub(super) fn find(&self, reference: &str, from: usize) -> Option<(&'v Value, usize)> {
        let place = self.place(reference, from)?;
        let fragment = reference.split_once('#').map_or("", |(_, fragment)| fragment);
        let resource = &self.list[place];
        let fragment = percent_encoding::percent_decode_str(fragment).decode_utf8().ok()?;
        let schema = match &*fragment {
            "" => resource.root,
            pointer if pointer.starts_with('/') => resource.root.pointer(pointer)?,
            anchor => resource.anchors.get(anchor)?,
        };
        (schema.is_object() || schema.is_boolean()).then_some(())?;
        Some((schema, self.of(schema).unwrap_or(place)))
    }
}

impl<'v> Resource<'v> {
    fn new(root: &'v Value, url: Url) -> Self {
        Self { root, url, anchors: HashMap::new(), dynamic_anchors: HashMap::new() }
    }
}
