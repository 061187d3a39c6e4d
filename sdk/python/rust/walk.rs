//! Python objects as JSON text.
//!
//! Objects are read by their layout: methods that a subclass of `str`, `dict` or `list` overrides are not called. Code of
//! the objects runs only where nothing else describes them (`__str__`, properties of dataclasses, `model_dump` of classes
//! that are no models), and its exceptions are returned.

use std::{
    collections::HashMap,
    io::Write as _,
    sync::{Mutex, PoisonError},
};

use pyo3::{
    exceptions::PyBaseException,
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{
        PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple,
        PyType,
    },
};

/// The largest depth of a value: the limit of the readers, which also ends cycles.
const MAX_DEPTH: usize = 100;

/// The largest text of one value, and the number of containers and objects in it. A list that holds itself twice has more values within
/// the depth than any machine can write. Far above the limits of an event, so that the reader refuses such a text.
const MAX_TEXT: usize = 64 << 20;
const MAX_VALUES: usize = 1 << 20;

/// The part of an object that describes itself by its own code in that number: it takes much longer.
const DESCRIBED: usize = 16;

/// The largest integer that is written as text, in bits: Python refuses to convert much larger ones.
const MAX_INTEGER_BITS: u64 = 4096;

/// The number of classes whose kind is remembered.
const MAX_CLASSES: usize = 4096;

/// The way to write models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Models {
    /// As `model_dump` writes them: the recorder's lines.
    Dumped,
    /// The members that are not `None`, as the reader needs them.
    Lean,
}

/// Appends `value` as JSON text.
///
/// # Errors
/// An exception of the value's own code.
pub(crate) fn write(out: &mut Vec<u8>, value: &Bound<'_, PyAny>, models: Models) -> PyResult<()> {
    let end = out.len() + MAX_TEXT;
    Walk { out, models, digits: STANDARD, end, values: MAX_VALUES }.value(value, MAX_DEPTH)
}

struct Walk<'o> {
    out: &'o mut Vec<u8>,
    models: Models,
    /// The alphabet of bytes.
    digits: &'static [u8; 64],
    /// The length of the output from which on values are cut.
    end: usize,
    /// The values that may still be written.
    values: usize,
}

/// Alphabets of base64.
const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The kinds of classes that have no JSON form of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Exception,
    Uuid,
    Enum,
    Dataclass,
    /// A pydantic model: its members are in `__dict__`, and further ones beside it if the class allows them.
    Model {
        has_extra: bool,
    },
    /// The same with `ser_json_bytes = "base64"`: pydantic writes bytes in the URL-safe alphabet, as in Google's models.
    BytesModel {
        has_extra: bool,
    },
    /// A model of `ag_ui`: the names of AG-UI are the aliases of its members.
    AgUiModel,
    /// A pydantic model with a single value.
    RootModel,
    Other,
}

/// The kinds of classes that were seen. A class is kept, so that its address stays its own.
static KINDS: Mutex<Option<Kinds>> = Mutex::new(None);

/// Classes by address.
type Kinds = HashMap<usize, (Py<PyType>, Kind)>;

/// The aliases of the members of classes, by address.
type Aliases = HashMap<usize, (Py<PyType>, Py<PyDict>)>;

