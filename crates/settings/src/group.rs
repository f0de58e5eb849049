//! Sections of a file whose template is printed from their tables of keys.
//!
//! [`group!`](crate::group) writes such a table as the section itself looks: the comment of each
//! key, the key, its default and its form.

use algo::Unit;

use crate::section::{Form, Key};

/// A section of a file with all its keys.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The name of the section.
    pub name: &'static str,
    /// Its comment; empty where it has none.
    pub about: &'static str,
    /// Its keys.
    pub keys: &'static [&'static [Key]],
}

impl Group {
    /// All its keys, in their order.
    pub fn each(&self) -> impl Iterator<Item = &'static Key> {
        self.keys.iter().flat_map(|keys| keys.iter())
    }

    /// The section as TOML: each key with its comment and its default.
    pub fn template(&self) -> String {
        let comment = |about: &str| {
            if about.is_empty() { String::new() } else { format!("# {about}\n") }
        };
        let head = format!("{}[{}]\n", comment(self.about), self.name);
        let key = |key: &Key| format!("{}{} = {}\n", comment(key.about), key.name, key.toml());
        head + &self.each().map(key).collect::<String>()
    }
}

impl Key {
    /// The default as TOML. That of [`Form::Other`] is written as TOML in the table.
    pub fn toml(&self) -> String {
        match self.form {
            Form::Plain(Unit::Number | Unit::Count | Unit::Flag | Unit::Numbers, _)
            | Form::Other(_) => self.default.to_owned(),
            _ => format!("\"{}\"", self.default),
        }
    }
}

/// A [`Group`]: the comment and the name of the section, then for each key its comment, name,
/// default and form.
#[macro_export]
macro_rules! group {
    ($(#[doc = $head:literal])* [$name:ident]
     $($(#[doc = $about:literal])* $key:ident = $default:expr, $form:expr;)*) => {
        $crate::Group {
            name: stringify!($name),
            about: concat!($($head),*).trim_ascii_start(),
            keys: &[&[$($crate::Key {
                name: stringify!($key),
                form: $form,
                default: $default,
                about: concat!($($about),*).trim_ascii_start(),
            }),*]],
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::form::{duration, number};
    use crate::{Form, Group, Section, Tree};

    #[test]
    fn a_template_is_what_an_empty_file_means() {
        const GROUP: Group = group! {
            /// A link,
            /// "up" or "down".
            [link]
            delay = "20 ms", duration("1 ms", "2 s");
            /// How often.
            rate = "3.0", number("1", "16");
            users = "{}", Form::Other("a table");
        };
        let text = GROUP.template();
        let body = "delay = \"20 ms\"\n# How often.\nrate = 3.0\nusers = {}\n";
        assert_eq!(text, format!("# A link, \"up\" or \"down\".\n[link]\n{body}"));
        let read = |text: &str| {
            let tree = Tree::parse(text).expect("TOML");
            let root = Section::open(&tree, String::new(), &[], &["link"]).expect("known");
            let link = root.below("link", GROUP.keys).expect("known");
            (link.duration("delay"), link.number("rate"))
        };
        assert_eq!(read(&text), read(""));
    }
}
