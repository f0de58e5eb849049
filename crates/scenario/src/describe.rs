//! The reference of all keys as Markdown, printed from the tables that the parser reads by.

use algo::{Param, Unit, Value};
use settings::{Form, Key, quantity};

use crate::expect::{METRICS, On};
use crate::family::Family;
use crate::keys::{APPS, OBJECTS, SECTIONS};

/// The value of a parameter as it stands in a scenario file; `None` for one that is not given.
pub fn scenario_value(unit: Unit, value: &Value) -> Option<String> {
    quantity::toml(unit, value)
}

/// Sections, applications, algorithms and metrics, each with its table.
pub fn describe() -> String {
    let mut out = String::from("## Sections\n");
    for (heading, about, keys) in SECTIONS {
        out += &format!("\n### {heading}\n");
        if !about.is_empty() {
            out += &format!("\n{about}\n");
        }
        out += &table(keys);
    }
    out += "\n## Applications\n";
    for (name, about, keys) in APPS {
        out += &format!("\n### {name}\n\n{about}\n");
        out += &table(keys);
        if *name == "web" {
            out += "\nObjects alike:\n";
            out += &table(OBJECTS);
        }
    }
    for family in Family::ALL {
        out += &format!("\n## {}\n", heading(family));
        for entry in family.entries() {
            out += &format!(
                "\n### {}\n\n{} ({})\n",
                entry.name,
                cell(&entry.about_text()),
                cell(entry.source)
            );
            if !entry.params.is_empty() {
                out += "\n| parameter | written as | range | default | |\n|---|---|---|---|---|\n";
                entry.params.iter().for_each(|p| out += &param(p));
            }
        }
    }
    out += "\n## Metrics\n\nWhat `[[expect]]` can ask of a run. Distributions take a statistic: min, mean, p50, p95, p99, max.\n\n";
    out += "| metric | of each | distribution | |\n|---|---|---|---|\n";
    for m in METRICS {
        let on = match m.on {
            On::Flow => "flow",
            On::Probe => "probe",
            On::Link => "link",
            On::Run => "run",
        };
        let kind = if m.distribution { "yes" } else { "" };
        out += &format!("| `{}` | {on} | {kind} | {} |\n", m.name, cell(m.about));
    }
    out
}

fn heading(family: Family) -> &'static str {
    match family {
        Family::Congestion => "Congestion control",
        Family::Window => "Window laws",
        Family::Queue => "Queue disciplines",
        Family::Gate => "Gates",
        Family::Medium => "Media",
        Family::Layer => "Layers",
    }
}

fn table(keys: &[Key]) -> String {
    if keys.is_empty() {
        return String::new();
    }
    let mut out =
        String::from("\n| key | written as | range | default | |\n|---|---|---|---|---|\n");
    for key in keys {
        let (form, range) = match key.form {
            Form::Plain(unit, range) => (
                quantity::noun(unit),
                range.map_or(String::new(), |(min, max)| format!("{min} to {max}")),
            ),
            Form::Text => ("text".to_owned(), String::new()),
            Form::Name => ("name".to_owned(), String::new()),
            Form::Other(text) => (text.to_owned(), String::new()),
        };
        let default = match key.default {
            "" => String::new(),
            text if text.starts_with('(') => text.to_owned(),
            text => format!("`{text}`"),
        };
        let (name, about) = (key.name, cell(key.about));
        out += &row(&[&format!("`{name}`"), &cell(&form), &range, &default, &about]);
    }
    out
}

fn param(param: &Param) -> String {
    let show = |v: &Value| quantity::shown(param.unit, v);
    let range = param.range.map_or(String::new(), |range| {
        let (min, max) = range();
        format!("{} to {}", show(&min), show(&max))
    });
    let default = format!("`{}`", show(&(param.default)()));
    row(&[
        &format!("`{}`", param.name),
        &cell(&quantity::noun(param.unit)),
        &range,
        &default,
        &cell(param.about),
    ])
}

fn row(cells: &[&str]) -> String {
    let joined = cells.iter().map(|c| if c.is_empty() { " ".to_owned() } else { format!(" {c} ") });
    format!("|{}|\n", joined.collect::<Vec<_>>().join("|"))
}

/// Text on one line, without what would end a cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
