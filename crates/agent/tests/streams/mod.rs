//! Recorded streams through the laws in the kernel: what the tests of conformance share.

use agent::kernel::objects;
use agent::kernel::refused;
use aya::maps::Array;
use aya::programs::SchedClassifier;
use aya::{Ebpf, EbpfLoader, Pod, TestRun, TestRunOptions};

#[path = "../skip/mod.rs"]
mod skip;

/// Steps in a stream: `STREAM` of `conformance.bpf.c`.
pub const STREAM: usize = 4_096;

/// A program of `conformance.bpf.c`, with its maps.
pub struct Bench {
    ebpf: Ebpf,
    program: &'static str,
    stream: &'static str,
    bench: &'static str,
}

impl Bench {
    /// Loads it into the kernel; `None`, with the reason printed, where BPF is not available.
    /// `bpf_loop` needs Linux 5.17.
    pub fn load(program: &'static str, stream: &'static str, bench: &'static str) -> Option<Bench> {
        const WHAT: &str = "the laws on recorded streams";
        let loaded = (|| {
            let mut ebpf = EbpfLoader::new()
                .load(objects::CONFORMANCE)
                .map_err(|e| refused(WHAT, "5.17", &e))?;
            let classifier: &mut SchedClassifier =
                ebpf.program_mut(program).unwrap().try_into().unwrap();
            classifier.load().map_err(|e| refused(WHAT, "5.17", &e))?;
            Ok(ebpf)
        })();
        skip::or_skip(loaded).map(|ebpf| Bench { ebpf, program, stream, bench })
    }

    /// Through the kernel: the steps have their answers afterwards. `done`: how many steps a bench
    /// says that it took.
    pub fn run<Law: Pod, Step: Pod>(
        &mut self,
        law: Law,
        steps: &mut [Step],
        done: fn(&Law) -> u32,
    ) {
        let mut stream: Array<_, Step> =
            Array::try_from(self.ebpf.map_mut(self.stream).unwrap()).unwrap();
        for (i, step) in steps.iter().enumerate() {
            stream.set(i as u32, step, 0).unwrap();
        }
        Array::try_from(self.ebpf.map_mut(self.bench).unwrap()).unwrap().set(0, law, 0).unwrap();
        let program: &mut SchedClassifier =
            self.ebpf.program_mut(self.program).unwrap().try_into().unwrap();
        program
            .test_run(TestRunOptions { data_in: Some(&[0; 64]), ..TestRunOptions::default() })
            .unwrap();
        let bench: Array<_, Law> = Array::try_from(self.ebpf.map(self.bench).unwrap()).unwrap();
        assert_eq!(done(&bench.get(&0, 0).unwrap()), steps.len() as u32);
        let stream: Array<_, Step> = Array::try_from(self.ebpf.map(self.stream).unwrap()).unwrap();
        for (i, step) in steps.iter_mut().enumerate() {
            *step = stream.get(&(i as u32), 0).unwrap();
        }
    }
}
