//! Modelled time of a plan on a CPU: for each step the longer of computing and moving, at the rates of a stated machine.
//!
//! The rates are measurements on two Zen 4 cores with AVX512-BF16, so the figures order steps and plans and show what
//! bounds them; on another machine they are an estimate, and are marked so. `ttc bench` measures.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use ttc_ir::{Math, Plan};

/// What limits a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Arithmetic.
    Math,
    /// Memory traffic.
    Dram,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Bound::Math => "math",
            Bound::Dram => "dram",
        })
    }
}

/// Modelled time of one step.
#[derive(Clone, Debug)]
pub struct StepCost {
    pub name: String,
    pub kernel: String,
    /// Milliseconds.
    pub ms: f64,
    pub bound: Bound,
}

/// Modelled time of a plan.
#[derive(Clone, Debug)]
pub struct Cost {
    pub steps: Vec<StepCost>,
}

/// GFLOP/s of matrix products by precision.
const F32_GFLOPS: f64 = 190.0;
const BF16_GFLOPS: f64 = 380.0;
/// GB/s of one pass over memory.
const GBPS: f64 = 25.0;
/// Relative error of the total against measurement on that machine; on others it is unknown.
const ERROR: f64 = 0.3;

/// The model of every step of a CPU plan.
pub fn estimate(plan: &Plan) -> Cost {
    let rate = match plan.math {
        Math::F32 => F32_GFLOPS,
        Math::Bf16 => BF16_GFLOPS,
    };
    let step = |step| {
        let (math, dram) = (plan.flops(step) as f64 / rate / 1e6, plan.traffic(step) as f64 / GBPS / 1e6);
        let bound = if math >= dram { Bound::Math } else { Bound::Dram };
        StepCost { name: step.name.clone(), kernel: step.kernel.clone(), ms: math.max(dram), bound }
    };
    Cost { steps: plan.steps.iter().map(step).collect() }
}

impl Cost {
    pub fn total_ms(&self) -> f64 {
        self.steps.iter().map(|s| s.ms).sum()
    }

    /// Half-width of the estimate's error bar.
    pub fn error_ms(&self) -> f64 {
        self.total_ms() * ERROR
    }

    /// Milliseconds by kernel.
    pub fn components(&self) -> BTreeMap<String, f64> {
        let mut components = BTreeMap::new();
        self.steps.iter().for_each(|s| *components.entry(s.kernel.clone()).or_insert(0.0) += s.ms);
        components
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(
            f,
            "estimate for two Zen 4 cores with AVX512-BF16: {:.1} ms +- {:.1}",
            self.total_ms(),
            self.error_ms()
        )?;
        for (kernel, ms) in self.components() {
            writeln!(f, "{kernel:<16} {ms:>9.2} ms {:>5.1} %", ms / self.total_ms() * 100.0)?;
        }
        let rows: Vec<(String, String)> = self
            .steps
            .iter()
            .map(|s| {
                let mut row = String::new();
                write!(row, "{:>9.3} ms  {:<5} {:<14} {}", s.ms, s.bound, s.kernel, s.name)
                    .expect("writing to a String");
                (s.name.clone(), row)
            })
            .collect();
        f.write_str(&ttc_ir::graph::fold_repeats(&rows))
    }
}