impl Walk<'_> {
    fn value(&mut self, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if self.scalar(value)? {
            return Ok(());
        }
        // The tests by a flag of the class come first: the others walk along its bases.
        if let Ok(text) = value.cast::<PyString>() {
            return self.text(text);
        }
        if let Ok(number) = value.cast::<PyInt>() {
            return self.integer(number);
        }
        let is_dict = value.is_instance_of::<PyDict>();
        let is_list = !is_dict && value.is_instance_of::<PyList>();
        let known = if is_dict || is_list { None } else { known_kind(value) };
        if !is_dict
            && !is_list
            && known.is_none()
            && let Ok(number) = value.cast::<PyFloat>()
        {
            return self.float(number);
        }
        self.values = self.values.saturating_sub(1);
        if depth == 0 || self.values == 0 || self.out.len() > self.end {
            return self.bounded(value);
        }
        if let Some(kind) = known {
            return self.object(value, kind, depth);
        }
        if let Ok(dict) = value.cast::<PyDict>() {
            return self.dict(dict, depth, false);
        }
        if let Ok(list) = value.cast::<PyList>() {
            return self.list(list, depth);
        }
        if let Ok(tuple) = value.cast::<PyTuple>() {
            return self.list(&tuple.to_list(), depth);
        }
        if value.is_instance_of::<PySet>() || value.is_instance_of::<PyFrozenSet>() {
            let copy = value.py().get_type::<PyList>().call1((value,))?;
            return self.list(copy.cast::<PyList>()?, depth);
        }
        if let Ok(bytes) = value.cast::<PyBytes>() {
            self.base64(bytes.as_bytes());
            return Ok(());
        }
        if let Ok(bytes) = value.cast::<PyByteArray>() {
            self.base64(&bytes.to_vec());
            return Ok(());
        }
        self.object(value, kind_of(value)?, depth)
    }

    /// Writes a value of one of the plain classes themselves, for which no code of the program runs. False for any other.
    fn scalar(&mut self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        if let Ok(text) = value.cast_exact::<PyString>() {
            self.text(text)?;
        } else if value.is_none() {
            self.out.extend_from_slice(b"null");
        } else if let Ok(truth) = value.cast_exact::<PyBool>() {
            self.out.extend_from_slice(if truth.is_true() { b"true" } else { b"false" });
        } else if let Ok(number) = value.cast_exact::<PyInt>() {
            self.integer(number)?;
        } else if let Ok(number) = value.cast_exact::<PyFloat>() {
            self.float(number)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn text(&mut self, text: &Bound<'_, PyString>) -> PyResult<()> {
        match text.to_str() {
            Ok(text) => self.escaped(text),
            // Unpaired surrogates.
            Err(_) => {
                let bytes =
                    text.py().get_type::<PyString>().call_method1("encode", (text, "utf-8", "replace"))?;
                self.escaped(&String::from_utf8_lossy(bytes.cast::<PyBytes>()?.as_bytes()));
            }
        }
        Ok(())
    }

    /// A string as `json.dumps` writes it without escapes of characters beyond ASCII.
    fn escaped(&mut self, text: &str) {
        self.out.push(b'"');
        let bytes = text.as_bytes();
        // Without an early end, so that many bytes are compared at once.
        if !bytes.iter().fold(false, |found, byte| found | is_escaped(*byte)) {
            self.out.extend_from_slice(bytes);
            self.out.push(b'"');
            return;
        }
        let mut start = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            if !is_escaped(byte) {
                continue;
            }
            self.out.extend_from_slice(&bytes[start..at]);
            start = at + 1;
            let short = match byte {
                b'"' => b'"',
                b'\\' => b'\\',
                b'\n' => b'n',
                b'\r' => b'r',
                b'\t' => b't',
                0x08 => b'b',
                0x0c => b'f',
                _ => {
                    self.out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                    continue;
                }
            };
            self.out.extend_from_slice(&[b'\\', short]);
        }
        self.out.extend_from_slice(&bytes[start..]);
        self.out.push(b'"');
    }

    fn integer(&mut self, number: &Bound<'_, PyInt>) -> PyResult<()> {
        if let Ok(small) = number.extract::<i64>() {
            // Writing to a vector does not fail.
            let _ = write!(self.out, "{small}");
            return Ok(());
        }
        let py = number.py();
        let class = py.get_type::<PyInt>();
        let bits: u64 = class.call_method1("bit_length", (number,))?.extract()?;
        if bits > MAX_INTEGER_BITS {
            return self.bounded(number);
        }
        let digits = class.call_method1("__repr__", (number,))?;
        let digits = digits.cast::<PyString>()?.to_str()?;
        // A number beyond a double is none that a reader takes.
        if digits.parse::<f64>().is_ok_and(f64::is_finite) {
            self.out.extend_from_slice(digits.as_bytes());
        } else {
            self.escaped(digits);
        }
        Ok(())
    }

    fn float(&mut self, number: &Bound<'_, PyFloat>) -> PyResult<()> {
        if !number.value().is_finite() {
            self.out.extend_from_slice(b"null");
            return Ok(());
        }
        // By Python: of two shortest texts that are equally near, Rust may choose the other one.
        let py = number.py();
        let digits = py.get_type::<PyFloat>().call_method1(intern!(py, "__repr__"), (number,))?;
        self.out.extend_from_slice(digits.cast::<PyString>()?.to_str()?.as_bytes());
        Ok(())
    }

    /// A value that cannot be written, as short text: its `repr` may be long, or fail.
    fn bounded(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let name = value.get_type().name()?;
        self.escaped(&format!("<{}>", name.to_string_lossy()));
        Ok(())
    }

    /// The members of a dict; without those that are `None` if `is_lean`.
    fn dict(&mut self, dict: &Bound<'_, PyDict>, depth: usize, is_lean: bool) -> PyResult<()> {
        let before = self.out.len();
        self.out.push(b'{');
        let start = self.out.len();
        let mut members = dict.iter();
        while let Some((key, value)) = members.next() {
            if is_lean && value.is_none() {
                continue;
            }
            let is_plain = is_scalar(&value);
            if is_plain && let Ok(key) = key.cast::<PyString>() {
                self.key(key, start)?;
                self.scalar(&value)?;
                continue;
            }
            // A copy: the code of a value may change the dict, which ends an iteration with a panic.
            let rest: Vec<_> = std::iter::once((key, value)).chain(members).collect();
            if !rest.iter().all(|(key, _)| key.is_instance_of::<PyString>()) {
                self.out.truncate(before);
                return self.dict_of_other_keys(dict, depth, is_lean);
            }
            for (key, value) in rest {
                if is_lean && value.is_none() {
                    continue;
                }
                self.key(key.cast::<PyString>()?, start)?;
                self.value(&value, depth - 1)?;
            }
            break;
        }
        self.out.push(b'}');
        Ok(())
    }

    /// The name of a member of an object whose first member is at `start`.
    fn key(&mut self, key: &Bound<'_, PyString>, start: usize) -> PyResult<()> {
        if self.out.len() > start {
            self.out.push(b',');
        }
        self.text(key)?;
        self.out.push(b':');
        Ok(())
    }

    /// A dict with keys that are no strings: they become strings, and the last of equal ones wins.
    fn dict_of_other_keys(&mut self, dict: &Bound<'_, PyDict>, depth: usize, is_lean: bool) -> PyResult<()> {
        let named = PyDict::new(dict.py());
        for item in dict.items().iter() {
            let item = item.cast::<PyTuple>()?;
            let key = item.get_item(0)?;
            named.set_item(key.str()?, item.get_item(1)?)?;
        }
        self.dict(&named, depth, is_lean)
    }

    fn list(&mut self, list: &Bound<'_, PyList>, depth: usize) -> PyResult<()> {
        self.out.push(b'[');
        let mut at = 0;
        // The list may change meanwhile.
        while at < list.len() {
            let Ok(element) = list.get_item(at) else { break };
            if at > 0 {
                self.out.push(b',');
            }
            self.value(&element, depth - 1)?;
            at += 1;
        }
        self.out.push(b']');
        Ok(())
    }

    fn base64(&mut self, bytes: &[u8]) {
        self.out.push(b'"');
        for chunk in bytes.chunks(3) {
            let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or_default());
            let group = at(0) << 16 | at(1) << 8 | at(2);
            for digit in 0..4 {
                let is_padding = digit > chunk.len();
                let index = (group >> (18 - 6 * digit)) & 63;
                self.out.push(if is_padding { b'=' } else { self.digits[index as usize] });
            }
        }
        self.out.push(b'"');
    }

    fn object(&mut self, value: &Bound<'_, PyAny>, kind: Kind, depth: usize) -> PyResult<()> {
        let py = value.py();
        match kind {
            Kind::Exception => {
                let error = PyDict::new(py);
                error.set_item("error", value.get_type().name()?)?;
                error.set_item("message", value.str()?)?;
                self.dict(&error, depth, false)
            }
            Kind::Uuid => self.text(&value.str()?),
            Kind::Enum => self.value(&value.getattr(intern!(py, "value"))?, depth - 1),
            Kind::Dataclass => {
                let fields = PyDict::new(py);
                for field in dataclass_fields(py)?.call1((value,))?.try_iter()? {
                    let name = field?.getattr(intern!(py, "name"))?;
                    fields.set_item(&name, value.getattr(name.cast::<PyString>()?)?)?;
                }
                self.dict(&fields, depth, false)
            }
            Kind::Model { has_extra } if self.models == Models::Lean => self.model(value, has_extra, depth),
            Kind::BytesModel { has_extra } if self.models == Models::Lean => {
                let outer = std::mem::replace(&mut self.digits, URL_SAFE);
                let written = self.model(value, has_extra, depth);
                self.digits = outer;
                written
            }
            Kind::AgUiModel if self.models == Models::Lean => self.aliased_model(value, depth),
            Kind::RootModel if self.models == Models::Lean => {
                self.value(&value.getattr(intern!(py, "root"))?, depth - 1)
            }
            Kind::Model { .. }
            | Kind::BytesModel { .. }
            | Kind::AgUiModel
            | Kind::RootModel
            | Kind::Other => self.described(value, depth),
        }
    }

    fn model(&mut self, value: &Bound<'_, PyAny>, has_extra: bool, depth: usize) -> PyResult<()> {
        let members = value.getattr(intern!(value.py(), "__dict__"))?;
        let members = members.cast::<PyDict>()?;
        if !has_extra {
            return self.dict(members, depth, true);
        }
        let extra = value.getattr(intern!(value.py(), "__pydantic_extra__")).ok();
        match extra.as_ref().and_then(|extra| extra.cast::<PyDict>().ok()).filter(|extra| !extra.is_empty()) {
            None => self.dict(members, depth, true),
            Some(extra) => {
                let all = members.copy()?;
                all.update(extra.as_mapping())?;
                self.dict(&all, depth, true)
            }
        }
    }

    /// A model with the aliases of its members, as `model_dump(by_alias=True)` names them.
    fn aliased_model(&mut self, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        let aliases = aliases_of(&value.get_type())?;
        let aliases = aliases.bind(value.py());
        let members = value.getattr(intern!(value.py(), "__dict__"))?;
        let all = PyDict::new(value.py());
        for (name, member) in members.cast::<PyDict>()?.copy()?.iter() {
            all.set_item(aliases.get_item(&name)?.unwrap_or(name), member)?;
        }
        if let Ok(extra) = value.getattr(intern!(value.py(), "__pydantic_extra__"))
            && let Ok(extra) = extra.cast::<PyDict>()
        {
            all.update(extra.as_mapping())?;
        }
        self.dict(&all, depth, true)
    }

    /// An object that describes itself: `model_dump`, `dict`, `isoformat`, `__slots__` or `__str__`.
    fn described(&mut self, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        let py = value.py();
        self.values = self.values.saturating_sub(DESCRIBED);
        let is_class = value.is_instance_of::<PyType>();
        for method in ["model_dump", "dict", "isoformat"] {
            let Ok(convert) = value.getattr(method) else { continue };
            if !convert.is_callable() || is_class {
                continue;
            }
            match convert.call0() {
                Ok(converted) => {
                    let before = self.out.len();
                    match self.value(&converted, depth - 1) {
                        Err(error) if error.is_instance_of::<pyo3::exceptions::PyException>(py) => {
                            self.out.truncate(before);
                        }
                        other => return other,
                    }
                }
                Err(error) if error.is_instance_of::<pyo3::exceptions::PyException>(py) => {}
                Err(error) => return Err(error),
            }
            break;
        }
        let slots = value.get_type().getattr("__slots__").ok();
        if let Some(slots) = slots.filter(|slots| !slots.is_instance_of::<PyString>())
            && slots.is_truthy()?
        {
            let members = PyDict::new(py);
            for name in slots.try_iter()? {
                let name = name?;
                let name = name.cast::<PyString>()?;
                if !name.to_str()?.starts_with("__") {
                    members.set_item(name, value.getattr(name).ok())?;
                }
            }
            return self.dict(&members, depth, false);
        }
        self.text(&value.str()?)
    }
}

