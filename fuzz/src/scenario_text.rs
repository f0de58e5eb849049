//! What the target `scenario` does with its bytes: a file is read and its first and last run are
//! resolved, or it is refused with a message of one line.
//!
//! Also compiled into `crates/scenario/tests/any_text.rs`; so it needs nothing but `scenario`.

use scenario::{Document, TraceMissing, TraceText};

/// Names of even length are there.
fn traces(name: &str) -> Result<TraceText, TraceMissing> {
    if name.len().is_multiple_of(2) {
        Ok(TraceText("1\n2\n".into()))
    } else {
        Err(TraceMissing("odd".to_owned()))
    }
}

/// Reads `text`. Whatever is accepted must be sound; whatever is refused must say why, on one line.
pub fn scenario(text: &str) {
    let refused = |e: scenario::ScenarioError| {
        let line = e.to_string();
        assert!(!line.is_empty() && !line.contains('\n'), "{line:?}");
    };
    let document = match Document::parse(text) {
        Ok(document) => document,
        Err(e) => return refused(e),
    };
    let runs = document.runs();
    assert!(!runs.is_empty());
    for run in [runs.first(), runs.last()].into_iter().flatten() {
        let scenario = match document.scenario(&run.overrides, run.seed, &traces) {
            Ok((scenario, _)) => scenario,
            Err(e) => {
                refused(e);
                continue;
            }
        };
        let nodes = scenario.nodes.len();
        for link in &scenario.links {
            assert!(link.from < nodes && link.to < nodes && link.from != link.to);
            let _ = link.build();
        }
        for flow in &scenario.flows {
            assert!(flow.from < nodes && flow.to < nodes && flow.start < scenario.duration);
        }
        assert!(scenario.changes.is_sorted_by_key(|c| c.at));
    }
}
