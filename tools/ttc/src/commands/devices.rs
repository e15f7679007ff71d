use crate::cli::Context;
use crate::error::CliError;
use crate::pipeline;
use serde_json::json;
use ttc_runtime::Isa;

/// What can run here, and why not what cannot.
pub fn devices(context: &Context) -> Result<(), CliError> {
    let chosen = pipeline::isa()?;
    let threads = ttc_runtime::default_threads();
    let mut rows = vec![json!({
        "id": "cpu",
        "kind": "cpu",
        "usable": true,
        "why": format!("{threads} threads, {chosen}"),
    })];
    context.say(&format!("cpu       usable      {threads} threads, kernels for {chosen}"));
    for isa in Isa::ALL {
        let (usable, why) = match (isa.supported(), isa == chosen) {
            (true, true) => (true, "in use"),
            (true, false) => (true, "select it with TTC_CPU_ISA"),
            (false, _) => (false, "this processor lacks it"),
        };
        context.say(&format!(
            "  {:<12} {:<11} {why}",
            isa.name(),
            if usable { "usable" } else { "not usable" }
        ));
        rows.push(json!({"id": format!("cpu:{}", isa.name()), "kind": "isa", "usable": usable, "why": why}));
    }
    context.report(json!({"devices": rows}));
    Ok(())
}
