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

    /// Refuses a value from outside that the sweep would replace in every run: what each value of an axis sets as well,
    /// or sets a part or the whole of. Where only some cases set it, it is that of the others; the runs of those warn.
    pub(crate) fn refuse_replaced(&self, key: &str, value: &Tree) -> Result<()> {
        for axis in &self.axes {
            let sets = |(own, _): &&(String, Tree)| {
                is_part(own, key) || is_part(key, own) || (axis.labelled && own == key)
            };
            let own = |case: &'_ Choice| case.set.iter().find(sets).map(|(own, _)| own.clone());
            let Some(all) = axis.choices.iter().map(own).collect::<Option<Vec<String>>>() else {
                continue;
            };
            let (axis_key, own) = (&axis.key, all.first().map_or("", String::as_str));
            let why = if axis.labelled {
                format!("[sweep] {axis_key} sets {own} in each of its cases")
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

/// Whether `part` is a key inside the table `whole`.
fn is_part(whole: &str, part: &str) -> bool {
    part.strip_prefix(whole).is_some_and(|rest| rest.starts_with('.'))
}

/// What to warn of where a later setting replaces an earlier one by another value: a case of the sweep sets what was set
/// from outside.
pub(crate) fn replaced(set: &[(String, Tree)]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, (key, value)) in set.iter().enumerate() {
        let later = set[i + 1..]
            .iter()
            .find(|(own, new)| is_part(own, key) || (own == key && new.toml() != value.toml()));
        if let Some((own, new)) = later {
            let new = settings::shortened(&new.toml());
            warnings.push(format!("set: {key}: [sweep] sets {own} to {new} in a case"));
        }
    }
    warnings
}

/// Keeps the case of `axis` whose label is `value`.
pub(crate) fn choose(tree: &mut Tree, axis: &Axis, value: &Tree) -> Result<()> {
    let label = value.label();
    let Some(place) = axis.choices.iter().position(|case| case.label == label) else {
        let all: Vec<&str> = axis.choices.iter().map(|case| case.label.as_str()).collect();
        let label = settings::shortened(&label);
        let why = format!("no case is called {label:?}; there are {}", all.join(", "));
        return wrong(value.place, axis.key.clone(), Problem::Contradiction(why));
    };
    keep_one(tree, &axis.key, |values| values.list()?.get(place).cloned());
    Ok(())
}

/// Puts one value in place of the values of a key, if the sweep has it.
pub(crate) fn pin(tree: &mut Tree, key: &str, value: &Tree) {
    keep_one(tree, key, |_| Some(value.clone()));
}

/// Leaves the axis `key` of the sweep the one value that `choose` gives for its values.
fn keep_one(tree: &mut Tree, key: &str, choose: impl FnOnce(&Tree) -> Option<Tree>) {
    let Item::Table(root) = &mut tree.item else { return };
    let Some((_, sweep)) = root.entries.iter_mut().find(|(k, _)| k == "sweep") else { return };
    let Some(table) = sweep.table() else { return };
    let mut entries = Vec::new();
    flatten(table, "", &mut entries);
    let Some((_, values)) = entries.iter_mut().find(|(k, _)| k == key) else { return };
    let Some(value) = choose(values) else { return };
    *values = Tree { item: Item::List(vec![value]), place: values.place };
    sweep.item = Item::Table(Table { entries, inline: false });
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
