//! The tables of algorithms: name, source, parameters with unit, default and range, constructor.
//!
//! `config!` declares the parameters of an algorithm, `family!` the algorithms of a family. Scenario
//! files, the command line, error messages and documentation all read these tables and so cannot
//! disagree.

use alloc::vec::Vec;

use units::{Bytes, Duration, Rate};

/// The capacity of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capacity {
    /// A number of packets of any size.
    Packets(u64),
    /// A number of bytes.
    Bytes(Bytes),
}

/// The kind of a parameter's value, and its notation in a scenario.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Unit {
    /// A plain number: gains, shares.
    Number,
    /// A whole number: packets, rounds.
    Count,
    /// A flag: `true` or `false`.
    Flag,
    /// A time such as `"20 ms"`.
    Duration,
    /// An amount such as `"3 MB"`.
    Bytes,
    /// A rate such as `"12 Mbit/s"`.
    Rate,
    /// A capacity such as `"1000 packets"` or `"3 MB"`.
    Capacity,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of numbers.
    Numbers,
}

/// The value of a parameter.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// Not set, for parameters of type `Option`.
    Unset,
    /// A value of kind [`Unit::Number`].
    Number(f64),
    /// A value of kind [`Unit::Count`].
    Count(u64),
    /// A value of kind [`Unit::Flag`].
    Flag(bool),
    /// A value of kind [`Unit::Duration`].
    Duration(Duration),
    /// A value of kind [`Unit::Bytes`].
    Bytes(Bytes),
    /// A value of kind [`Unit::Rate`].
    Rate(Rate),
    /// A value of kind [`Unit::Capacity`].
    Capacity(Capacity),
    /// [`Unit::Choice`]: index into its words.
    Choice(usize),
    /// A value of kind [`Unit::Numbers`].
    Numbers(Vec<f64>),
}

impl Value {
    /// The size of the value, for comparison with a range; `None` for kinds without order.
    pub fn magnitude(&self) -> Option<f64> {
        Some(match self {
            Value::Number(x) => *x,
            Value::Count(n) => *n as f64,
            Value::Duration(d) => d.0 as f64,
            Value::Bytes(b) | Value::Capacity(Capacity::Bytes(b)) => b.0 as f64,
            Value::Rate(r) => r.0 as f64,
            Value::Capacity(Capacity::Packets(n)) => *n as f64,
            Value::Unset | Value::Flag(_) | Value::Choice(_) | Value::Numbers(_) => return None,
        })
    }
}

/// A Rust type that can be a parameter.
pub trait Setting: Sized {
    /// The kind of its values.
    const UNIT: Unit;
    /// Converts to the table's type.
    fn to_value(self) -> Value;
    /// Converts back; `None` for a value of another kind.
    fn from_value(value: &Value) -> Option<Self>;
}

macro_rules! settings {
    ($($ty:ty => $kind:ident),+ $(,)?) => {$(
        impl Setting for $ty {
            const UNIT: Unit = Unit::$kind;
            fn to_value(self) -> Value {
                Value::$kind(self)
            }
            fn from_value(value: &Value) -> Option<$ty> {
                match value {
                    Value::$kind(x) => Some(x.clone()),
                    _ => None,
                }
            }
        }
    )+};
}
settings!(f64 => Number, u64 => Count, bool => Flag, Duration => Duration, Bytes => Bytes, Rate => Rate,
    Capacity => Capacity, Vec<f64> => Numbers);

impl<T: Setting> Setting for Option<T> {
    const UNIT: Unit = T::UNIT;
    fn to_value(self) -> Value {
        self.map_or(Value::Unset, T::to_value)
    }
    fn from_value(value: &Value) -> Option<Option<T>> {
        match value {
            Value::Unset => Some(None),
            other => T::from_value(other).map(Some),
        }
    }
}

/// One parameter of an algorithm.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The key in a scenario file.
    pub name: &'static str,
    /// Its effect and the source of its default; includes the leading blanks of the doc comment.
    pub about: &'static str,
    /// The kind of its values.
    pub unit: Unit,
    /// Its default, the published value.
    pub default: fn() -> Value,
    /// Smallest and largest valid value, inclusive; `None` if every value is valid.
    pub range: Option<fn() -> (Value, Value)>,
}

impl Param {
    /// Whether `value` lies in the range; values without order always do.
    pub fn allows(&self, value: &Value) -> bool {
        let Some(range) = self.range else { return true };
        let (min, max) = range();
        match (value.magnitude(), min.magnitude(), max.magnitude()) {
            (Some(x), Some(min), Some(max)) => x >= min && x <= max,
            _ => true,
        }
    }
}

/// The values of all parameters of one algorithm, in the order of its table.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Settings(pub Vec<Value>);

impl Settings {
    /// The default of each parameter.
    pub fn defaults(params: &[Param]) -> Settings {
        Settings(params.iter().map(|p| (p.default)()).collect())
    }

    /// Sets the parameter `name`. False if there is none, or if `value` is out of its range.
    pub fn set(&mut self, params: &[Param], name: &str, value: Value) -> bool {
        match params.iter().position(|p| p.name == name) {
            Some(i) if params[i].allows(&value) => {
                self.0[i] = value;
                true
            }
            _ => false,
        }
    }
}

