//! Which instruction set the kernels use: found once, overridable, and passed down in [`Ctx`](super::Ctx).

use std::fmt;

/// An instruction set that the kernels are compiled for, fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// AVX-512 F/BW/DQ/VL with `vdpbf16ps`.
    Avx512Bf16,
    /// AVX-512 F/BW/DQ/VL; bf16 operands are widened to f32.
    Avx512,
    /// AVX2 with FMA; bf16 operands are widened to f32.
    Avx2,
    /// Plain Rust for whatever the compiler targets.
    Portable,
}

/// The environment variable that overrides [`Isa::best`].
pub const ISA_ENV: &str = "TTC_CPU_ISA";

/// A requested instruction set that is unknown or that this processor lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsaError {
    pub asked: String,
    pub available: Vec<Isa>,
}

impl Isa {
    pub const ALL: [Isa; 4] = [Isa::Avx512Bf16, Isa::Avx512, Isa::Avx2, Isa::Portable];

    pub fn name(self) -> &'static str {
        match self {
            Isa::Avx512Bf16 => "avx512bf16",
            Isa::Avx512 => "avx512",
            Isa::Avx2 => "avx2",
            Isa::Portable => "portable",
        }
    }

    /// Whether this processor can run it.
    #[cfg(target_arch = "x86_64")]
    pub fn supported(self) -> bool {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let avx512 = avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        match self {
            Isa::Avx512Bf16 => avx512 && is_x86_feature_detected!("avx512bf16"),
            Isa::Avx512 => avx512,
            Isa::Avx2 => avx2,
            Isa::Portable => true,
        }
    }

    /// Whether this processor can run it.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn supported(self) -> bool {
        self == Isa::Portable
    }

    /// What this processor can run, fastest first; never empty.
    pub fn available() -> Vec<Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.supported()).collect()
    }

    /// The fastest that this processor can run.
    pub fn best() -> Isa {
        Isa::ALL.into_iter().find(|isa| isa.supported()).unwrap_or(Isa::Portable)
    }

    /// [`Isa::best`], unless `TTC_CPU_ISA` names another.
    pub fn detect() -> Result<Isa, IsaError> {
        match std::env::var(ISA_ENV) {
            Ok(name) if !name.is_empty() => Isa::parse(&name),
            _ => Ok(Isa::best()),
        }
    }

    /// By name, refusing what this processor lacks.
    pub fn parse(name: &str) -> Result<Isa, IsaError> {
        let wanted = name.trim().to_ascii_lowercase();
        Isa::ALL
            .into_iter()
            .find(|isa| isa.name() == wanted && isa.supported())
            .ok_or_else(|| IsaError { asked: name.to_string(), available: Isa::available() })
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for IsaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.available.iter().map(|isa| isa.name()).collect();
        write!(
            f,
            "this processor cannot run the instruction set `{}`; possible: {}",
            self.asked,
            names.join(", ")
        )
    }
}

impl std::error::Error for IsaError {}
