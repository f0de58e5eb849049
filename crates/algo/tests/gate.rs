//! Every gate of the table: operation fuzz against one contract, a golden curve each, the estimate against the paper's
//! formula in plain floating point, and the closed loop with a scheduled uplink.

#[path = "gate/contract.rs"]
mod contract;
#[path = "gate/estimate.rs"]
mod estimate;
#[path = "gate/golden.rs"]
mod golden;
#[path = "gate/testbed.rs"]
mod testbed;
#[path = "gate/uplink.rs"]
mod uplink;
