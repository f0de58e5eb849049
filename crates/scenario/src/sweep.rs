//! One run for every combination of the values in `[sweep]`, times the seeds.
//!
//! `[sweep]` gives axes, `key = [values]`, in the order of the file. The last axis changes fastest,
//! seeds fastest of all. Each run has the labels that distinguish it and the keys that it sets.

use settings::{Item, Place, Problem, Result, Section, Table, Tree, flatten, wrong};

use crate::keys;

/// Largest number of runs of a file, and of values of all its axes together.
const MAX_RUNS: u64 = 10_000;
const MAX_CHOICES: u64 = 1_000;

/// One run of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSpec {
    /// What distinguishes it from the other runs: short name of each key, and its value.
    pub labels: Vec<(String, String)>,
    /// Dotted keys and their values as TOML, for [`crate::Document::scenario`].
    pub overrides: Vec<(String, String)>,
    /// Random seed of the run.
    pub seed: u64,
}

/// The sweep of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sweep {
    pub(crate) axes: Vec<Axis>,
    pub(crate) seeds: u64,
}

/// One key of it with its values.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) key: String,
    pub(crate) label: String,
    pub(crate) place: Place,
    pub(crate) choices: Vec<Choice>,
    /// Its values are cases with a label, and its key is no key of a scenario.
    labelled: bool,
}

/// One value of an axis: its label, and the keys that it sets.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) label: String,
    pub(crate) set: Vec<(String, Tree)>,
}

impl Sweep {
    pub(crate) fn read(tree: &Tree) -> Result<Sweep> {
        let Some(sweep) = tree.root("sweep") else {
            return Ok(Sweep { axes: Vec::new(), seeds: 1 });
        };
        let Some(table) = sweep.table() else {
            let expected = "a table".to_owned();
            return wrong(
                sweep.place,
                "sweep",
                Problem::WrongKind { expected, found: sweep.shown() },
            );
        };
        let mut given = Vec::new();
        flatten(table, "", &mut given);
        let (seeds, axes): (Vec<_>, Vec<_>) =
            given.into_iter().partition(|(key, _)| key == "seeds");
        let seeds =
            Tree { item: Item::Table(Table { entries: seeds, inline: false }), place: sweep.place };
        let seeds =
            Section::open(&seeds, "sweep".to_owned(), &[keys::SWEEP], &[])?.count("seeds")?;
        let mut axes =
            axes.iter().map(|(key, tree)| axis(key, tree)).collect::<Result<Vec<Axis>>>()?;
        name(&mut axes);
        let choices = axes.iter().map(|a| a.choices.len() as u64).sum::<u64>();
        let runs = axes.iter().fold(seeds, |n, a| n.saturating_mul(a.choices.len() as u64));
        for (what, found, max) in [("values", choices, MAX_CHOICES), ("runs", runs, MAX_RUNS)] {
            if found > max {
                return wrong(sweep.place, "sweep", Problem::TooMany { what, found, max });
            }
        }
        Ok(Sweep { axes, seeds })
    }

    /// Every run; `seed` is that of the first one of each combination.
    pub(crate) fn runs(&self, seed: u64) -> Vec<RunSpec> {
        let mut runs = vec![RunSpec { labels: Vec::new(), overrides: Vec::new(), seed }];
        for axis in &self.axes {
            let with = |run: &RunSpec, choice: &Choice| {
                let mut run = run.clone();
                run.labels.push((axis.label.clone(), choice.label.clone()));
                if let Some(Item::Whole(seed)) =
                    choice.set.iter().rev().find(|(k, _)| k == "seed").map(|(_, t)| &t.item)
                {
                    run.seed = u64::try_from(*seed).unwrap_or(run.seed);
                }
                run.overrides
                    .extend(choice.set.iter().map(|(key, tree)| (key.clone(), tree.toml())));
                run
            };
            runs = runs
                .iter()
                .flat_map(|run| axis.choices.iter().map(move |c| with(run, c)))
                .collect();
        }
        if self.seeds == 1 {
            return runs;
        }
        let with = |run: &RunSpec, i: u64| {
            let mut run = run.clone();
            run.seed = run.seed.saturating_add(i);
            run.labels.push(("seed".to_owned(), run.seed.to_string()));
            run
        };
        runs.iter().flat_map(|run| (0..self.seeds).map(move |i| with(run, i))).collect()
    }

