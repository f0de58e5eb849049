//! Every input with which a fuzz target once found something, through the same target again.

use std::path::Path;

#[path = "../../../fuzz/src/drive.rs"]
mod drive;
#[path = "../../../fuzz/src/invariants.rs"]
mod invariants;

/// Runs `target` on all its kept inputs; the number of them.
fn replay(name: &str, target: fn(&[u8])) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus-kept").join(name);
    let Ok(entries) = std::fs::read_dir(&folder) else { return 0 };
    let mut paths: Vec<_> = entries.map(|e| e.expect("readable").path()).collect();
    paths.sort();
    for path in &paths {
        println!("{}", path.display());
        target(&std::fs::read(path).expect("readable"));
    }
    paths.len()
}

#[test]
fn what_the_readers_once_tripped_over_they_take_now() {
    replay("file_readers", drive::file_readers);
    replay("link_layers", drive::link_layers);
    replay("ip_fragments", drive::ip_fragments);
}

#[test]
fn what_the_analysis_once_tripped_over_it_takes_now() {
    let options = replay("tcp_options", drive::tcp_options);
    let files = replay("whole_capture", drive::whole_capture);
    let scripts = replay("scripted_segments", drive::scripted_segments);
    assert!(options > 0 && files > 0 && scripts > 0, "the kept inputs are where they belong");
}
