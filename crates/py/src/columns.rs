//! Rows to columns: little-endian bytes with a validity bitmap, as Arrow lays them out, so that
//! Python takes them over without looking at a single value.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

/// One column on its way to Python: `(name, type, data, valid, offsets)`.
pub struct Column {
    name: String,
    kind: &'static str,
    data: Vec<u8>,
    valid: Option<Vec<u8>>,
    offsets: Option<Vec<u8>>,
}

fn bitmap(bits: impl Iterator<Item = bool>, len: usize) -> (Vec<u8>, bool) {
    let mut bytes = vec![0u8; len.div_ceil(8)];
    let mut all = true;
    for (i, bit) in bits.enumerate() {
        if bit {
            bytes[i / 8] |= 1 << (i % 8);
        } else {
            all = false;
        }
    }
    (bytes, all)
}

macro_rules! numbers {
    ($($function:ident, $optional:ident, $type:ty, $kind:literal;)*) => {$(
        /// A column in which every row has a value.
        pub fn $function(name: impl Into<String>, values: impl Iterator<Item = $type>) -> Column {
            let data = values.flat_map(<$type>::to_le_bytes).collect();
            Column { name: name.into(), kind: $kind, data, valid: None, offsets: None }
        }
        /// A column in which a row may have no value.
        pub fn $optional(name: impl Into<String>, values: impl Iterator<Item = Option<$type>>) -> Column {
            let values: Vec<Option<$type>> = values.collect();
            let (bits, all) = bitmap(values.iter().map(Option::is_some), values.len());
            let data = values.into_iter().flat_map(|v| v.unwrap_or_default().to_le_bytes()).collect();
            let valid = if all { None } else { Some(bits) };
            Column { name: name.into(), kind: $kind, data, valid, offsets: None }
        }
    )*};
}

impl Column {
    numbers! {
        u8, maybe_u8, u8, "u8";
        u32, maybe_u32, u32, "u32";
        u64, maybe_u64, u64, "u64";
        f32, maybe_f32, f32, "f32";
        f64, maybe_f64, f64, "f64";
    }

    /// A column of unsigned 16-bit numbers, such as ports.
    pub fn u16(name: impl Into<String>, values: impl Iterator<Item = u16>) -> Column {
        let data = values.flat_map(u16::to_le_bytes).collect();
        Column { name: name.into(), kind: "u16", data, valid: None, offsets: None }
    }

    /// A column of truth values.
    pub fn bool(name: impl Into<String>, values: impl ExactSizeIterator<Item = bool>) -> Column {
        let len = values.len();
        let (data, _) = bitmap(values, len);
        Column { name: name.into(), kind: "bool", data, valid: None, offsets: None }
    }

    /// Text in every row.
    pub fn str(name: impl Into<String>, values: impl Iterator<Item = impl AsRef<str>>) -> Column {
        Self::maybe_str(name, values.map(Some))
    }

    /// A column of text with empty rows.
    pub fn maybe_str(
        name: impl Into<String>,
        values: impl Iterator<Item = Option<impl AsRef<str>>>,
    ) -> Column {
        let mut data = Vec::new();
        let mut offsets: Vec<u8> = 0i32.to_le_bytes().to_vec();
        let mut present = Vec::new();
        for value in values {
            if let Some(text) = &value {
                data.extend_from_slice(text.as_ref().as_bytes());
            }
            present.push(value.is_some());
            // Texts of one table stay far below 2 GiB; past that they would be cut, never misread.
            let end = i32::try_from(data.len()).unwrap_or(i32::MAX);
            data.truncate(end as usize);
            offsets.extend_from_slice(&end.to_le_bytes());
        }
        let (bits, all) = bitmap(present.iter().copied(), present.len());
        let valid = if all { None } else { Some(bits) };
        Column { name: name.into(), kind: "str", data, valid, offsets: Some(offsets) }
    }

    /// As Python takes it.
    pub fn into_py<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let bytes = |b: &Vec<u8>| PyBytes::new(py, b);
        let valid = self.valid.as_ref().map(bytes);
        let offsets = self.offsets.as_ref().map(bytes);
        (self.name, self.kind, PyBytes::new(py, &self.data), valid, offsets).into_pyobject(py)
    }
}