    /// Runs in which each value occurs at least once, the other axes at their first.
    pub(crate) fn samples(&self) -> Vec<Vec<(String, Tree)>> {
        let combination = |axis: usize, choice: usize| {
            let pick =
                |(i, a): (usize, &Axis)| a.choices[if i == axis { choice } else { 0 }].set.clone();
            self.axes.iter().enumerate().flat_map(pick).collect::<Vec<_>>()
        };
        let mut samples = vec![combination(0, 0)];
        for (i, axis) in self.axes.iter().enumerate() {
            samples.extend((1..axis.choices.len()).map(|c| combination(i, c)));
        }
        samples
    }

    /// The axis `key` whose values are cases with labels.
    pub(crate) fn cases(&self, key: &str) -> Option<&Axis> {
        self.axes.iter().find(|axis| axis.labelled && axis.key == key)
    }

    /// Refuses a value from outside that the sweep would replace in some run: that of a key which a case sets, or a part
    /// or the whole of what a value of the sweep sets.
    pub(crate) fn refuse_replaced(&self, key: &str, value: &Tree) -> Result<()> {
        let part = |whole: &str, part: &str| {
            part.strip_prefix(whole).is_some_and(|rest| rest.starts_with('.'))
        };
        for axis in &self.axes {
            let sets = |(own, _): &(String, Tree)| {
                part(own, key) || part(key, own) || (axis.labelled && own == key)
            };
            let Some((case, own)) = axis
                .choices
                .iter()
                .find_map(|case| Some((case, &case.set.iter().find(|pair| sets(pair))?.0)))
            else {
                continue;
            };
            let (axis_key, label) = (&axis.key, settings::shortened(&case.label));
            let why = if axis.labelled {
                format!("[sweep] sets {own} in its case {label:?}; {axis_key}=LABEL chooses a case")
            } else {
                format!("[sweep] sets {own}; give that key one value instead")
            };
            return wrong(value.place, key, Problem::Contradiction(why));
        }
        Ok(())
    }

    /// Where the sweep sets `key`.
    pub(crate) fn place_of(&self, key: &str) -> Option<Place> {
        let sets = |a: &&Axis| a.choices.iter().any(|c| c.set.iter().any(|(k, _)| k == key));
        self.axes.iter().find(sets).map(|a| a.place)
    }
}

/// Keeps the case of `axis` whose label is `value`.
pub(crate) fn choose(tree: &mut Tree, axis: &Axis, value: &Tree) -> Result<()> {
    let label = value.label();
    if !axis.choices.iter().any(|case| case.label == label) {
        let all: Vec<&str> = axis.choices.iter().map(|case| case.label.as_str()).collect();
        let label = settings::shortened(&label);
        let why = format!("no case is called {label:?}; there are {}", all.join(", "));
        return wrong(value.place, axis.key.clone(), Problem::Contradiction(why));
    }
    let Item::Table(root) = &mut tree.item else { return Ok(()) };
    let Some((_, sweep)) = root.entries.iter_mut().find(|(k, _)| k == "sweep") else {
        return Ok(());
    };
    let Some(table) = sweep.table() else { return Ok(()) };
    let mut entries = Vec::new();
    flatten(table, "", &mut entries);
    for (_, list) in entries.iter_mut().filter(|(key, _)| *key == axis.key) {
        let of = |case: &Tree| {
            case.table().and_then(|t| t.get("label")).and_then(Tree::text) == Some(&label)
        };
        let kept = list.list().into_iter().flatten().filter(|case| of(case)).cloned().collect();
        list.item = Item::List(kept);
    }
    sweep.item = Item::Table(Table { entries, inline: false });
    Ok(())
}

/// Puts one value in place of the values of a key that the sweep has; whether it has it.
pub(crate) fn pin(tree: &mut Tree, key: &str, value: &Tree) -> bool {
    let Item::Table(root) = &mut tree.item else { return false };
    let Some((_, sweep)) = root.entries.iter_mut().find(|(k, _)| k == "sweep") else {
        return false;
    };
    let Some(table) = sweep.table() else { return false };
    let mut entries = Vec::new();
    flatten(table, "", &mut entries);
    let Some((_, values)) = entries.iter_mut().find(|(k, _)| k == key) else { return false };
    *values = Tree { item: Item::List(vec![value.clone()]), place: values.place };
    sweep.item = Item::Table(Table { entries, inline: false });
    true
}

