//! A scenario file as a whole: its runs, and the resolved scenario of each.

use settings::{Place, Problem, Result, Tree, wrong};

use crate::expect::{self, Expectation, Names};
use crate::resolve;
use crate::sweep::{self, RunSpec, Sweep};
use crate::traces::{self, Source, Traces};
use crate::types::Scenario;

/// Largest file: thousands of times that of a scenario written by hand.
const MAX_BYTES: usize = 16 << 20;

/// A scenario file, read and checked.
#[derive(Clone, Debug)]
pub struct Document {
    tree: Tree,
    sweep: Sweep,
    expectations: Vec<Expectation>,
}

impl Document {
    /// Reads and checks a file, each value of its sweep included; only traces are not read yet.
    pub fn parse(text: &str) -> Result<Document> {
        if text.len() > MAX_BYTES {
            let problem =
                Problem::TooMany { what: "bytes", found: text.len() as u64, max: MAX_BYTES as u64 };
            return wrong(Place::Nowhere, "", problem);
        }
        Document::of(Tree::parse(text)?, true)
    }

    /// `strict`: an expectation of a run that there is not is a mistake; else it is left out.
    fn of(tree: Tree, strict: bool) -> Result<Document> {
        resolve::root(&tree)?;
        let sweep = Sweep::read(&tree)?;
        let mut names = Names::default();
        for set in sweep.samples() {
            let mut tree = tree.clone();
            set_all(&mut tree, &set)?;
            let blind = Source::blind(&tree)?;
            let (scenario, _) = resolve::scenario(&tree, 0, &blind)?;
            names.flows.extend(scenario.flows.into_iter().map(|f| f.name));
            names.flows.extend(resolve::flow_names(&tree));
            names.probes.extend(scenario.probes.into_iter().map(|p| p.name));
            names.links.extend(scenario.links.into_iter().map(|l| l.name));
        }
        for list in [&mut names.flows, &mut names.probes, &mut names.links] {
            let mut seen = std::collections::BTreeSet::new();
            list.retain(|name| seen.insert(name.clone()));
        }
        let expectations = expect::read(&tree, &sweep, &names, strict)?;
        Ok(Document { tree, sweep, expectations })
    }

    /// The file with some keys set from outside: dotted key, value as TOML or plain text. A key of
    /// the sweep keeps this one value, an axis of cases the one with this label, and what was expected
    /// of the others is left out. A value that the sweep would replace in every run is refused.
    pub fn with<K: AsRef<str>, V: AsRef<str>>(&self, given: &[(K, V)]) -> Result<Document> {
        let mut tree = self.tree.clone();
        let mut set = Vec::new();
        for (key, value) in values(given)? {
            match self.sweep.cases(&key) {
                Some(axis) => sweep::choose(&mut tree, axis, &value)?,
                None => set.push((key, value)),
            }
        }
        // A case that is left out sets nothing.
        let left = Sweep::read(&tree)?;
        set_all(&mut tree, &set)?;
        for (key, value) in &set {
            left.refuse_replaced(key, value)?;
            sweep::pin(&mut tree, key, value);
        }
        Document::of(tree, false)
    }

    /// The runs of this file: one, or the product of its sweep, the last key changing fastest,
    /// seeds fastest of all.
    pub fn runs(&self) -> Vec<RunSpec> {
        self.sweep.runs(self.seed())
    }

    /// The seed of the first run.
    pub fn seed(&self) -> u64 {
        // read without complaint in `of`
        resolve::root(&self.tree).and_then(|root| root.count("seed")).unwrap_or(1)
    }

    /// One run, ready to go, and its warnings.
    pub fn scenario<K: AsRef<str>, V: AsRef<str>>(
        &self,
        overrides: &[(K, V)],
        seed: u64,
        traces: &Traces<'_>,
    ) -> Result<(Scenario, Vec<String>)> {
        let mut tree = self.tree.clone();
        let mut set = values(overrides)?;
        // The choice of a case is no key of a scenario: the run has what the case sets.
        set.retain(|(key, _)| self.sweep.cases(key).is_none());
        for (key, value) in &mut set {
            if let Some(place) = self.sweep.place_of(key) {
                value.set_place(place);
            }
        }
        set_all(&mut tree, &set)?;
        let source = Source::new(&tree, traces)?;
        let (scenario, mut warnings) = resolve::scenario(&tree, seed, &source)?;
        warnings.extend(sweep::replaced(&set));
        Ok((scenario, warnings))
    }

    /// The `[[expect]]` entries.
    pub fn expectations(&self) -> &[Expectation] {
        &self.expectations
    }

    /// The traces that any run may ask for, each once.
    pub fn traces_named(&self) -> Vec<String> {
        traces::named(&self.tree)
    }

    /// The name of the scenario.
    pub fn name(&self) -> &str {
        self.tree.root("name").and_then(Tree::text).unwrap_or("scenario")
    }

    /// One or two sentences.
    pub fn about(&self) -> &str {
        self.tree.root("about").and_then(Tree::text).unwrap_or_default()
    }
}

/// Keys and values from outside.
fn values<K: AsRef<str>, V: AsRef<str>>(set: &[(K, V)]) -> Result<Vec<(String, Tree)>> {
    let value = |(key, text): &(K, V)| {
        Ok((key.as_ref().to_owned(), Tree::from_outside(key.as_ref(), text.as_ref())?))
    };
    set.iter().map(value).collect()
}

/// Sets keys; a first key that no file has is refused here, by its nearest name.
fn set_all(tree: &mut Tree, set: &[(String, Tree)]) -> Result<()> {
    for (key, value) in set {
        let first = key.split('.').next().unwrap_or_default();
        let known = crate::keys::ROOT.iter().map(|k| k.name);
        if !known.clone().any(|k| k == first) {
            return wrong(value.place, key.as_str(), settings::unknown_key(first, known));
        }
    }
    resolve::set_all(tree, set)
}