/// One algorithm of a family; it builds a `T` from its settings and the circumstances `S`.
pub struct Entry<T, S> {
    /// The name in scenario files and on the command line.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// RFC, paper section, kernel file.
    pub source: &'static str,
    /// Whether an outside implementation was a judge of it: a kernel, another simulator, or published code.
    pub judged: bool,
    /// Its parameters, in the order of [`Settings`].
    pub params: &'static [Param],
    /// Constructs an instance from settings.
    pub build: fn(&Settings, &S) -> T,
}

impl<T, S> Entry<T, S> {
    /// An instance with the published values.
    pub fn default(&self, setup: &S) -> T {
        (self.build)(&Settings::defaults(self.params), setup)
    }
}

/// A parameter that takes one of a few words.
macro_rules! choice {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[$doc])* $variant),+ }
        impl $crate::Setting for $name {
            const UNIT: $crate::Unit = $crate::Unit::Choice(&[$($word),+]);
            fn to_value(self) -> $crate::Value {
                $crate::Value::Choice(self as usize)
            }
            fn from_value(value: &$crate::Value) -> Option<$name> {
                const ALL: &[$name] = &[$($name::$variant),+];
                match value {
                    $crate::Value::Choice(i) => ALL.get(*i).copied(),
                    _ => None,
                }
            }
        }
    };
}

/// An algorithm's parameters: `/// about`, then `name: Type = default[, min, max];`.
macro_rules! config {
    ($(#[$meta:meta])* pub struct Config {
        $($(#[doc = $about:literal])+ $name:ident: $ty:ty = $default:expr $(, $min:expr, $max:expr)?;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Debug)]
        pub struct Config { $($(#[doc = $about])+ pub $name: $ty),* }
        impl Default for Config {
            fn default() -> Config {
                Config { $($name: $default),* }
            }
        }
        impl Config {
            /// The parameters with unit, default and range.
            pub const PARAMS: &'static [$crate::Param] = &[$($crate::Param {
                name: stringify!($name),
                about: concat!($($about),+),
                unit: <$ty as $crate::Setting>::UNIT,
                default: || <$ty as $crate::Setting>::to_value($default),
                range: config!(@range $ty $(, $min, $max)?),
            }),*];
            /// From checked settings; a value of the wrong kind counts as not set.
            #[allow(unused_mut, unused_variables, unused_assignments, clippy::mixed_read_write_in_expression)]
            pub fn from_settings(settings: &$crate::Settings) -> Config {
                let mut values = settings.0.iter();
                Config { $($name: values
                    .next()
                    .and_then(<$ty as $crate::Setting>::from_value)
                    .unwrap_or_else(|| $default)),* }
            }
        }
    };
    (@range $ty:ty) => { None };
    (@range $ty:ty, $min:expr, $max:expr) => {
        Some(|| (<$ty as $crate::Setting>::to_value($min), <$ty as $crate::Setting>::to_value($max)))
    };
}

/// A family: the enum over its algorithms, its `TABLE`, and dispatch without `dyn`. Each module
/// provides `NAME`, `ABOUT`, `SOURCE`, `Config` (from `config!`) and `Type::new(Config, &Setup)`.
/// `[unjudged]` behind an algorithm: no outside implementation was a judge of it, and whatever shows its
/// results says so. The `mod` lines stand outside the macro, where `cargo fmt` and editors see them.
macro_rules! family {
    ($(#[$doc:meta])* pub enum $any:ident($setup:ty): $trait:ident { $($module:ident :: $type:ident $([$mark:ident])?),+ $(,)? }
     changes { $($changes:tt)* } asks { $($asks:tt)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        #[allow(clippy::large_enum_variant)]
        pub enum $any { $(#[doc = stringify!($module)] $type($module::$type)),+ }
        /// Every algorithm of the family.
        pub static TABLE: &[$crate::Entry<$any, $setup>] = &[$($crate::Entry {
            name: $module::NAME,
            about: $module::ABOUT,
            source: $module::SOURCE,
            judged: family!(@judged $($mark)?),
            params: $module::Config::PARAMS,
            build: |settings, setup| {
                $any::$type($module::$type::new($module::Config::from_settings(settings), setup))
            },
        }),+];
        impl $trait for $any {
            family!(@changes $any [$($type),+] $($changes)*);
            family!(@asks $any [$($type),+] $($asks)*);
        }
    };
    (@judged) => { true };
    (@judged unjudged) => { false };
    (@changes $any:ident $types:tt $($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => {
        $(#[inline] fn $name(&mut self $(, $arg: $ty)*) $(-> $ret)? {
            family!(@each self $any $types $name($($arg),*))
        })*
    };
    (@asks $any:ident $types:tt $($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => {
        $(#[inline] fn $name(&self $(, $arg: $ty)*) $(-> $ret)? {
            family!(@each self $any $types $name($($arg),*))
        })*
    };
    (@each $self:ident $any:ident [$($type:ident),+] $name:ident $args:tt) => {
        match $self { $($any::$type(it) => family!(@call it $name $args)),+ }
    };
    (@call $it:ident $name:ident ($($arg:ident),*)) => { $it.$name($($arg),*) };
}