/// `key = [values]`, or `word = [{ label, keys… }, …]`.
fn axis(key: &str, tree: &Tree) -> Result<Axis> {
    let path = format!("sweep.{key}");
    refuse(key, tree.place, &path)?;
    let Some(list) = tree.list() else {
        let expected = "a list of values".to_owned();
        return wrong(tree.place, path, Problem::WrongKind { expected, found: tree.shown() });
    };
    if list.is_empty() {
        return wrong(tree.place, path, Problem::Empty);
    }
    if list.len() as u64 > MAX_CHOICES {
        let found = list.len() as u64;
        return wrong(
            tree.place,
            path,
            Problem::TooMany { what: "values", found, max: MAX_CHOICES },
        );
    }
    let labelled = |t: &Tree| t.table().is_some_and(|t| t.get("label").is_some());
    let labelled = list.iter().any(labelled);
    let choices = if labelled {
        list.iter().map(|t| labelled_choice(t, &path)).collect::<Result<Vec<Choice>>>()?
    } else {
        plain_choices(key, list)
    };
    let mut seen = std::collections::BTreeSet::new();
    for (choice, tree) in choices.iter().zip(list) {
        if !seen.insert(choice.label.as_str()) {
            let name = settings::shortened(&choice.label);
            return wrong(tree.place, path, Problem::Twice { what: "value", name });
        }
    }
    Ok(Axis { key: key.to_owned(), label: key.to_owned(), place: tree.place, choices, labelled })
}

/// Runs differ in their scenario, not in what is expected of them.
fn refuse(key: &str, place: Place, path: &str) -> Result<()> {
    match key.split('.').next() {
        Some(own @ ("sweep" | "expect")) => {
            wrong(place, path, Problem::Contradiction(format!("[{own}] is the same for every run")))
        }
        _ => Ok(()),
    }
}

/// Several keys at once under a name.
fn labelled_choice(tree: &Tree, path: &str) -> Result<Choice> {
    let table = tree.table();
    let Some(label) = table.and_then(|t| t.get("label")).and_then(Tree::text) else {
        let expected = "a table with a label, as the other values have".to_owned();
        return wrong(tree.place, path, Problem::WrongKind { expected, found: tree.shown() });
    };
    let mut set = Vec::new();
    table.into_iter().for_each(|t| flatten(t, "", &mut set));
    set.retain(|(key, _)| key != "label");
    for (key, value) in &set {
        refuse(key, value.place, &format!("{path}.{key}"))?;
    }
    Ok(Choice { label: label.to_owned(), set })
}

/// The values of one key. Tables of different kinds are labelled by their kind alone.
fn plain_choices(key: &str, list: &[Tree]) -> Vec<Choice> {
    let kind = |t: &Tree| match t.table() {
        Some(table) => table.get("kind").and_then(Tree::text).map(str::to_owned),
        None => Some(t.label()),
    };
    let kinds: Option<Vec<String>> = list.iter().map(kind).collect();
    let distinct = |kinds: &Vec<String>| {
        kinds.iter().collect::<std::collections::BTreeSet<_>>().len() == kinds.len()
    };
    let labels = kinds.filter(distinct).unwrap_or_else(|| list.iter().map(Tree::label).collect());
    let choice = |(label, tree): (String, &Tree)| Choice {
        label,
        set: vec![(key.to_owned(), tree.clone())],
    };
    labels.into_iter().zip(list).map(choice).collect()
}

/// Labels each axis by the last words of its key: as many as distinguish it, and never a bare
/// number.
fn name(axes: &mut [Axis]) {
    let keys: Vec<Vec<String>> =
        axes.iter().map(|a| a.key.split('.').map(str::to_owned).collect()).collect();
    let tail = |key: &[String], n: usize| key[key.len().saturating_sub(n)..].join(".");
    for (i, axis) in axes.iter_mut().enumerate() {
        let own = &keys[i];
        let fits = |n: &usize| {
            let name = tail(own, *n);
            let number = |word: &String| word.bytes().all(|b| b.is_ascii_digit());
            !own.get(own.len().saturating_sub(*n)).is_some_and(number)
                && keys.iter().enumerate().all(|(j, other)| j == i || tail(other, *n) != name)
        };
        axis.label = tail(own, (1..=own.len()).find(fits).unwrap_or(own.len()));
    }
}
