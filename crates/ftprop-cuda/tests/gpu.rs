//! What needs a GPU; says that it was skipped where there is none.

use ftprop_cuda::{Device, SelftestPart, selftest};

#[test]
fn this_gpu_computes_what_the_cpu_does() {
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let checks = selftest(&device, &SelftestPart::ALL.map(|(_, part)| part), &mut |_| {}).unwrap();
    let bad: Vec<_> = checks.iter().filter(|c| !c.passed()).collect();
    assert!(!checks.is_empty() && bad.is_empty(), "{bad:?}");
}
