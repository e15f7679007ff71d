//! Comparison of tensors: correlation, gain, greatest and relative error.

use serde::Serialize;
use std::path::Path;

use crate::error::CliError;

/// How far `b` is from the reference `a`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Pearson correlation; 1 for two constant and equal tensors.
    pub pcc: f64,
    /// Least-squares scale g of b ≈ g·a: it shows the scale error that correlation hides.
    pub gain: f64,
    pub max_abs: f64,
    /// |b − a| / |a|, Euclidean.
    pub rel_l2: f64,
    /// Number of values.
    pub n: usize,
}

/// Compares two tensors of one length. Anything that is not finite makes every figure NaN.
pub fn compare(a: &[f32], b: &[f32]) -> Comparison {
    let n = a.len().min(b.len()) as f64;
    let pairs = || a.iter().zip(b).map(|(&a, &b)| (f64::from(a), f64::from(b)));
    let sum = |f: &dyn Fn((f64, f64)) -> f64| pairs().map(f).sum::<f64>();
    let (mean_a, mean_b) = (sum(&|(a, _)| a) / n, sum(&|(_, b)| b) / n);
    let cov = sum(&|(a, b)| (a - mean_a) * (b - mean_b));
    let (var_a, var_b) = (sum(&|(a, _)| (a - mean_a).powi(2)), sum(&|(_, b)| (b - mean_b).powi(2)));
    let (aa, ab) = (sum(&|(a, _)| a * a), sum(&|(a, b)| a * b));
    let error = sum(&|(a, b)| (b - a).powi(2));
    let ratio = |x: f64, y: f64, both_zero: f64| if x == 0.0 && y == 0.0 { both_zero } else { x / y };
    Comparison {
        pcc: if error == 0.0 { 1.0 } else { cov / (var_a * var_b).sqrt() },
        gain: ratio(ab, aa, 1.0),
        // `max` would drop NaN.
        max_abs: pairs()
            .map(|(a, b)| (b - a).abs())
            .fold(0.0, |m, e| if e > m || e.is_nan() { e } else { m }),
        rel_l2: ratio(error.sqrt(), aa.sqrt(), 0.0),
        n: a.len(),
    }
}

/// A tensor read from a file.
#[derive(Clone, Debug)]
pub struct Named {
    pub name: String,
    pub shape: Vec<usize>,
    pub data: Vec<f32>,
}

/// Reads a .safetensors or .npz file, told apart by content.
pub fn read(path: &Path) -> Result<Vec<Named>, CliError> {
    let mut start = [0; 4];
    let mut file = std::fs::File::open(path).map_err(|e| CliError::read(path, e))?;
    let n = std::io::Read::read(&mut file, &mut start).map_err(|e| CliError::read(path, e))?;
    if start[..n].starts_with(b"PK") {
        let bytes = std::fs::read(path).map_err(|e| CliError::read(path, e))?;
        let arrays =
            ttc_scene::read_npz(&bytes).map_err(|e| CliError::usage(format!("{}: {e}", path.display())))?;
        return Ok(arrays
            .into_iter()
            .map(|a| Named { name: a.name, shape: a.shape, data: a.data })
            .collect());
    }
    let tensors = ttc_codegen::weights::read_safetensors_f32(path)?;
    Ok(tensors.into_iter().map(|(name, shape, data)| Named { name, shape, data }).collect())
}

/// What [`compare_all`] found: comparisons by name, and the names without a partner.
pub type Compared = (Vec<(String, Comparison)>, Vec<String>);

/// Pairs tensors of the two files by name, and compares them. `out.` before a name counts for nothing, and a name with a selection,
/// `NAME|SELECTION`, is compared with that part of the other file's `NAME`: `tok64` (every 64th token), `px8` (every 8th row and
/// column), `ch16px4` (every 16th channel of those), `row137` (one image row).
///
/// Returns the comparisons with `a` as the reference, and the names that have no partner.
pub fn compare_all(a: &[Named], b: &[Named]) -> Result<Compared, CliError> {
    let plain = |name: &str| name.strip_prefix("out.").unwrap_or(name).to_string();
    let mut results = vec![];
    let mut alone = vec![];
    let mut used = vec![false; b.len()];
    for x in a {
        let name = plain(&x.name);
        let whole = name.split('|').next().unwrap_or_default();
        let partner = |wanted: &str| b.iter().position(|y| plain(&y.name) == wanted);
        let part_of =
            || b.iter().position(|y| plain(&y.name).split('|').next() == Some(&name) && y.name.contains('|'));
        let Some(at) = partner(&name).or_else(|| partner(whole)).or_else(part_of) else {
            alone.push(x.name.clone());
            continue;
        };
        used[at] = true;
        let y = &b[at];
        let (x, y) = match (name.split_once('|'), plain(&y.name).split_once('|')) {
            (Some((_, part)), None) => (x.clone(), select(y, part)?),
            (None, Some((_, part))) => (select(x, part)?, y.clone()),
            _ => (x.clone(), y.clone()),
        };
        // A batch axis of 1 more or less is the same tensor.
        let trimmed = |s: &[usize]| s.iter().copied().skip_while(|&n| n == 1).collect::<Vec<_>>();
        if trimmed(&x.shape) != trimmed(&y.shape) {
            return Err(CliError::usage(format!(
                "`{name}` has shape {:?} in one file and {:?} in the other",
                x.shape, y.shape
            )));
        }
        results.push((name, compare(&x.data, &y.data)));
    }
    alone.extend(b.iter().zip(used).filter(|(_, used)| !used).map(|(y, _)| y.name.clone()));
    Ok((results, alone))
}

