//! Progress on stderr: a bar on a terminal, plain lines otherwise, NDJSON for machines, or nothing.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// A bar on a terminal, plain lines otherwise.
    Auto,
    /// One line now and then.
    Plain,
    /// One JSON object a line: `step` and `progress` events.
    Ndjson,
}

/// Shows one phase of work after another. Shared with downloads, which run on threads of their own.
pub struct Progress {
    shown: Shown,
    state: Mutex<State>,
}

enum Shown {
    Bar(ProgressBar),
    Plain,
    Ndjson,
    Nothing,
}

struct State {
    label: String,
    reported: Instant,
}

/// Between two reports of one phase where there is no bar.
const PERIOD: Duration = Duration::from_secs(2);

impl Progress {
    pub fn new(mode: Mode, quiet: bool) -> Progress {
        let shown = match mode {
            _ if quiet => Shown::Nothing,
            Mode::Ndjson => Shown::Ndjson,
            Mode::Auto if std::io::stderr().is_terminal() => {
                let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
                let style =
                    ProgressStyle::with_template("{msg:32} [{bar:30}] {percent:>3}% {elapsed} eta {eta}");
                bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
                Shown::Bar(bar)
            }
            _ => Shown::Plain,
        };
        Progress { shown, state: Mutex::new(State { label: String::new(), reported: Instant::now() }) }
    }

    /// Begins a phase.
    pub fn start(&self, label: &str) {
        self.with(|state| {
            state.label = label.to_string();
            state.reported = Instant::now();
        });
        match &self.shown {
            Shown::Bar(bar) => {
                bar.reset();
                bar.set_message(label.to_string());
            }
            Shown::Plain => eprintln!("{label} ..."),
            Shown::Ndjson => {
                eprintln!("{}", json!({"event": "step", "key": label, "state": "start", "label": label}))
            }
            Shown::Nothing => {}
        }
    }

    /// `done` of `total` of the present phase.
    pub fn update(&self, done: u64, total: u64, unit: &str) {
        if let Shown::Bar(bar) = &self.shown {
            bar.set_length(total);
            bar.set_position(done);
            return;
        }
        let mut due = None;
        self.with(|state| {
            if state.reported.elapsed() >= PERIOD {
                state.reported = Instant::now();
                due = Some(state.label.clone());
            }
        });
        let Some(label) = due else { return };
        match self.shown {
            Shown::Plain => eprintln!("{label}: {done} of {total} {unit}"),
            Shown::Ndjson => {
                eprintln!(
                    "{}",
                    json!({"event": "progress", "key": label, "done": done, "total": total, "unit": unit})
                );
            }
            _ => {}
        }
    }

    /// Ends a phase.
    pub fn finish(&self, detail: &str) {
        let mut label = String::new();
        self.with(|state| label = state.label.clone());
        match &self.shown {
            Shown::Bar(bar) => bar.suspend(|| eprintln!("{label}: {detail}")),
            Shown::Plain => eprintln!("{label}: {detail}"),
            Shown::Ndjson => {
                eprintln!(
                    "{}",
                    json!({"event": "step", "key": label, "state": "done", "label": label, "detail": detail})
                );
            }
            Shown::Nothing => {}
        }
    }

    /// Something the user should know.
    pub fn note(&self, text: &str) {
        match &self.shown {
            Shown::Bar(bar) => bar.suspend(|| eprintln!("note: {text}")),
            Shown::Plain => eprintln!("note: {text}"),
            Shown::Ndjson => eprintln!("{}", json!({"event": "note", "detail": text})),
            Shown::Nothing => {}
        }
    }

    fn with(&self, f: impl FnOnce(&mut State)) {
        // A panic elsewhere cannot leave a label half written.
        f(&mut self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}