/// True for the bytes of a string that JSON has escapes for.
fn is_escaped(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\'
}

/// True if writing a value runs no code of Python's.
fn is_scalar(value: &Bound<'_, PyAny>) -> bool {
    value.is_exact_instance_of::<PyString>()
        || value.is_none()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
}

/// The kind of an object whose class was seen before: none of the classes that have a JSON form of their own.
fn known_kind(value: &Bound<'_, PyAny>) -> Option<Kind> {
    let kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
    kinds.as_ref()?.get(&(value.get_type_ptr() as usize)).map(|(_, kind)| *kind)
}

fn kind_of(value: &Bound<'_, PyAny>) -> PyResult<Kind> {
    if let Some(kind) = known_kind(value) {
        return Ok(kind);
    }
    let class = value.get_type();
    let address = class.as_ptr() as usize;
    let kind = find_kind(value, &class)?;
    let mut kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
    let kinds = kinds.get_or_insert_default();
    if kinds.len() < MAX_CLASSES {
        kinds.insert(address, (class.unbind(), kind));
    }
    Ok(kind)
}

fn find_kind(value: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> PyResult<Kind> {
    static UUID: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static ENUM: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = value.py();
    if value.is_instance_of::<PyBaseException>() {
        return Ok(Kind::Exception);
    }
    if class.is_subclass(UUID.import(py, "uuid", "UUID")?)? {
        return Ok(Kind::Uuid);
    }
    if class.is_subclass(ENUM.import(py, "enum", "Enum")?)? {
        return Ok(Kind::Enum);
    }
    if class.hasattr("__dataclass_fields__")? {
        return Ok(Kind::Dataclass);
    }
    let is_model =
        class.hasattr("__pydantic_fields__")? || class.hasattr("__fields__")? && class.hasattr("dict")?;
    let is_root =
        class.getattr("__pydantic_root_model__").is_ok_and(|root| root.is_truthy().unwrap_or(false));
    Ok(match (is_model && !value.is_instance_of::<PyType>(), is_root) {
        (false, _) => Kind::Other,
        (true, false) if has_setting(class, "ser_json_bytes", "base64") => {
            Kind::BytesModel { has_extra: has_setting(class, "extra", "allow") }
        }
        (true, false) if is_of_ag_ui(class)? => Kind::AgUiModel,
        (true, false) => Kind::Model { has_extra: has_setting(class, "extra", "allow") },
        (true, true) => Kind::RootModel,
    })
}

fn dataclass_fields(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static FIELDS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    FIELDS.import(py, "dataclasses", "fields")
}

/// True if a class is one of the package `ag_ui`, or is derived from one.
fn is_of_ag_ui(class: &Bound<'_, PyType>) -> PyResult<bool> {
    for base in class.mro().iter() {
        let module = base.getattr("__module__")?;
        if module.cast::<PyString>().is_ok_and(|name| name.to_string_lossy().starts_with("ag_ui.")) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The aliases of the members of a model by their names. Remembered as the kinds are.
fn aliases_of(class: &Bound<'_, PyType>) -> PyResult<Py<PyDict>> {
    static ALIASES: Mutex<Option<Aliases>> = Mutex::new(None);
    let py = class.py();
    let address = class.as_ptr() as usize;
    {
        let known = ALIASES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, aliases)) = known.as_ref().and_then(|known| known.get(&address)) {
            return Ok(aliases.clone_ref(py));
        }
    }
    let aliases = PyDict::new(py);
    let fields = class.getattr("__pydantic_fields__")?;
    for (name, field) in fields.cast::<PyDict>()?.copy()?.iter() {
        let alias = field.getattr("serialization_alias")?;
        aliases.set_item(&name, if alias.is_none() { &name } else { &alias })?;
    }
    let aliases = aliases.unbind();
    let mut known = ALIASES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if known.len() < MAX_CLASSES {
        known.insert(address, (class.clone().unbind(), aliases.clone_ref(py)));
    }
    Ok(aliases)
}

/// True if the configuration of a model has this value.
fn has_setting(class: &Bound<'_, PyType>, key: &str, value: &str) -> bool {
    let setting = class.getattr("model_config").and_then(|config| config.get_item(key));
    setting.is_ok_and(|setting| setting.eq(value).unwrap_or(false))
}
