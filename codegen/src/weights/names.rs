//! The official state dict stores eight tensors under two names each: `scratch.layer_rn.{i}.weight` is the same
//! tensor as `scratch.layer{i+1}_rn.weight`. A `.pth` has both; a `.safetensors` keeps one of them.

const LIST: &str = ".scratch.layer_rn.";
const FIELD: &str = ".scratch.layer";

/// The name by which a tensor goes here: `...scratch.layer{i+1}_rn.weight` for its alias, else `name` itself.
pub fn canonical_name(name: &str) -> String {
    from_list(name).unwrap_or_else(|| name.to_owned())
}

/// The other name of an aliased tensor, whichever of the two is given; `None` for the rest.
pub fn other_name(name: &str) -> Option<String> {
    from_list(name).or_else(|| from_field(name))
}

fn from_list(name: &str) -> Option<String> {
    let (head, tail) = name.split_once(LIST)?;
    let digit = level(tail.strip_suffix(".weight")?, '0'..='3')?;
    Some(format!("{head}{FIELD}{}_rn.weight", digit + 1))
}

fn from_field(name: &str) -> Option<String> {
    let (head, tail) = name.split_once(FIELD)?;
    let digit = level(tail.strip_suffix("_rn.weight")?, '1'..='4')?;
    Some(format!("{head}{LIST}{}.weight", digit - 1))
}

fn level(text: &str, range: std::ops::RangeInclusive<char>) -> Option<u32> {
    let mut chars = text.chars();
    let (Some(c), None) = (chars.next(), chars.next()) else { return None };
    range.contains(&c).then(|| c.to_digit(10)).flatten()
}

/// Whether `pattern`, in which `*` stands for any run of characters, covers the whole of `name`.
pub(super) fn covers(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        // The leftmost match leaves the most for the parts after it.
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(last)
}

/// The candidate that `name` was most likely meant to be: the same with something put before it, or a few typos away.
pub(super) fn nearest<'a>(name: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let prefixed = |c: &&str| c.ends_with(&format!(".{name}")) || name.ends_with(&format!(".{c}"));
    if let Some(found) = candidates.iter().copied().find(|c| prefixed(c)) {
        return Some(found);
    }
    let limit = 2.max(name.len() / 8);
    let near = candidates.iter().filter(|c| c.len().abs_diff(name.len()) <= limit);
    near.map(|&c| (edits(name.as_bytes(), c.as_bytes()), c))
        .filter(|&(n, _)| n <= limit)
        .min()
        .map(|(_, c)| c)
}

/// Levenshtein distance in bytes.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, &x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_go_both_ways() {
        let (list, field) = ("h.dpt.scratch.layer_rn.3.weight", "h.dpt.scratch.layer4_rn.weight");
        assert_eq!(canonical_name(list), field);
        assert_eq!(canonical_name(field), field);
        assert_eq!(other_name(list).as_deref(), Some(field));
        assert_eq!(other_name(field).as_deref(), Some(list));
        for plain in
            ["h.scratch.layer_rn.4.weight", "h.scratch.layer0_rn.weight", "h.scratch.layer_rn.10.weight", "x"]
        {
            assert_eq!(other_name(plain), None, "{plain}");
            assert_eq!(canonical_name(plain), plain);
        }
    }

    #[test]
    fn patterns() {
        let name = "downstream_head1.dpt.scratch.refinenet4.resConfUnit1.conv1.bias";
        assert!(covers("*.refinenet4.resConfUnit1.*", name));
        assert!(covers(name, name));
        assert!(covers("downstream_head*.bias", name));
        assert!(!covers("downstream_head*.weight", name));
        assert!(!covers("mask_token", name));
        assert!(covers("a*a", "aa") && !covers("a*a", "a"), "the two ends may not share a character");
    }

    #[test]
    fn nearest_sees_prefixes_and_typos() {
        let there = ["module.enc_norm.weight", "dec_norm.wieght", "other"];
        assert_eq!(nearest("enc_norm.weight", &there), Some("module.enc_norm.weight"));
        assert_eq!(nearest("dec_norm.weight", &there), Some("dec_norm.wieght"));
        assert_eq!(nearest("mask_token", &there), None);
    }

    #[test]
    fn edit_distance() {
        for (a, b, n) in [("kitten", "sitting", 3), ("", "abc", 3), ("abc", "abc", 0), ("flaw", "lawn", 2)] {
            assert_eq!(edits(a.as_bytes(), b.as_bytes()), n, "{a} {b}");
        }
    }
}
