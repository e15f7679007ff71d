use std::process::ExitCode;

fn main() -> ExitCode {
    ttc::main()
}
