use super::OpDef;
use crate::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// `y = x · Φ(x) = x/2 · (1 + erf(x/√2))`, the exact form (Hendrycks, Gimpel 2016).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gelu {}

impl OpDef for Gelu {
    fn infer(&self, ins: &[&[usize]]) -> Result<Vec<usize>, String> {
        Ok(ins[0].to_vec())
    }

    fn eval(&self, ins: &[&Tensor], _: &[&Tensor]) -> Tensor {
        ins[0].map(gelu)
    }
}

pub(crate) fn gelu(x: f32) -> f32 {
    let x = f64::from(x);
    (0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2))) as f32
}

/// erf to within 1e-10: the Maclaurin series below 2.5, the continued fraction of erfc above.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    let magnitude = if a < 2.5 {
        // erf(a) = 2/√π · Σ (-1)ⁿ a^(2n+1) / (n! (2n+1))
        let (mut term, mut sum) = (a, a);
        for n in 1..60 {
            term *= -a * a / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        // erfc(a) = exp(-a²)/√π · 1/(a + (1/2)/(a + 1/(a + (3/2)/(a + ...))))
        let fraction = (1..60).rev().fold(a, |tail, n| a + f64::from(n) / 2.0 / tail);
        1.0 - (-a * a).exp() * std::f64::consts::FRAC_2_SQRT_PI / 2.0 / fraction
    };
    magnitude.copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_matches_published_values() {
        // Abramowitz and Stegun, table 7.1, and erfc(3) from the same source.
        for (x, y) in [(0.0, 0.0), (0.5, 0.5204998778), (1.0, 0.8427007929), (2.0, 0.9953222650), (3.0, 0.9999779095)] {
            assert!((erf(x) - y).abs() < 1e-10, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
        assert!((erf(2.4999999) - erf(2.5000001)).abs() < 1e-9, "the two branches meet");
    }
}
