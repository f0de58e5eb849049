//! What a scenario changes in mid-run: links, their queues, gates, firmware buffers, window laws,
//! congestion controls.
//!
//! The part is replaced, and the packets in it stay. What waited may move then.

use algo::{cc, rwnd};
use scenario::Changed;

use super::{Simulation, Tap};
use crate::rewrite::Node;

impl<T: Tap> Simulation<'_, T> {
    pub(super) fn on_change(&mut self, index: usize) {
        let scenario = self.scenario;
        for what in &scenario.changes[index].what {
            match what {
                Changed::Link(..)
                | Changed::QueueLimit(..)
                | Changed::Gate(..)
                | Changed::FirmwareBuffer(..) => {
                    let Some(link) = what.link(scenario) else { continue };
                    self.run_port(link as u32, |port, now, outcomes| {
                        what.apply(port, now, outcomes)
                    });
                    if let Changed::Gate(node, _) = what {
                        self.route_gate(*node, link);
                    }
                }
                Changed::NodeWindow(node, law) => match (&mut self.rewriters[*node], law) {
                    (Some(rewriter), Some(law)) => rewriter.switch(law.clone(), 1_448, *node),
                    (slot, law) => *slot = law.clone().map(|law| Node::new(law, 1_448, *node)),
                },
                Changed::Congestion(flow, algorithm) => {
                    let s = &scenario.flows[*flow].sender;
                    let setup = cc::Setup { mss: s.mss, initial_window: s.initial_window };
                    for i in 0..self.connections.len() {
                        let c = &mut self.connections[i];
                        if c.flow == *flow && !c.closed {
                            let side = c.data_side;
                            let end = &mut c.ends[usize::from(side)];
                            end.sender.switch(self.now, algorithm.congestion(&setup));
                            self.push_endpoint(i as u32, side);
                        }
                    }
                }
                Changed::Window(flow, algorithm) => {
                    let s = &scenario.flows[*flow].sender;
                    let setup = rwnd::Setup { mss: s.mss, timestamps: s.timestamps };
                    for c in self.connections.iter_mut().filter(|c| c.flow == *flow && !c.closed) {
                        let side = 1 - usize::from(c.data_side);
                        c.ends[side].receiver.switch(algorithm.window(&setup));
                    }
                }
            }
        }
    }
}
