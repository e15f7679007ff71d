//! Integer expressions: `"3*dim"`, `"H1/patch"`, and `{..}` inside names.

use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// What names mean here.
pub type Scope = BTreeMap<String, i64>;

/// A number, or an expression in quotes.
#[derive(Clone, Copy, Debug)]
pub enum Dim<'a> {
    Number(i64),
    Expr(&'a str),
}

impl Dim<'_> {
    pub fn eval(&self, scope: &Scope) -> Result<i64, String> {
        match self {
            Dim::Number(n) => Ok(*n),
            Dim::Expr(text) => eval(text, scope),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Dim<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Dim<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("a whole number or an expression in quotes")
            }
            fn visit_i64<E>(self, n: i64) -> Result<Self::Value, E> {
                Ok(Dim::Number(n))
            }
            fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<Self::Value, E> {
                i64::try_from(n).map(Dim::Number).map_err(E::custom)
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Dim::Expr(text))
            }
        }
        d.deserialize_any(Visitor)
    }
}

/// Evaluates `+ - * /` (exact division) over names and whole numbers.
pub fn eval(text: &str, scope: &Scope) -> Result<i64, String> {
    let mut parser = Parser { text, rest: text, scope };
    let value = parser.sum(0)?;
    match parser.rest.trim_start() {
        "" => Ok(value),
        rest => Err(format!("`{text}`: unexpected `{rest}`")),
    }
}

/// Replaces each `{expr}` in `name` by its value.
pub fn fill(name: &str, scope: &Scope) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = name;
    while let Some((before, tail)) = rest.split_once('{') {
        let (expr, after) = tail.split_once('}').ok_or_else(|| format!("`{name}`: `{{` without `}}`"))?;
        out.push_str(before);
        out.push_str(&eval(expr, scope)?.to_string());
        rest = after;
    }
    Ok(out + rest)
}

/// Replaces every quoted expression in the text of an op by its value.
pub fn fill_op(text: &str, scope: &Scope) -> Result<String, String> {
    let mut out = String::new();
    for (i, part) in text.split('"').enumerate() {
        match i % 2 {
            0 => out.push_str(part),
            _ => out.push_str(&eval(part, scope)?.to_string()),
        }
    }
    Ok(out)
}

/// Nesting allowed in an expression: enough for any model, too little to overflow the stack.
const MAX_DEPTH: usize = 32;

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    scope: &'a Scope,
}

impl Parser<'_> {
    fn sum(&mut self, depth: usize) -> Result<i64, String> {
        let mut value = self.product(depth)?;
        loop {
            if self.eat('+') {
                value = value.checked_add(self.product(depth)?).ok_or_else(|| self.too_large())?;
            } else if self.eat('-') {
                value = value.checked_sub(self.product(depth)?).ok_or_else(|| self.too_large())?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self, depth: usize) -> Result<i64, String> {
        let mut value = self.atom(depth)?;
        loop {
            if self.eat('*') {
                value = value.checked_mul(self.atom(depth)?).ok_or_else(|| self.too_large())?;
            } else if self.eat('/') {
                let by = self.atom(depth)?;
                // Checked: the least number has no quotient by -1.
                value = match (value.checked_rem(by), value.checked_div(by)) {
                    (Some(0), Some(quotient)) => quotient,
                    _ => return Err(format!("`{}`: {value} is not a multiple of {by}", self.text)),
                };
            } else {
                return Ok(value);
            }
        }
    }

    fn atom(&mut self, depth: usize) -> Result<i64, String> {
        if depth > MAX_DEPTH {
            return Err(format!("`{}`: nested too deep", self.text));
        }
        if self.eat('(') {
            let value = self.sum(depth + 1)?;
            return if self.eat(')') { Ok(value) } else { Err(format!("`{}`: expected `)`", self.text)) };
        }
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return word.parse().map_err(|_| format!("`{}`: `{word}` is no whole number", self.text));
        }
        self.scope.get(word).copied().ok_or_else(|| {
            let known: Vec<_> = self.scope.keys().map(String::as_str).collect();
            format!("`{}`: unknown name `{word}`, expected one of {}", self.text, known.join(" "))
        })
    }

    fn eat(&mut self, c: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn too_large(&self) -> String {
        format!("`{}`: too large", self.text)
    }
}
