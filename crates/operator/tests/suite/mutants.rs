//! Only the program `orchestrator-mutants`, which `cargo xtask mutants` builds from an edited copy of the
//! sources, can contain mutants.

use std::fs;

#[test]
fn a_release_has_no_mutants() {
    let binary = fs::read(env!("CARGO_BIN_EXE_orchestrator")).unwrap();
    let text = String::from_utf8_lossy(&binary);
    assert!(text.contains("ORCHESTRATOR_RUN"), "not the operator");
    for of_mutants in ["ORCHESTRATOR_MUTANT", "this is a test build"] {
        assert!(!text.contains(of_mutants), "{of_mutants}");
    }
}