/// The selected part of a tensor.
fn select(t: &Named, selection: &str) -> Result<Named, CliError> {
    let unknown = || CliError::usage(format!("unknown selection `|{selection}` for `{}`", t.name));
    let number = |s: &str| s.parse::<usize>().ok().filter(|&n| n > 0).ok_or_else(unknown);
    let every = |step: usize, axes: &[usize]| -> Vec<(usize, usize)> {
        // (start, step) of each axis.
        (0..t.shape.len()).map(|axis| (0, if axes.contains(&axis) { step } else { 1 })).collect()
    };
    let rank = t.shape.len();
    let map = if rank == 4 && t.shape[3] != 3 { [2, 3] } else { [1, 2] };
    let mut steps = if let Some(n) = selection.strip_prefix("tok") {
        every(number(n)?, &[1])
    } else if let Some(n) = selection.strip_prefix("px") {
        every(number(n)?, &map)
    } else if let Some((channels, pixels)) = selection.strip_prefix("ch").and_then(|s| s.split_once("px")) {
        let mut steps = every(number(pixels)?, &[2, 3]);
        if rank == 4 {
            steps[1].1 = number(channels)?;
        }
        steps
    } else if let Some(n) = selection.strip_prefix("row") {
        let mut steps = every(1, &[]);
        steps[1] = (number(n)?, usize::MAX);
        steps
    } else {
        return Err(unknown());
    };
    steps.truncate(rank);
    let mut shape: Vec<usize> = t
        .shape
        .iter()
        .zip(&steps)
        .map(|(&n, &(start, step))| n.saturating_sub(start).div_ceil(step))
        .collect();
    let mut data = vec![];
    let mut index: Vec<usize> = steps.iter().map(|s| s.0).collect();
    for i in 0..shape.iter().product::<usize>() {
        let mut rest = i;
        for axis in (0..rank).rev() {
            index[axis] =
                steps[axis].0 + rest % shape[axis] * if shape[axis] == 1 { 0 } else { steps[axis].1 };
            rest /= shape[axis];
        }
        data.push(t.data[index.iter().zip(&t.shape).fold(0, |at, (&i, &n)| at * n + i)]);
    }
    if selection.starts_with("row") {
        shape.remove(1);
    }
    Ok(Named { name: t.name.clone(), shape, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_error_shows_in_the_gain_and_not_in_the_correlation() {
        let a: Vec<f32> = (0..100).map(|i| (i as f32).sin()).collect();
        let b: Vec<f32> = a.iter().map(|x| x * 1.01).collect();
        let c = compare(&a, &b);
        assert!((c.pcc - 1.0).abs() < 1e-9 && (c.gain - 1.01).abs() < 1e-6 && (c.rel_l2 - 0.01).abs() < 1e-6);
    }

    #[test]
    fn equal_tensors_compare_equal_and_nan_is_not_hidden() {
        let same = compare(&[2.0; 4], &[2.0; 4]);
        assert_eq!((same.pcc, same.gain, same.max_abs, same.rel_l2), (1.0, 1.0, 0.0, 0.0));
        assert!(compare(&[1.0, 2.0], &[1.0, f32::NAN]).max_abs.is_nan());
    }

    #[test]
    fn selections_pick_what_they_say() {
        let t = Named { name: "t".into(), shape: vec![1, 6, 2], data: (0..12).map(|i| i as f32).collect() };
        assert_eq!(select(&t, "tok3").unwrap().data, [0.0, 1.0, 6.0, 7.0]);
        let t =
            Named { name: "t".into(), shape: vec![1, 2, 3, 4], data: (0..24).map(|i| i as f32).collect() };
        assert_eq!(select(&t, "ch2px2").unwrap().data, [0.0, 2.0, 8.0, 10.0]);
        assert_eq!(select(&t, "row1").unwrap().shape, [1, 3, 4]);
        assert!(select(&t, "every3").is_err());
    }
}
